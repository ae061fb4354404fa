//! [`Negotiated`]: the result of the handshake's negotiation.

/// Features offered by both sides (RFC 7323, RFC 2018, RFC 3168).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
    /// Whether marks are counted (RFC 9768).
    pub(crate) accurate_ecn: bool,
    /// Whether windows are scaled.
    pub(crate) has_scaling: bool,
    /// Shift of the peer's windows.
    pub(crate) peer_scale: u8,
    /// Shift of our windows.
    pub(crate) scale: u8,
}
