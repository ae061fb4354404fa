//! Closing connections and endpoints, and failures to connect.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use bytes::Bytes;
use litz::identity::{self, KeyPair};
use litz::{
    AcceptStreamError, AddressValidation, Closed, ConnectOptions, Endpoint, ErrorCode, OpenError, ReadError, WriteError,
};
use net::{MonotonicClock, Transmit};

use crate::world::{TEST_TIMEOUT, Variant, World, serve};

pub(crate) fn dropping_a_side_of_a_stream_notifies_the_peer(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            // Dropped without an end: an error, not a short file.
            let mut cut_off = connection.accept_uni().unwrap();
            assert_eq!(cut_off.read_chunk(), Ok(Some(Bytes::from_static(b"part"))));
            connection.open_uni().unwrap().finish().unwrap();
            assert_eq!(cut_off.read_chunk(), Err(ReadError::Reset(0)));
            // Finished and dropped: complete.
            let mut whole = Vec::new();
            connection.accept_uni().unwrap().read_to_end(&mut whole).unwrap();
            assert_eq!(whole, b"whole");
            // Dropped by its reader.
            drop(connection.accept_uni().unwrap());
            // Reset with a code.
            let mut reset = connection.accept_uni().unwrap();
            while let Ok(Some(_)) = reset.read_chunk() {}
            assert_eq!(reset.read_chunk(), Err(ReadError::Reset(42)));
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let mut cut_off = connection.open_uni().unwrap();
            cut_off.write_all(b"part").unwrap();
            // This happens after the server has received the data, because a reset may overtake it.
            assert!(connection.accept_uni().unwrap().read_chunk().unwrap().is_none());
            drop(cut_off);

            let mut whole = connection.open_uni().unwrap();
            whole.write_all(b"whole").unwrap();
            whole.finish().unwrap();
            drop(whole);

            let mut unwanted = connection.open_uni().unwrap();
            let stopped = loop {
                if let Err(error) = unwanted.write_chunk(Bytes::from(vec![1; 1000])) {
                    break error;
                }
            };
            assert_eq!(stopped, WriteError::Stopped(0));
            let error = unwanted.write_all(b"more").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);

            let mut reset = connection.open_uni().unwrap();
            reset.write_all(b"part").unwrap();
            reset.reset(42);
            assert_eq!(reset.write_chunk(Bytes::from_static(b"x")), Err(WriteError::Closed));
            assert!(connection.closed_timeout(Duration::from_millis(50)).is_none());
            connection.close(0, "done");
        },
    );
}

pub(crate) fn the_last_handle_closes_and_a_close_carries_code_and_reason(variant: Variant) {
    let world = &World::new(variant);
    // Several drivers may accept connections in any order, so the second one begins after the
    // first.
    let (sender, receiver) = std::sync::mpsc::channel();
    serve(
        world,
        world.config(),
        move |server| {
            let connection = server.accept().unwrap();
            assert_eq!(connection.closed(), Closed::ByPeer { code: 7, reason: "seven".to_owned() });
            assert_eq!(connection.stats().receive.packets_unauthentic, 0);
            sender.send(()).unwrap();
            let connection = server.accept().unwrap();
            let mut recv = connection.accept_uni().unwrap();
            // Data that arrived before the close is readable after it; then comes the reason.
            assert_eq!(connection.closed(), Closed::ByPeer { code: 0, reason: String::new() });
            assert_eq!(recv.read_chunk(), Ok(Some(Bytes::from_static(b"last words"))));
            let gone = Closed::ByPeer { code: 0, reason: String::new() };
            // The reset of the dropped stream may have arrived before the close.
            let ends = [ReadError::Reset(0), ReadError::ConnectionClosed(gone.clone())];
            assert!(ends.contains(&recv.read_chunk().unwrap_err()));
            assert_eq!(connection.accept_uni().unwrap_err(), AcceptStreamError::ConnectionClosed(gone));
            assert!(connection.open_uni().is_err());
        },
        move |client, address| {
            let connection = world.connect(client, address);
            connection.close(7, "seven");
            connection.close(8, "too late");
            assert_eq!(connection.closed(), Closed::Local);
            assert!(connection.stats().send.packets_sent > 0);
            receiver.recv().unwrap();

            let connection = world.connect(client, address);
            let clone = connection.clone();
            let mut send = connection.open_uni().unwrap();
            drop(connection);
            // A clone and a stream keep it alive.
            drop(clone);
            send.write_all(b"last words").unwrap();
            assert!(send.connection().closed_timeout(Duration::from_millis(100)).is_none());
            drop(send);
        },
    );
}

