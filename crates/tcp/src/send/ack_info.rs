//! [`AckInfo`]: the fields of a segment that the receive half passes to the send half.

use units::{Instant, Seq32};
use wire::tcp::{AccEcn, SackBlocks};

/// Fields of a segment for the send half.
#[derive(Debug, Clone)]
pub(crate) struct AckInfo {
    pub(crate) ack: Seq32,
    pub(crate) seq: Seq32,
    /// The granted window in bytes.
    pub(crate) window: u64,
    pub(crate) sack: SackBlocks,
    /// Send time of the segment that this one answers, according to its timestamp.
    pub(crate) echo: Option<Instant>,
    /// Whether the segment has neither data nor a FIN.
    pub(crate) is_bare: bool,
    /// Whether the peer has seen a congestion mark.
    pub(crate) is_marked: bool,
    /// With accurate ECN, the number of marked packets in three bits, and the option (RFC 9768).
    pub(crate) ace: Option<(u8, Option<AccEcn>)>,
}

impl AckInfo {
    /// Returns whether a later segment with data has no other news: only its place in the stream
    /// differs.
    pub(crate) fn is_repeated_by(&self, later: &Self) -> bool {
        let said = |info: &Self| (info.ack, info.window, info.is_bare, info.is_marked, info.ace);
        !later.is_bare && said(self) == said(later) && self.sack.is_empty() && later.sack.is_empty()
    }
}
