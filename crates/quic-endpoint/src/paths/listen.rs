//! A receiver's sockets: one for each of its addresses, bound to the address and its device, all on
//! one port.
//!
//! With a single socket on the wildcard address, the routes choose the interface for replies, which
//! for two interfaces in one subnet is always the same one. A socket for each address replies from
//! the address that the packet was sent to. The ticket names the addresses of the sockets that
//! could be opened, taking turns between interfaces: first the first address of each family of
//! every interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use net::{DatagramSocket, Interface, InterfaceAddress, OpenError, UdpSocket, UdpSocketOptions};

use super::binding::{device_to_bind, is_link_local};

/// An address at which a receiver listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The address to bind.
    pub address: InterfaceAddress,
    /// The device to bind; `None` for the addresses of loopback and dummy interfaces, for which
    /// packets arrive over all others, and for addresses that no interface has.
    pub device: Option<String>,
}

/// The maximum number of places: as many as a ticket of the file protocol can name.
pub const PLACES_MAX: usize = 16;

/// A receiver's open sockets.
#[derive(Debug)]
#[non_exhaustive]
pub struct Listening<S = UdpSocket> {
    /// The common port.
    pub port: u16,
    /// The places with their sockets; at least one if there was a place.
    pub sockets: Vec<(Place, S)>,
    /// Places whose address is not usable now, with the system's error: an IPv6 address in
    /// duplicate address detection (RFC 4862, section 5.4), or an address that was removed.
    pub skipped: Vec<(Place, String)>,
}

/// Returns the places to listen at: without `wanted`, all addresses of the interfaces that are up
/// and running, at most as many as a ticket names; with a wildcard, the addresses of its family;
/// with another address, that one alone.
///
/// Link-local addresses count only if there is nothing else; link-local IPv6 addresses never count,
/// because a ticket carries no scope. Likewise, addresses of Litz tunnels, which would encrypt
/// packets twice, count only if there is nothing else. Without any address the only place is
/// loopback: a test on one machine.
#[must_use]
pub fn plan(interfaces: &[Interface], wanted: Option<IpAddr>) -> Vec<Place> {
    if let Some(ip) = wanted.filter(|ip| !ip.is_unspecified()) {
        return vec![place_of(interfaces, ip)];
    }
    let is_wanted = |ip: IpAddr| wanted.is_none_or(|wanted| wanted.is_ipv4() == ip.is_ipv4());
    let usable = || interfaces.iter().filter(|interface| interface.is_up && interface.is_running);
    let mut turns = turns(usable().filter(|interface| !interface.is_litz_tunnel), is_wanted);
    if turns.is_empty() {
        turns = self::turns(usable(), is_wanted);
    }
    // The sort is stable, so the cards keep their order within a turn.
    turns.sort_by_key(|(turn, _)| *turn);
    turns.truncate(PLACES_MAX);
    if turns.is_empty() {
        let loopback = if wanted.is_some_and(|ip| ip.is_ipv6()) { LOOPBACK_6 } else { Ipv4Addr::LOCALHOST.into() };
        return vec![place_of(interfaces, loopback)];
    }
    turns.into_iter().map(|(_, place)| place).collect()
}

/// Returns the addresses of the interfaces, each with its number among those of its interface and
/// family.
fn turns<'a>(
    interfaces: impl Iterator<Item = &'a Interface>,
    is_wanted: impl Fn(IpAddr) -> bool,
) -> Vec<(usize, Place)> {
    let mut turns: Vec<(usize, Place)> = Vec::new();
    for interface in interfaces {
        let mut counts = [0_usize; 2];
        for address in interface.addresses.iter().filter(|_| !interface.is_loopback) {
            let is_nameable = address.ip.is_ipv4() || !is_link_local(address.ip);
            if is_nameable && is_wanted(address.ip) {
                let count = &mut counts[usize::from(address.ip.is_ipv6())];
                turns.push((*count, Place { address: *address, device: device_of(interface) }));
                *count += 1;
            }
        }
    }
    if turns.iter().any(|(_, place)| !is_link_local(place.address.ip)) {
        turns.retain(|(_, place)| !is_link_local(place.address.ip));
    }
    turns
}

/// Opens a socket at each place, all on `port`; 0 selects the first port that is free at all of
/// them.
///
/// # Errors
/// If a socket cannot be opened for another reason than [`Listening::skipped`], or no place is
/// left. A `port` taken by another program's socket is such a reason.
pub fn open(places: &[Place], port: u16) -> Result<Listening, OpenError> {
    settle(places, port, OpenError::kind, &mut |place, port| {
        let options = UdpSocketOptions::new(place.address.with_port(port)).with_device(place.device.clone());
        let socket = UdpSocket::open(&options)?;
        let bound = socket.local_addr().map_or(port, |address| address.port());
        Ok((socket, bound))
    })
}

impl<S> Listening<S> {
    /// Returns the addresses of the sockets, best first.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|(place, _)| SocketAddr::new(place.address.ip, self.port)).collect()
    }
}

/// Opens a socket at a place on a port, and returns the port it got.
type Open<'a, S, E> = dyn FnMut(&Place, u16) -> Result<(S, u16), E> + 'a;

/// Searches for a port; generic over the function that opens the sockets.
fn settle<S, E: ToString>(
    places: &[Place],
    port: u16,
    kind: impl Fn(&E) -> io::ErrorKind,
    open: &mut Open<'_, S, E>,
) -> Result<Listening<S>, E> {
    let mut attempts_left = if port == 0 { PORT_ATTEMPTS } else { 1 };
    loop {
        attempts_left -= 1;
        let mut listening = Listening { port, sockets: Vec::with_capacity(places.len()), skipped: Vec::new() };
        match open_all(places, &mut listening, &kind, open) {
            Ok(()) => return Ok(listening),
            // The port of the first place is taken at another one; the sockets close before the
            // next attempt.
            Err(error) if attempts_left > 0 && kind(&error) == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

fn open_all<S, E: ToString>(
    places: &[Place],
    listening: &mut Listening<S>,
    kind: &impl Fn(&E) -> io::ErrorKind,
    open: &mut Open<'_, S, E>,
) -> Result<(), E> {
    let mut last_skipped = None;
    for place in places {
        match open(place, listening.port) {
            Ok((socket, port)) => {
                listening.port = port;
                listening.sockets.push((place.clone(), socket));
            }
            Err(error) if kind(&error) == io::ErrorKind::AddrNotAvailable => {
                listening.skipped.push((place.clone(), error.to_string()));
                last_skipped = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match last_skipped {
        Some(error) if listening.sockets.is_empty() => Err(error),
        _ => Ok(()),
    }
}

/// Returns the place with this address, at the interface that has it.
fn place_of(interfaces: &[Interface], ip: IpAddr) -> Place {
    for interface in interfaces {
        if let Some(address) = interface.addresses.iter().find(|address| address.ip == ip) {
            return Place { address: *address, device: device_of(interface) };
        }
    }
    let prefix_len = if ip.is_ipv4() { 32 } else { 128 };
    Place { address: InterfaceAddress { ip, prefix_len, scope_id: 0 }, device: None }
}

/// Returns the device to bind for an address of this interface.
fn device_of(interface: &Interface) -> Option<String> {
    let is_virtual = interface.is_loopback || interface.is_dummy;
    if is_virtual { None } else { device_to_bind(&interface.name) }
}

const LOOPBACK_6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

/// A port that the system chose is rarely taken on another local address; sixteen failures in a row
/// have another cause.
const PORT_ATTEMPTS: usize = 16;

#[cfg(test)]
mod tests;