/// The last datagram of the handshake and a close may be received in one turn of the driver. The
/// client then connects as in two turns: it learns of the close afterwards.
pub(crate) fn a_connection_closed_at_once_was_connected(variant: Variant) {
    let world = World::new(variant);
    let full = Closed::ByPeer { code: 9, reason: "full".into() };
    serve(
        &world,
        world.config(),
        |server| server.accept().unwrap().close(9, "full"),
        |client, address| {
            let tls = world.client_tls.clone();
            let connection = client.connect_early(&ConnectOptions::default(), address, "host", tls).unwrap();
            assert_eq!(connection.closed(), full);
            assert_eq!(connection.connected(), Ok(()));
            assert_eq!(connection.open_bi().map(|_| ()), Err(OpenError::ConnectionClosed(full.clone())));
        },
    );
}

pub(crate) fn dropping_an_endpoint_closes_its_connections_and_returns_soon(variant: Variant) {
    let world = World::new(variant);
    let server = world.server(world.config());
    let address = server.local_addr();
    let clock = MonotonicClock::start();
    std::thread::scope(|scope| {
        let world = &world;
        scope.spawn(move || {
            let client = world.client(world.config());
            let connection = world.connect(&client, address);
            assert_eq!(connection.closed(), Closed::ByPeer { code: 0, reason: String::new() });
        });
        let connection = server.accept().unwrap();
        assert!(connection.closed_timeout(Duration::from_millis(20)).is_none());
        let before = clock.now();
        server.close();
        let took = clock.now() - before;
        assert!(took < units::Duration::from_millis(900), "closing took {took}");
        // The handle outlives the endpoint and returns the reason.
        assert_eq!(connection.closed(), Closed::EndpointClosed);
        assert!(connection.open_bi().is_err());
    });
}

pub(crate) fn an_address_without_a_peer_times_out_with_a_clear_error(variant: Variant) {
    let world = World::new(variant);
    let unserved = world.socket(0);
    let client = world.client(world.config_with_handshake_timeout(Duration::from_millis(300)));
    let clock = MonotonicClock::start();
    let error = client.connect(unserved.local_addr().unwrap(), "host", world.client_tls.clone()).unwrap_err();
    let took = clock.now().since_start();
    assert_eq!(error, Closed::HandshakeTimedOut { last_send_error: None });
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::TimedOut);
    assert!(took >= units::Duration::from_millis(300) && took < units::Duration::from_secs(5), "it took {took}");
}

pub(crate) fn a_wrong_host_and_a_wrong_family_have_different_errors(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            // The server is not notified of the client that rejects its key, and continues.
            server.accept().unwrap().closed();
        },
        |client, address| {
            let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
            let tls = identity::client_config(&key, &[other.public().fingerprint()], ["test/1"]).unwrap();
            let error = client.connect(address, "host", tls.config.clone()).unwrap_err();
            let Closed::Tls { by_peer: false, reason, .. } = &error else { panic!("{error:?}") };
            let wrong = tls.wrong_host().expect("the handshake failed because of the key");
            assert_eq!(*reason, wrong.to_string());
            // The user reads the whole message: the expected key, the received key, and the remedy.
            let message = error.to_string();
            assert!(message.contains(&other.public().fingerprint().to_string()), "{message}");
            assert!(message.contains(&wrong.presented.to_string()), "{message}");
            assert!(message.contains("check the address"), "{message}");
            for internal in ["WrongHost", "InvalidCertificate", "Other", "Fingerprint(", "{", "["] {
                assert!(!message.contains(internal), "{message}");
            }

            let elsewhere = "[::1]:9".parse().unwrap();
            let error = client.connect(elsewhere, "host", world.client_tls.clone()).unwrap_err();
            assert_eq!(error, Closed::NoSocket);
            let error = client.connect(address, "no host name!", world.client_tls.clone()).unwrap_err();
            assert!(matches!(error, Closed::Configuration(_)), "{error:?}");
            assert!(matches!(client.accept().unwrap_err(), Closed::Configuration(_)));
            world.connect(client, address).close(0, "done");
        },
    );
}

