//! Datagrams, messages, and values on which both ends agree.

use std::time::Duration;

use bytes::Bytes;
use litz::{AcceptStreamError, Closed, DatagramError, MessageError, Side};

use crate::world::{TEST_TIMEOUT, Variant, World, pattern, serve};

pub(crate) fn datagrams_arrive_unchanged(variant: Variant) {
    const COUNT: usize = 200;
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            // The server echoes, so that the client sends no faster than this reads.
            for _ in 0..COUNT {
                let datagram = connection.recv_datagram_timeout(TEST_TIMEOUT).unwrap().expect("nothing is lost here");
                connection.send_datagram(datagram).unwrap();
            }
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let len_max = connection.datagram_len_max().unwrap();
            assert!((1000..1200).contains(&len_max), "{len_max}");
            let large = connection.send_datagram(Bytes::from(vec![0; len_max + 1]));
            assert_eq!(large, Err(DatagramError::TooLarge { len_max }));
            for index in 0..COUNT {
                let sent = Bytes::from(pattern(index * len_max / (COUNT - 1), index as u64));
                connection.send_datagram(sent.clone()).unwrap();
                assert_eq!(connection.recv_datagram_timeout(TEST_TIMEOUT).unwrap(), Some(sent));
            }
            connection.close(0, "done");
            assert_eq!(connection.closed(), Closed::Local);
            let late = connection.send_datagram(Bytes::new());
            assert_eq!(late, Err(DatagramError::ConnectionClosed(Closed::Local)));
        },
    );
}

pub(crate) fn a_peer_that_takes_no_datagrams_is_known(variant: Variant) {
    let world = World::new(variant);
    let mut config = world.config();
    config.transport.datagram_receive_buffer = 0;
    serve(
        &world,
        config,
        |server| drop(server.accept().unwrap().closed()),
        |client, address| {
            let connection = world.connect(client, address);
            assert_eq!(connection.datagram_len_max(), None);
            assert_eq!(connection.send_datagram(Bytes::new()), Err(DatagramError::Unsupported));
            connection.close(0, "done");
        },
    );
}

pub(crate) fn messages_arrive_whole_and_each_once(variant: Variant) {
    const LEN_MAX: usize = 3 << 20;
    // The number exceeds one message per stream at a time, and the bytes exceed the queues.
    let lens: Vec<usize> = (0..400).map(|index| index * 37 % 4000).chain([LEN_MAX, LEN_MAX, LEN_MAX, 0]).collect();
    let world = World::new(variant);
    let config = world.config().with_message_len_max(LEN_MAX);
    serve(
        &world,
        config,
        |server| {
            let connection = server.accept().unwrap();
            let mut missing = lens.clone();
            for _ in 0..lens.len() {
                let message = connection.recv_message_timeout(TEST_TIMEOUT).unwrap().expect("a message is missing");
                assert_eq!(message, pattern(message.len(), message.len() as u64));
                let place = missing.iter().position(|len| *len == message.len()).expect("a message came twice");
                missing.swap_remove(place);
            }
            assert!(connection.recv_message_timeout(Duration::from_millis(20)).unwrap().is_none());
            assert_eq!(connection.accept_uni().unwrap_err(), AcceptStreamError::MessageMode);
            connection.send_message(Bytes::from_static(b"thanks")).unwrap();
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let long = connection.send_message(Bytes::from(vec![0; LEN_MAX + 1]));
            assert_eq!(long, Err(MessageError::TooLong { len_max: LEN_MAX }));
            for len in &lens {
                connection.send_message(pattern(*len, *len as u64).into()).unwrap();
            }
            connection.flush_messages().unwrap();
            assert_eq!(connection.recv_message().unwrap(), Bytes::from_static(b"thanks"));
            connection.close(0, "done");
        },
    );
}

