//! File properties that a sender keeps besides names, content and times.

/// Optional properties to keep.
///
/// More fields may be added: begin with [`default`](Self::default), and set others with the `with_`
/// methods or by assignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Keep {
    /// Permission bits. Without them, the receiver's umask decides. Default: kept.
    pub modes: bool,
    /// Whether symbolic links inside the sent tree are kept, with their targets. Links that lead
    /// outside are skipped. Default: all are skipped.
    pub links: bool,
    /// Whether hard links are kept: further names of a sent file. Default: each name arrives as a
    /// separate file.
    pub hard_links: bool,
    /// Whether holes are kept: they are not sent and take no space at the receiver. Default: they
    /// are sent as zeros.
    pub holes: bool,
}

impl Default for Keep {
    fn default() -> Self {
        Self { modes: true, links: false, hard_links: false, holes: false }
    }
}

impl Keep {
    /// Sets [`modes`](Self::modes).
    #[must_use]
    pub fn with_modes(mut self, modes: bool) -> Self {
        self.modes = modes;
        self
    }

    /// Sets [`links`](Self::links).
    #[must_use]
    pub fn with_links(mut self, links: bool) -> Self {
        self.links = links;
        self
    }

    /// Sets [`hard_links`](Self::hard_links).
    #[must_use]
    pub fn with_hard_links(mut self, hard_links: bool) -> Self {
        self.hard_links = hard_links;
        self
    }

    /// Sets [`holes`](Self::holes).
    #[must_use]
    pub fn with_holes(mut self, holes: bool) -> Self {
        self.holes = holes;
        self
    }

    /// Returns the permission bits to announce for a file or directory with these bits on disk.
    pub(crate) fn mode(self, found: u32, is_directory: bool) -> u16 {
        match (self.modes, is_directory) {
            (true, _) => (found & 0o777) as u16,
            (false, true) => DIRECTORY_MODE,
            (false, false) => FILE_MODE,
        }
    }
}

/// Returns whether `mode` was sent by a sender that keeps modes. A mode with all bits counts as
/// none: the receiver's umask decides.
pub(crate) fn is_kept(mode: u16, is_directory: bool) -> bool {
    mode != if is_directory { DIRECTORY_MODE } else { FILE_MODE }
}

/// Announced modes if those on disk are not kept.
const DIRECTORY_MODE: u16 = 0o777;
const FILE_MODE: u16 = 0o666;
