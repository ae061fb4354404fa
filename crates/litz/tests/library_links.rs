//! Sockets that are replaced, switched off and on, or added while an endpoint uses them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use litz::{
    Connection, Endpoint, EndpointConfig, LiveSocket, MigrateError, PathEvent, PathState, Placement, ReplaceableSocket,
    SocketSwitch, UdpSocket, UdpSocketOptions,
};

use crate::world::{TEST_TIMEOUT, Variant, Wire, World};

const PLACEMENTS: [Placement; 5] =
    [Placement::Thread, Placement::Inline, Placement::Split, Placement::Packet(2), Placement::Path(2)];

/// Opens a socket on loopback whose port others may share.
fn open(port: u16) -> UdpSocket {
    let bind = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    UdpSocket::open(&UdpSocketOptions::new(bind).with_reuse_port(true)).unwrap()
}

fn boxed((socket, switch): (ReplaceableSocket, SocketSwitch)) -> (Box<dyn LiveSocket>, SocketSwitch) {
    (Box::new(socket), switch)
}

/// Echoes streams until the connection ends.
fn echo(server: &Endpoint) {
    let connection = server.accept().unwrap();
    while let Ok((mut send, mut recv)) = connection.accept_bi() {
        let mut said = Vec::new();
        recv.read_to_end(&mut said).unwrap();
        send.write_all(&said).unwrap();
        send.finish().unwrap();
    }
}

fn ask(connection: &Connection, word: &[u8]) {
    let (mut send, mut recv) = connection.open_bi().unwrap();
    send.write_all(word).unwrap();
    send.finish().unwrap();
    let mut answer = Vec::new();
    recv.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, word);
}

/// Waits for the next change of a path's state.
fn state_of_path(connection: &Connection, wanted: PathState) {
    loop {
        let event = connection.next_path_event_timeout(TEST_TIMEOUT).unwrap().expect("the path changes in time");
        if matches!(event, PathEvent::State { state, .. } if state == wanted) {
            return;
        }
    }
}

#[test]
fn sockets_are_exchanged_under_every_placement() {
    for placement in PLACEMENTS {
        let world = World::new(Variant { wire: Wire::Udp, placement });
        let (server_socket, server_switch) = boxed(ReplaceableSocket::new(open(0)));
        let (client_socket, client_switch) = boxed(ReplaceableSocket::new(open(0)));
        let server = world.server_over(world.config(), server_socket);
        let address = server.local_addr();
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&server));
            let client = Endpoint::with_sockets(world.config(), vec![client_socket]).unwrap();
            let connection = world.connect(&client, address);
            ask(&connection, b"before");
            for round in 0..3 {
                // Another port: the server follows.
                client_switch.replace(open(0));
                ask(&connection, b"the client's was exchanged");
                // The same port: the client cannot follow.
                server_switch.replace(open(address.port()));
                ask(&connection, format!("the server's was exchanged {round}").as_bytes());
            }
            connection.close(0, "");
        });
    }
}

#[test]
fn a_vacant_place_becomes_a_path_that_can_be_switched_off_and_on() {
    for placement in PLACEMENTS {
        let world = World::new(Variant { wire: Wire::Udp, placement });
        let transport = world.config().transport.with_max_paths(2);
        let config = world.config().with_transport(transport);
        let server = world.server_over(config.clone(), Box::new(open(0)));
        let address = server.local_addr();
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&server));
            let (place, switch) = boxed(ReplaceableSocket::vacant());
            let client = Endpoint::with_sockets(config, vec![Box::new(open(0)), place]).unwrap();
            let connection = world.connect(&client, address);
            ask(&connection, b"one path");
            switch.replace(open(0));
            connection.open_path(1, address, false).unwrap();
            state_of_path(&connection, PathState::Active);
            switch.switch_off("the test wants it");
            // Detection needs data: an idle path is not used.
            let clock = net::MonotonicClock::start();
            while connection.stats().paths[1].state != PathState::Silent {
                assert!(clock.now() < units::Instant::ZERO + TEST_TIMEOUT.into(), "{placement}: never silent");
                ask(&connection, &[1; 100_000]);
                connection.next_path_event_timeout(Duration::from_millis(1)).unwrap();
            }
            switch.switch_on();
            while connection.stats().paths[1].state != PathState::Active {
                assert!(clock.now() < units::Instant::ZERO + TEST_TIMEOUT.into(), "{placement}: never active again");
                ask(&connection, &[1; 1000]);
                connection.next_path_event_timeout(Duration::from_millis(20)).unwrap();
            }
            connection.close(0, "");
        });
    }
}

