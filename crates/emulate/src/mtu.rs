//! The MTU of a link.

/// The smallest MTU of IPv4 (RFC 791, section 3.2).
pub const MTU_MIN: u16 = 68;

/// The default MTU of a link: Ethernet's.
pub const MTU_DEFAULT: u16 = 1500;