pub(crate) fn only_a_message_longer_than_the_receiver_takes_is_refused(variant: Variant) {
    let world = World::new(variant);
    let server = world.server(world.config().with_message_len_max(1000));
    let address = server.local_addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let connection = server.accept().unwrap();
            let mut lens = [0, 0].map(|_| connection.recv_message_timeout(TEST_TIMEOUT).unwrap().unwrap().len());
            lens.sort_unstable();
            assert_eq!(lens, [999, 1000]);
            assert!(matches!(connection.recv_message(), Err(MessageError::ConnectionClosed(_))));
        });
        let client = world.client(world.config());
        let connection = world.connect(&client, address);
        for len in [1000, 100_000, 999] {
            connection.send_message(Bytes::from(vec![1; len])).unwrap();
        }
        connection.flush_messages().unwrap();
        connection.close(0, "done");
    });
}

pub(crate) fn only_a_long_message_is_refused_after_the_end_too(variant: Variant) {
    let world = World::new(variant);
    let server = world.server(world.config().with_message_len_max(1000));
    let address = server.local_addr();
    std::thread::scope(|scope| {
        let serving = &server;
        scope.spawn(move || {
            let connection = serving.accept().unwrap();
            // Everything has arrived, and the streams are not yet known to be messages.
            assert!(matches!(connection.closed(), Closed::ByPeer { .. }));
            for len in [1000, 999] {
                assert_eq!(connection.recv_message().unwrap(), vec![1; len]);
            }
            assert!(matches!(connection.recv_message(), Err(MessageError::ConnectionClosed(_))));
        });
        let client = world.client(world.config());
        let connection = world.connect(&client, address);
        for len in [1000, 1001, 100_000, 999] {
            connection.send_message(Bytes::from(vec![1; len])).unwrap();
        }
        connection.flush_messages().unwrap();
        connection.close(0, "done");
    });
}

pub(crate) fn messages_and_streams_received_before_the_end_can_be_read_after_it(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            assert!(matches!(connection.closed(), Closed::ByPeer { .. }));
            assert_eq!(connection.recv_message().unwrap(), Bytes::from_static(b"early"));
            assert!(matches!(connection.recv_message(), Err(MessageError::ConnectionClosed(_))));
        },
        |client, address| {
            let connection = world.connect(client, address);
            connection.send_message(Bytes::from_static(b"early")).unwrap();
            connection.flush_messages().unwrap();
            connection.close(0, "done");
        },
    );
}

pub(crate) fn both_ends_agree_on_keys_identities_and_addresses(variant: Variant) {
    let world = &World::new(variant);
    let (sender, receiver) = std::sync::mpsc::channel();
    serve(
        world,
        world.config(),
        move |server| {
            let connection = server.accept().unwrap();
            let mut material = [0; 32];
            connection.export_keying_material(b"label", b"context", &mut material).unwrap();
            sender.send((material, connection.remote_addr(), connection.local_addr())).unwrap();
            assert_eq!((connection.peer_identity().len(), connection.side()), (1, Side::Server));
            connection.closed();
            assert!(connection.export_keying_material(b"label", b"context", &mut material).is_err());
        },
        move |client, address| {
            let connection = world.connect(client, address);
            let mut material = [0; 32];
            connection.export_keying_material(b"label", b"context", &mut material).unwrap();
            let mut other = [0; 32];
            connection.export_keying_material(b"label", b"else", &mut other).unwrap();
            assert_ne!(material, other);
            let theirs = receiver.recv_timeout(TEST_TIMEOUT).unwrap();
            assert_eq!(theirs, (material, client.local_addr(), address));
            assert_eq!((connection.remote_addr(), connection.side()), (address, Side::Client));
            let identity = connection.peer_identity();
            assert!(litz::identity::peer_public_key(Some(&identity)).is_ok());
            let stats = connection.stats();
            assert!(stats.handshake_time.is_some() && stats.session.cipher_suite.is_some());
            connection.close(0, "done");
        },
    );
}
