//! Faulty sockets, and datagrams from unknown senders.

use std::io;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use litz::{Closed, Endpoint, Placement};
use net::testing::{Coalesce, InterceptedSocket, OneByOne, Refusals, RefuseSends};
use net::{DatagramSocket, MemoryNetwork, RecvMeta, SendError, Transmit};

use crate::world::{Variant, Wire, World, pattern};

/// Sends eight megabytes over a socket with faults and returns how many faults occurred.
fn transfer_with(wire: Wire, placement: Placement, choose: fn(u64) -> Option<SendError>) -> u64 {
    let world = World::new(Variant { wire, placement });
    let refused = Arc::new(Refusals::default());
    let faulty = InterceptedSocket::new(world.socket(0), RefuseSends::new(choose, &refused));
    let server = world.server(world.config());
    let address = server.local_addr();
    std::thread::scope(|scope| {
        let server = &server;
        scope.spawn(move || {
            let connection = server.accept().unwrap();
            let mut all = Vec::new();
            connection.accept_uni().unwrap().read_to_end(&mut all).unwrap();
            assert!(all == pattern(8 << 20, 3));
            connection.close(0, "done");
            connection.closed();
        });
        let client = Endpoint::with_sockets(world.config(), vec![Box::new(faulty)]).unwrap();
        let connection = world.connect(&client, address);
        let mut send = connection.open_uni().unwrap();
        send.write_all(&pattern(8 << 20, 3)).unwrap();
        send.finish().unwrap();
        assert!(matches!(connection.closed(), Closed::ByPeer { .. }));
    });
    refused.chosen.load(Ordering::SeqCst)
}

#[test]
fn a_full_send_buffer_only_delays() {
    for placement in [Placement::Thread, Placement::Inline] {
        for wire in [Wire::Udp, Wire::Memory] {
            let met = transfer_with(wire, placement, |number| (number % 5 == 3).then_some(SendError::WouldBlock));
            assert!(met > 10, "only {met} faults over {wire:?}");
        }
    }
}

#[test]
fn full_queues_below_the_socket_only_delay() {
    let met = transfer_with(Wire::Udp, Placement::Thread, |number| {
        matches!(number % 7, 2..5).then_some(SendError::NoBuffers)
    });
    assert!(met > 10, "only {met} faults");
}

#[test]
fn batches_that_are_refused_are_sent_again_by_loss_recovery() {
    let met = transfer_with(Wire::Memory, Placement::Thread, |number| match number % 40 {
        17 => Some(SendError::Other(io::ErrorKind::PermissionDenied.into())),
        31 => Some(SendError::TooLarge),
        _ => None,
    });
    assert!(met > 2, "only {met} faults");
}

#[test]
fn a_batch_of_several_connections_is_split() {
    const CONNECTIONS: u64 = 4;
    let world = World::new(Variant { wire: Wire::Memory, placement: Placement::Thread });
    let coalesce = Coalesce::default();
    let joined = Arc::clone(&coalesce.joined);
    let server = world.server_over(world.config(), Box::new(InterceptedSocket::new(world.socket(0), coalesce)));
    let singles = InterceptedSocket::new(world.socket(0), OneByOne);
    let client = Endpoint::with_sockets(world.config(), vec![Box::new(singles)]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let connection = server.accept().unwrap();
                let mut all = Vec::new();
                connection.accept_uni().unwrap().read_to_end(&mut all).unwrap();
                assert!(all == pattern(2 << 20, 9));
                assert_eq!(connection.stats().receive.packets_unauthentic, 0);
                connection.close(0, "done");
            });
        }
        let connections: Vec<_> = (0..CONNECTIONS).map(|_| world.connect(&client, server.local_addr())).collect();
        for connection in connections {
            scope.spawn(move || {
                let mut send = connection.open_uni().unwrap();
                send.write_all(&pattern(2 << 20, 9)).unwrap();
                send.finish().unwrap();
                assert!(matches!(connection.closed(), Closed::ByPeer { .. }));
            });
        }
    });
    let joined = joined.load(Ordering::SeqCst);
    assert!(joined > 1000, "only {joined} datagrams were joined to others");
}

#[test]
fn a_route_that_accepts_no_datagrams_is_named_in_the_error() {
    let network = MemoryNetwork::with_datagram_bytes_max(1000);
    let world = World::new(Variant { wire: Wire::Memory, placement: Placement::Thread });
    let socket = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unserved = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = world.config_with_handshake_timeout(Duration::from_millis(200));
    let client = Endpoint::with_sockets(config, vec![Box::new(socket)]).unwrap();
    let error = client.connect(unserved.local_addr().unwrap(), "host", world.client_tls.clone()).unwrap_err();
    let Closed::HandshakeTimedOut { last_send_error: Some(why) } = &error else { panic!("{error:?}") };
    assert!(why.contains("larger"), "{why}");
}

#[test]
fn unknown_senders_get_a_version_or_no_answer() {
    let network = MemoryNetwork::new();
    let world = World::new(Variant { wire: Wire::Memory, placement: Placement::Thread });
    let listening = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listening.local_addr().unwrap();
    let server = world.server_over(world.config(), Box::new(listening));
    let mut outsider = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut ask = |datagram: &[u8]| {
        let transmit =
            Transmit { destination: address, source_ip: None, ecn: None, contents: datagram, segment_size: None };
        outsider.send(&transmit).unwrap();
        // The datagram is processed before this returns, because the same engine runs both.
        assert!(server.accept_timeout(Duration::from_millis(100)).unwrap().is_none());
        let (mut buffer, mut meta) = (vec![0; 2000], [RecvMeta::default()]);
        match outsider.recv(&mut [&mut buffer], &mut meta) {
            Ok(_) => Some(buffer[..meta[0].len].to_vec()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                None
            }
        }
    };
    // A long header of version 0x0a0b0c0d with IDs of eight and four bytes.
    let mut unknown = vec![0xc0, 0x0a, 0x0b, 0x0c, 0x0d, 8, 1, 2, 3, 4, 5, 6, 7, 8, 4, 9, 9, 9, 9];
    unknown.resize(1200, 0);
    let answer = ask(&unknown).expect("a version negotiation");
    // RFC 9000, section 17.2.1: version zero, the IDs exchanged, then the supported versions.
    assert_eq!(answer[1..5], [0; 4]);
    assert_eq!(answer[5..10], [4, 9, 9, 9, 9]);
    assert_eq!(answer[10..19], [8, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(answer[19..].chunks(4).any(|version| version == [0, 0, 0, 1]));
    assert_eq!(answer.len(), 19 + 3 * 4, "one packet with both versions and a reserved one, and no second one");
    // Too short to be answered; random bytes; a first packet that does not authenticate.
    assert_eq!(ask(&unknown[..1199]), None);
    let mut noise = pattern(1300, 1);
    noise[0] = 0x40;
    assert_eq!(ask(&noise), None);
    let mut forged = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x96];
    forged.resize(1200, 7);
    assert_eq!(ask(&forged), None);
    assert_eq!(ask(&[]), None);
    assert_eq!(server.connection_count(), 0);
}
