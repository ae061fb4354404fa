//! The networks of a host: those that it reaches otherwise than by a tunnel or by its default route.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::prefix::Prefix;

/// A route with fewer bits stands for all that the host has no other route to, as a default route does: some programs
/// write that as two halves.
pub const ROUTE_BITS_MIN: u8 = 8;

/// A network of a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OwnNetwork {
    /// The network.
    pub prefix: Prefix,
    /// How the host knows it.
    pub origin: Origin,
    /// The device that leads there, if there is one.
    pub device: Option<String>,
}

/// How a host knows a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// A device has an address in it: its hosts are neighbours, which ask for addresses.
    Link,
    /// A route leads to this router.
    Router,
    /// A route leads there.
    Route,
}

/// The networks of a host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OwnNetworks(Vec<OwnNetwork>);

impl OwnNetworks {
    /// Adds a network. Default routes, and routes that stand for one, are left out.
    pub fn add(&mut self, network: OwnNetwork) {
        if network.origin != Origin::Route || network.prefix.bits() >= ROUTE_BITS_MIN {
            self.0.push(network);
        }
    }

    /// The network that has an address in common with `prefix`: one of a link before others, and the smallest.
    #[must_use]
    pub fn overlapping(&self, prefix: &Prefix) -> Option<&OwnNetwork> {
        let overlapping = self.0.iter().filter(|own| own.prefix.overlaps(prefix));
        overlapping.min_by_key(|own| (own.origin, u8::MAX - own.prefix.bits()))
    }

    /// The network of a link that has this address.
    #[must_use]
    pub fn link_of(&self, address: IpAddr) -> Option<&OwnNetwork> {
        self.0.iter().find(|own| own.origin == Origin::Link && own.prefix.contains(address))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &OwnNetwork> {
        self.0.iter()
    }
}

impl FromIterator<OwnNetwork> for OwnNetworks {
    fn from_iter<T: IntoIterator<Item = OwnNetwork>>(networks: T) -> Self {
        let mut own = Self::default();
        networks.into_iter().for_each(|network| own.add(network));
        own
    }
}

impl fmt::Display for OwnNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Link => write!(f, "the network {}", self.prefix)?,
            Origin::Router => write!(f, "the router {}", self.prefix.address())?,
            Origin::Route => write!(f, "the route to {}", self.prefix)?,
        }
        self.device.iter().try_for_each(|device| write!(f, " of {device}"))
    }
}

