//! Reasons why a destination is unreachable, and their codes in both versions.

/// Reason why a destination is unreachable. Codes with the same meaning for a transport are one
/// reason.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Hash)]
pub enum Unreachable {
    /// No route to the network.
    Network,
    /// The host does not answer on its link.
    Host,
    /// The host does not know the protocol. ICMPv6 reports this with a Parameter Problem.
    Protocol,
    /// No socket of the host has the port.
    Port,
    /// The packet is longer than the MTU of a link, and may not be fragmented (RFC 1191). ICMPv6
    /// reports this with Packet Too Big.
    FragmentationNeeded,
    /// The source route failed.
    SourceRoute,
    /// A filter or a policy prohibits it.
    Administrative,
    /// The source address is not valid beyond a link of the route (RFC 4443, section 3.1).
    BeyondScope,
    /// A code that has no name here.
    Other(u8),
}

impl Unreachable {
    /// Returns the reason of an ICMP code (RFC 792, and RFC 1812, section 5.2.7.1).
    pub(super) const fn from_v4(code: u8) -> Self {
        match code {
            // Unreachable, unknown, unreachable for the type of service.
            0 | 6 | 11 => Self::Network,
            // The same, and the isolated source host.
            1 | 7 | 8 | 12 => Self::Host,
            2 => Self::Protocol,
            3 => Self::Port,
            4 => Self::FragmentationNeeded,
            5 => Self::SourceRoute,
            // Network, host, communication.
            9 | 10 | 13 => Self::Administrative,
            code => Self::Other(code),
        }
    }

    pub(super) const fn to_v4(self) -> u8 {
        match self {
            Self::Network => 0,
            // RFC 7915, section 5.2, for `BeyondScope`.
            Self::Host | Self::BeyondScope => 1,
            Self::Protocol => 2,
            Self::Port => 3,
            Self::FragmentationNeeded => 4,
            Self::SourceRoute => 5,
            Self::Administrative => 13,
            Self::Other(code) => code,
        }
    }

    /// Returns the reason of an ICMPv6 code (RFC 4443, section 3.1). Code 7 is defined by RFC 6550.
    pub(super) const fn from_v6(code: u8) -> Self {
        match code {
            0 => Self::Network,
            // RFC 4443 calls 5 and 6 more informative subsets of 1.
            1 | 5 | 6 => Self::Administrative,
            2 => Self::BeyondScope,
            3 => Self::Host,
            4 => Self::Port,
            7 => Self::SourceRoute,
            code => Self::Other(code),
        }
    }

    /// Returns the ICMPv6 code; `None` if ICMPv6 has another type of message for the reason.
    pub(super) const fn to_v6(self) -> Option<u8> {
        Some(match self {
            Self::Network => 0,
            Self::Administrative => 1,
            Self::BeyondScope => 2,
            Self::Host => 3,
            Self::Port => 4,
            Self::SourceRoute => 7,
            Self::Other(code) => code,
            Self::Protocol | Self::FragmentationNeeded => return None,
        })
    }
}
