//! Classes of service: rate limits and path sets are kept, urgent data is sent first, and
//! connections get the processor that they request.

use std::time::Duration;

use bytes::Bytes;
use litz::units::Rate;
use litz::{Class, Closed, ConnectOptions, Connection, Endpoint, PathId, PathSet, RateLimit};
use net::MonotonicClock;

use crate::world::{TEST_TIMEOUT, Variant, World, pattern, serve};

const BURST: u64 = 16 << 10;

/// Returns a limit of one byte per microsecond.
fn limit() -> RateLimit {
    RateLimit::new(Rate::from_mbps(8), BURST).unwrap()
}

/// Sends `bytes` with `send`, waits until they were read, and returns the duration.
fn timed(variant: Variant, bytes: usize, send: impl FnOnce(&Connection, Bytes) + Send) -> units::Duration {
    let world = World::new(variant);
    let data = pattern(bytes, 1);
    let expected = data.clone();
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            let message = connection.recv_message().unwrap();
            assert_eq!(message, expected);
            connection.send_message(Bytes::from_static(b"thanks")).unwrap();
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let clock = MonotonicClock::start();
            let begun = clock.now();
            send(&connection, data.into());
            connection.recv_message().unwrap();
            clock.now() - begun
        },
    )
}

pub(crate) fn rates_of_streams_messages_and_connections_are_kept(variant: Variant) {
    const LEN: usize = 200_000;
    let least = units::Duration::from_micros(LEN as u64 - BURST);
    let took = timed(variant, LEN, |connection, data| {
        // A unidirectional stream carries the message.
        let mut stream = connection.open_uni().unwrap();
        stream.set_rate(Some(limit()));
        stream.write_chunk(data).unwrap();
        stream.finish().unwrap();
        stream.wait_finished().unwrap();
    });
    assert!(took >= least, "a stream: {took} of {least} and more");
    let took = timed(variant, LEN, |connection, data| {
        let class = Class::default().with_rate(limit());
        connection.send_message_as(data, &class).unwrap();
    });
    assert!(took >= least, "a message: {took} of {least} and more");
    let took = timed(variant, LEN, |connection, data| {
        connection.set_rate(Some(limit())).unwrap();
        connection.send_message(data).unwrap();
    });
    assert!(took >= least, "a connection: {took} of {least} and more");
    let took = timed(variant, LEN, |connection, data| {
        // This would take a hundred thousand seconds if the limit stayed.
        connection.set_rate(Some(RateLimit::new(Rate::from_bps(16), 1200).unwrap())).unwrap();
        connection.send_message(data).unwrap();
        connection.set_rate(None).unwrap();
    });
    assert!(took < TEST_TIMEOUT.into(), "a limit that was lifted: {took}");
}

pub(crate) fn urgent_messages_overtake_those_that_wait(variant: Variant) {
    const MESSAGES: usize = 300;
    const LEN: usize = 10_000;
    let world = World::new(variant);
    let before = serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            let lens = std::iter::from_fn(|| connection.recv_message().ok()).map(|message| message.len());
            let before = lens.take_while(|len| *len == LEN).count();
            connection.send_message(Bytes::from(before.to_string())).unwrap();
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            // All of them together take ten seconds.
            connection.set_rate(Some(RateLimit::new(Rate::from_bps(2_400_000), BURST).unwrap())).unwrap();
            for _ in 0..MESSAGES {
                connection.send_message(vec![0; LEN].into()).unwrap();
            }
            connection.send_message_as(vec![1; 200].into(), &Class::of_priority(1)).unwrap();
            let answer = connection.recv_message().unwrap();
            String::from_utf8(answer.to_vec()).unwrap().parse::<usize>().unwrap()
        },
    );
    assert!(before < MESSAGES * 3 / 4, "{before} of {MESSAGES} messages came before the urgent one");
}

