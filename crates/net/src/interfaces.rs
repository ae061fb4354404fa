//! The network interfaces of this host, and what can be reached over them.
//!
//! [`interfaces`] reads the kernel's table at one moment. [`reachable`] asks the kernel's routes whether a datagram can go
//! from an address and a device to another host; nothing is sent.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod route;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use nix::ifaddrs::{InterfaceAddress as RawAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;

use crate::{UdpSocket, UdpSocketOptions};

/// Interfaces that are read, at most; those with the lowest indices count. A host of containers may have hundreds.
pub const INTERFACES_MAX: usize = 256;

/// A probe sends nothing and receives nothing.
const PROBE_BUFFER_BYTES: usize = 4096;

/// One network interface, as it was when the table was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`: what [`UdpSocketOptions::device`] takes.
    pub name: String,
    /// The kernel's number, never 0. Smaller numbers are usually older interfaces.
    pub index: u32,
    /// Whether the administrator has switched it on.
    pub is_up: bool,
    /// Whether it can carry packets: it has a carrier, or knows of none. False for a card without a cable, and for a
    /// bridge whose members have gone.
    pub is_running: bool,
    /// Whether it leads back to this host.
    pub is_loopback: bool,
    /// Whether exactly one host is at its other end, as with most tunnels.
    pub is_point_to_point: bool,
    /// In the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
}

/// One address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceAddress {
    /// The address itself.
    pub ip: IpAddr,
    /// Leading bits that all addresses of its subnet share: 0 to 32 (IPv4) or 128 (IPv6).
    pub prefix_len: u8,
    /// The interface's index for an IPv6 link-local address, which means nothing without it; otherwise 0.
    pub scope_id: u32,
}

impl InterfaceAddress {
    /// Whether `other` is in this address's subnet; never true across address families.
    #[must_use]
    pub fn shares_subnet_with(&self, other: IpAddr) -> bool {
        let prefix_len = u32::from(self.prefix_len);
        match (self.ip, other) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                // A shift by the whole width (prefix 0) leaves nothing to compare.
                let differing = ours.to_bits() ^ theirs.to_bits();
                differing.checked_shr(u32::BITS.saturating_sub(prefix_len)).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differing = ours.to_bits() ^ theirs.to_bits();
                differing.checked_shr(u128::BITS.saturating_sub(prefix_len)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// The address with a port, and with its scope where it has one.
    #[must_use]
    pub fn with_port(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(_) => SocketAddr::new(self.ip, port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope_id).into(),
        }
    }
}

/// The interfaces of this host in the order of their indices, also those without an address; at most [`INTERFACES_MAX`].
/// On Linux they are those of the calling thread's network namespace.
///
/// # Errors
/// What the operating system reports.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    for raw in getifaddrs()? {
        let name = device_name(&raw.interface_name);
        if !found.contains_key(name) {
            // One that went away since the table was read is left out.
            let Ok(index) = if_nametoindex(name) else { continue };
            found.insert(name.to_owned(), without_addresses(name, index, raw.flags));
        }
        if let (Some(interface), Some(address)) = (found.get_mut(name), address_of(&raw)) {
            interface.addresses.push(address);
        }
    }
    let mut table: Vec<Interface> = found.into_values().collect();
    table.sort_by_key(|interface| interface.index);
    table.truncate(INTERFACES_MAX);
    Ok(table)
}

/// Whether a datagram can be sent from `local` over `device` to `remote`, as far as this host knows: the address is ours and
/// usable, the device is on, and a route leads there. Nothing is sent, and nobody at the other end is asked. Without a device
/// the routes alone choose one.
///
/// # Errors
/// What stands in the way: `AddrNotAvailable` (not our address, or not usable yet), `NetworkUnreachable` or `HostUnreachable`
/// (no route, or one that forbids), `PermissionDenied`, `NotFound` and others with words that say what to do.
pub fn reachable(local: SocketAddr, device: Option<&str>, remote: SocketAddr) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let (Some(device), IpAddr::V4(from), IpAddr::V4(to)) = (device, local.ip(), remote.ip()) {
        route::exists(from, device, to)?;
    }
    let options = UdpSocketOptions {
        device: device.map(str::to_owned),
        send_buffer_bytes: PROBE_BUFFER_BYTES,
        recv_buffer_bytes: PROBE_BUFFER_BYTES,
        ..UdpSocketOptions::new(local)
    };
    let socket = UdpSocket::open(&options).map_err(|error| io::Error::new(error.kind(), error))?;
    Ok(rustix::net::connect(&socket, &remote)?)
}

/// Linux reports a labelled address (`eth0:1`) under its label; no device's name contains a colon.
fn device_name(reported: &str) -> &str {
    reported.split(':').next().unwrap_or(reported)
}

fn without_addresses(name: &str, index: u32, flags: InterfaceFlags) -> Interface {
    Interface {
        name: name.to_owned(),
        index,
        is_up: flags.contains(InterfaceFlags::IFF_UP),
        is_running: flags.contains(InterfaceFlags::IFF_RUNNING),
        is_loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
        is_point_to_point: flags.contains(InterfaceFlags::IFF_POINTOPOINT),
        addresses: Vec::new(),
    }
}

/// The IP address of an entry; entries of other kinds (the link layer's) have none.
fn address_of(raw: &RawAddress) -> Option<InterfaceAddress> {
    let (ip, scope_id) = ip_of(raw.address.as_ref()?)?;
    let all_ones = if ip.is_ipv4() { 32 } else { 128 };
    let prefix_len = raw.netmask.as_ref().and_then(ip_of).map_or(all_ones, |(mask, _)| match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    });
    Some(InterfaceAddress { ip, prefix_len: prefix_len as u8, scope_id })
}

fn ip_of(raw: &SockaddrStorage) -> Option<(IpAddr, u32)> {
    if let Some(four) = raw.as_sockaddr_in() {
        return Some((four.ip().into(), 0));
    }
    raw.as_sockaddr_in6().map(|six| (six.ip().into(), six.scope_id()))
}

#[cfg(test)]
mod tests;
