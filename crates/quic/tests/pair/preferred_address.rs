//! A server's preferred address (RFC 9000, section 9.6): the client moves there once the handshake is
//! confirmed, if the address responds.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use bytes::Bytes;
use quic::session::deterministic::DeterministicFactory;
use quic::{Addresses, Chunk, Dir, Event, PreferredAddresses, ReadError, Side, StreamId, TransportConfig};
use units::{Duration, Instant, Rng};

use crate::support::{CLIENT, Node, SERVER};

/// The server's second socket.
const PREFERRED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 3000);

/// The same time for every datagram.
const DELAY: Duration = Duration::from_millis(5);

/// A client, and a server with two sockets.
struct World {
    now: Instant,
    client: Node,
    server: Node,
    /// Nothing passes to the preferred address.
    is_blocked: bool,
    /// Datagrams that the client has sent there, and those before it was confirmed.
    sent_to_preferred: usize,
    /// The longest sequence of bytes that the server has sent from the second socket.
    from_preferred: usize,
}

impl World {
    fn new(client: TransportConfig, server: TransportConfig) -> Self {
        let rng = Rng::from_seed(3);
        let factory = |side, name| Arc::new(DeterministicFactory::new(side, rng.split(name)));
        let mut world = Self {
            now: Instant::ZERO,
            client: Node::new(Side::Client, client, &rng.split("client"), None),
            server: Node::new(
                Side::Server,
                server,
                &rng.split("server"),
                Some(factory(Side::Server, "server session")),
            ),
            is_blocked: false,
            sent_to_preferred: 0,
            from_preferred: 0,
        };
        let sessions = factory(Side::Client, "client session");
        let addresses = Addresses::of(SERVER);
        let connection = world.client.endpoint.connect(world.now, &*sessions, "server", addresses).unwrap();
        world.client.add(connection);
        world
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.client.flush(self.now);
            self.server.flush(self.now);
            self.now += DELAY;
            for (addresses, datagram) in std::mem::take(&mut self.client.outbox) {
                let is_preferred = addresses.remote == SocketAddr::V4(PREFERRED);
                assert!(is_preferred || addresses.remote == SERVER, "{addresses:?}");
                self.sent_to_preferred += usize::from(is_preferred);
                if !(is_preferred && self.is_blocked) {
                    let addresses = Addresses { socket: u16::from(is_preferred), ..Addresses::of(CLIENT) };
                    self.server.receive_on(self.now, &datagram, datagram.ecn, addresses);
                }
            }
            for (addresses, datagram) in std::mem::take(&mut self.server.outbox) {
                assert_eq!(addresses.remote, CLIENT);
                let is_preferred = addresses.socket == 1;
                self.from_preferred += if is_preferred { datagram.len() } else { 0 };
                let from = if is_preferred { SocketAddr::V4(PREFERRED) } else { SERVER };
                self.client.receive_on(self.now, &datagram, datagram.ecn, Addresses::of(from));
            }
            self.client.take_in(self.now);
            self.server.take_in(self.now);
            self.client.handle_timeouts(self.now);
            self.server.handle_timeouts(self.now);
        }
    }

    /// Where the client's path leads, and the socket of the server's.
    fn path(&mut self) -> (SocketAddr, u16) {
        let client = self.client.connection(0).path_stats()[0].addresses.remote;
        (client, self.server.connection(0).path_stats()[0].addresses.socket)
    }

    fn has_moved(&mut self) -> bool {
        self.client.take_event(0, |event| matches!(event, Event::Migrated(_))).is_some()
    }

    /// Sends 100 kB from the client, all of which must arrive.
    fn send(&mut self) {
        let connection = self.client.connection(0);
        let id = connection.open(Dir::Uni).unwrap();
        let mut bytes = Bytes::from(vec![7; 100_000]);
        connection.write_some(id, &mut bytes).unwrap();
        assert!(bytes.is_empty());
        connection.finish(id).unwrap();
        self.run_for(Duration::from_secs(3));
        assert_eq!(self.read(id), 100_000);
    }

    fn read(&mut self, id: StreamId) -> usize {
        let (now, connection) = (self.now, self.server.connection(0));
        let mut count = 0;
        loop {
            match connection.read(now, id, 1 << 20) {
                Ok(Chunk::Bytes(bytes)) => count += bytes.len(),
                Ok(Chunk::End) => return count,
                Err(ReadError::Blocked) => panic!("{count} bytes have arrived"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn preferring(ipv4: Option<SocketAddrV4>, ipv6: Option<SocketAddrV6>) -> TransportConfig {
    TransportConfig::default().with_preferred_addresses(PreferredAddresses { ipv4, ipv6 })
}

/// A client that took nothing from the first address after the move would lose a round trip of data.
#[test]
fn data_under_way_from_the_first_address_are_taken() {
    let mut world = World::new(TransportConfig::default(), preferring(Some(PREFERRED), None));
    while world.server.connections.is_empty() || !world.server.connection(0).is_established() {
        world.run_for(DELAY);
    }
    let connection = world.server.connection(0);
    let id = connection.open(Dir::Uni).unwrap();
    let mut bytes = Bytes::from(vec![7; 200_000]);
    connection.write_some(id, &mut bytes).unwrap();
    connection.finish(id).unwrap();
    world.run_for(Duration::from_secs(1));
    assert!(world.has_moved());
    assert_eq!(world.server.connection(0).stats().send.packets_lost, 0);
}

#[test]
fn a_client_moves_to_the_preferred_address_once_it_responds() {
    let mut world = World::new(TransportConfig::default(), preferring(Some(PREFERRED), None));
    // One round trip into the handshake, and another one for its confirmation.
    world.run_for(DELAY);
    assert_eq!(world.sent_to_preferred, 0, "only a confirmed handshake allows it");
    world.run_for(Duration::from_secs(1));
    assert!(world.has_moved());
    assert_eq!(world.path(), (PREFERRED.into(), 1));
    let (sent, received) = (world.sent_to_preferred, world.from_preferred);
    assert!(sent > 0 && received > 0);
    world.send();
    assert_eq!(world.path(), (PREFERRED.into(), 1));
    assert!(world.sent_to_preferred > sent + 50, "the data take the new path");
    // The server has issued a spare ID for the one that was left.
    assert_eq!(world.client.connection(0).stats().paths[0].id.0, 0);
}

#[test]
fn a_preferred_address_is_for_its_connection_alone() {
    // RFC 9000, section 9.6.2.
    let mut world = World::new(TransportConfig::default(), preferring(Some(PREFERRED), None));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.path(), (PREFERRED.into(), 1));
    let factory = DeterministicFactory::new(Side::Client, Rng::from_seed(4).split("another session"));
    let another = world.client.endpoint.connect(world.now, &factory, "server", Addresses::of(SERVER)).unwrap();
    let another = world.client.add(another);
    world.client.flush(world.now);
    let to: Vec<SocketAddr> = world.client.outbox.iter().map(|(addresses, _)| addresses.remote).collect();
    assert_eq!(to, [SERVER]);
    assert_eq!(world.client.connection(another).path_stats()[0].addresses.remote, SERVER);
}

#[test]
fn a_client_stays_if_the_preferred_address_does_not_respond() {
    let mut world = World::new(TransportConfig::default(), preferring(Some(PREFERRED), None));
    world.is_blocked = true;
    world.run_for(Duration::from_secs(20));
    assert!(!world.has_moved());
    let probes = world.sent_to_preferred;
    assert!((1..=5).contains(&probes), "{probes} probes");
    world.send();
    assert_eq!((world.path(), world.from_preferred), ((SERVER, 0), 0));
    assert_eq!(world.sent_to_preferred, probes, "it has given up, and sent nothing else there");
}

#[test]
fn only_an_address_of_the_same_family_and_of_no_other_host_is_used() {
    let ipv6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 3000, 0, 0);
    let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3000);
    for preferred in [preferring(None, Some(ipv6)), preferring(Some(own), None)] {
        let mut world = World::new(TransportConfig::default(), preferred);
        world.run_for(Duration::from_secs(2));
        world.send();
        assert_eq!((world.path(), world.sent_to_preferred), ((SERVER, 0), 0));
    }
    let both = preferring(Some(PREFERRED), Some(ipv6));
    let mut world = World::new(TransportConfig::default(), both);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.path(), (PREFERRED.into(), 1));
}

#[test]
fn a_client_with_several_paths_leaves_them_to_the_application() {
    let server = preferring(Some(PREFERRED), None).with_max_paths(4);
    let mut world = World::new(TransportConfig::default().with_max_paths(4), server.clone());
    world.run_for(Duration::from_secs(2));
    assert_eq!((world.path(), world.sent_to_preferred), ((SERVER, 0), 0));
    // With one path it moves, although the server allows more.
    let mut world = World::new(TransportConfig::default(), server);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.path(), (PREFERRED.into(), 1));
}