pub(crate) fn messages_that_cannot_be_sent_block_no_others(variant: Variant) {
    const STUCK: usize = 70;
    let slow = RateLimit::new(Rate::from_bps(16), 1200).unwrap();
    let classes = [
        Class::default().with_paths(PathSet::only(&[PathId(7)]).unwrap()),
        // Some bytes of each arrive, so that partial messages do not fill the receiver's
        // reassembly.
        Class::of_priority(1).with_rate(slow),
    ];
    for class in classes {
        let world = World::new(variant);
        let large = pattern(300_000, 3);
        serve(
            &world,
            world.config(),
            |server| {
                let connection = server.accept().unwrap();
                for _ in 0..3 {
                    assert_eq!(connection.recv_message().unwrap(), large);
                }
                connection.close(0, "done");
            },
            |client, address| {
                let connection = world.connect(client, address);
                for _ in 0..STUCK {
                    connection.send_message_as(vec![0; 20_000].into(), &class).unwrap();
                }
                for _ in 0..3 {
                    connection.send_message(large.clone().into()).unwrap();
                }
                connection.closed();
            },
        );
    }
}

pub(crate) fn urgent_messages_get_a_stream_despite_many_small_ones(variant: Variant) {
    const FIRST: usize = 100;
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            for _ in 0..FIRST {
                assert_eq!(connection.recv_message().unwrap().len(), 10);
            }
            connection.send_message(Bytes::from_static(b"now")).unwrap();
            let lens = std::iter::from_fn(|| connection.recv_message().ok()).map(|message| message.len());
            let between = lens.take_while(|len| *len == 10).count();
            connection.close(0, "done");
            assert!(between < 250, "{between} small messages came before the urgent one");
        },
        |client, address| {
            let connection = world.connect(client, address);
            // The limit permits fifty of them per second. All of the burst is used before the
            // urgent one comes.
            connection.set_rate(Some(RateLimit::new(Rate::from_bps(4_000), 1200).unwrap())).unwrap();
            // The number exceeds the peer's stream limit.
            for _ in 0..1_100 {
                connection.send_message(vec![0; 10].into()).unwrap();
            }
            connection.recv_message().unwrap();
            connection.send_message_as(vec![1; 20].into(), &Class::of_priority(1)).unwrap();
            connection.closed();
        },
    );
}

pub(crate) fn a_stream_waits_for_its_paths(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            let early = connection.accept_uni_timeout(Duration::from_millis(150)).unwrap();
            assert!(early.is_none(), "nothing of it takes another path");
            connection.open_bi().unwrap().0.finish().unwrap();
            let mut stream = connection.accept_uni().unwrap();
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut stream, &mut all).unwrap();
            assert_eq!(all, pattern(50_000, 2));
            connection.close(0, "done");
        },
        |client, address| {
            let connection = world.connect(client, address);
            let mut stream = connection.open_uni().unwrap();
            stream.set_paths(PathSet::only(&[PathId(7)]).unwrap());
            stream.write_chunk(pattern(50_000, 2).into()).unwrap();
            stream.finish().unwrap();
            connection.accept_bi().unwrap();
            stream.set_paths(PathSet::only(&[PathId(7), PathId(0)]).unwrap());
            connection.closed();
        },
    );
}

pub(crate) fn connections_have_the_processor_they_ask_for(variant: Variant) {
    let world = World::new(variant);
    let count = variant.placement.driver_count();
    let connect = |client: &Endpoint, address, processor| {
        let options = ConnectOptions::default().with_processor(processor).with_priority(3);
        client.connect_with(&options, address, "host", world.client_tls.clone())
    };
    serve(
        &world,
        world.config(),
        |server| {
            for _ in 0..2 * count {
                let connection = server.accept().unwrap();
                let message = connection.recv_message().unwrap();
                connection.send_message(message).unwrap();
                connection.closed();
            }
        },
        |client, address| {
            let mut ports = Vec::new();
            for processor in (0..count).chain(0..count) {
                let connection = connect(client, address, processor).unwrap();
                connection.send_message(Bytes::from_static(b"there and back")).unwrap();
                connection.recv_message().unwrap();
                // Each processor has a socket of its own.
                ports.push(connection.local_addr().port());
                connection.close(0, "done");
            }
            assert_eq!(ports[..count], ports[count..], "the same processor again");
            ports.truncate(count);
            ports.sort_unstable();
            ports.dedup();
            assert_eq!(ports.len(), count, "different processors");
            let refusal = connect(client, address, count).expect_err("there is no such processor");
            assert_eq!(refusal, Closed::NoProcessor { processor: count, count });
            assert!(refusal.to_string().contains("connection("), "{refusal}");
        },
    );
}
