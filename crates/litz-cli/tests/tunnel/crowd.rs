//! Two hundred clients of one server at a time, all in this process: they speak the protocol of the tunnel
//! without a network device.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use litz::identity::{KeyPair, client_config};
use litz::{Connection, Endpoint, EndpointConfig, RecvStream, SendStream};
use transfer::Ticket;
use tunnel::control::{Accepted, Message, VERSION};
use tunnel::item::{Body, ItemHeader, Kind, take_item};
use wire::ip::{Header, Protocol};
use wire::udp::{HEADER_LEN as UDP_HEADER_LEN, Header as UdpHeader};

use super::{SERVER, World};
use crate::namespaces::inside;
use crate::support::TEST_TIMEOUT;

const CLIENTS: usize = 200;

/// The server's resident memory for each client, at most. About 0.2 MiB of it are the stack and the buffers of
/// its thread.
const CLIENT_BYTES_MAX: u64 = 2 << 20;

/// The port of the program that sends datagrams back.
const ECHO_PORT: u16 = 5007;

/// A client that is not answered within this time sends again.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// A client that was accepted.
struct Member {
    connection: Connection,
    address: Ipv4Addr,
    /// Items sent.
    sequence: u32,
    /// The control stream stays open as long as the tunnel.
    _control: (SendStream, RecvStream),
}

