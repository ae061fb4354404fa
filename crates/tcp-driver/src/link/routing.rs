//! [`RoutingTable`]: routes by the longest prefix that matches an address (RFC 1122, section 3.3.1;
//! RFC 4632, section 5.1).

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Limit on the routes of a table. A table of all networks of the Internet is a matter of routers.
pub const ROUTES_MAX: usize = 4096;

/// Addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    network: IpAddr,
    len: u8,
}

impl Prefix {
    /// Creates the prefix of the addresses whose first `len` bits are those of `ip`. Returns `None`
    /// if the address has fewer bits.
    pub fn new(ip: IpAddr, len: u8) -> Option<Self> {
        let network = match ip {
            IpAddr::V4(ip) if len <= 32 => Ipv4Addr::from_bits(ip.to_bits() & mask(len, 32) as u32).into(),
            IpAddr::V6(ip) if len <= 128 => Ipv6Addr::from_bits(ip.to_bits() & mask(len, 128)).into(),
            _ => return None,
        };
        Some(Self { network, len })
    }

    /// Returns the broadcast address of the network (RFC 1122, section 3.2.1.3). `None` for IPv6,
    /// which has none, and for the networks of one or two hosts: both addresses of a /31 are hosts
    /// (RFC 3021).
    pub const fn directed_broadcast(&self) -> Option<Ipv4Addr> {
        match self.network {
            IpAddr::V4(network) if self.len <= 30 => {
                Some(Ipv4Addr::from_bits(network.to_bits() | !(mask(self.len, 32) as u32)))
            }
            _ => None,
        }
    }

    /// Returns the prefix of all addresses of the family of `ip`.
    pub const fn all_of(ip: IpAddr) -> Self {
        let network = match ip {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self { network, len: 0 }
    }

    /// Returns whether it contains an address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        Self::new(ip, self.len) == Some(*self)
    }
}

/// Returns a mask of the first `len` of `bits` bits.
const fn mask(len: u8, bits: u32) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (bits - len as u32) }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.len)
    }
}

/// Destination of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Index of the device.
    pub device: usize,
    /// Router; `None` if the destination is on the link.
    pub next_hop: Option<IpAddr>,
}

/// The table has [`ROUTES_MAX`] routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFull;

impl fmt::Display for TableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the routing table has {ROUTES_MAX} routes")
    }
}

impl std::error::Error for TableFull {}

/// Routes of IPv4 and IPv6 by prefix.
#[derive(Debug, Clone, Default)]
pub struct RoutingTable {
    routes: BTreeMap<Prefix, Route>,
    /// Lengths of the prefixes of each family, longest first, with the number of prefixes of each
    /// length.
    lens: [Vec<(u8, usize)>; 2],
}

impl RoutingTable {
    /// Adds a route, or replaces the one with the same prefix.
    ///
    /// # Errors
    /// Fails if the table is full.
    pub fn insert(&mut self, prefix: Prefix, route: Route) -> Result<(), TableFull> {
        if self.routes.len() >= ROUTES_MAX && !self.routes.contains_key(&prefix) {
            return Err(TableFull);
        }
        if self.routes.insert(prefix, route).is_none() {
            let lens = &mut self.lens[usize::from(prefix.network.is_ipv6())];
            match lens.binary_search_by(|(len, _)| prefix.len.cmp(len)) {
                Ok(index) => lens[index].1 += 1,
                Err(index) => lens.insert(index, (prefix.len, 1)),
            }
        }
        Ok(())
    }

    /// Removes the route of a prefix.
    pub fn remove(&mut self, prefix: &Prefix) -> Option<Route> {
        let route = self.routes.remove(prefix)?;
        let lens = &mut self.lens[usize::from(prefix.network.is_ipv6())];
        if let Ok(index) = lens.binary_search_by(|(len, _)| prefix.len.cmp(len)) {
            lens[index].1 -= 1;
            if lens[index].1 == 0 {
                lens.remove(index);
            }
        }
        Some(route)
    }

    /// Returns the route to an address: that of the longest prefix that contains it. Takes one
    /// lookup for each prefix length in the table.
    pub fn route_to(&self, ip: IpAddr) -> Option<Route> {
        let lens = &self.lens[usize::from(ip.is_ipv6())];
        lens.iter().find_map(|(len, _)| self.routes.get(&Prefix::new(ip, *len)?).copied())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (ip, len) = text.split_once('/').unwrap();
        Prefix::new(ip.parse().unwrap(), len.parse().unwrap()).unwrap()
    }

