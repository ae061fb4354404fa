//! Exhausted pools: a reader holds more receive buffers than the engine keeps (256 of 64 KiB). The
//! allocator counts the memory, so all of it is one test in its own process.

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod world;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use litz::{Connection, Placement, SendStream, StridedBytes};
use world::{Variant, Wire, World, pattern};

/// The system's allocator, with a count of the bytes that are allocated.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counter does not touch the
// memory that it returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout, so from the system's
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// The bytes that the engine keeps for the next batches: `FREE_MAX` buffers in
/// `engine/src/receive.rs`.
const POOL: usize = 256 * (64 << 10);

/// A batch of less than 16 KiB is copied out of its buffer of 64 KiB, so nothing pins more than
/// this many times itself.
const PINNED_MAX: usize = 4;

/// Queues, logs and stacks besides.
const SLACK: usize = 8 * MIB;

const CHUNK: usize = 64 << 10;

fn held_since(before: usize) -> usize {
    HELD.load(Ordering::Relaxed).saturating_sub(before)
}

/// Writes the chunk repeatedly without a copy, so that only the receiver's memory grows.
fn write(stream: &mut SendStream, chunk: &Bytes, len: usize, written: &AtomicUsize) {
    for _ in 0..len / CHUNK {
        stream.write_chunk(chunk.clone()).unwrap();
        written.fetch_add(CHUNK, Ordering::Relaxed);
    }
    stream.finish().unwrap();
    stream.wait_finished().unwrap();
}

/// Compares `bytes` with the repeated chunk, and returns the offset after them.
fn check(bytes: &StridedBytes, chunk: &[u8], mut at: usize) -> usize {
    for piece in bytes.pieces() {
        let from = at % CHUNK;
        let first = piece.len().min(CHUNK - from);
        assert!(piece[..first] == chunk[from..from + first] && piece[first..] == chunk[..piece.len() - first], "{at}");
        at += piece.len();
    }
    at
}

/// A transfer whose reader keeps all received bytes until the end.
fn keep_all(ours: &Connection, theirs: &Connection, chunk: &Bytes, before: usize) {
    const LEN: usize = 48 * MIB;
    let written = AtomicUsize::new(0);
    let mut kept: Vec<StridedBytes> = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&mut ours.open_uni().unwrap(), chunk, LEN, &written));
        let mut stream = theirs.accept_uni().unwrap();
        while let Some(bytes) = stream.read_strided().unwrap() {
            kept.push(bytes);
        }
    });
    let held = held_since(before);
    assert!(held > 2 * POOL, "{held} bytes: the reader holds more than the pool has");
    assert!(held < LEN * PINNED_MAX + POOL + SLACK, "{held} bytes held of {LEN} received");
    // No buffer that is held was reused.
    assert_eq!(kept.iter().fold(0, |at, bytes| check(bytes, chunk, at)), LEN);
    drop(kept);
    let left = held_since(before);
    assert!(left < POOL + SLACK, "{left} bytes after the received data was dropped");
}

/// A transfer whose reader starts only when flow control has stopped the sender, with a window
/// larger than the pool.
fn stand_still(ours: &Connection, theirs: &Connection, chunk: &Bytes, window: usize, before: usize) {
    const LEN: usize = 96 * MIB;
    let written = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| write(&mut ours.open_uni().unwrap(), chunk, LEN, &written));
        let mut stream = theirs.accept_uni().unwrap();
        let mut last = usize::MAX;
        while written.load(Ordering::Relaxed) != last {
            last = written.load(Ordering::Relaxed);
            assert!(theirs.closed_timeout(Duration::from_millis(300)).is_none());
        }
        assert!(last < LEN, "the sender was never held back");
        let held = held_since(before);
        // Twice, because the bytes that the engine has read for the application give the sender the
        // same credit again.
        assert!(held > POOL, "{held} bytes: less waits for the reader than the pool has");
        assert!(held < 2 * window * PINNED_MAX + POOL + SLACK, "{held} bytes for a window of {window}");
        let mut at = 0;
        while let Some(bytes) = stream.read_strided().unwrap() {
            at = check(&bytes, chunk, at);
        }
        assert_eq!(at, LEN);
    });
    let left = held_since(before);
    assert!(left < POOL + SLACK, "{left} bytes after everything was read");
}

#[test]
fn an_exhausted_pool_allocates_more_and_frees_it_again() {
    const WINDOW: usize = 24 * MIB;
    let chunk = Bytes::from(pattern(CHUNK, 1));
    for wire in [Wire::Udp, Wire::Memory] {
        let world = World::new(Variant { wire, placement: Placement::Thread });
        let mut config = world.config();
        config.transport.stream_window = WINDOW as u64;
        config.transport.stream_window_max = WINDOW as u64;
        config.transport.connection_window = 2 * WINDOW as u64;
        let (server, client) = (world.server(config.clone()), world.client(config));
        let ours = world.connect(&client, server.local_addr());
        let theirs = server.accept().unwrap();
        let before = HELD.load(Ordering::Relaxed);
        for _ in 0..2 {
            keep_all(&ours, &theirs, &chunk, before);
            stand_still(&ours, &theirs, &chunk, WINDOW, before);
        }
    }
}
