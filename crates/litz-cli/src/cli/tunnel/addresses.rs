//! The addresses of a server and its clients.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use litz::identity::PublicKey;
use tunnel::Prefix;

/// An address with the length of its network, such as 10.76.0.1/24.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InterfaceAddress {
    pub(super) address: IpAddr,
    pub(super) network: Prefix,
}

impl FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network: Prefix = text.parse().map_err(|error: tunnel::prefix::NotAPrefix| error.to_string())?;
        let address = text.split('/').next().unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
        Ok(Self { address, network })
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.network.bits())
    }
}

/// Assigns addresses to clients by their keys.
#[derive(Debug)]
pub(super) struct Pool {
    server: Vec<InterfaceAddress>,
    /// A client keeps its place as long as the server runs.
    places: BTreeMap<PublicKey, u64>,
}

impl Pool {
    /// The other addresses of the networks of these addresses, which are the server's.
    pub(super) fn new(server: Vec<InterfaceAddress>) -> Self {
        Self { server, places: BTreeMap::new() }
    }

    /// The addresses of a client, one of each network; none if one of the networks has no more.
    pub(super) fn assign(&mut self, key: PublicKey) -> Option<Vec<(IpAddr, u8)>> {
        if let Some(place) = self.places.get(&key) {
            return self.at(*place);
        }
        let mut taken: Vec<u64> = self.places.values().copied().collect();
        taken.sort_unstable();
        // The first address of an IPv4 network names the network; the server's is skipped.
        let mut place = 1;
        loop {
            let is_servers =
                self.server.iter().any(|server| server.network.nth(place).is_none_or(|ip| ip == server.address));
            if !is_servers && taken.binary_search(&place).is_err() {
                break;
            }
            self.at(place)?;
            place += 1;
        }
        let addresses = self.at(place)?;
        self.places.insert(key, place);
        Some(addresses)
    }

    fn at(&self, place: u64) -> Option<Vec<(IpAddr, u8)>> {
        let of = |server: &InterfaceAddress| {
            let address = server.network.nth(place)?;
            // The last address of an IPv4 network is its broadcast address (RFC 919, section 7).
            let is_last = address.is_ipv4() && server.network.nth(place + 1).is_none();
            (!is_last).then_some((address, server.network.bits()))
        };
        self.server.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    #[test]
    fn each_key_gets_its_own_addresses_and_keeps_them() {
        let mut pool = Pool::new(vec!["10.76.0.1/29".parse().unwrap(), "fd76::1/64".parse().unwrap()]);
        let first = pool.assign(key(1)).unwrap();
        assert_eq!(first, [("10.76.0.2".parse().unwrap(), 29), ("fd76::2".parse().unwrap(), 64)]);
        let second = pool.assign(key(2)).unwrap();
        assert_eq!(second[0].0, "10.76.0.3".parse::<IpAddr>().unwrap());
        assert_eq!(pool.assign(key(1)).unwrap(), first);
        // 10.76.0.2 to 10.76.0.6: .0 names the network, .7 is the broadcast address.
        let more: Vec<_> = (3..=5).map(|number| pool.assign(key(number)).unwrap()[0].0.to_string()).collect();
        assert_eq!(more, ["10.76.0.4", "10.76.0.5", "10.76.0.6"]);
        assert_eq!(pool.assign(key(6)), None);
    }

    #[test]
    fn the_servers_address_may_be_any() {
        let mut pool = Pool::new(vec!["10.76.0.2/24".parse().unwrap()]);
        let assigned: Vec<_> = (1..=2).map(|number| pool.assign(key(number)).unwrap()[0].0.to_string()).collect();
        assert_eq!(assigned, ["10.76.0.1", "10.76.0.3"]);
    }
}