    fn route(device: usize) -> Route {
        Route { device, next_hop: None }
    }

    #[test]
    fn the_longest_prefix_decides() {
        let mut table = RoutingTable::default();
        let routes = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0", "fd00::/8", "fd00::1/128"];
        for (device, text) in routes.into_iter().enumerate() {
            table.insert(prefix(text), route(device)).unwrap();
        }
        let device = |ip: &str| table.route_to(ip.parse().unwrap()).map(|route| route.device);
        let cases = [("9.9.9.9", 0), ("10.9.9.9", 1), ("10.1.9.9", 2), ("10.1.2.3", 3), ("2000::", 4), ("fd00::2", 5)];
        for (ip, expected) in cases {
            assert_eq!(device(ip), Some(expected), "{ip}");
        }
        assert_eq!(device("fd00::1"), Some(6));
        assert_eq!(table.remove(&prefix("10.1.0.0/16")), Some(route(2)));
        assert_eq!(table.route_to("10.1.9.9".parse().unwrap()), Some(route(1)));
        assert_eq!((table.remove(&prefix("10.1.0.0/16")), table.remove(&prefix("0.0.0.0/0"))), (None, Some(route(0))));
        assert_eq!(table.route_to("9.9.9.9".parse().unwrap()), None, "of the other family is none");
    }

    #[test]
    fn a_prefix_has_no_more_bits_than_its_family_and_none_behind_its_length() {
        assert!(Prefix::new("10.0.0.1".parse().unwrap(), 33).is_none());
        assert!(Prefix::new("::1".parse().unwrap(), 129).is_none());
        assert_eq!(prefix("10.1.2.3/8"), prefix("10.0.0.0/8"));
        assert_eq!(prefix("fd00::77/64").to_string(), "fd00::/64");
        assert!(prefix("0.0.0.0/0").contains("255.1.1.1".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("::".parse().unwrap()));
    }

    #[test]
    fn a_network_of_more_than_two_hosts_has_a_directed_broadcast_address() {
        let cases = [
            ("10.1.2.3/24", Some("10.1.2.255")),
            ("10.1.2.3/30", Some("10.1.2.3")),
            ("10.1.2.4/30", Some("10.1.2.7")),
            ("10.1.2.3/31", None),
            ("10.1.2.3/32", None),
            ("10.1.2.3/8", Some("10.255.255.255")),
            ("10.1.2.3/0", Some("255.255.255.255")),
            ("fd00::1/64", None),
            ("fd00::1/16", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|ip| ip.parse::<Ipv4Addr>().unwrap());
            assert_eq!(prefix(text).directed_broadcast(), expected, "{text}");
        }
    }

    #[test]
    fn a_full_table_refuses_new_prefixes_only() {
        let mut table = RoutingTable::default();
        for number in 0..ROUTES_MAX as u32 {
            table.insert(Prefix::new(Ipv4Addr::from_bits(number).into(), 32).unwrap(), route(0)).unwrap();
        }
        assert_eq!(table.insert(prefix("10.0.0.0/8"), route(1)), Err(TableFull));
        assert_eq!(table.insert(prefix("0.0.0.7/32"), route(1)), Ok(()));
        assert_eq!(table.route_to("0.0.0.7".parse().unwrap()), Some(route(1)));
    }

    proptest! {
        #[test]
        fn a_table_finds_what_a_search_of_all_routes_finds(
            routes in prop::collection::vec((any::<u16>(), 0u8..=32, any::<bool>()), 0..60), ips: [u16; 8],
        ) {
            // Few bits differ, so that prefixes contain each other.
            let ip = |bits: u16| IpAddr::from(Ipv4Addr::from_bits(u32::from(bits & 0x0f0f) << 16 | u32::from(bits & 3)));
            let mut table = RoutingTable::default();
            let mut all: Vec<(Prefix, Route)> = Vec::new();
            for (number, (bits, len, removes)) in routes.into_iter().enumerate() {
                let prefix = Prefix::new(ip(bits), len).unwrap();
                all.retain(|(other, _)| *other != prefix);
                if removes {
                    table.remove(&prefix);
                } else {
                    table.insert(prefix, route(number)).unwrap();
                    all.push((prefix, route(number)));
                }
            }
            for bits in ips {
                let expected = all.iter().filter(|(prefix, _)| prefix.contains(ip(bits))).max_by_key(|(prefix, _)| prefix.len);
                prop_assert_eq!(table.route_to(ip(bits)), expected.map(|(_, route)| *route));
            }
        }
    }
}