impl Member {
    fn join(endpoint: &Endpoint, key: &KeyPair, server: SocketAddr, ticket: &Ticket) -> Self {
        let tls = client_config(key, &[ticket.receiver], [tunnel::PROTOCOL]).expect("a configuration");
        let connection = endpoint.connect(server, "litz", tls.config.clone()).expect("the server answers");
        let (mut send, mut recv) = connection.open_bi().expect("a stream");
        let mut frame = Vec::new();
        Message::Hello { version: VERSION, proof: None, mtu: 1400 }.encode(&mut frame);
        send.write_all(&frame).expect("it reads");
        let mut receive = || {
            let mut len = [0; 2];
            recv.read_exact(&mut len).expect("an answer");
            let mut frame = vec![0; u16::from_be_bytes(len).into()];
            recv.read_exact(&mut frame).expect("an answer");
            Message::decode(&frame).expect("a message")
        };
        let told = receive();
        assert!(matches!(told, Some(Message::Forwarding(_))), "{told:?}");
        let answer = receive();
        let Some(Message::Accepted(accepted)) = answer else { panic!("not accepted: {answer:?}") };
        let Accepted { addresses, .. } = *accepted;
        let address = addresses.iter().find_map(|(address, _)| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        Self { connection, address: address.expect("an address"), sequence: 0, _control: (send, recv) }
    }

    /// Appends an item with a UDP datagram from `source` to the program at the server.
    fn put(&mut self, source: Ipv4Addr, text: &str, datagram: &mut BytesMut) {
        let payload_len = UDP_HEADER_LEN + text.len();
        let mut packet = Vec::new();
        let header = Header {
            source: source.into(),
            destination: SERVER[0].parse().expect("an address"),
            protocol: Protocol::UDP,
            hop_limit: 64,
            dscp: 0,
            ecn: None,
            id: 0,
            may_fragment: false,
        };
        header.emit(payload_len, &mut packet);
        let ports = UdpHeader { source_port: ECHO_PORT, destination_port: ECHO_PORT, ..UdpHeader::default() };
        UdpHeader { len: payload_len as u16, ..ports }.emit(&mut packet);
        packet.extend_from_slice(text.as_bytes());
        let item =
            ItemHeader { flow: 0, sequence: self.sequence, is_pinned: false, kind: Kind::Packet { is_partial: false } };
        self.sequence += 1;
        item.emit(Some(packet.len() as u16), datagram);
        datagram.extend_from_slice(&packet);
    }

    /// Sends a datagram from its own address, and one from that of another client before it, until the first
    /// came back. Nothing else comes.
    fn exchange(&mut self, other: Ipv4Addr) {
        let own = format!("from {}", self.address);
        loop {
            let mut datagram = BytesMut::new();
            self.put(other, "forged", &mut datagram);
            self.put(self.address, &own, &mut datagram);
            self.connection.send_datagram(datagram.freeze()).expect("it is connected");
            let mut received = Vec::new();
            self.connection.recv_datagrams_timeout(&mut received, ANSWER_TIME).expect("it is connected");
            let mut is_answered = false;
            for mut datagram in received.into_iter().map(|datagram| datagram.data) {
                while let Some(packet) = next_packet(&mut datagram) {
                    assert_eq!(packet[16..20], self.address.octets(), "it is for another client");
                    if packet[9] == 17 {
                        assert_eq!(&packet[28..], own.as_bytes());
                        is_answered = true;
                    }
                }
            }
            if is_answered {
                return;
            }
        }
    }
}

/// The next packet of IPv4 in a datagram. The kernel of the server sends some of IPv6 by itself.
fn next_packet(datagram: &mut Bytes) -> Option<Bytes> {
    loop {
        match take_item(datagram).expect("items")?.body {
            Body::Packet { packet, .. } if packet[0] >> 4 == 4 => return Some(packet),
            Body::Packet { .. } => {}
            body => panic!("a small packet is whole: {body:?}"),
        }
    }
}

/// Resident memory of a process.
pub(super) fn resident_bytes(process: u32) -> u64 {
    status_bytes(process, "VmRSS:")
}

/// The most that it ever was.
pub(super) fn resident_bytes_max(process: u32) -> u64 {
    status_bytes(process, "VmHWM:")
}

fn status_bytes(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
#[expect(clippy::print_stderr, reason = "a measurement")]
fn two_hundred_clients_reach_a_server_at_a_time_and_none_with_the_address_of_another() {
    let Some(world) = World::new("crowd", 1, &["python3", "ss"]) else { return };
    let _echo = world.echo();
    let keys: Vec<_> = (0..CLIENTS).map(|_| KeyPair::generate().expect("random bytes")).collect();
    let list = world.path("keys");
    std::fs::write(&list, keys.iter().map(|key| format!("{}\n", key.public())).collect::<String>()).expect("a file");
    let (mut server, text) = world.serve(&["--allow", list.to_str().expect("text")]);
    let ticket: Ticket = text.parse().expect("a ticket");
    let listening = server.seen.iter().find(|event| event["event"] == "listening").expect("it listens");
    let port = listening["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
    let remote = SocketAddr::from(([10, 9, 0, 2], port));
    let local = SocketAddr::from(([10, 9, 0, 1], 0));
    let endpoint = inside(&world.client, || Endpoint::bind(EndpointConfig::at(local)).expect("a socket"));

    let before = resident_bytes(server.id());
    let clock = net::MonotonicClock::start();
    let begun = clock.now();
    let mut members: Vec<_> = keys.iter().map(|key| Member::join(&endpoint, key, remote, &ticket)).collect();
    let joined = clock.now().saturating_since(begun);
    let addresses: Vec<_> = members.iter().map(|member| member.address).collect();
    let distinct: BTreeSet<_> = addresses.iter().collect();
    assert_eq!(distinct.len(), CLIENTS);
    for (at, member) in members.iter_mut().enumerate() {
        member.exchange(addresses[(at + 1) % CLIENTS]);
    }
    let exchanged = clock.now().saturating_since(begun) - joined;
    let client_bytes = (resident_bytes(server.id()) - before) / CLIENTS as u64;
    eprintln!("{CLIENTS} clients: joined in {joined:?}, answered in {exchanged:?}, {client_bytes} bytes each");
    assert!(client_bytes < CLIENT_BYTES_MAX, "{client_bytes} bytes for each client");

    let status = world.status_of(&world.server);
    let peers = status["peers"].as_array().expect("a list");
    assert_eq!(peers.len(), CLIENTS);
    for peer in peers {
        assert!(peer["out"]["spoofed"].as_u64() >= Some(1), "{peer}");
        assert_eq!(peer["out"]["malformed"], 0, "{peer}");
    }
    for member in &members {
        member.connection.close(0, "the client ends");
    }
    for member in &members {
        member.connection.closed_timeout(TEST_TIMEOUT).expect("it is closed");
    }
    for _ in 0..CLIENTS {
        server.wait_for("gone");
    }
    assert_eq!(world.status_of(&world.server)["peers"].as_array().map(Vec::len), Some(0));
}
