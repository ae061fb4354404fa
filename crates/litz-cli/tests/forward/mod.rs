//! `litz forward` as a user runs it: a server, a client, and programs on the kernel's sockets at both
//! ends.
#![expect(clippy::disallowed_methods, reason = "stands for programs that use the forwarder")]

mod calls;
mod daemon;
mod devices;
mod dynamic;
mod endings;
mod hostile;
mod links;
mod local;
mod lost;
mod name_batches;
mod names;
mod packets;
mod programs;
mod properties;
mod publish;
mod remote;
mod rings;
mod run;
mod servers;
mod sockets;
mod standard_io;
mod strict;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::Value;
use units::Rng;

use crate::support::{Litz, Place, TEST_TIMEOUT};

/// A server and a client of it.
struct Forwarder {
    place: Place,
    server: Litz,
    client: Litz,
    ticket: String,
}

impl Forwarder {
    /// Starts both, and waits until they are connected.
    fn start(serve: &[&str], forward: &[&str]) -> Self {
        let place = Place::new();
        let (server, ticket) = serve_at(&place, "127.0.0.1:0", serve);
        let mut client = client(&place, &ticket, forward);
        client.wait_for("connected");
        Self { place, server, client, ticket }
    }

    /// The address of the client's listener with this number, in the order of the arguments by kind.
    fn address(&mut self, number: usize) -> SocketAddr {
        let is_listener = |event: &&Value| event["event"] == "forwarding" && event["kind"] != "remote";
        let listener = self.client.seen.iter().filter(is_listener).nth(number);
        let listener = listener.unwrap_or_else(|| panic!("{:#?}", self.client.seen));
        listener["address"].as_str().expect("an address").parse().expect("an address")
    }

    /// A connection to that listener.
    fn connect(&mut self, number: usize) -> TcpStream {
        connect(self.address(number))
    }
}

/// Starts a server; returns its ticket.
fn serve_at(place: &Place, listen: &str, more: &[&str]) -> (Litz, String) {
    let state = format!("--state-dir={}", place.path("state-in").display());
    let listen = format!("--listen={listen}");
    let mut server = Litz::start(&[&["forward", "serve", "--json", &state, &listen], more].concat());
    let listening = server.wait_for("listening");
    server.port = listening["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
    let ticket = listening["ticket"].as_str().expect("a ticket").to_owned();
    (server, ticket)
}

/// Starts a client.
fn client(place: &Place, ticket: &str, more: &[&str]) -> Litz {
    let state = format!("--state-dir={}", place.path("state-out").display());
    Litz::start(&[&["forward", "--json", &state], more, &[ticket]].concat())
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the listener is open");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket");
    stream.set_write_timeout(Some(TEST_TIMEOUT)).expect("a socket");
    stream
}

/// A program that accepts TCP connections, each in a thread of its own.
fn tcp_program(act: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    accept_each(TcpListener::bind("127.0.0.1:0").expect("a port"), act)
}

/// The same with a listener. Returns its address.
fn accept_each(listener: TcpListener, act: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let address = listener.local_addr().expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, act) = (stream.expect("a connection"), act.clone());
            stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a socket");
            std::thread::spawn(move || act(stream));
        }
    });
    address
}

/// A program that reads to the end, and then sends everything back.
fn late_echo() -> SocketAddr {
    tcp_program(|mut stream| {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).is_ok() {
            let _written = stream.write_all(&all);
        }
    })
}

/// The same on a UNIX socket.
fn late_unix_echo(path: &Path) {
    let listener = UnixListener::bind(path).expect("a path");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("data");
            stream.write_all(&all).expect("it is read");
        }
    });
}

/// A port on which nothing listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a socket").port()
}

fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Sends all, then the end, and reads to the end.
fn exchange(mut stream: TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(bytes)?;
    match stream.shutdown(Shutdown::Write) {
        // It was reset since the write. The read says so.
        Err(error) if error.kind() == ErrorKind::NotConnected => {}
        done => done?,
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Asserts that an exchange gives back what was sent.
fn assert_echo(stream: TcpStream, len: usize, seed: u64) {
    let bytes = random(len, seed);
    let answer = exchange(stream, &bytes).expect("an answer");
    assert!(answer == bytes, "{} bytes of {len}", answer.len());
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
}
