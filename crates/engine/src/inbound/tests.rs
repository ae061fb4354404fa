use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use crate::clock::Clock;
use quic::Side;

use super::*;
use crate::shared::{Common, Limits, Shared};

/// What has arrived, stream by stream.
#[derive(Default)]
struct Arrived(BTreeMap<StreamId, VecDeque<Chunk>>);

impl Source for Arrived {
    fn accept(&mut self, _: Dir) -> Option<StreamId> {
        None
    }

    fn read(&mut self, _: Instant, id: StreamId, _: usize) -> Result<Chunk, ReadError> {
        self.0.get_mut(&id).and_then(VecDeque::pop_front).ok_or(ReadError::Blocked)
    }

    fn stop(&mut self, _: Instant, _: StreamId, _: u64) -> Result<(), ReadError> {
        Ok(())
    }

    fn recv_datagram(&mut self) -> Option<Bytes> {
        None
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One connection with readers of its peer's streams.
struct Bench {
    inbound: Inbound,
    arrived: Arrived,
}

impl Bench {
    fn new() -> Self {
        let (_poll, waker) = crate::wake::poll_and_waker(mio::Token(0)).expect("a poll");
        let limits = Limits { outbox_bytes_max: 1, inbox_bytes_max: 1000, message_len_max: 1000, is_listening: false };
        let common = Arc::new(Common::new(1));
        let shared = Shared::new(Clock::start(), Arc::new(waker), Vec::new(), limits, false, common, 0);
        let remote = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let cell = ConnectionCell::new(Arc::new(shared), remote, Side::Client);
        Self { inbound: Inbound::new(Arc::new(cell)), arrived: Arrived::default() }
    }

    fn add_reader(&mut self, index: u64) -> Arc<RecvCell> {
        let cell = Arc::new(RecvCell::new(StreamId::new(Side::Server, Dir::Uni, index), 1000));
        self.inbound.add_reader(Arc::clone(&cell));
        cell
    }

    fn bring(&mut self, cell: &RecvCell) {
        let bytes = Chunk::Bytes(Bytes::from_static(b"some").into());
        self.arrived.0.entry(cell.id).or_default().push_back(bytes);
        self.inbound.on_readable(Instant::ZERO, cell.id, &mut self.arrived);
    }
}

/// Asks for the next bytes, and waits if there are none; how many there were.
fn take(cell: &RecvCell, count: &Arc<Count>) -> Option<usize> {
    match cell.poll_take(&Waker::from(Arc::clone(count))) {
        Poll::Pending => None,
        Poll::Ready(Ok((strip, _))) => Some(strip.map_or(0, |strip| strip.len())),
        Poll::Ready(Err(error)) => panic!("{error}"),
    }
}

#[test]
fn a_reader_is_woken_once_for_several_batches() {
    let (mut bench, count) = (Bench::new(), Arc::<Count>::default());
    let cell = bench.add_reader(0);
    assert_eq!(take(&cell, &count), None);
    bench.bring(&cell);
    bench.bring(&cell);
    assert_eq!(count.get(), 0, "whoever brings says when that is all");
    bench.inbound.wake_readers();
    assert_eq!(count.get(), 1);
    bench.inbound.wake_readers();
    assert_eq!(count.get(), 1);
    assert_eq!([take(&cell, &count), take(&cell, &count), take(&cell, &count)], [Some(4), Some(4), None]);
    bench.bring(&cell);
    bench.inbound.wake_readers();
    assert_eq!(count.get(), 2);
}

#[test]
fn all_readers_are_woken_and_one_of_several_streams_once() {
    let mut bench = Bench::new();
    let (one, other) = (Arc::<Count>::default(), Arc::<Count>::default());
    let cells: Vec<_> = (0..3).map(|index| bench.add_reader(index)).collect();
    let counts = [&one, &one, &other];
    for (cell, count) in cells.iter().zip(counts) {
        assert_eq!(take(cell, count), None);
    }
    for cell in &cells {
        bench.bring(cell);
    }
    bench.inbound.wake_readers();
    assert_eq!((one.get(), other.get()), (1, 1));
}

#[test]
fn the_end_wakes_who_was_not_woken_for_what_came_before() {
    let (mut bench, count) = (Bench::new(), Arc::<Count>::default());
    let cell = bench.add_reader(0);
    assert_eq!(take(&cell, &count), None);
    bench.bring(&cell);
    bench.inbound.end(&Closed::ProcessorGone);
    assert_eq!(count.get(), 1);
    assert_eq!(take(&cell, &count), Some(4));
}

#[test]
fn whoever_ends_a_stream_wakes_its_reader_though_the_one_who_brought_something_never_did() {
    let (mut bench, count) = (Bench::new(), Arc::<Count>::default());
    let cell = bench.add_reader(0);
    assert_eq!(take(&cell, &count), None);
    bench.bring(&cell);
    // As the driver does for a processor that hangs here.
    cell.end(RecvEnd::Closed(Closed::ProcessorGone));
    assert_eq!(count.get(), 1);
}

/// Panics when it is woken.
#[derive(Default)]
struct Fragile(Count);

impl Wake for Fragile {
    fn wake(self: Arc<Self>) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
        panic!("told to");
    }
}

#[test]
fn a_waker_that_panics_leaves_the_others_to_be_woken() {
    let mut bench = Bench::new();
    let readers: Vec<_> = (0..3).map(|index| (bench.add_reader(index), Arc::<Fragile>::default())).collect();
    for (cell, waker) in &readers {
        assert!(cell.poll_take(&Waker::from(Arc::clone(waker))).is_pending());
        bench.bring(cell);
    }
    for _ in &readers {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.inbound.wake_readers())).is_err());
    }
    bench.inbound.wake_readers();
    assert!(readers.iter().all(|(_, waker)| waker.0.get() == 1));
}
