//! Many users of one engine: nobody starves, nobody holds up anybody else, nothing grows without bound.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use litz::{Connection, EndpointConfig};

use crate::world::{Arm, PATIENCE, World, pattern, serve};

/// Answers every bidirectional stream with what came on it, until the connection ends.
fn echo_all(connection: &Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi() {
        let mut all = Vec::new();
        recv.read_to_end(&mut all).unwrap();
        send.write_all(&all).unwrap();
        send.finish().unwrap();
    }
}

pub(crate) fn sixty_four_connections_share_one_driver_fairly(arm: Arm) {
    const CONNECTIONS: usize = 64;
    const LEN: usize = 1 << 20;
    let world = World::new(arm);
    let received: Vec<AtomicUsize> = (0..CONNECTIONS).map(|_| AtomicUsize::new(0)).collect();
    let least_at_half = AtomicU64::new(u64::MAX);
    // Little in flight, so that no queue overflows: this is about the driver's turns, not about congestion control.
    let mut config = world.config();
    config.transport.stream_window = 32 << 10;
    config.transport.stream_window_max = 32 << 10;
    serve(
        &world,
        config,
        |server| {
            std::thread::scope(|scope| {
                for index in 0..CONNECTIONS {
                    let connection = server.accept().unwrap();
                    let (received, least_at_half) = (&received, &least_at_half);
                    scope.spawn(move || {
                        let mut recv = connection.accept_uni().unwrap();
                        while let Some(chunk) = recv.read_chunk().unwrap() {
                            received[index].fetch_add(chunk.len(), Ordering::Relaxed);
                            let all = received.iter().map(|count| count.load(Ordering::Relaxed));
                            if all.clone().sum::<usize>() <= CONNECTIONS * LEN / 2 {
                                let least = all.min().unwrap_or(0) as u64;
                                least_at_half.store(least, Ordering::Relaxed);
                            }
                        }
                        assert_eq!(received[index].load(Ordering::Relaxed), LEN);
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
                    scope.spawn(move || {
                        let mut send = connection.open_uni().unwrap();
                        for _ in 0..LEN / (64 << 10) {
                            send.write_chunk(Bytes::from(vec![7; 64 << 10])).unwrap();
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
    // When half of everything had arrived, the slowest had an eighth of its half or more. On a machine at rest it is 90 % and up where
    // one driver serves all; drivers of their own, halves that are apart and sixty-four readers get the turns the system gives them.
    // Who is starved has nothing.
    let least = least_at_half.load(Ordering::Relaxed) as usize;
    assert!(least >= LEN / 16, "when half had arrived, one connection had {least} of {LEN} bytes");
}

pub(crate) fn a_stream_that_nobody_reads_stalls_no_other_stream_and_no_other_connection(arm: Arm) {
    const LEN: usize = 16 << 20;
    let world = World::new(arm);
    serve(
        &world,
        world.config(),
        |server| {
            let first = server.accept().unwrap();
            let mut unread = first.accept_uni().unwrap();
            let mut second_stream = first.accept_uni().unwrap();
            let second = server.accept().unwrap();
            let mut third_stream = second.accept_uni().unwrap();
            for stream in [&mut second_stream, &mut third_stream] {
                let mut len = 0;
                while let Some(chunk) = stream.read_chunk().unwrap() {
                    len += chunk.len();
                }
                assert_eq!(len, LEN);
            }
            // It was only held back.
            let mut len = 0;
            while let Some(chunk) = unread.read_chunk().unwrap() {
                len += chunk.len();
            }
            assert_eq!(len, 4 << 20);
            first.open_uni().unwrap().finish().unwrap();
            first.closed();
        },
        |client, address| {
            let first = world.connect(client, address);
            let second = world.connect(client, address);
            let mut streams = [first.open_uni().unwrap(), first.open_uni().unwrap(), second.open_uni().unwrap()];
            std::thread::scope(|scope| {
                for (stream, len) in streams.iter_mut().zip([4 << 20, LEN, LEN]) {
                    // The order in which the server accepts them.
                    stream.write_all(&[1]).unwrap();
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

pub(crate) fn a_writer_is_held_back_before_memory_grows(arm: Arm) {
    const WINDOW: usize = 64 << 10;
    const SEND_BUFFER: usize = 512 << 10;
    const CHUNK: usize = 16 << 10;
    const TOTAL: usize = 4 << 20;
    let world = World::new(arm);
    let mut config = EndpointConfig { outbox_bytes_max: WINDOW, inbox_bytes_max: WINDOW, ..world.config() };
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
            // Nobody reads until the writer has stood still for a while.
            let mut before = 0;
            loop {
                // Under `Inline` this drives the engine meanwhile.
                assert!(connection.closed_timeout(Duration::from_millis(200)).is_none());
                let now = written.load(Ordering::Relaxed);
                if now == before && now > 0 {
                    break;
                }
                before = now;
            }
            // Its outbox, the connection's send buffer, what credit the peer gave, the reader's inbox, a chunk each.
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

pub(crate) fn many_threads_use_one_connection_at_the_same_time(arm: Arm) {
    const THREADS: u64 = 12;
    const ROUNDS: u64 = 30;
    let world = World::new(arm);
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

pub(crate) fn opening_waits_for_the_peer_to_allow_more(arm: Arm) {
    let world = World::new(arm);
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
                waited.recv_timeout(PATIENCE).unwrap();
            });
            connection.close(0, "done");
        },
    );
}
