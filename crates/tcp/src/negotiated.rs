//! [`Negotiated`]: what the handshake has agreed on.

/// What both sides want (RFC 7323, RFC 2018, RFC 3168).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
    /// Marks are counted (RFC 9768).
    pub(crate) accurate_ecn: bool,
    /// Windows are scaled.
    pub(crate) has_scaling: bool,
    /// The peer's window is in units of this power of two.
    pub(crate) peer_scale: u8,
    /// Ours is.
    pub(crate) scale: u8,
}
