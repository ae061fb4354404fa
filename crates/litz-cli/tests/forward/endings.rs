//! Each protocol that Litz serves ends with an error of its own, never with a bare close: a table of what the peer
//! reads last, by protocol and by what ends it.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use forward::message::Message;
use litz::identity::{KeyPair, client_config};
use litz::{Connection, Endpoint, EndpointConfig, TransportConfig};
use transfer::{Role, Secret, Ticket, TicketAddress, proof_context};
use tunnel::Message as TunnelMessage;

use super::daemon::{Daemon, run_attached};
use super::hostile::{Client, encoded, read};
use super::names::Named;
use super::*;
use crate::namespaces;
use crate::tunnel::World as TunnelWorld;

/// What ends the conversation of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// It sends what is no message of the protocol, or one that does not fit.
    Malformed,
    /// What it asks for is not allowed, or there is no place for it.
    Refused,
    /// The command ends.
    CommandEnds,
}

use Cause::{CommandEnds, Malformed, Refused};

/// The protocol, the cause, what the peer reads (`None` where the test needs root), and how that begins or, if it is
/// the text of an error, what it contains.
type Row = (&'static str, Cause, fn() -> Option<String>, &'static str);

const ROWS: [Row; 25] = [
    ("SOCKS5", Malformed, || of_proxy(&[GREETING, b"\x04\x01"], false), "\\x05\\x01\\x00"),
    ("SOCKS5", Refused, || of_proxy(&[GREETING, b"\x05\x01\0\x01\x0a\0\0\x01\0\x50"], false), "\\x05\\x02\\x00"),
    ("SOCKS5", CommandEnds, || of_proxy(&[GREETING, b"\x05"], true), "\\x05\\x01\\x00"),
    ("SOCKS5", CommandEnds, of_waiting_proxy, "\\x05\\x01\\x00"),
    ("SOCKS5 into a tunnel", Malformed, || of_tunnel_proxy(&[GREETING, b"\x04\x01"], false), "\\x05\\x01\\x00"),
    ("SOCKS5 into a tunnel", CommandEnds, || of_tunnel_proxy(&[GREETING, b"\x05"], true), "\\x05\\x01\\x00"),
    ("SOCKS4", Refused, || of_proxy(&[b"\x04\x01\0\x50\x7f\0\0\x01\0"], false), "\\x00["),
    ("HTTP CONNECT", Refused, || of_proxy(&[b"CONNECT host:80 HTTP/1.1\r\n\r\n"], false), "HTTP/1.1 501 "),
    ("DNS over UDP", Malformed, || of_name_server("udp", "query[:-3]"), "1"),
    ("DNS over UDP", Refused, || of_name_server("udp", "query"), "5"),
    ("DNS over TCP", Malformed, || of_name_server("tcp", "query[:-3]"), "1"),
    ("DNS over TCP", Refused, || of_name_server("tcp", "query"), "5"),
    ("daemon", Malformed, || of_daemon("s.send(b'\\xff')"), "0182"),
    (
        "daemon",
        Refused,
        || of_daemon("s.send(b'\\x01\\x02\\0\\0\\0\\x07\\x01\\x01\\x04\\x0a\\0\\0\\x01\\0\\x50')"),
        "0184",
    ),
    ("forward", Malformed, || of_server(|client| last(&client.ask(&[9; 100]))), "Unknown"),
    ("forward", Refused, || of_server(|client| last(&client.ask(&encoded(&open("169.254.169.254:80"))))), "NotAllowed"),
    ("forward", CommandEnds, of_ending_server, "the server ends"),
    ("transfer", Malformed, || of_receiver(1, |connections, _| garbage(&connections[0])), "peer"),
    ("transfer", Refused, || of_receiver(24, |connections, _| reason_of(&connections[0])), "too many connections"),
    (
        "transfer",
        CommandEnds,
        || of_receiver(1, |connections, receiver| terminated(&connections[0], receiver)),
        "the receiver ends",
    ),
    ("tunnel", Refused, || of_tunnel(&Secret::from_bytes([0; 16]), |_, _, answer| last(&answer)), "NotAllowed"),
    (
        "tunnel",
        CommandEnds,
        || of_tunnel_of_right(|server, connection, _| terminated(connection, server)),
        "the server ends",
    ),
    (
        "stream in a tunnel",
        Malformed,
        || of_tunnel_of_right(|_, connection, _| last(&stream(connection, &[9; 100]))),
        "Unknown",
    ),
    (
        "stream in a tunnel",
        Refused,
        || of_tunnel_of_right(|_, connection, _| last(&stream(connection, &encoded(&open("10.9.0.2:80"))))),
        "Unknown",
    ),
    ("far end over ssh", Malformed, || of_ssh_end(b"hello\n"), "the request has another format"),
];

