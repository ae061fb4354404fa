//! [`PathMtu`]: what is known of a path that does not carry full segments.

use recovery::MtuSearch;

/// A path that does not carry full segments, or did not.
#[derive(Debug)]
pub(super) struct PathMtu {
    pub(super) search: MtuSearch,
    /// Where the probe in flight ends.
    pub(super) probe_end: u64,
    /// Segments of data before this position had this size, which is smaller than that of others now.
    pub(super) smaller: (u64, u64),
}
