//! Packet types.

use crate::quic::id::Space;

/// Types of packets that carry frames.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum PacketType {
    /// Long header. Anyone who sees the packet can compute the keys (RFC 9001 §5.2).
    Initial,
    /// Long header; the client's early data.
    ZeroRtt,
    /// Long header.
    Handshake,
    /// Short header.
    OneRtt,
}

impl PacketType {
    /// Returns the packet number space of these packets (RFC 9000 §12.3).
    #[inline]
    pub const fn space(self) -> Space {
        match self {
            Self::Initial => Space::Initial,
            Self::Handshake => Space::Handshake,
            Self::ZeroRtt | Self::OneRtt => Space::Data,
        }
    }
}