pub(crate) fn a_restarted_server_is_reached_at_its_old_address(variant: Variant) {
    let world = World::new(variant);
    let server = world.server(world.config());
    let address = server.local_addr();
    let echo = |server: &Endpoint| {
        // If the client fails, this thread does not wait for it.
        let connection = server.accept_timeout(TEST_TIMEOUT).unwrap().expect("a client in time");
        let (mut send, mut recv) = connection.accept_bi().unwrap();
        let mut words = String::new();
        recv.read_to_string(&mut words).unwrap();
        send.write_all(words.as_bytes()).unwrap();
        send.finish().unwrap();
        send.wait_finished().unwrap();
    };
    std::thread::scope(|scope| {
        let world = &world;
        let (restarted, wait) = std::sync::mpsc::channel();
        scope.spawn(move || {
            echo(&server);
            server.close();
            let server = world.server_at(world.config(), address.port());
            restarted.send(()).unwrap();
            echo(&server);
        });
        let client = world.client(world.config());
        for _ in 0..2 {
            let connection = world.connect(&client, address);
            let (mut send, mut recv) = connection.open_bi().unwrap();
            send.write_all(b"again").unwrap();
            send.finish().unwrap();
            let mut words = String::new();
            recv.read_to_string(&mut words).unwrap();
            assert_eq!(words, "again");
            assert!(matches!(connection.closed(), Closed::ByPeer { code: 0, .. }));
            let _last_time = wait.recv_timeout(TEST_TIMEOUT);
        }
    });
}

pub(crate) fn clients_beyond_the_limits_are_not_answered(variant: Variant) {
    let world = World::new(variant);
    let limited = world.config_with_handshake_timeout(Duration::from_millis(500)).with_half_open_max(1);
    let server = world.server(limited);
    let address = server.local_addr();
    let short_timeout = || world.config_with_handshake_timeout(Duration::from_millis(300));
    std::thread::scope(|scope| {
        let world = &world;
        let (first_is_in, go_on) = std::sync::mpsc::channel();
        let (second_failed, refused) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let client = world.client(world.config().with_connections_max(1));
            let connection = world.connect(&client, address);
            let error = client.connect(address, "host", world.client_tls.clone()).unwrap_err();
            assert_eq!(error, Closed::TooMany);
            first_is_in.send(()).unwrap();
            connection.closed();
        });
        scope.spawn(move || {
            let client = world.client(short_timeout());
            go_on.recv_timeout(TEST_TIMEOUT).unwrap();
            // The first one fills the queue for `accept`.
            let error = client.connect(address, "host", world.client_tls.clone()).unwrap_err();
            assert_eq!(error, Closed::HandshakeTimedOut { last_send_error: None });
            second_failed.send(()).unwrap();
            // After `accept` the queue has space again; until then this one retries.
            let client = world.client(world.config());
            world.connect(&client, address).close(3, "");
        });
        // Drives the server's engine without accepting, under `Inline` too.
        let idle = world.client(world.config());
        while refused.try_recv().is_err() {
            drive(&server, &idle, world);
        }
        let first = server.accept().unwrap();
        let second = server.accept().unwrap();
        assert_eq!(second.closed(), Closed::ByPeer { code: 3, reason: String::new() });
        first.close(0, "");
        // Until the close frame is sent.
        assert_eq!(first.closed(), Closed::Local);
    });
}

pub(crate) fn a_client_beyond_the_limit_of_connections_is_refused_at_once(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config().with_connections_max(1),
        |server| assert_eq!(server.accept().unwrap().closed(), Closed::ByPeer { code: 0, reason: String::new() }),
        |_, address| {
            let client = world.client(world.config());
            let connection = world.connect(&client, address);
            let error = client.connect(address, "host", world.client_tls.clone()).unwrap_err();
            let Closed::ByPeerTransport(reason) = &error else { panic!("{error:?}") };
            assert_eq!(reason.code, ErrorCode::CONNECTION_REFUSED);
            assert_eq!(std::io::Error::from(error).kind(), ErrorKind::ConnectionRefused);
            connection.close(0, "");
            // Until the close frame is sent.
            assert_eq!(connection.closed(), Closed::Local);
        },
    );
}

pub(crate) fn a_client_proves_its_address_first(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config().with_address_validation(AddressValidation::Always),
        |server| {
            for _ in 0..3 {
                assert_eq!(server.accept().unwrap().closed(), Closed::ByPeer { code: 5, reason: String::new() });
            }
        },
        |client, address| {
            for _ in 0..3 {
                let connection = world.connect(client, address);
                connection.close(5, "");
                assert_eq!(connection.closed(), Closed::Local);
            }
        },
    );
}

