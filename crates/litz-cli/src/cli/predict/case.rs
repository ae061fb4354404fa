//! One prediction to make.

use scenario::model::Scenario;
use scenario::simulated::Placement;

use super::choice;

/// One prediction to make, and to measure with `--verify`.
pub(super) struct Case {
    pub(super) scenario: Scenario,
    pub(super) placement: Placement,
    /// Datagram size of bulk data over loopback.
    pub(super) datagram_bytes: Option<usize>,
}

/// The name of a case, for messages.
pub(super) fn named(placement: &str, datagram_bytes: Option<usize>) -> String {
    datagram_bytes.map_or(placement.to_owned(), |size| format!("{placement} with {size} bytes"))
}

impl Case {
    pub(super) fn connections(&self) -> usize {
        choice::connections(self.placement, self.datagram_bytes.is_some())
    }

    pub(super) fn name(&self) -> String {
        named(&self.placement.to_string(), self.datagram_bytes)
    }
}
