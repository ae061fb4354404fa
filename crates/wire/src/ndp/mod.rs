//! Neighbor discovery (RFC 4861): solicitations and advertisements of routers and neighbors.
//!
//! The messages are ICMPv6 messages: [`icmp::Message`](crate::icmp::Message) parses and writes
//! them. A message that RFC 4861 requires to be discarded is an error, with one exception: the
//! caller must check that the hop limit of the packet is [`HOP_LIMIT`], which only senders on the
//! link can achieve. Unknown options are skipped.

use std::fmt;
use std::net::Ipv6Addr;

use crate::ethernet::MacAddress;

mod emit;
mod parse;
mod prefix;
#[cfg(test)]
mod tests;

pub use prefix::{PREFIXES_MAX, Prefix, Prefixes};

/// The hop limit of all messages, sent and received (RFC 4861, section 3.1).
pub const HOP_LIMIT: u8 = 255;

/// Types of ICMPv6 messages.
pub(crate) mod ty {
    pub(crate) const ROUTER_SOLICITATION: u8 = 133;
    pub(crate) const ROUTER_ADVERTISEMENT: u8 = 134;
    pub(crate) const NEIGHBOR_SOLICITATION: u8 = 135;
    pub(crate) const NEIGHBOR_ADVERTISEMENT: u8 = 136;
}

/// Types of options (RFC 4861, section 4.6).
mod option {
    pub(super) const SOURCE_LINK_LAYER: u8 = 1;
    pub(super) const TARGET_LINK_LAYER: u8 = 2;
    pub(super) const PREFIX: u8 = 3;
    pub(super) const MTU: u8 = 5;
}

/// Unit of option lengths: 8 bytes.
const UNIT: usize = 8;

/// A message of neighbor discovery. Redirects are not included.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub enum Message {
    /// A host asks routers to advertise themselves (RFC 4861, section 4.1).
    RouterSolicitation {
        /// Ethernet address of the sender.
        source_link: Option<MacAddress>,
    },
    /// A router advertises itself.
    RouterAdvertisement(RouterAdvertisement),
    /// A host looks for the station with an address (RFC 4861, section 4.3).
    NeighborSolicitation {
        /// The address, never a multicast address.
        target: Ipv6Addr,
        /// Ethernet address of the sender.
        source_link: Option<MacAddress>,
    },
    /// A host reports its Ethernet address (RFC 4861, section 4.4).
    NeighborAdvertisement {
        /// The host's address, never a multicast address.
        target: Ipv6Addr,
        /// Whether the sender is a router.
        is_router: bool,
        /// Whether the message answers a solicitation.
        is_solicited: bool,
        /// Whether the message overrides cached information.
        is_override: bool,
        /// Ethernet address of the target.
        target_link: Option<MacAddress>,
    },
}

/// Information from a router for hosts (RFC 4861, section 4.2).
#[derive(Debug, Copy, Clone, Eq, PartialEq, Default)]
pub struct RouterAdvertisement {
    /// The hop limit that hosts should use; zero if unspecified.
    pub hop_limit: u8,
    /// Whether DHCPv6 assigns addresses.
    pub is_managed: bool,
    /// Whether DHCPv6 provides other configuration.
    pub has_other_configuration: bool,
    /// Seconds for which the router may be used as a default router; zero if it is not one.
    pub router_lifetime_s: u16,
    /// Milliseconds for which a neighbor is reachable after a confirmation; zero if unspecified.
    pub reachable_time_ms: u32,
    /// Milliseconds between neighbor solicitations; zero if unspecified.
    pub retransmit_timer_ms: u32,
    /// Ethernet address of the router.
    pub source_link: Option<MacAddress>,
    /// MTU of the link. The receiver checks the range.
    pub mtu: Option<u32>,
    /// Prefixes of the link.
    pub prefixes: Prefixes,
}

/// Reason why a message must be discarded (RFC 4861, sections 6.1 and 7.1). The sender is at fault.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// The message ends before its fields do.
    Truncated,
    /// The code is not zero.
    Code,
    /// The length of an option is zero, or beyond the message.
    OptionLength,
    /// The target is a multicast address.
    Target,
    /// Such a message may not come from this source address: a router advertisement from an address
    /// that is not link-local.
    Source,
    /// A message from the unspecified address has the sender's Ethernet address, or solicits a
    /// neighbor elsewhere than at a solicited-node address.
    Unspecified,
    /// A multicast advertisement claims to be solicited.
    Solicited,
}

/// Returns the multicast address to which solicitations of a neighbor are sent (RFC 4291, section
/// 2.7.1).
pub const fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = target.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | high & 0xff, low)
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the message is shorter than its fields",
            Self::Code => "the code is not zero",
            Self::OptionLength => "impossible length of an option",
            Self::Target => "the target is a multicast address",
            Self::Source => "the source is not link-local",
            Self::Unspecified => "the source may not be the unspecified address",
            Self::Solicited => "solicited advertisement to a multicast address",
        })
    }
}

impl std::error::Error for ParseError {}
