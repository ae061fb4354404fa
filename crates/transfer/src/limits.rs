//! Numbers of the protocol that its errors name.

/// The maximum number of files and directories in one transfer. They use about 150 MB of memory on
/// each side.
pub const ENTRIES_MAX: usize = 1_000_000;

/// This protocol's version. A change that an older peer would misread gets the next number.
pub(crate) const VERSION: u16 = 1;
