//! The measurements to make.

use std::path::PathBuf;

use units::Duration;

/// The measurements to make.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The datagram size that the table describes, in bytes of UDP payload.
    pub(crate) datagram_size: usize,
    /// All sizes to measure, in ascending order, including that one.
    pub(crate) sizes: Vec<usize>,
    /// Duration of each run.
    pub(crate) time: Duration,
    /// Number of runs of each kind.
    pub(crate) runs: usize,
    /// Whether to measure files too.
    pub(crate) file: bool,
    /// The folder for files, by default the system's temporary folder.
    pub(crate) dir: Option<PathBuf>,
}

impl Settings {
    /// Number of runs that [`measure`](super::measure) makes, for a progress bar.
    pub(crate) fn steps(&self) -> usize {
        self.runs * (self.sizes.len() + 1) + usize::from(self.file)
    }
}
