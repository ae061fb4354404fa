//! A datagram that arrived.

use bytes::Bytes;
use wire::quic::PathId;

/// The content of a DATAGRAM frame that arrived (RFC 9221).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedDatagram {
    /// The path on which it arrived. Each path keeps its order, mostly, and several do not together.
    pub path: PathId,
    /// The content.
    pub data: Bytes,
}

impl ReceivedDatagram {
    /// A datagram that arrived on `path`.
    pub const fn new(path: PathId, data: Bytes) -> Self {
        Self { path, data }
    }
}
