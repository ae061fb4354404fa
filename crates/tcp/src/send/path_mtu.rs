//! [`PathMtu`]: the state of a path that does not carry full segments.

use recovery::MtuSearch;

/// State of a path that does not carry full segments, or did not.
#[derive(Debug)]
pub(super) struct PathMtu {
    pub(super) search: MtuSearch,
    /// End of the probe in flight.
    pub(super) probe_end: u64,
    /// Position before which segments of data had this size, smaller than the present one.
    pub(super) smaller: (u64, u64),
}
