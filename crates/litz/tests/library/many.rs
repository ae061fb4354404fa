//! Many users of one engine: each gets its share, none blocks another, and memory stays bounded.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use litz::Connection;
use net::MonotonicClock;

use crate::world::{TEST_TIMEOUT, Variant, World, pattern, serve};

/// Answers every bidirectional stream with its own content, until the connection ends.
fn echo_all(connection: &Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi() {
        let mut all = Vec::new();
        recv.read_to_end(&mut all).unwrap();
        send.write_all(&all).unwrap();
        send.finish().unwrap();
    }
}

/// All of them have more to send until each has received its part, so a connection that is never
/// served while others have data would never get there. The evenness of the shares is another
/// question: `engine/tests/fairness.rs` examines it without the system's scheduler in between, and
/// the benchmark `fairness` with it.
pub(crate) fn sixty_four_connections_share_one_driver_and_each_gets_its_share(variant: Variant) {
    const CONNECTIONS: usize = 64;
    const PART: usize = 256 << 10;
    const CHUNK: usize = 64 << 10;
    let world = World::new(variant);
    // Number of connections that have received their part.
    let served = AtomicUsize::new(0);
    // Bytes of all of them together.
    let (sent, received) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Little data is in flight, so that no queue overflows: this tests the driver's scheduling, not
    // congestion control.
    let mut config = world.config();
    config.transport.stream_window = 32 << 10;
    config.transport.stream_window_max = 32 << 10;
    let clock = MonotonicClock::start();
    let deadline = clock.now() + TEST_TIMEOUT.into();
    serve(
        &world,
        config,
        |server| {
            std::thread::scope(|scope| {
                for _ in 0..CONNECTIONS {
                    let connection = server.accept().unwrap();
                    let (served, received) = (&served, &received);
                    scope.spawn(move || {
                        let mut recv = connection.accept_uni().unwrap();
                        let mut len = 0;
                        while let Some(chunk) = recv.read_chunk().unwrap() {
                            if len < PART && len + chunk.len() >= PART {
                                served.fetch_add(1, Ordering::Relaxed);
                            }
                            len += chunk.len();
                        }
                        received.fetch_add(len, Ordering::Relaxed);
                        connection.open_uni().unwrap().finish().unwrap();
                        connection.closed();
                    });
                }
            });
        },
        |client, address| {
            let connections: Vec<_> = (0..CONNECTIONS).map(|_| world.connect(client, address)).collect();
            assert_eq!(client.connection_count(), CONNECTIONS);
            std::thread::scope(|scope| {
                for connection in &connections {
                    let (served, sent, clock) = (&served, &sent, &clock);
                    scope.spawn(move || {
                        let mut send = connection.open_uni().unwrap();
                        let count = || served.load(Ordering::Relaxed);
                        while count() < CONNECTIONS {
                            assert!(clock.now() < deadline, "only {} of {CONNECTIONS} have their part", count());
                            send.write_chunk(Bytes::from(vec![7; CHUNK])).unwrap();
                            sent.fetch_add(CHUNK, Ordering::Relaxed);
                        }
                        send.finish().unwrap();
                        assert!(connection.accept_uni().unwrap().read_chunk().unwrap().is_none());
                    });
                }
            });
            for connection in &connections {
                connection.close(0, "done");
            }
        },
    );
    assert_eq!(received.into_inner(), sent.into_inner());
}

pub(crate) fn an_unread_stream_stalls_no_other_stream_and_no_other_connection(variant: Variant) {
    const LEN: usize = 16 << 20;
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            // Several drivers may accept them in any order; the first byte of a stream identifies
            // its connection.
            let mut accepted = [(); 2].map(|()| {
                let connection = server.accept().unwrap();
                let mut stream = connection.accept_uni().unwrap();
                let mut first_byte = [0];
                stream.read_exact(&mut first_byte).unwrap();
                (first_byte, connection, stream)
            });
            accepted.sort_by_key(|(first_byte, ..)| *first_byte);
            let [([1], first, mut unread), ([3], _second, mut third_stream)] = accepted else {
                panic!("the streams of both connections begin with a byte of their own")
            };
            let mut second_stream = first.accept_uni().unwrap();
            second_stream.read_exact(&mut [0]).unwrap();
            for stream in [&mut second_stream, &mut third_stream] {
                let mut len = 0;
                while let Some(chunk) = stream.read_chunk().unwrap() {
                    len += chunk.len();
                }
                assert_eq!(len, LEN - 1);
            }
            // It was only delayed.
            let mut len = 0;
            while let Some(chunk) = unread.read_chunk().unwrap() {
                len += chunk.len();
            }
            assert_eq!(len, (4 << 20) - 1);
            first.open_uni().unwrap().finish().unwrap();
            first.closed();
        },
        |client, address| {
            let first = world.connect(client, address);
            let second = world.connect(client, address);
            let mut streams = [first.open_uni().unwrap(), first.open_uni().unwrap(), second.open_uni().unwrap()];
            std::thread::scope(|scope| {
                for (stream, (number, len)) in streams.iter_mut().zip([(1, 4 << 20), (2, LEN), (3, LEN)]) {
                    stream.write_all(&[number]).unwrap();
                    scope.spawn(move || {
                        stream.write_all(&vec![1; len - 1]).unwrap();
                        stream.finish().unwrap();
                    });
                }
            });
            assert!(first.accept_uni().unwrap().read_chunk().unwrap().is_none());
            first.close(0, "done");
        },
    );
}

