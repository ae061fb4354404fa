//! The network interfaces of this host, and reachability checks.
//!
//! [`interfaces`] reads the kernel's current table. [`reachable`] checks with the kernel's routes
//! whether a datagram can be sent from an address and a device to another host; it sends nothing.

#[cfg(target_os = "linux")]
pub(crate) mod link_attributes;
#[cfg(target_os = "linux")]
pub mod own_networks;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod route;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use nix::ifaddrs::{InterfaceAddress as RawAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;

use crate::udp::{UdpSocket, UdpSocketOptions};

/// Largest number of interfaces returned; the interfaces with the lowest indices are kept. A host
/// that runs containers may have hundreds.
pub const INTERFACES_MAX: usize = 256;

/// Alias of a device whose packets leave over the other interfaces of its host.
#[cfg(target_os = "linux")]
pub(crate) const TUNNEL_ALIAS: &str = "litz tunnel";

/// Buffer size of a reachability check, which neither sends nor receives.
const PROBE_BUFFER_BYTES: usize = 4096;

/// A network interface, at the time the table was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name, such as `eth0`, as used in [`UdpSocketOptions::device`].
    pub name: String,
    /// The kernel's interface index, never 0. Lower indices usually belong to older interfaces.
    pub index: u32,
    /// Whether the interface is administratively up.
    pub is_up: bool,
    /// Whether the interface can carry packets: it has a carrier, or does not report one. False for
    /// a network card without a cable, and for a bridge without members.
    pub is_running: bool,
    /// Whether it is a loopback interface.
    pub is_loopback: bool,
    /// Whether it is a dummy interface (Linux): it holds addresses of this host, and carries no
    /// packets. Packets for its addresses arrive over other interfaces.
    pub is_dummy: bool,
    /// Whether it is a point-to-point interface, as most tunnels are.
    pub is_point_to_point: bool,
    /// Whether it is the device of a tunnel of Litz ([`Tun::open_tunnel`](crate::tun::Tun::open_tunnel)),
    /// of any user: its packets leave over the other interfaces of this host.
    pub is_litz_tunnel: bool,
    /// The addresses, in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
}

/// One address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Length of the subnet prefix in bits: 0 to 32 (IPv4) or 128 (IPv6).
    pub prefix_len: u8,
    /// For an IPv6 link-local address, the interface index, which is required to use the address;
    /// otherwise 0.
    pub scope_id: u32,
}

impl InterfaceAddress {
    /// Returns whether `other` is in this address's subnet. Always false across address families.
    #[must_use]
    pub fn shares_subnet_with(&self, other: IpAddr) -> bool {
        let prefix_len = u32::from(self.prefix_len);
        match (self.ip, other) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                // A shift by the whole width (prefix 0) leaves no bits to compare.
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

    /// Returns the socket address with `port`, including the scope ID of a link-local address.
    #[must_use]
    pub fn with_port(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(_) => SocketAddr::new(self.ip, port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.scope_id).into(),
        }
    }
}

/// Returns the interfaces of this host in the order of their indices, including those without an
/// address; at most [`INTERFACES_MAX`]. On Linux these are the interfaces of the calling thread's
/// network namespace.
///
/// # Errors
/// The system's error.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found: BTreeMap<String, Interface> = BTreeMap::new();
    for raw in getifaddrs()? {
        let name = device_name(&raw.interface_name);
        if !found.contains_key(name) {
            // The interface was removed after the table was read.
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

/// Checks whether a datagram can be sent from `local` over `device` to `remote`, according to this
/// host: the address is local and usable, the device is up, and a route exists. Nothing is sent, so
/// the remote host is not checked. Without a device any route counts. The routes are those for
/// packets with `mark`, as of a socket with [`UdpSocketOptions::mark`], which needs the same
/// privilege.
///
/// # Errors
/// The obstacle: `AddrNotAvailable` (not a local address, or not usable yet), `NetworkUnreachable`
/// or `HostUnreachable` (no route, or a prohibiting one), `PermissionDenied`, `NotFound` and
/// others. The message says what to do.
pub fn reachable(local: SocketAddr, device: Option<&str>, mark: Option<u32>, remote: SocketAddr) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let (Some(device), IpAddr::V4(from), IpAddr::V4(to)) = (device, local.ip(), remote.ip()) {
        route::exists(from, device, to, mark.unwrap_or(0))?;
    }
    let options = UdpSocketOptions {
        device: device.map(str::to_owned),
        mark,
        send_buffer_bytes: PROBE_BUFFER_BYTES,
        recv_buffer_bytes: PROBE_BUFFER_BYTES,
        ..UdpSocketOptions::new(local)
    };
    let socket = UdpSocket::open(&options).map_err(|error| io::Error::new(error.kind(), error))?;
    Ok(rustix::net::connect(&socket, &remote)?)
}

/// Returns the device of a name that Linux may report with a label (`eth0:1`); no device name
/// contains a colon.
fn device_name(reported: &str) -> &str {
    reported.split(':').next().unwrap_or(reported)
}

fn without_addresses(name: &str, index: u32, flags: InterfaceFlags) -> Interface {
    let is_point_to_point = flags.contains(InterfaceFlags::IFF_POINTOPOINT);
    Interface {
        name: name.to_owned(),
        index,
        is_up: flags.contains(InterfaceFlags::IFF_UP),
        is_running: flags.contains(InterfaceFlags::IFF_RUNNING),
        is_loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
        // No dummy interface resolves addresses. The others need no query.
        is_dummy: flags.contains(InterfaceFlags::IFF_NOARP) && !is_point_to_point && is_dummy(index),
        is_point_to_point,
        // Each TUN device is a point-to-point interface. The others need no query.
        is_litz_tunnel: is_point_to_point && is_litz_tunnel(index),
        addresses: Vec::new(),
    }
}

#[cfg(target_os = "linux")]
fn is_litz_tunnel(index: u32) -> bool {
    link_attributes::alias(index).is_some_and(|alias| alias == TUNNEL_ALIAS)
}

#[cfg(target_os = "linux")]
fn is_dummy(index: u32) -> bool {
    link_attributes::kind(index).is_some_and(|kind| kind == "dummy")
}

#[cfg(not(target_os = "linux"))]
fn is_dummy(_index: u32) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn is_litz_tunnel(_index: u32) -> bool {
    false
}

/// Returns the IP address of an entry; `None` for entries of other families, such as the link
/// layer's.
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
