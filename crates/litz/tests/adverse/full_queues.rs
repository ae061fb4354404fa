//! Queues that fill because an application does not read: queues are bounded, excess data is
//! dropped or held back by flow control, and all other traffic continues.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use litz::{Connection, Placement};

use crate::world::{TEST_TIMEOUT, Variant, Wire, World, pattern};

const VARIANT: Variant = Variant { wire: Wire::Memory, placement: Placement::Thread };

/// Sends a megabyte over a separate stream of this connection, to show that it is not blocked.
fn exchange(from: &Connection, to: &Connection) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut send, _) = from.open_bi().unwrap();
            send.write_all(&pattern(1 << 20, 8)).unwrap();
            send.finish().unwrap();
            send.wait_finished().unwrap();
        });
        let mut all = Vec::new();
        to.accept_bi().unwrap().1.read_to_end(&mut all).unwrap();
        assert!(all == pattern(1 << 20, 8));
    });
}

#[test]
fn unread_datagrams_are_replaced_by_newer_ones() {
    const LEN: usize = 1_000;
    /// The connection's buffer and the engine's, each a MiB and a datagram.
    const WAITING_MAX: u64 = 2 * ((1 << 20) + LEN as u64);
    let world = World::new(VARIANT);
    let (server, client) = (world.server(world.config()), world.client(world.config()));
    let ours = world.connect(&client, server.local_addr());
    let theirs = server.accept().unwrap();
    let mut number = 0_u64;
    // This is enough to fill both several times, however many are dropped at the full send queue.
    while theirs.stats().receive.datagrams_dropped < 10_000 {
        for _ in 0..1_000 {
            let mut datagram = vec![0; LEN];
            datagram[..8].copy_from_slice(&number.to_be_bytes());
            number += 1;
            let _queue_full = ours.send_datagram(datagram.into());
        }
        exchange(&ours, &theirs);
    }
    let mut taken = Vec::new();
    while let Ok(Some(datagram)) = theirs.recv_datagram_timeout(Duration::from_millis(100)) {
        assert_eq!(datagram.len(), LEN);
        taken.push(u64::from_be_bytes(datagram[..8].try_into().unwrap()));
    }
    assert!(taken.len() as u64 * LEN as u64 <= WAITING_MAX, "{} datagrams waited", taken.len());
    assert!(taken.is_sorted() && taken.last() > Some(&(number - 2_000)), "{:?} of {number} was the last", taken.last());
}

#[test]
fn a_sender_of_many_datagrams_waits_for_space_and_loses_none_in_its_own_queues() {
    const LEN: usize = 1_000;
    const COUNT: u64 = 50_000;
    let world = World::new(VARIANT);
    let mut config = world.config();
    config.transport.datagram_send_buffer = 64 << 10;
    let (server, client) = (world.server(config.clone()), world.client(config));
    let ours = world.connect(&client, server.local_addr());
    let theirs = server.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let datagram = |number: u64| {
                let mut data = vec![0; LEN];
                data[..8].copy_from_slice(&number.to_be_bytes());
                Bytes::from(data)
            };
            let mut batch: VecDeque<Bytes> = (0..COUNT).map(datagram).collect();
            while !batch.is_empty() {
                let taken = ours.send_datagrams(&mut batch).unwrap();
                assert!(taken > 0 && taken <= (64 << 10) / LEN, "{taken} at a time");
            }
        });
        let (mut taken, mut numbers) = (Vec::new(), Vec::new());
        while numbers.last() != Some(&(COUNT - 1)) {
            let count = theirs.recv_datagrams_timeout(&mut taken, TEST_TIMEOUT).unwrap();
            assert_eq!(count, taken.len());
            assert!(count > 0, "the last datagram is missing");
            numbers.extend(taken.drain(..).map(|datagram| u64::from_be_bytes(datagram.data[..8].try_into().unwrap())));
        }
        assert!(numbers.is_sorted());
        // A receiver that is slow for a moment loses the oldest datagrams; the sender's queues lose
        // nothing.
        let missing = COUNT - numbers.len() as u64;
        // The sender finds the last losses some acknowledgements after the last datagram has arrived.
        let known = || theirs.stats().receive.datagrams_dropped + ours.stats().send.datagrams_lost;
        let clock = net::MonotonicClock::start();
        while known() < missing {
            assert!(clock.now().since_start() < TEST_TIMEOUT.into(), "{missing} are missing, {} were lost", known());
            std::thread::yield_now();
        }
    });
}

