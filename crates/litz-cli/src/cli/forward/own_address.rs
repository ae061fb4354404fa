//! The address that a program may believe its connection to come from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of this host that a connection of the kernel to `target` would have; where there is no way to
/// the target, another one that other hosts may know. `None` if this host has none of its family.
pub(super) fn own_address(target: SocketAddr) -> Option<IpAddr> {
    let target = SocketAddr::new(target.ip().to_canonical(), target.port());
    by_route(target).or_else(|| any_of_family(target))
}

/// Connecting a UDP socket sends nothing.
#[expect(clippy::disallowed_methods, reason = "the kernel knows its routes")]
fn by_route(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn any_of_family(target: SocketAddr) -> Option<IpAddr> {
    let interfaces = net::interfaces().ok()?;
    let useful = interfaces.iter().filter(|interface| interface.is_up && !interface.is_loopback);
    let mut addresses = useful.flat_map(|interface| &interface.addresses).filter(|address| address.scope_id == 0);
    addresses.find(|address| address.ip.is_ipv4() == target.is_ipv4()).map(|address| address.ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_host_is_its_loopback() {
        let own = |text: &str| own_address(text.parse().expect("an address"));
        assert_eq!(own("127.0.0.1:80"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(own("[::ffff:127.0.0.1]:80"), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
