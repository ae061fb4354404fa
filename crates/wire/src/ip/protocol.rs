//! Protocol numbers.

use std::fmt;

/// The protocol of a payload: `Protocol` in IPv4, `Next Header` in IPv6. Both use one registry (RFC
/// 8200, section 3).
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Protocol(
    /// The number on the wire.
    pub u8,
);

/// Declares each number once, so that the constant and its name cannot differ.
macro_rules! protocols {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl Protocol {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Returns the name of the protocol, or `None`.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

protocols! {
    /// The hop-by-hop options of IPv6 (RFC 8200, section 4.3).
    HOP_BY_HOP = 0;
    /// ICMP for IPv4 (RFC 792).
    ICMP = 1;
    /// IGMP (RFC 9776).
    IGMP = 2;
    /// IPv4 in IP (RFC 2003).
    IPV4 = 4;
    /// TCP (RFC 9293).
    TCP = 6;
    /// UDP (RFC 768).
    UDP = 17;
    /// IPv6 in IP (RFC 2473).
    IPV6 = 41;
    /// The routing header of IPv6 (RFC 8200, section 4.4).
    ROUTING = 43;
    /// The fragment header of IPv6 (RFC 8200, section 4.5).
    FRAGMENT = 44;
    /// Encapsulating Security Payload (RFC 4303).
    ESP = 50;
    /// Authentication Header (RFC 4302).
    AH = 51;
    /// ICMP for IPv6 (RFC 4443).
    ICMPV6 = 58;
    /// Nothing follows an IPv6 header (RFC 8200, section 4.7).
    NO_NEXT_HEADER = 59;
    /// The destination options of IPv6 (RFC 8200, section 4.6).
    DESTINATION_OPTIONS = 60;
    /// SCTP (RFC 9260).
    SCTP = 132;
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "protocol {}", self.0),
        }
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
