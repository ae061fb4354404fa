//! UDP.

use std::net::UdpSocket;
use std::time::Duration;

use super::*;

/// A program that sends packets back; returns its address.
pub(super) fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("a socket");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        loop {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            let _sent = socket.send_to(&buffer[..len], from);
        }
    });
    address
}

/// Sends a packet of each length and waits for its answer. UDP may lose packets: each is sent again
/// until it is answered.
pub(super) fn assert_echo(socket: &UdpSocket, lens: &[usize]) {
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    for (seed, len) in lens.iter().enumerate() {
        let packet = random(*len, seed as u64);
        let mut buffer = vec![0; 65_536];
        let is_answered = (0..100).any(|_| {
            socket.send(&packet).expect("it is sent");
            socket.recv(&mut buffer).is_ok_and(|received| buffer[..received] == packet)
        });
        assert!(is_answered, "a packet of {len} bytes");
    }
}

#[test]
fn packets_of_any_length_are_forwarded_by_flow() {
    let target = echo();
    let local = format!("udp:0:localhost:{}", target.port());
    let rule = format!("udp:{target}");
    let mut forwarder = Forwarder::start(&["--target", &rule], &["-L", &local]);
    let address = forwarder.address(0);
    for _ in 0..3 {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(address).expect("an address");
        // The last ones do not fit into a datagram of the connection.
        assert_echo(&socket, &[0, 1, 1000, 1400, 9000, 60_000]);
    }
    assert_eq!(forwarder.server.seen.iter().filter(|event| event["event"] == "refused").count(), 0);
}

/// Packets that wait for the forwarder leave together, and arrive one by one.
#[test]
fn packets_of_a_burst_keep_their_content_and_order() {
    const COUNT: u8 = 48;
    let target = echo();
    let (local, rule) = (format!("udp:0:{target}"), format!("udp:{target}"));
    let mut forwarder = Forwarder::start(&["--target", &rule], &["-L", &local]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(forwarder.address(0)).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    let mut is_answered = [false; COUNT as usize];
    // UDP may lose packets: each round sends all of them.
    for round in 0..100 {
        let packet = |number: u8| {
            // Each fits into a datagram: messages would not keep the order.
            let len = if number.is_multiple_of(7) { 300 } else { 1000 };
            [&[round, number], &random(len, u64::from(number))[..]].concat()
        };
        for number in 0..COUNT {
            socket.send(&packet(number)).expect("it is sent");
        }
        let (mut buffer, mut last) = (vec![0; 65_536], None);
        while last != Some(COUNT - 1) {
            let Ok(len) = socket.recv(&mut buffer) else { break };
            let (of_round, number) = (buffer[0], buffer[1]);
            assert!(number < COUNT && buffer[2..len] == packet(number)[2..], "packet {number} of round {of_round}");
            if of_round == round {
                // Those that come while the flow is opened may pass others.
                assert!(round == 0 || last < Some(number), "packet {number} after {last:?}");
                (last, is_answered[usize::from(number)]) = (Some(number), true);
            }
        }
        if is_answered.iter().all(|is_answered| *is_answered) {
            return;
        }
    }
    panic!("never answered: {is_answered:?}");
}

#[test]
fn an_idle_flow_ends_and_the_next_packet_opens_another() {
    let target = echo();
    let (local, rule) = (format!("udp:0:{target}"), target.to_string());
    let mut forwarder = Forwarder::start(&["--target", &rule, "--udp-idle=1s"], &["-L", &local]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(forwarder.address(0)).expect("an address");
    assert_echo(&socket, &[10]);
    let closed = forwarder.client.wait_for("closed");
    assert!(closed["bytes_received"].as_u64() >= Some(10), "{closed}");
    assert_echo(&socket, &[10]);
}

#[test]
fn a_flow_that_is_not_allowed_is_refused() {
    let target = echo();
    let local = format!("udp:0:{target}");
    let rule = format!("tcp:{target}");
    let mut forwarder = Forwarder::start(&["--target", &rule], &["-L", &local]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(forwarder.address(0)).expect("an address");
    socket.send(b"hello").expect("it is sent");
    assert_eq!(forwarder.client.wait_for("refused")["reason"], "not_allowed");
    assert_eq!(forwarder.server.wait_for("refused")["reason"], "not_allowed");
}