/// Networks whose packets stay on a link or in a host, with what they are. No tunnel takes them.
const LOCAL: [(Prefix, &str); 8] = [
    // RFC 1122, section 3.2.1.3.
    (v4([0, 0, 0, 0], 8), "addresses without a network"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    // RFC 3927, section 7: never forwarded. Clouds serve their instances' credentials here.
    (v4([169, 254, 0, 0], 16), "addresses of the link alone"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    // RFC 919, section 7.
    (v4([255, 255, 255, 255], 32), "the broadcast address"),
    // RFC 4291, sections 2.5.2, 2.5.3, 2.5.6 and 2.7. The unspecified address and loopback make one network, so that no
    // network is local in parts alone.
    (v6(0, 127), "loopback"),
    (v6(0xfe80 << 112, 10), "addresses of the link alone"),
    (v6(0xff00 << 112, 8), "multicast"),
];

/// Networks for private use: RFC 1918, section 3; RFC 4193, section 3.1. Their packets have no destination in the Internet.
const PRIVATE: [Prefix; 4] =
    [v4([10, 0, 0, 0], 8), v4([172, 16, 0, 0], 12), v4([192, 168, 0, 0], 16), v6(0xfc00 << 112, 7)];

const fn v4([a, b, c, d]: [u8; 4], bits: u8) -> Prefix {
    Prefix::masked_already(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits)
}

const fn v6(address: u128, bits: u8) -> Prefix {
    Prefix::masked_already(IpAddr::V6(Ipv6Addr::from_bits(address)), bits)
}

/// Returns what a network is if packets to all its addresses stay on a link or in a host.
#[must_use]
pub fn local_kind(prefix: &Prefix) -> Option<&'static str> {
    LOCAL.iter().find(|(local, _)| local.covers(prefix)).map(|(_, kind)| *kind)
}

/// Returns what of a network is not local, as the fewest prefixes.
#[must_use]
pub fn without_local(prefix: &Prefix) -> Vec<Prefix> {
    LOCAL.iter().fold(vec![*prefix], |rest, (local, _)| rest.iter().flat_map(|part| part.without(local)).collect())
}

/// Whether all addresses of a network are for private use.
#[must_use]
pub fn is_private(prefix: &Prefix) -> bool {
    PRIVATE.iter().any(|private| private.covers(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    fn own(text: &str, origin: Origin) -> OwnNetwork {
        OwnNetwork { prefix: prefix(text), origin, device: Some("eth0".to_owned()) }
    }

    #[test]
    fn default_routes_also_in_halves_are_no_networks_of_a_host() {
        let networks: OwnNetworks = [
            own("0.0.0.0/0", Origin::Route),
            own("128.0.0.0/1", Origin::Route),
            own("2000::/3", Origin::Route),
            own("192.168.1.1", Origin::Router),
            own("10.0.0.0/8", Origin::Route),
        ]
        .into_iter()
        .collect();
        let kept: Vec<_> = networks.iter().map(|network| network.prefix.to_string()).collect();
        assert_eq!(kept, ["192.168.1.1/32", "10.0.0.0/8"]);
    }

    #[test]
    fn an_overlap_is_found_whether_it_is_equal_within_or_around_and_links_come_first() {
        let networks: OwnNetworks =
            [own("10.0.0.0/8", Origin::Route), own("10.76.0.0/16", Origin::Link)].into_iter().collect();
        for (other, found) in [
            ("10.76.0.0/16", Some("10.76.0.0/16")),
            ("10.76.3.0/24", Some("10.76.0.0/16")),
            ("10.64.0.0/10", Some("10.76.0.0/16")),
            ("10.1.0.0/24", Some("10.0.0.0/8")),
            ("11.0.0.0/8", None),
            ("fd00::/8", None),
        ] {
            let overlapping = networks.overlapping(&prefix(other)).map(|own| own.prefix.to_string());
            assert_eq!(overlapping.as_deref(), found, "{other}");
        }
        assert!(networks.link_of("10.76.200.1".parse().unwrap()).is_some());
        assert!(networks.link_of("10.1.0.1".parse().unwrap()).is_none());
    }

    #[test]
    fn local_and_private_networks_are_told_from_others() {
        for (text, is_local, private) in [
            ("169.254.169.254", true, false),
            ("169.254.0.0/15", false, false),
            ("224.0.0.251", true, false),
            ("255.255.255.255", true, false),
            ("127.3.0.0/16", true, false),
            ("::/127", true, false),
            ("fe80::1", true, false),
            ("ff02::/16", true, false),
            ("10.0.0.0/8", false, true),
            ("172.31.0.0/16", false, true),
            ("172.32.0.0/16", false, false),
            ("192.168.0.0/15", false, false),
            ("100.64.0.0/10", false, false),
            ("8.8.8.8", false, false),
            ("fd76::/64", false, true),
            ("2001:db8::/32", false, false),
            ("::ffff:10.0.0.0/104", false, false),
        ] {
            assert_eq!((local_kind(&prefix(text)).is_some(), is_private(&prefix(text))), (is_local, private), "{text}");
        }
    }

    #[test]
    fn what_is_local_is_cut_out_of_a_larger_network() {
        let rest = without_local(&prefix("128.0.0.0/1"));
        let has = |address: &str| rest.iter().any(|part| part.contains(address.parse().unwrap()));
        assert!(has("130.0.0.5") && has("255.255.255.254") && has("169.253.255.255"));
        assert!(!has("169.254.169.254") && !has("239.1.2.3") && !has("255.255.255.255"));
        assert_eq!(without_local(&prefix("10.0.0.0/8")), [prefix("10.0.0.0/8")]);
        assert_eq!(without_local(&prefix("ff02::1")), []);
    }
}
