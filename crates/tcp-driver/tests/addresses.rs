//! Addresses that no host has.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use driver::{Protocol, Route};
use tcp::{Connection, HostSecret, Plan, SuperPacket, TcpConfig, Tuple};
use tcp_driver::link::Prefix;
use tcp_driver::{LocalAddress, Received, Tcp};
use units::{Instant, Seq32};

/// Returns the route of a SYN.
fn route(source: &str, destination: &str) -> Route {
    let local = ["10.0.0.2", "fd00::2"].map(|ip| LocalAddress { ip: ip.parse().unwrap(), device: 0 });
    let networks = [("10.0.0.2", 24), ("fd00::2", 64)].map(|(ip, len)| Prefix::new(ip.parse().unwrap(), len).unwrap());
    let protocol = Tcp::new(TcpConfig::default(), HostSecret::new([7; 32]), local.to_vec()).with_networks(&networks);
    let [source, destination] = [source, destination].map(|ip| ip.parse::<IpAddr>().unwrap());
    let tuple = Tuple { local: SocketAddr::new(source, 1000), remote: SocketAddr::new(destination, 80) };
    let mut connection = Connection::connect(Instant::ZERO, TcpConfig::default(), tuple, Seq32::new(5), 5);
    let (mut plan, mut packet, mut route) = (Plan::default(), SuperPacket::default(), None);
    assert!(connection.poll_plan(Instant::ZERO, 1, &mut plan));
    plan.seal(&mut packet);
    packet.packets(|bytes| {
        let syn = Received::new(Bytes::copy_from_slice(bytes), None, false);
        route = Some(protocol.route(&syn).1);
    });
    route.expect("a SYN is a packet")
}

#[test]
fn a_syn_from_no_single_host_is_dropped() {
    assert_eq!(route("10.0.0.1", "10.0.0.2"), Route::Begins);
    assert_eq!(route("fd00::1", "fd00::2"), Route::Begins);
    for source in ["224.0.0.1", "239.1.2.3", "255.255.255.255", "0.0.0.0", "10.0.0.255"] {
        assert_eq!(route(source, "10.0.0.2"), Route::Unknown, "{source}");
    }
    for source in ["ff02::1", "::"] {
        assert_eq!(route(source, "fd00::2"), Route::Unknown, "{source}");
    }
}

#[test]
fn a_syn_to_several_hosts_is_dropped() {
    for destination in ["224.0.0.1", "255.255.255.255", "10.0.0.255"] {
        assert_eq!(route("10.0.0.1", destination), Route::Unknown, "{destination}");
    }
    assert_eq!(route("fd00::1", "ff02::1"), Route::Unknown);
}
