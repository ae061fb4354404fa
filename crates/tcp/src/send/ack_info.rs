//! [`AckInfo`]: what the receive half passes to the send half.

use units::{Instant, Seq32};
use wire::tcp::{AccEcn, SackBlocks};

/// What a segment says to the send half.
#[derive(Debug, Clone)]
pub(crate) struct AckInfo {
    pub(crate) ack: Seq32,
    pub(crate) seq: Seq32,
    /// The granted window in bytes.
    pub(crate) window: u64,
    pub(crate) sack: SackBlocks,
    /// When the segment was sent to which this one answers, by its timestamp.
    pub(crate) echo: Option<Instant>,
    /// The segment has neither data nor a FIN.
    pub(crate) is_bare: bool,
    /// The peer has seen a congestion mark.
    pub(crate) is_marked: bool,
    /// The number of marked packets in three bits, and the option, with accurate ECN (RFC 9768).
    pub(crate) ace: Option<(u8, Option<AccEcn>)>,
}

impl AckInfo {
    /// Whether a later segment with data says nothing else: only its place in the stream is news.
    pub(crate) fn is_repeated_by(&self, later: &Self) -> bool {
        let said = |info: &Self| (info.ack, info.window, info.is_bare, info.is_marked, info.ace);
        !later.is_bare && said(self) == said(later) && self.sack.is_empty() && later.sack.is_empty()
    }
}
