//! The addresses of a server in the tunnel: their networks are none of its host.

use std::net::Ipv4Addr;

use tunnel::own_networks::{OwnNetwork, OwnNetworks};

use super::addresses::{InterfaceAddress, check_that_networks_differ};
use super::terms::{NetworkWatch, own_networks_besides};
use crate::cli::warning::Warning;

/// How many networks of each IP version a server tries. The first ones are those of the guide.
const TRIES: u8 = 32;

/// The addresses of a server, and what its user is to know of them.
pub(super) struct OwnAddresses {
    pub(super) addresses: Vec<InterfaceAddress>,
    /// Networks that were passed over because this host has them.
    pub(super) passed_over: Vec<String>,
}

impl OwnAddresses {
    /// Those that the user has `named`, or the first ones whose networks this host does not have, but for the device.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn choose(named: &[InterfaceAddress], device: &str) -> Result<Self, String> {
        check_that_networks_differ(named)?;
        Self::among(named, &own_networks_besides(device)?)
    }

    fn among(named: &[InterfaceAddress], own: &OwnNetworks) -> Result<Self, String> {
        for address in named {
            if let Some(own) = own.overlapping(&address.network) {
                return Err(format!(
                    "--address {address} collides with {own}, which this host has: choose an address in another network"
                ));
            }
        }
        if !named.is_empty() {
            return Ok(Self { addresses: named.to_vec(), passed_over: Vec::new() });
        }
        let (mut addresses, mut passed_over) = (Vec::new(), Vec::new());
        for candidates in [ipv4_candidates(), ipv6_candidates()] {
            let mut first = None;
            let free = candidates.into_iter().find(|candidate| {
                let taken = own.overlapping(&candidate.network);
                first = first.take().or_else(|| taken.map(|own| (*candidate, own.clone())));
                taken.is_none()
            });
            let free =
                free.ok_or("this host has all networks that a tunnel tries: choose another one with --address")?;
            passed_over.extend(first.map(|(wanted, own)| {
                format!(
                    "this host has {own}, so the tunnel's network is {} instead of {}",
                    free.network, wanted.network
                )
            }));
            addresses.push(free);
        }
        Ok(Self { addresses, passed_over })
    }
}

/// Networks of IPv4, one in each private block (RFC 1918, section 3) at last, where a host has a route to all of another.
fn ipv4_candidates() -> Vec<InterfaceAddress> {
    let near = (0..TRIES).map(|number| Ipv4Addr::new(10, 76 + number, 0, 1));
    let far = [Ipv4Addr::new(172, 28, 76, 1), Ipv4Addr::new(192, 168, 176, 1)];
    near.chain(far).map(|address| of_text(&format!("{address}/24"))).collect()
}

/// Networks of IPv6 with different prefixes of 48 bits, which stand for one site each (RFC 4193, section 3.1).
fn ipv6_candidates() -> Vec<InterfaceAddress> {
    (0..u16::from(TRIES)).map(|number| of_text(&format!("fd76:6c69:{:x}::1/64", 0x747a + number))).collect()
}

fn of_text(text: &str) -> InterfaceAddress {
    text.parse().expect("it is an address")
}

/// Watches whether the host of a server gets a network of the tunnel.
pub(super) struct Collisions {
    device: String,
    addresses: Vec<InterfaceAddress>,
    watch: NetworkWatch,
    /// Those that the user knows.
    told: Vec<OwnNetwork>,
}

impl Collisions {
    pub(super) fn watch(device: &str, addresses: &[InterfaceAddress], watch: NetworkWatch) -> Self {
        Self { device: device.to_owned(), addresses: addresses.to_vec(), watch, told: Vec::new() }
    }

    /// Warnings about collisions that are new.
    pub(super) fn news(&mut self) -> Vec<(Warning, String)> {
        let mut warnings = Vec::new();
        let (device, warn) = (&self.device, |why: &str| warnings.push((Warning::NetworkChanged, why.to_owned())));
        let Some(own) = self.watch.read_changes(|| own_networks_besides(device), warn) else { return warnings };
        let collisions = self.addresses.iter().filter_map(|address| {
            let own = own.overlapping(&address.network)?;
            Some((own.clone(), format!(
                "this host has got {own}, which collides with the tunnel's network {}: packets go to the wrong one of the \
                 two. Start the server again with an --address in another network",
                address.network
            )))
        });
        let (networks, messages): (Vec<_>, Vec<_>) = collisions.unzip();
        let news = networks.iter().zip(messages).filter(|(network, _)| !self.told.contains(network));
        warnings.extend(news.map(|(_, message)| (Warning::NetworkCollides, message)));
        self.told = networks;
        warnings
    }
}

#[cfg(test)]
mod tests {
    use tunnel::own_networks::Origin;

    use super::*;

    fn own(networks: &[&str]) -> OwnNetworks {
        let network = |text: &&str| OwnNetwork {
            prefix: text.parse().unwrap(),
            origin: Origin::Link,
            device: Some("eth0".to_owned()),
        };
        networks.iter().map(network).collect()
    }

    fn chosen(networks: &[&str]) -> (Vec<String>, Vec<String>) {
        let own = OwnAddresses::among(&[], &own(networks)).unwrap();
        (own.addresses.iter().map(ToString::to_string).collect(), own.passed_over)
    }

    #[test]
    fn a_server_has_the_first_networks_that_its_host_does_not_have() {
        for (networks, expected) in [
            (&["192.168.1.0/24"][..], ["10.76.0.1/24", "fd76:6c69:747a::1/64"]),
            (&["10.76.0.0/24", "10.77.0.128/25", "fd76:6c69:747a::/48"], ["10.78.0.1/24", "fd76:6c69:747b::1/64"]),
            (&["10.0.0.0/8"], ["172.28.76.1/24", "fd76:6c69:747a::1/64"]),
            (&["10.0.0.0/8", "172.16.0.0/12"], ["192.168.176.1/24", "fd76:6c69:747a::1/64"]),
        ] {
            let (addresses, passed_over) = chosen(networks);
            assert_eq!(addresses, expected, "{networks:?}");
            let changed =
                usize::from(expected[0] != "10.76.0.1/24") + usize::from(!expected[1].starts_with("fd76:6c69:747a"));
            assert_eq!(passed_over.len(), changed, "{passed_over:?}");
        }
        let (_, passed_over) = chosen(&["10.76.0.0/16"]);
        assert_eq!(
            passed_over,
            [
                "this host has the network 10.76.0.0/16 of eth0, so the tunnel's network is 10.77.0.0/24 instead of 10.76.0.0/24"
            ]
        );
        let all = OwnAddresses::among(&[], &own(&["fc00::/7"])).err();
        assert!(all.is_some_and(|why| why.contains("--address")));
    }

    #[test]
    fn an_address_that_the_user_names_is_refused_if_its_network_is_the_hosts() {
        for (named, networks) in
            [("10.80.0.1/24", "10.80.0.0/24"), ("10.80.0.1/16", "10.80.3.0/24"), ("10.80.3.1/24", "10.80.0.0/16")]
        {
            let refused = OwnAddresses::among(&[named.parse().unwrap()], &own(&[networks]));
            let why = refused.err().expect("it collides");
            assert!(why.contains(&format!("collides with the network {networks} of eth0")), "{why}");
        }
    }
}
