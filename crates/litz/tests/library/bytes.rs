//! Bytes from one end to the other.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use litz::Placement;

use crate::world::{Variant, World, pattern, serve};

pub(crate) fn an_echo_comes_back(variant: Variant) {
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            let (mut send, mut recv) = connection.accept_bi().unwrap();
            let mut all = Vec::new();
            recv.read_to_end(&mut all).unwrap();
            send.write_all(&all).unwrap();
            send.finish().unwrap();
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let (mut send, mut recv) = connection.open_bi().unwrap();
            let sent = pattern(100_000, 1);
            send.write_all(&sent).unwrap();
            send.finish().unwrap();
            let mut all = Vec::new();
            recv.read_to_end(&mut all).unwrap();
            assert_eq!(all, sent);
            connection.close(0, "done");
        },
    );
}

pub(crate) fn sixty_four_megabytes_arrive_unchanged(variant: Variant) {
    const LEN: usize = 64 << 20;
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            let mut recv = connection.accept_uni().unwrap();
            let mut hash = blake3::Hasher::new();
            let mut len = 0;
            while let Some(chunk) = recv.read_chunk().unwrap() {
                hash.update(&chunk);
                len += chunk.len();
            }
            assert_eq!(len, LEN);
            let mut send = connection.open_uni().unwrap();
            send.write_all(hash.finalize().as_bytes()).unwrap();
            send.finish().unwrap();
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let mut send = connection.open_uni().unwrap();
            let piece = pattern(1 << 20, 2);
            let mut hash = blake3::Hasher::new();
            for round in 0..LEN / piece.len() {
                // Every round differs, so that no two offsets can be confused.
                let mut piece = piece.clone();
                piece[..8].copy_from_slice(&(round as u64).to_le_bytes());
                hash.update(&piece);
                send.write_chunk(piece.into()).unwrap();
            }
            send.finish().unwrap();
            let mut answer = Vec::new();
            connection.accept_uni().unwrap().read_to_end(&mut answer).unwrap();
            assert_eq!(answer, hash.finalize().as_bytes());
            connection.close(0, "done");
        },
    );
}

pub(crate) fn two_hundred_streams_at_once_all_arrive(variant: Variant) {
    const STREAMS: usize = 200;
    const LEN: usize = 20_000;
    let world = World::new(variant);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            // All at once: streams share the connection's credit, so a stream that is not read can
            // block all others.
            std::thread::scope(|scope| {
                for _ in 0..STREAMS {
                    let mut recv = connection.accept_uni().unwrap();
                    scope.spawn(move || {
                        let mut all = Vec::new();
                        recv.read_to_end(&mut all).unwrap();
                        assert_eq!(all, pattern(LEN, recv.id().index()));
                    });
                }
            });
            connection.open_uni().unwrap().finish().unwrap();
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let mut streams: Vec<_> = (0..STREAMS).map(|_| connection.open_uni().unwrap()).collect();
            // In an order that mixes them.
            for part in 0..4 {
                for stream in &mut streams {
                    let all = pattern(LEN, stream.id().index());
                    stream.write_all(&all[part * LEN / 4..(part + 1) * LEN / 4]).unwrap();
                }
            }
            for stream in &mut streams {
                stream.finish().unwrap();
            }
            assert!(connection.accept_uni().unwrap().read_chunk().unwrap().is_none());
            connection.close(0, "done");
        },
    );
}

/// A writer that drives the engine itself keeps the tail of a long write until its next call; a
/// flush is one.
#[expect(clippy::disallowed_methods, reason = "a wait inside a call of the library would drive the engine")]
pub(crate) fn a_flush_sends_the_tail_of_a_long_write(variant: Variant) {
    const ROUNDS: usize = 60;
    // Only one in `LOOK_EVERY` is checked. The others keep the round trips short, so that a window
    // and a pace of that time hold everything that is written at once.
    const LOOK_EVERY: usize = 12;
    // The length is more than a batch, and not a whole number of batches.
    const LEN: usize = 100_000;
    let world = World::new(variant);
    let arrived = AtomicUsize::new(0);
    serve(
        &world,
        world.config(),
        |server| {
            let connection = server.accept().unwrap();
            let (mut send, mut recv) = connection.accept_bi().unwrap();
            for round in 1..=ROUNDS {
                while arrived.load(Ordering::SeqCst) < round * LEN {
                    let chunk = recv.read_chunk().unwrap().unwrap();
                    arrived.fetch_add(chunk.len(), Ordering::SeqCst);
                }
                send.write_all(b".").unwrap();
                send.flush().unwrap();
            }
            connection.closed();
        },
        |client, address| {
            let connection = world.connect(client, address);
            let (mut send, mut recv) = connection.open_bi().unwrap();
            let (mut held, mut flushed) = (0, 0);
            for round in 1..=ROUNDS {
                let is_here = || {
                    std::thread::sleep(Duration::from_millis(100));
                    arrived.load(Ordering::SeqCst) == round * LEN
                };
                send.write_all(&pattern(LEN, 1)).unwrap();
                if round % LOOK_EVERY == 0 && !is_here() {
                    held += 1;
                    send.flush().unwrap();
                    flushed += usize::from(is_here());
                }
                // Receives acknowledgements too.
                recv.read_exact(&mut [0]).unwrap();
            }
            // A window that was full, or a machine that was busy, may look like a tail that was
            // held.
            assert!(variant.placement != Placement::Inline || flushed > 0, "held {held}, flushed {flushed}");
            connection.close(0, "done");
        },
    );
}