/// What has no row, and why.
const WITHOUT: [(&str, Cause, &str); 12] = [
    ("SOCKS5 into a tunnel", Refused, "as SOCKS5, by the same code"),
    ("SOCKS4", Malformed, "none of it is served"),
    ("SOCKS4", CommandEnds, "it is answered at once"),
    ("HTTP CONNECT", Malformed, "none of it is served"),
    ("HTTP CONNECT", CommandEnds, "it is answered at once"),
    ("DNS over UDP", CommandEnds, "`litz run` ends after the programs that ask"),
    ("DNS over TCP", CommandEnds, "`litz run` ends after the programs that ask"),
    ("daemon", CommandEnds, "the kernel tells, however it ends: docs/spec/daemon.md"),
    ("tunnel", Malformed, "the connection ends before the peer is known: QUIC tells"),
    ("stream in a tunnel", CommandEnds, "it ends with the connection of the tunnel"),
    ("far end over ssh", Refused, "tests/ssh_hosts.rs"),
    ("far end over ssh", CommandEnds, "ssh tells the status of the command"),
];

#[test]
fn each_protocol_ends_with_its_own_error() {
    let mut faults = Vec::new();
    for (protocol, cause, reads, expected) in ROWS {
        let Some(found) = reads() else { continue };
        if !(found.starts_with(expected) || expected.len() > 2 && found.contains(expected)) {
            faults.push(format!("{protocol}, {cause:?}: expected {expected:?}, read {found:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A protocol that gets a row gets all of them, or a reason.
#[test]
fn the_table_of_endings_is_complete() {
    for (protocol, ..) in ROWS {
        for cause in [Malformed, Refused, CommandEnds] {
            let has_row = ROWS.iter().any(|row| (row.0, row.1) == (protocol, cause));
            let has_reason = WITHOUT.iter().any(|other| (other.0, other.1) == (protocol, cause));
            assert!(has_row != has_reason, "{protocol}, {cause:?}");
        }
    }
}

const GREETING: &[u8] = b"\x05\x01\0";

fn last(message: &impl Debug) -> String {
    format!("{message:?}")
}

fn open(target: &str) -> Message {
    Message::Open { target: target.parse().expect("a target") }
}

fn reason_of(connection: &Connection) -> String {
    connection.closed_timeout(TEST_TIMEOUT).expect("it is closed").to_string()
}

/// Ends the command, and returns why the connection ended.
fn terminated(connection: &Connection, command: &Litz) -> String {
    command.signal("TERM");
    reason_of(connection)
}

/// Sends messages to a SOCKS proxy; all but the last are answered with two bytes. Then ends `command`, if any.
/// Returns the rest of what is read.
fn converse(mut stream: TcpStream, messages: &[&[u8]], command: Option<&Litz>) -> String {
    let (last, before) = messages.split_last().expect("a message");
    for message in before {
        stream.write_all(message).expect("it is read");
        stream.read_exact(&mut [0; 2]).expect("an answer");
    }
    stream.write_all(last).expect("it is read");
    if let Some(command) = command {
        command.signal("TERM");
    }
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest.escape_ascii().to_string(),
        Err(error) => format!("{error} after {}", rest.escape_ascii()),
    }
}

fn of_proxy(messages: &[&[u8]], ends: bool) -> Option<String> {
    let mut forwarder = Forwarder::start(&["--target=127.0.0.1:*"], &["-D", "0"]);
    let stream = forwarder.connect(0);
    Some(converse(stream, messages, ends.then_some(&forwarder.client)))
}

/// The target takes no connection: the one place of its queue is taken.
fn of_waiting_proxy() -> Option<String> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    socket.listen(0).expect("it listens");
    let full = TcpListener::from(OwnedFd::from(socket));
    let target = full.local_addr().expect("it is bound");
    let _queued = connect(target);
    let request = [&b"\x05\x01\0\x01\x7f\0\0\x01"[..], &target.port().to_be_bytes()].concat();
    of_proxy(&[GREETING, &request], true)
}

fn of_tunnel_proxy(messages: &[&[u8]], ends: bool) -> Option<String> {
    let world = TunnelWorld::new("ends", 1, &[])?;
    let (_server, ticket) = world.serve(&[]);
    let mut client = world.litz(&world.client, &["up", "--userspace", "--dynamic=0", &ticket]);
    let listening = client.wait_until(|event| event["event"] == "forwarding" && event["kind"] == "dynamic");
    client.wait_for("up");
    let proxy: SocketAddr = listening["address"].as_str().expect("an address").parse().expect("an address");
    let stream = namespaces::inside(&world.client, || connect(proxy));
    Some(converse(stream, messages, ends.then_some(&client)))
}

/// The code of the answer to a query for a name that the server does not allow to look up.
fn of_name_server(over: &str, query: &str) -> Option<String> {
    let named = Named::new()?;
    let script = format!(
        "
import socket
name = b'\\x05other\\x03far\\x07example\\0'
query = b'\\0\\x07\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + b'\\0\\1\\0\\1'
query = {query}
kind = socket.SOCK_DGRAM if '{over}' == 'udp' else socket.SOCK_STREAM
s = socket.socket(socket.AF_INET, kind)
s.settimeout(60)
s.connect(('192.0.2.53', 53))
if '{over}' == 'udp':
    s.send(query)
    answer = s.recv(512)
else:
    s.sendall(len(query).to_bytes(2, 'big') + query)
    answer = s.makefile('rb').read(2 + 12)[2:]
print(answer[3] & 15)"
    );
    let (_, output, errors) = named.run(&["--dns", "far"], &["python3", "-c", &script]);
    Some(if output.is_empty() { errors } else { output })
}

/// The first message of a daemon after what a program sends, in hexadecimal digits.
fn of_daemon(send: &str) -> Option<String> {
    let daemon = Daemon::new()?;
    let (_, output, errors) = run_attached(&daemon.socket, &format!("{send}\nprint(s.recv(1000).hex())"), &[]);
    Some(if output.is_empty() { errors } else { output })
}

/// A client of a server of forwards, which has proven the ticket's secret.
fn of_server(talk: impl FnOnce(&Client) -> String) -> Option<String> {
    let place = Place::new();
    let (_server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target=127.0.0.1:*"]);
    let client = Client::new(&ticket, KeyPair::generate().expect("a key"));
    let (_accepted, _control) = client.hello(&client.ticket.secret.clone());
    Some(talk(&client))
}

fn of_ending_server() -> Option<String> {
    let place = Place::new();
    let (server, ticket) = serve_at(&place, "127.0.0.1:0", &["--target=127.0.0.1:*"]);
    let client = Client::new(&ticket, KeyPair::generate().expect("a key"));
    let (_accepted, _control) = client.hello(&client.ticket.secret.clone());
    Some(terminated(&client.connection, &server))
}

/// So many connections to a receiver of files, without a proof.
fn of_receiver(count: usize, talk: impl FnOnce(&[Connection], &Litz) -> String) -> Option<String> {
    let place = Place::new();
    let (receiver, ticket) = place.recv(&[]);
    let ticket: Ticket = ticket.parse().expect("a ticket");
    let transport = transfer::transport(TransportConfig::default());
    let endpoint = Endpoint::bind(EndpointConfig::loopback().with_transport(transport)).expect("a port");
    let connect = |_| {
        let key = KeyPair::generate().expect("a key");
        let tls = client_config(&key, &[ticket.receiver], transfer::PROTOCOLS).expect("a key");
        let to = SocketAddr::from(([127, 0, 0, 1], receiver.port));
        endpoint.connect(to, "litz", tls.config.clone()).expect("the receiver is there")
    };
    let connections: Vec<_> = (0..count).map(connect).collect();
    Some(talk(&connections, &receiver))
}

/// Opens a stream that has no message. Returns what is read there until it ends.
fn garbage(connection: &Connection) -> String {
    let (mut send, mut recv) = connection.open_bi().expect("it is open");
    send.write_all(&[0xff; 64]).expect("it is open");
    let mut answer = Vec::new();
    let _end = recv.read_to_end(&mut answer);
    answer.escape_ascii().to_string()
}

/// What the peer answers to these bytes on a stream.
fn stream(connection: &Connection, bytes: &[u8]) -> Option<Message> {
    let (mut send, mut recv) = connection.open_bi().expect("it is open");
    let _refused = send.write_all(bytes).is_err() || send.finish().is_err();
    read(&mut recv)
}

/// A client of a tunnel that proves this secret.
fn of_tunnel(
    secret: &Secret,
    talk: impl FnOnce(&Litz, &Connection, Option<TunnelMessage>) -> String,
) -> Option<String> {
    let world = TunnelWorld::new("ends", 1, &[])?;
    let (server, ticket) = world.serve(&[]);
    Some(talk_in_tunnel(&world, &server, &ticket.parse().expect("a ticket"), secret, talk))
}

/// The same with the secret of the ticket.
fn of_tunnel_of_right(talk: impl FnOnce(&Litz, &Connection, Option<TunnelMessage>) -> String) -> Option<String> {
    let world = TunnelWorld::new("ends", 1, &[])?;
    let (server, ticket) = world.serve(&[]);
    let ticket: Ticket = ticket.parse().expect("a ticket");
    Some(talk_in_tunnel(&world, &server, &ticket, &ticket.secret, talk))
}

fn talk_in_tunnel(
    world: &TunnelWorld,
    server: &Litz,
    ticket: &Ticket,
    secret: &Secret,
    talk: impl FnOnce(&Litz, &Connection, Option<TunnelMessage>) -> String,
) -> String {
    let is_ipv4 = |address: &&TicketAddress| matches!(address, TicketAddress::Socket(address) if address.is_ipv4());
    let address = ticket.addresses.iter().find(is_ipv4);
    let Some(TicketAddress::Socket(address)) = address.cloned() else { panic!("an address of the link") };
    let key = KeyPair::generate().expect("a key");
    let tls = client_config(&key, &[ticket.receiver], [tunnel::control::PROTOCOL]).expect("a key");
    let endpoint = namespaces::inside(&world.client, || Endpoint::bind(EndpointConfig::default()).expect("a port"));
    let connection = endpoint.connect(address, "litz", tls.config).expect("the server is there");
    let context = proof_context(&connection, key.public(), ticket.receiver).expect("it is open");
    let proof = Some(*context.prove(secret, Role::Sender).as_bytes());
    let (mut send, mut recv) = connection.open_bi().expect("it is open");
    let mut hello = Vec::new();
    TunnelMessage::Hello { version: tunnel::control::VERSION, proof, mtu: 1400 }.encode(&mut hello);
    send.write_all(&hello).expect("it is open");
    let mut answer = None;
    // Messages before the answer are passed over, as by earlier clients.
    while !matches!(answer, Some(TunnelMessage::Accepted(_) | TunnelMessage::Refused { .. })) {
        let mut len = [0; 2];
        recv.read_exact(&mut len).expect("an answer");
        let mut frame = vec![0; usize::from(u16::from_be_bytes(len))];
        recv.read_exact(&mut frame).expect("an answer");
        answer = TunnelMessage::decode(&frame).expect("a message");
    }
    talk(server, &connection, answer)
}

/// The last line of the far end of a transfer over ssh.
fn of_ssh_end(request: &[u8]) -> Option<String> {
    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_litz"));
    command.arg("ssh-end").arg(format!("--state-dir={}", place.path("state").display()));
    let mut end = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    end.stdin.take().expect("piped").write_all(request).expect("it reads");
    let output = end.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).lines().last().map(str::to_owned)
}