#[test]
fn unread_messages_block_their_sender() {
    const LEN: usize = 64 << 10;
    const COUNT: u64 = 600;
    const STREAMS_MAX: u64 = 32;
    /// Waiting in both engines; in the send buffer, where each stream may hold a message however
    /// full it is; by the peer's credit; and one in each caller.
    const WAITING_MAX: u64 = (4 << 20) + (4 << 20) + (2 << 20) + STREAMS_MAX * LEN as u64 + (2 << 20) + 4 * LEN as u64;
    let world = World::new(VARIANT);
    let mut config = world.config();
    config.transport.connection_window = 2 << 20;
    config.transport.connection_window_max = 2 << 20;
    config.transport.send_buffer_max = 2 << 20;
    config.transport.max_concurrent_uni_streams = STREAMS_MAX;
    let (server, client) = (world.server(config.clone()), world.client(config));
    let ours = world.connect(&client, server.local_addr());
    let theirs = server.accept().unwrap();
    let other = world.connect(&client, server.local_addr());
    let others = server.accept().unwrap();
    // The first call decides that there are messages on this connection.
    assert_eq!(theirs.recv_message_timeout(Duration::from_millis(1)), Ok(None));
    let sent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COUNT {
                ours.send_message(Bytes::from(pattern(LEN, number))).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
            ours.flush_messages().unwrap();
        });
        let mut before = u64::MAX;
        // No message is read; the other connection continues meanwhile.
        while sent.load(Ordering::Relaxed) != before {
            before = sent.load(Ordering::Relaxed);
            exchange(&other, &others);
            assert!(theirs.closed_timeout(Duration::from_millis(200)).is_none());
        }
        assert!(before * (LEN as u64) < WAITING_MAX, "{before} messages of {LEN} bytes wait");
        assert!(before > 16 && before < COUNT, "{before} messages were taken before the sender was held back");
        let mut missing: std::collections::BTreeSet<Vec<u8>> = (0..COUNT).map(|number| pattern(LEN, number)).collect();
        for _ in 0..COUNT {
            let message = theirs.recv_message().unwrap();
            assert!(missing.remove(&message[..]), "each message comes once, and whole");
        }
        assert!(missing.is_empty());
    });
}

/// Regression test: the engine stopped taking streams from the protocol after as many as may wait,
/// also when some had been accepted meanwhile, and never continued.
#[test]
fn unaccepted_streams_wait_and_block_no_others() {
    const STREAMS: u64 = 300;
    let world = World::new(VARIANT);
    let (server, client) = (world.server(world.config()), world.client(world.config()));
    let ours = world.connect(&client, server.local_addr());
    let theirs = server.accept().unwrap();
    let mut streams: Vec<_> = (0..STREAMS).map(|_| ours.open_uni().unwrap()).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&pattern(100, number as u64)).unwrap();
        stream.finish().unwrap();
    }
    // All of them have arrived, more than the engine takes from the protocol at a time.
    streams.iter_mut().for_each(|stream| stream.wait_finished().unwrap());
    assert!(theirs.stats().receive.streams_open > 200, "{:?}", theirs.stats().receive);
    exchange(&ours, &theirs);
    let other = world.connect(&client, server.local_addr());
    exchange(&other, &server.accept().unwrap());
    for number in 0..STREAMS {
        let mut all = Vec::new();
        theirs.accept_uni().unwrap().read_to_end(&mut all).unwrap();
        assert_eq!(all, pattern(100, number), "in the order in which they were opened");
    }
}

#[test]
fn unaccepted_clients_are_delayed_and_served_later() {
    const CLIENTS: usize = 24;
    const WAITING_MAX: usize = 6;
    let world = World::new(VARIANT);
    let server = world.server(world.config().with_half_open_max(WAITING_MAX));
    let mut config = world.config_with_handshake_timeout(TEST_TIMEOUT);
    // They then retry soon.
    config.transport.initial_rtt = units::Duration::from_millis(10);
    let client = world.client(config);
    let connected = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let connection = world.connect(&client, server.local_addr());
                connected.fetch_add(1, Ordering::Relaxed);
                assert!(connection.accept_uni().unwrap().read_chunk().unwrap().is_none());
                connection.close(0, "done");
            });
        }
        let clock = net::MonotonicClock::start();
        while clock.now().since_start() < units::Duration::from_millis(500) {
            std::thread::yield_now();
            assert!(connected.load(Ordering::Relaxed) <= WAITING_MAX);
        }
        assert_eq!((connected.load(Ordering::Relaxed), server.connection_count()), (WAITING_MAX, WAITING_MAX));
        for _ in 0..CLIENTS {
            let connection = server.accept_timeout(TEST_TIMEOUT).unwrap().expect("everybody has a turn");
            connection.open_uni().unwrap().finish().unwrap();
            connection.closed();
        }
    });
    assert_eq!(connected.load(Ordering::Relaxed), CLIENTS);
}
