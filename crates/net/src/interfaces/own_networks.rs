//! Networks that this host reaches without a default route.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily as Family, RouteNetlinkMessage};
use nix::net::if_::{if_indextoname, if_nametoindex};

use crate::netlink::dump;

/// A network that this host reaches over a device, or refuses by a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnNetwork {
    /// The first address, or any other address of the network.
    pub ip: IpAddr,
    /// Length of the prefix in bits.
    pub prefix_len: u8,
    /// Source of the host's knowledge of the network.
    pub kind: NetworkKind,
    /// The device, if it has one.
    pub device: Option<String>,
}

/// Source of a host's knowledge of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkKind {
    /// A device has an address in it.
    Address,
    /// The network is the one address of a router that a route leads to.
    Gateway,
    /// A route of any table leads there, including default routes.
    Route,
}

/// Reads the networks of the addresses and routes of this host, in the network namespace of the
/// calling thread, except those of the device `left_out`. The result includes loopback's networks.
///
/// # Errors
/// The system's error.
pub fn own_networks(left_out: &str) -> io::Result<Vec<OwnNetwork>> {
    let left_out = if_nametoindex(left_out).ok();
    let mut found = Vec::new();
    for family in [Family::Inet, Family::Inet6] {
        let mut request = AddressMessage::default();
        request.header.family = family;
        for message in dump(RouteNetlinkMessage::GetAddress(request))? {
            if let RouteNetlinkMessage::NewAddress(address) = message {
                found.extend(of_address(&address, left_out));
            }
        }
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        for message in dump(RouteNetlinkMessage::GetRoute(request))? {
            if let RouteNetlinkMessage::NewRoute(route) = message {
                found.extend(of_route(&route, left_out));
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn of_address(message: &AddressMessage, left_out: Option<u32>) -> Option<OwnNetwork> {
    if Some(message.header.index) == left_out {
        return None;
    }
    // With a peer, `Address` is the peer's address, which determines the network (rtnetlink(7)).
    let of = |attribute: &AddressAttribute| match attribute {
        AddressAttribute::Address(ip) => Some(*ip),
        _ => None,
    };
    let ip = message.attributes.iter().find_map(of)?;
    let device = name_of(message.header.index);
    Some(OwnNetwork { ip, prefix_len: message.header.prefix_len, kind: NetworkKind::Address, device })
}

fn of_route(route: &RouteMessage, left_out: Option<u32>) -> Vec<OwnNetwork> {
    let is_own = |kind| {
        // A route that refuses packets also expresses the host's intent. Routes to broadcast
        // addresses, anycast and groups accompany the addresses.
        matches!(
            kind,
            RouteType::Unicast
                | RouteType::Local
                | RouteType::BlackHole
                | RouteType::Unreachable
                | RouteType::Prohibit
                | RouteType::Throw
        )
    };
    if !is_own(route.header.kind) {
        return Vec::new();
    }
    let (mut ip, mut hops) = (unspecified(route.header.address_family), Vec::new());
    let mut first = (None, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Destination(address) => ip = ip_of(address).or(ip),
            RouteAttribute::Oif(index) => first.0 = Some(*index),
            RouteAttribute::MultiPath(next) => hops.extend(next.iter().map(hop_of)),
            other => first.1 = gateway_of(other).or(first.1),
        }
    }
    hops.push(first);
    // A route with several hops counts as the host's own unless all of its hops use the device
    // `left_out`.
    if left_out.is_some()
        && hops.iter().all(|(index, _)| index.is_none() || *index == left_out)
        && hops.iter().any(|(index, _)| *index == left_out)
    {
        return Vec::new();
    }
    let device = hops.iter().find_map(|(index, _)| index.filter(|index| Some(*index) != left_out)).and_then(name_of);
    let gateways = hops.iter().filter_map(|(index, gateway)| {
        let ip = (*gateway)?;
        let prefix_len = if ip.is_ipv4() { 32 } else { 128 };
        Some(OwnNetwork { ip, prefix_len, kind: NetworkKind::Gateway, device: index.and_then(name_of) })
    });
    let own = ip.map(|ip| OwnNetwork {
        ip,
        prefix_len: route.header.destination_prefix_length,
        kind: NetworkKind::Route,
        device,
    });
    own.into_iter().chain(gateways).collect()
}

/// Returns the device and the router of a hop.
fn hop_of(hop: &RouteNextHop) -> (Option<u32>, Option<IpAddr>) {
    (Some(hop.interface_index).filter(|index| *index != 0), hop.attributes.iter().find_map(gateway_of))
}

fn gateway_of(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(address) => ip_of(address),
        RouteAttribute::Via(RouteVia::Inet(ip)) => Some((*ip).into()),
        RouteAttribute::Via(RouteVia::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    }
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn unspecified(family: Family) -> Option<IpAddr> {
    match family {
        Family::Inet => Some([0; 4].into()),
        Family::Inet6 => Some([0; 16].into()),
        _ => None,
    }
}

/// Returns the name of a device; `None` if it was removed in the meantime.
fn name_of(index: u32) -> Option<String> {
    if_indextoname(index).ok().and_then(|name| name.into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_networks_of_loopback_are_among_them_unless_it_is_left_out() {
        let loopback = |left_out: &str| {
            let networks = own_networks(left_out).expect("the kernel answers");
            let is_loopback = |network: &&OwnNetwork| network.device.as_deref() == Some("lo");
            networks.iter().filter(is_loopback).filter(|network| network.ip.is_ipv4()).cloned().collect::<Vec<_>>()
        };
        let lo = Some("lo".to_owned());
        let address = OwnNetwork { ip: [127, 0, 0, 1].into(), prefix_len: 8, kind: NetworkKind::Address, device: lo };
        let found = loopback("nosuch0");
        assert!(found.contains(&address), "{found:?}");
        assert!(found.iter().any(|network| network.kind == NetworkKind::Route && network.prefix_len == 8), "{found:?}");
        assert_eq!(loopback("lo"), []);
    }
}
