use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use bytes::Bytes;
use quic::{ReceivedDatagram, Side};

use super::*;
use driver::shared::Common;

use crate::application::{Limits, QuicShared};

/// Received chunks by stream.
#[derive(Default)]
struct Arrived(BTreeMap<StreamId, VecDeque<Chunk>>);

impl DataSource for Arrived {
    fn accept(&mut self, _: Dir) -> Option<StreamId> {
        None
    }

    fn read(&mut self, _: Instant, id: StreamId, _: usize) -> Result<Chunk, ReadError> {
        self.0.get_mut(&id).and_then(VecDeque::pop_front).ok_or(ReadError::Blocked)
    }

    fn stop(&mut self, _: Instant, _: StreamId, _: u64) -> Result<(), ReadError> {
        Ok(())
    }

    fn recv_datagram(&mut self) -> Option<ReceivedDatagram> {
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
struct Fixture {
    delivery: Delivery,
    arrived: Arrived,
}

impl Fixture {
    fn new() -> Self {
        let limits = Limits {
            outbox_bytes_max: 1,
            inbox_bytes_max: 1000,
            message_len_max: 1000,
            compact_below: 0,
            is_listening: false,
            accepts_early: false,
        };
        let common = Arc::new(Common::new(1));
        let shared = QuicShared::new(Waker::noop().clone(), Vec::new(), limits, common, 0);
        let remote = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let cell = ConnectionCell::new(Arc::new(shared), remote, Side::Client);
        Self { delivery: Delivery::new(Arc::new(cell)), arrived: Arrived::default() }
    }

    fn add_reader(&mut self, index: u64) -> Arc<RecvCell> {
        let cell = Arc::new(RecvCell::new(StreamId::new(Side::Server, Dir::Uni, index), 1000));
        self.delivery.add_reader(Arc::clone(&cell));
        cell
    }

    fn deliver(&mut self, cell: &RecvCell) {
        let bytes = Chunk::Bytes(Bytes::from_static(b"some").into());
        self.arrived.0.entry(cell.id).or_default().push_back(bytes);
        self.delivery.on_readable(Instant::ZERO, cell.id, &mut self.arrived);
    }
}

/// The length of the next chunk; registers a waker if there is none.
fn take(cell: &RecvCell, count: &Arc<Count>) -> Option<usize> {
    match cell.poll_take(&Waker::from(Arc::clone(count))) {
        Poll::Pending => None,
        Poll::Ready(Ok((chunk, _))) => Some(chunk.map_or(0, |chunk| chunk.len())),
        Poll::Ready(Err(error)) => panic!("{error}"),
    }
}

#[test]
fn a_reader_is_woken_once_for_several_batches() {
    let (mut fixture, count) = (Fixture::new(), Arc::<Count>::default());
    let cell = fixture.add_reader(0);
    assert_eq!(take(&cell, &count), None);
    fixture.deliver(&cell);
    fixture.deliver(&cell);
    assert_eq!(count.get(), 0, "readers are woken by `wake_readers`");
    fixture.delivery.wake_readers();
    assert_eq!(count.get(), 1);
    fixture.delivery.wake_readers();
    assert_eq!(count.get(), 1);
    assert_eq!([take(&cell, &count), take(&cell, &count), take(&cell, &count)], [Some(4), Some(4), None]);
    fixture.deliver(&cell);
    fixture.delivery.wake_readers();
    assert_eq!(count.get(), 2);
}

#[test]
fn a_task_that_reads_several_streams_is_woken_once() {
    let mut fixture = Fixture::new();
    let (one, other) = (Arc::<Count>::default(), Arc::<Count>::default());
    let cells: Vec<_> = (0..3).map(|index| fixture.add_reader(index)).collect();
    let counts = [&one, &one, &other];
    for (cell, count) in cells.iter().zip(counts) {
        assert_eq!(take(cell, count), None);
    }
    for cell in &cells {
        fixture.deliver(cell);
    }
    fixture.delivery.wake_readers();
    assert_eq!((one.get(), other.get()), (1, 1));
}

/// Reads two streams while it is woken, and waits for them again.
struct ReadingWaker {
    cells: [Arc<RecvCell>; 2],
    count: Count,
}

impl ReadingWaker {
    fn read(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        for cell in &self.cells {
            while cell.poll_take(&waker).is_ready() {}
        }
    }
}

impl Wake for ReadingWaker {
    fn wake(self: Arc<Self>) {
        self.count.0.fetch_add(1, Ordering::Relaxed);
        self.read();
    }
}

#[test]
fn a_reader_that_runs_while_it_is_woken_is_woken_for_what_comes_next() {
    let (mut fixture, other) = (Fixture::new(), Arc::<Count>::default());
    let cells = [0, 1].map(|index| fixture.add_reader(index));
    let between = fixture.add_reader(2);
    let reader = Arc::new(ReadingWaker { cells: cells.clone(), count: Count::default() });
    reader.read();
    assert_eq!(take(&between, &other), None);
    for cell in [&cells[0], &cells[1], &between, &cells[0]] {
        fixture.deliver(cell);
    }
    // Its task is awake already.
    assert!(between.lock().take_waker().is_some());
    fixture.delivery.wake_readers();
    assert!(reader.count.get() > 0);
    let before = reader.count.get();
    fixture.deliver(&cells[0]);
    fixture.delivery.wake_readers();
    assert_eq!(reader.count.get(), before + 1, "it waits, so it is woken");
}

#[test]
fn ending_wakes_a_reader_that_was_not_woken_for_earlier_data() {
    let (mut fixture, count) = (Fixture::new(), Arc::<Count>::default());
    let cell = fixture.add_reader(0);
    assert_eq!(take(&cell, &count), None);
    fixture.deliver(&cell);
    fixture.delivery.end(&Closed::ProcessorGone);
    assert_eq!(count.get(), 1);
    assert_eq!(take(&cell, &count), Some(4));
}

#[test]
fn ending_a_stream_from_outside_wakes_a_reader_that_the_delivery_never_woke() {
    let (mut fixture, count) = (Fixture::new(), Arc::<Count>::default());
    let cell = fixture.add_reader(0);
    assert_eq!(take(&cell, &count), None);
    fixture.deliver(&cell);
    // As the driver does if the processor hangs before `wake_readers`.
    cell.end(RecvEnd::Closed(Closed::ProcessorGone));
    assert_eq!(count.get(), 1);
}

/// Panics when it is woken.
#[derive(Default)]
struct PanickingWaker(Count);

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
        panic!("requested by the test");
    }
}

#[test]
fn readers_after_a_panicking_waker_are_woken_by_the_next_call() {
    let mut fixture = Fixture::new();
    let readers: Vec<_> = (0..3).map(|index| (fixture.add_reader(index), Arc::<PanickingWaker>::default())).collect();
    for (cell, waker) in &readers {
        assert!(cell.poll_take(&Waker::from(Arc::clone(waker))).is_pending());
        fixture.deliver(cell);
    }
    for _ in &readers {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fixture.delivery.wake_readers())).is_err());
    }
    fixture.delivery.wake_readers();
    assert!(readers.iter().all(|(_, waker)| waker.0.get() == 1));
}
