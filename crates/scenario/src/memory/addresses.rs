//! The addresses of simulated hosts. Each path has its own network and its own socket at each host.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use quic::{Addresses, Side};

/// Returns the addresses of a path's ends, the sending host's first.
pub(crate) fn ends(path: usize) -> [SocketAddrV4; 2] {
    let ip = |host| Ipv4Addr::new(10, 0, path as u8, host);
    [SocketAddrV4::new(ip(1), 1000), SocketAddrV4::new(ip(2), 2000)]
}

/// Returns the address of a path at one side.
pub(crate) fn address(path: usize, side: Side) -> SocketAddr {
    let [client, server] = ends(path);
    SocketAddr::V4(if side == Side::Client { client } else { server })
}

/// Returns the addresses of a path as seen by one side.
pub(crate) fn addresses(path: usize, side: Side) -> Addresses {
    let peer = if side == Side::Client { Side::Server } else { Side::Client };
    Addresses { remote: address(path, peer), local_ip: Some(address(path, side).ip()), socket: path as u16 }
}
