//! `-R`: listeners of the server's host.

use std::net::{Ipv4Addr, UdpSocket};

use super::*;

/// The address of the server's listener with this number.
fn remote_address(client: &mut Litz, number: usize) -> SocketAddr {
    let is_remote = |event: &Value| event["event"] == "forwarding" && event["kind"] == "remote";
    while client.seen.iter().filter(|event| is_remote(event)).count() <= number {
        client.wait_until(is_remote);
    }
    let event = client.seen.iter().filter(|event| is_remote(event)).nth(number).expect("it was seen");
    let port = event["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

#[test]
fn connections_of_the_far_host_reach_this_one() {
    let target = late_echo();
    // No other test listens at this address, so that none gets the port when it is free.
    let ip = "127.79.0.1";
    let remote = format!("{ip}:0:{target}");
    let mut forwarder = Forwarder::start(&[&format!("--permit-listen={ip}:*")], &["-R", &remote]);
    let port = remote_address(&mut forwarder.client, 0).port();
    let address = SocketAddr::new(ip.parse().expect("an address"), port);
    for seed in 0..3 {
        assert_echo(connect(address), 200_000, seed);
    }
    // The listener ends with its client.
    drop(forwarder.client);
    forwarder.server.wait_for("client_ended");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_listener_that_is_not_permitted_ends_the_client() {
    let port = free_port();
    let place = Place::new();
    let permit = format!("--permit-listen={port}");
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &[&permit]);
    for listen in [format!("{}:localhost:1", free_port()), format!("*:{port}:localhost:1"), "/tmp/x:localhost:1".into()]
    {
        client(&place, &ticket, &["-R", &listen]).fail(2, "--permit-listen");
    }
    let taken = TcpListener::bind(("127.0.0.1", port)).expect("it was free");
    let words = "another program of the server's host has this port";
    client(&place, &ticket, &["-R", &format!("{port}:localhost:1")]).fail(2, words);
    drop(taken);
    // A server with listeners alone connects to nothing.
    let mut forward = client(&place, &ticket, &["-L", "0:localhost:1", "-R", &format!("{port}:localhost:1")]);
    forward.wait_for("connected");
}

#[test]
fn udp_packets_of_the_far_host_reach_this_one() {
    let target = packets::echo();
    let remote = format!("udp:0:{target}");
    let mut forwarder = Forwarder::start(&["--permit-listen=udp:*"], &["-R", &remote]);
    let address = remote_address(&mut forwarder.client, 0);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(address).expect("an address");
    packets::assert_echo(&socket, &[1, 100, 1200]);
}