/// A new path carries small packets at first, and datagrams fit into those of each path.
#[test]
fn the_size_of_datagrams_is_known_once_the_peer_has_opened_a_path() {
    let world = World::new(Variant { wire: Wire::Udp, placement: Placement::Thread });
    let config = world.config().with_transport(world.config().transport.with_max_paths(2).with_datagram_size_max(8972));
    let server = world.server_over(config.clone(), Box::new(open(0)));
    let address = server.local_addr();
    let (has_grown, grown) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let told = scope.spawn(|| {
            let connection = server.accept().unwrap();
            // Path MTU discovery needs data.
            let first = connection.datagram_len_max();
            while connection.datagram_len_max() == first {
                let mut stream = connection.open_uni().unwrap();
                stream.write_all(&[1; 100_000]).unwrap();
                stream.finish().unwrap();
            }
            let before = connection.datagram_len_max();
            has_grown.send(()).unwrap();
            state_of_path(&connection, PathState::Active);
            (before, connection.datagram_len_max())
        });
        let client = with_two_sockets(config);
        let connection = world.connect(&client, address);
        while grown.try_recv().is_err() {
            let mut said = Vec::new();
            // The call fails if the server's thread has ended.
            if let Some(mut stream) = connection.accept_uni_timeout(Duration::from_millis(20)).unwrap() {
                stream.read_to_end(&mut said).unwrap();
            }
        }
        connection.open_path(1, address, false).unwrap();
        let (before, after) = told.join().unwrap();
        assert!(after < before, "{after:?} after {before:?}");
        connection.close(0, "");
    });
}

fn with_two_sockets(config: EndpointConfig) -> Endpoint {
    let sockets: Vec<Box<dyn LiveSocket>> = vec![Box::new(open(0)), Box::new(open(0))];
    Endpoint::with_sockets(config, sockets).unwrap()
}

/// Returns the next event of a migration.
fn migration_event(connection: &Connection) -> PathEvent {
    loop {
        let event = connection.next_path_event_timeout(TEST_TIMEOUT).unwrap().expect("an event in time");
        if matches!(event, PathEvent::Migrated { .. } | PathEvent::MigrationRefused { .. }) {
            return event;
        }
    }
}

#[test]
fn a_connection_migrates_to_and_fro_in_mid_transfer() {
    for placement in PLACEMENTS {
        let world = World::new(Variant { wire: Wire::Udp, placement });
        // A server that allows several paths allows a single one to move.
        let transport = world.config().transport.with_max_paths(2);
        let server = world.server_over(world.config().with_transport(transport), Box::new(open(0)));
        let address = server.local_addr();
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&server));
            let client = with_two_sockets(world.config());
            let connection = world.connect(&client, address);
            for socket in [1, 0, 1] {
                let (mut send, mut recv) = connection.open_bi().unwrap();
                send.write_all(&[7; 300_000]).unwrap();
                connection.migrate(socket, address).unwrap();
                let event = migration_event(&connection);
                let PathEvent::Migrated { socket: at, remote, .. } = event else { panic!("{placement}: {event:?}") };
                assert_eq!((at, remote), (socket, address), "{placement}");
                send.write_all(&[7; 300_000]).unwrap();
                send.finish().unwrap();
                let mut answer = Vec::new();
                recv.read_to_end(&mut answer).unwrap();
                assert!(answer == [7; 600_000], "{placement}: {} bytes", answer.len());
                assert_eq!(usize::from(connection.stats().paths[0].addresses.socket), socket, "{placement}");
            }
            assert!(connection.migrate(2, address).unwrap_err().to_string().contains("socket"), "{placement}");
            connection.close(0, "");
        });
    }
}

#[test]
fn a_migration_that_is_forbidden_is_refused_with_an_event() {
    for placement in PLACEMENTS {
        let world = World::new(Variant { wire: Wire::Udp, placement });
        // A server of a single path forbids it.
        let server = world.server_over(world.config(), Box::new(open(0)));
        let address = server.local_addr();
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&server));
            let client = with_two_sockets(world.config());
            let connection = world.connect(&client, address);
            connection.migrate(1, address).unwrap();
            let refused = PathEvent::MigrationRefused { socket: 1, remote: address, error: MigrateError::Forbidden };
            assert_eq!(migration_event(&connection), refused, "{placement}");
            ask(&connection, b"still there");
            connection.close(0, "");
        });
    }
}

#[test]
fn an_endpoint_opens_its_socket_again_elsewhere() {
    for placement in PLACEMENTS.into_iter().chain([Placement::Connection(2)]) {
        let world = World::new(Variant { wire: Wire::Udp, placement });
        let server = world.server(world.config());
        let address = server.local_addr();
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&server));
            let client = Endpoint::bind(world.config()).unwrap();
            let before = client.local_addr();
            let connection = world.connect(&client, address);
            ask(&connection, b"before");
            let any = UdpSocketOptions::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
            let after = client.rebind(0, &any).unwrap();
            assert_ne!(after, before);
            ask(&connection, b"after");
            // An address of another host: the present socket stays.
            let foreign = UdpSocketOptions::new("192.0.2.1:0".parse().unwrap());
            assert!(client.rebind(0, &foreign).unwrap_err().to_string().contains("192.0.2.1"));
            assert!(client.rebind(1, &any).unwrap_err().to_string().contains("socket 1"));
            ask(&connection, b"still there");
            connection.close(0, "");
        });
    }
    let world = World::new(Variant { wire: Wire::Udp, placement: Placement::Thread });
    let given = world.client(world.config());
    assert!(given.rebind(0, &UdpSocketOptions::default()).is_err(), "it has not opened its socket");
}