pub(crate) fn flow_control_stops_a_writer_before_memory_grows(variant: Variant) {
    const WINDOW: usize = 64 << 10;
    const SEND_BUFFER: usize = 512 << 10;
    const CHUNK: usize = 16 << 10;
    const TOTAL: usize = 4 << 20;
    let world = World::new(variant);
    let mut config = world.config().with_outbox_bytes_max(WINDOW).with_inbox_bytes_max(WINDOW);
    config.transport.send_buffer_max = SEND_BUFFER as u64;
    config.transport.stream_window = WINDOW as u64;
    config.transport.stream_window_max = WINDOW as u64;
    let written = AtomicUsize::new(0);
    serve(
        &world,
        config,
        |server| {
            let connection = server.accept().unwrap();
            let mut recv = connection.accept_uni().unwrap();
            // No data is read until the writer has been blocked for a while.
            let mut before = 0;
            loop {
                // Under `Inline` this also drives the engine.
                assert!(connection.closed_timeout(Duration::from_millis(200)).is_none());
                let now = written.load(Ordering::Relaxed);
                if now == before && now > 0 {
                    break;
                }
                before = now;
            }
            // The bound: its outbox, the connection's send buffer, the credit from the peer, the
            // reader's inbox, and a chunk each.
            let bound = WINDOW + SEND_BUFFER + WINDOW + WINDOW + 4 * CHUNK;
            assert!(before <= bound, "{before} bytes were taken, {bound} should be the most");
            assert!(before >= WINDOW, "{before} bytes are less than the reader's inbox holds");
            let mut len = 0;
            while let Some(chunk) = recv.read_chunk().unwrap() {
                len += chunk.len();
            }
            assert_eq!(len, TOTAL);
            connection.open_uni().unwrap().finish().unwrap();
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let mut send = connection.open_uni().unwrap();
            for _ in 0..TOTAL / CHUNK {
                send.write_chunk(Bytes::from(vec![5; CHUNK])).unwrap();
                written.fetch_add(CHUNK, Ordering::Relaxed);
            }
            send.finish().unwrap();
            assert!(connection.accept_uni().unwrap().read_chunk().unwrap().is_none());
            connection.close(0, "done");
        },
    );
}

pub(crate) fn many_threads_use_one_connection_at_the_same_time(variant: Variant) {
    const THREADS: u64 = 12;
    const ROUNDS: u64 = 30;
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| echo_all(&connection));
                }
            });
        },
        |client, address| {
            let connection = world.connect(client, address);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let connection = connection.clone();
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let sent = pattern(1 + (thread * 997 + round * 131) as usize % 5000, thread);
                            let (mut send, mut recv) = connection.open_bi().unwrap();
                            send.write_all(&sent).unwrap();
                            send.finish().unwrap();
                            let mut back = Vec::new();
                            recv.read_to_end(&mut back).unwrap();
                            assert_eq!(back, sent);
                            if round % 7 == thread % 7 {
                                assert!(connection.stats().send.packets_sent > 0);
                            }
                        }
                    });
                }
            });
            connection.close(0, "done");
        },
    );
}

pub(crate) fn opening_waits_for_the_peer_to_allow_more(variant: Variant) {
    let world = World::new(variant);
    let mut config = world.config();
    config.transport.max_concurrent_bidi_streams = 2;
    serve(
        &world,
        config,
        |server| echo_all(&server.accept().unwrap()),
        |client, address| {
            let connection = world.connect(client, address);
            let mut open: Vec<_> = (0..2).map(|_| connection.open_bi().unwrap()).collect();
            let (done, waited) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let third = connection.clone();
                scope.spawn(move || {
                    let mut stream = third.open_bi().unwrap();
                    stream.0.finish().unwrap();
                    assert!(stream.1.read_chunk().unwrap().is_none());
                    done.send(()).unwrap();
                });
                assert!(connection.closed_timeout(Duration::from_millis(100)).is_none());
                assert!(waited.try_recv().is_err(), "a third stream was opened where two are allowed");
                for (send, recv) in &mut open {
                    send.write_all(b"x").unwrap();
                    send.finish().unwrap();
                    let mut back = Vec::new();
                    recv.read_to_end(&mut back).unwrap();
                    assert_eq!(back, b"x");
                }
                waited.recv_timeout(TEST_TIMEOUT).unwrap();
            });
            connection.close(0, "done");
        },
    );
}