/// Runs a server that must not accept for a moment: it connects to an address without a peer.
fn drive(server: &Endpoint, unserved: &Endpoint, world: &World) {
    let _refused = server.connection_count();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| server.connect(unserved.local_addr(), "host", world.client_tls.clone()));
        assert!(connecting.join().unwrap().is_err());
    });
}

pub(crate) fn waiting_with_a_timeout_ends_in_time(variant: Variant) {
    let world = World::new(variant);
    let server = world.server(world.config());
    let clock = MonotonicClock::start();
    assert!(server.accept_timeout(Duration::from_millis(50)).unwrap().is_none());
    let took = clock.now().since_start();
    assert!(took >= units::Duration::from_millis(50) && took < units::Duration::from_secs(2), "it took {took}");
    let address = server.local_addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = world.client(world.config());
            world.connect(&client, address).closed();
        });
        let connection = server.accept_timeout(TEST_TIMEOUT).unwrap().unwrap();
        let wait = Duration::from_millis(20);
        assert!(connection.accept_bi_timeout(wait).unwrap().is_none());
        assert!(connection.accept_uni_timeout(wait).unwrap().is_none());
        assert!(connection.recv_datagram_timeout(wait).unwrap().is_none());
        assert!(connection.closed_timeout(wait).is_none());
        let (mut send, mut recv) = connection.open_bi().unwrap();
        send.write_all(b"x").unwrap();
        assert!(recv.read_chunk_timeout(wait).unwrap().is_none());
        connection.close(0, "done");
    });
}

pub(crate) fn malformed_datagrams_of_unknown_senders_do_no_harm(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            let mut all = Vec::new();
            connection.accept_uni().unwrap().read_to_end(&mut all).unwrap();
            assert_eq!(all, b"still here");
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            // Enough sockets to reach every processor that shares the port.
            for _ in 0..16 {
                let mut outsider = world.socket(0);
                for contents in [&b""[..], &[0x40], &[0x40; 9], &[0xc0; 1200], &[0x40; 1200]] {
                    let transmit =
                        Transmit { destination: address, source_ip: None, ecn: None, contents, segment_size: None };
                    outsider.send(&transmit).unwrap();
                }
            }
            let mut send = connection.open_uni().unwrap();
            send.write_all(b"still here").unwrap();
            send.finish().unwrap();
            send.wait_finished().unwrap();
            connection.close(0, "done");
        },
    );
}

pub(crate) fn an_endpoint_is_idle_when_its_connections_are_gone(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            assert!(!server.wait_idle(Duration::from_millis(1)), "a connection exists");
            assert!(matches!(connection.closed(), Closed::ByPeer { code: 3, .. }));
            drop(connection);
            assert!(server.wait_idle(TEST_TIMEOUT));
            assert_eq!(server.connection_count(), 0);
        },
        |client, address| {
            assert!(client.wait_idle(Duration::ZERO), "there was no connection yet");
            let connection = world.connect(client, address);
            connection.close(3, "");
            assert!(client.wait_idle(TEST_TIMEOUT));
            assert_eq!(client.connection_count(), 0);
        },
    );
}

pub(crate) fn a_sender_learns_that_its_stream_was_stopped(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            let mut first = connection.accept_uni().unwrap();
            let mut byte = [0];
            first.read_exact(&mut byte).unwrap();
            first.stop(9);
            let mut rest = Vec::new();
            connection.accept_uni().unwrap().read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"to the end");
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let mut stopped = connection.open_uni().unwrap();
            stopped.write_all(b"x").unwrap();
            stopped.flush().unwrap();
            assert_eq!(stopped.stopped(), Ok(Some(9)));
            assert_eq!(stopped.write_chunk(Bytes::from_static(b"y")), Err(WriteError::Stopped(9)));
            let mut read = connection.open_uni().unwrap();
            read.write_all(b"to the end").unwrap();
            read.finish().unwrap();
            assert_eq!(read.stopped(), Ok(None));
            let mut reset = connection.open_uni().unwrap();
            reset.reset(1);
            assert_eq!(reset.stopped(), Err(WriteError::Closed));
            connection.close(0, "");
        },
    );
}
