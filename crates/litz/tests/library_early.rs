//! 0-RTT over sockets and threads, with TLS settings of the application.

#![expect(clippy::disallowed_methods, reason = "these are tests of real threads")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use litz::identity::{self, KeyPair};
use litz::{ConnectOptions, Connection, Endpoint, EndpointConfig, Placement, ReadError, WriteError};

const PLACEMENTS: [Placement; 5] =
    [Placement::Thread, Placement::Inline, Placement::Split, Placement::Packet(2), Placement::Connection(2)];

/// TLS settings of both sides that resume sessions with 0-RTT. The settings of `litz::identity` do
/// not.
fn settings(key: &KeyPair) -> (Arc<rustls::ClientConfig>, rustls::ServerConfig) {
    let client =
        identity::client_config(&KeyPair::generate().unwrap(), &[key.public().fingerprint()], ["test/1"]).unwrap();
    let mut client = rustls::ClientConfig::clone(&client.config);
    client.resumption = rustls::client::Resumption::in_memory_sessions(8);
    client.enable_early_data = true;
    let mut server = rustls::ServerConfig::clone(&identity::server_config(key, ["test/1"]).unwrap());
    server.send_tls13_tickets = 2;
    server.max_early_data_size = u32::MAX;
    (Arc::new(client), server)
}

fn server(tls: &rustls::ServerConfig, placement: Placement, accepts_early: bool) -> Endpoint {
    let config = EndpointConfig::loopback().with_server_tls(Arc::new(tls.clone())).with_placement(placement);
    Endpoint::bind(config.with_accepts_early(accepts_early)).unwrap()
}

/// Answers one request; returns it, and whether it could have been replayed.
fn answer(connection: &Connection) -> (Vec<u8>, bool) {
    let (mut send, mut recv) = connection.accept_bi().unwrap();
    let mut request = Vec::new();
    while let Some(chunk) = recv.read_chunk().unwrap() {
        request.extend_from_slice(&chunk);
    }
    let replayable = recv.may_be_replayed();
    send.write_chunk(Bytes::from_static(b"an answer")).unwrap();
    send.finish().unwrap();
    (request, replayable)
}

/// Requests an answer; the server accepts the connection on another thread.
fn exchange(client: &Connection, server: &Endpoint) -> (Vec<u8>, bool) {
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let accepted = server.accept().unwrap();
            let asked = answer(&accepted);
            // Until the client has the answer and closes.
            accepted.closed();
            asked
        });
        let (mut send, mut recv) = client.open_bi_early().unwrap();
        send.write_chunk(Bytes::from_static(b"a request")).unwrap();
        send.finish().unwrap();
        assert_eq!(recv.read_chunk().unwrap().as_deref(), Some(&b"an answer"[..]));
        client.connected().unwrap();
        assert!(recv.read_chunk().unwrap().is_none());
        // The tickets follow the handshake: after one exchange they have arrived.
        client.close(0, "");
        asked.join().unwrap()
    })
}

fn begin(client: &Endpoint, server: SocketAddr, tls: &Arc<rustls::ClientConfig>) -> Connection {
    client.connect_early(&ConnectOptions::default(), server, "server.test", tls.clone()).unwrap()
}

/// The client's first message takes two datagrams, so the third one has 0-RTT, or repeats something
/// because all of it has left.
const FIRST_FLIGHT: usize = 3;

/// A relay between a client and a server on the loopback device, whose answers are faster than any
/// application: nothing comes back before the client has sent its first flight.
struct Relay {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn new(server: SocketAddr) -> Self {
        let bind = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            socket
        };
        let (inner, outer) = (bind(), bind());
        let (address, is_over) = (inner.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let ends = is_over.clone();
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut client, mut sent, mut held) = (vec![0; 1 << 16], None, 0, Vec::new());
            while !ends.load(Ordering::Acquire) {
                if let Ok((len, from)) = inner.recv_from(&mut buffer) {
                    client = Some(from);
                    sent += 1;
                    outer.send_to(&buffer[..len], server).unwrap();
                }
                if let Ok((len, _)) = outer.recv_from(&mut buffer) {
                    held.push(buffer[..len].to_vec());
                }
                if let Some(client) = client.filter(|_| sent >= FIRST_FLIGHT) {
                    held.drain(..).for_each(|datagram| drop(inner.send_to(&datagram, client)));
                }
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_request_in_0_rtt_is_answered_under_every_placement() {
    for placement in PLACEMENTS {
        for accepts_early in [true, false] {
            let (tls, server_tls) = settings(&KeyPair::generate().unwrap());
            let server = server(&server_tls, placement, accepts_early);
            let client = Endpoint::bind(EndpointConfig::loopback()).unwrap();
            let (request, replayable) = exchange(&begin(&client, server.local_addr(), &tls), &server);
            assert_eq!((&request[..], replayable), (&b"a request"[..], false), "no session is known: {placement}");
            let relay = Relay::new(server.local_addr());
            let (request, replayable) = exchange(&begin(&client, relay.address, &tls), &server);
            assert_eq!((&request[..], replayable), (&b"a request"[..], true), "{placement}, {accepts_early}");
        }
    }
}

#[test]
fn a_rejected_request_fails_with_an_error_of_its_own_and_can_be_asked_again() {
    let key = KeyPair::generate().unwrap();
    let (tls, server_tls) = settings(&key);
    let client = Endpoint::bind(EndpointConfig::loopback()).unwrap();
    let first = server(&server_tls, Placement::Thread, true);
    exchange(&begin(&client, first.local_addr(), &tls), &first);
    // This server knows no sessions.
    let restarted = server(&settings(&key).1, Placement::Thread, true);
    let relay = Relay::new(restarted.local_addr());
    let connection = begin(&client, relay.address, &tls);
    let (mut send, mut recv) = connection.open_bi_early().unwrap();
    send.write_chunk(Bytes::from_static(b"in vain")).unwrap();
    assert_eq!(recv.read_chunk(), Err(ReadError::EarlyRejected));
    connection.connected().unwrap();
    assert_eq!(send.write_chunk(Bytes::from_static(b"more")), Err(WriteError::EarlyRejected));
    // The handles of the lost stream do not disturb the one that has its ID now.
    let (request, replayable) = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let accepted = restarted.accept().unwrap();
            let asked = answer(&accepted);
            accepted.closed();
            asked
        });
        let (mut again, mut answered) = connection.open_bi_early().unwrap();
        again.write_chunk(Bytes::from_static(b"a request")).unwrap();
        send.reset(7);
        drop((send, recv));
        again.finish().unwrap();
        assert_eq!(answered.read_chunk().unwrap().as_deref(), Some(&b"an answer"[..]));
        connection.close(0, "");
        asked.join().unwrap()
    });
    assert_eq!((&request[..], replayable), (&b"a request"[..], false));
}

#[test]
fn hosts_identified_by_their_keys_never_use_0_rtt() {
    let (host, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let tls = identity::client_config(&own, &[host.public().fingerprint()], ["test/1"]).unwrap().config;
    let server = server(&identity::server_config(&host, ["test/1"]).unwrap(), Placement::Thread, true);
    let client = Endpoint::bind(EndpointConfig::loopback()).unwrap();
    for _ in 0..2 {
        let (request, replayable) = exchange(&begin(&client, server.local_addr(), &tls), &server);
        assert_eq!((&request[..], replayable), (&b"a request"[..], false));
    }
}
