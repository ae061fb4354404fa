//! The workers of a driver as its offload: the work that the pool takes, and the order in which it
//! returns.

use std::sync::Arc;
use std::task::Waker;

use driver::crypto_pool::{CryptoWorker, CryptoWorkerLoop, PoolCounters};
use driver::in_flight::ConnectionRef;
use driver::offload::{Direction, Finished, PathFlow};
use driver::shared::Common;
use driver::worker::WorkerLoop;
use driver::workers::Workers;
use driver::{ConnectionKey, Offload, Shared};
use units::{Duration, Instant};

use crate::app::ToyCell;
use crate::host::{TestClock, address};
use crate::packets::{OpenJob, Plan, Planned, Segments};
use crate::protocol::Toy;
use crate::recv::Decrypt;
use crate::wire::{ACK, HEADER_LEN, Header};

const NOW: Instant = Instant::ZERO;
const LARGE: usize = 8 << 10;
const LONG: usize = 256 << 10;

/// A pool of one worker, its loop, and a connection.
struct Bench {
    workers: Workers<Toy>,
    turns: Option<CryptoWorkerLoop<Toy, TestClock>>,
    counters: Arc<PoolCounters>,
    connection: ConnectionRef<Toy>,
}

fn flow(direction: Direction) -> PathFlow {
    PathFlow { key: ConnectionKey(3), path: 0, direction }
}

fn segment(len: u16) -> Header {
    let (source, destination) = (address(0), address(1));
    Header { source, destination, flags: ACK, len, seq: 1, ack: 1, limit: 1, held: 0 }
}

fn plan(packets: usize) -> Arc<Plan> {
    let planned = |_| Planned { header: segment(0), payload: None, offset: 0 };
    Arc::new(Plan { segments: (0..packets).map(planned).collect(), ..Plan::default() })
}

fn batch(len: usize) -> Segments {
    let mut bytes = Vec::new();
    segment((len - HEADER_LEN) as u16).write(&mut bytes, |_| {});
    Segments { bytes }
}

impl Bench {
    fn new() -> Self {
        let (worker, turns) = CryptoWorker::new(TestClock::manual(), Waker::noop().clone(), Waker::noop().clone());
        let workers = Workers::of_pool(vec![worker]);
        let counters = Arc::clone(workers.pool_counters().unwrap());
        let local = vec![address(0).into()];
        let shared = Arc::new(Shared::new(Waker::noop().clone(), local, (), Arc::new(Common::new(1)), 0));
        let connection = ConnectionRef { key: ConnectionKey(3), cell: ToyCell::new(shared, address(1)) };
        Self { workers, turns: Some(turns), counters, connection }
    }

    fn open(&mut self, len: usize) -> bool {
        self.workers.open(NOW, flow(Direction::In), &self.connection, Box::default(), batch(len)).is_ok()
    }

    fn queue_opened(&mut self, len: usize) -> bool {
        let opened = (Box::<OpenJob>::default(), batch(len));
        self.workers.queue_opened(NOW, flow(Direction::In), &self.connection, opened.0, opened.1).is_ok()
    }

    fn seal(&mut self, packets: usize) -> bool {
        self.workers.seal(NOW, flow(Direction::Out), &self.connection, plan(packets)).is_ok()
    }

    fn run(&mut self, len: usize) -> bool {
        self.run_one(len, false)
    }

    fn run_last(&mut self, len: usize) -> bool {
        self.run_one(len, true)
    }

    fn run_one(&mut self, len: usize, is_last: bool) -> bool {
        let job = Arc::new(Decrypt::new(7, 0, vec![vec![0; len]]));
        self.workers.run(NOW, flow(Direction::Up), &self.connection, job, is_last).is_ok()
    }

    fn turn(&mut self) {
        self.turns.as_mut().expect("the worker has not ended").counted_turn();
    }

    /// Returns all finished work as text: its kind, its size, and whether a worker did it.
    fn finished(&mut self, now: Instant, has_space: bool) -> Vec<(&'static str, usize, bool)> {
        self.workers.collect(now);
        let mut found = Vec::new();
        while let Some(finished) = self.workers.poll_finished(None, &|_| has_space) {
            found.push(match finished {
                Finished::Sealed { plan, packets, .. } => ("seal", plan.segments.len(), packets.is_some()),
                Finished::Opened { job, batch, .. } => ("open", batch.bytes.len(), !job.opened.is_empty()),
                Finished::Lost { key } => ("lost", key.0 as usize, false),
                Finished::Ran { output, .. } => ("run", output.as_ref().map_or(0, Vec::len), output.is_some()),
            });
        }
        found
    }
}

#[test]
fn small_work_stays_with_the_driver_and_large_work_is_offloaded_while_there_is_space() {
    let mut bench = Bench::new();
    assert_eq!((bench.workers.sealers(), bench.workers.opens()), (Some(2), true));
    assert!(!bench.open(LARGE - 1) && !bench.seal(5) && !bench.run(LARGE - 1));
    assert!(
        (0..4).all(|_| bench.open(LARGE)) && bench.seal(6) && bench.seal(6) && bench.run(LARGE) && bench.run(LARGE)
    );
    assert!(!bench.open(LARGE) && !bench.seal(6) && !bench.run(LARGE), "a worker has eight at a time");
    assert!(!bench.workers.is_drained(NOW), "plans may be among them");
    bench.turn();
    assert!(bench.workers.has_work() && bench.workers.deadline().is_some());
    let all = bench.finished(NOW, true);
    assert_eq!(all.len(), 8, "{all:?}");
    assert!(all.iter().all(|(_, _, is_done)| *is_done), "{all:?}");
    assert!(bench.workers.is_drained(NOW) && bench.workers.deadline().is_none());
    assert_eq!(bench.counters.read().workers[0].batches, 8);
}

#[test]
fn the_last_job_is_offloaded_only_if_it_is_long_and_work_waits_behind_few_long_jobs() {
    let mut bench = Bench::new();
    assert!(!bench.run_last(LONG - 1), "handing it over takes as long as running it");
    assert!(bench.run_last(LONG), "the driver is free in the meantime");
    assert!(bench.run_last(LONG) && bench.open(LARGE), "some wait, so that the worker need not");
    assert!(bench.run_last(LONG + LARGE), "behind two");
    assert!(!bench.run(LONG) && !bench.run(2 * LONG), "a fourth would wait longer than the driver takes to run it");
    assert!(!bench.open(LARGE) && !bench.seal(6), "the driver has time for batches");
    assert!(!bench.run(LARGE), "and for a short job");
    bench.turn();
    let mut finished = bench.finished(NOW, true);
    finished.sort_unstable();
    let runs = [LONG, LONG, LONG + LARGE].map(|len| ("run", len, true));
    assert_eq!(finished, [&[("open", LARGE, true)][..], &runs].concat());
    assert!(bench.open(LARGE) && bench.run(LONG), "a long job may wait behind a short batch");
}

#[test]
fn a_worker_that_is_awake_gets_the_next_job_until_it_has_enough() {
    let mut bench = Bench::new();
    let pair = [0; 2].map(|_| CryptoWorker::new(TestClock::manual(), Waker::noop().clone(), Waker::noop().clone()));
    let (workers, mut loops): (Vec<_>, Vec<_>) = pair.into_iter().unzip();
    bench.workers = Workers::of_pool(workers);
    let counters = Arc::clone(bench.workers.pool_counters().unwrap());
    let mut counts = |bench: &mut Bench| {
        loops.iter_mut().for_each(|turns| turns.counted_turn());
        assert!(bench.finished(NOW, true).iter().all(|(_, _, is_done)| *is_done));
        counters.read().workers.iter().map(|worker| worker.batches).collect::<Vec<_>>()
    };
    assert!(bench.open(LARGE) && bench.open(LARGE) && bench.seal(6));
    assert_eq!(counts(&mut bench), [3, 0], "the second may sleep on");
    let half = LONG / 2 - 1;
    assert!((0..3).all(|_| bench.run(half)));
    assert_eq!(counts(&mut bench), [5, 1], "two are enough for the first");
    assert!((0..6).all(|_| bench.run(half)));
    assert_eq!(counts(&mut bench), [8, 4], "then the one with less");
}

#[test]
fn a_flow_keeps_its_order_and_flows_do_not_wait_for_each_other() {
    let mut bench = Bench::new();
    assert!(!bench.queue_opened(100), "nothing is in flight: it is processed at once");
    assert!(bench.open(LARGE) && bench.queue_opened(100) && bench.queue_opened(200));
    let job = Arc::new(Decrypt::new(7, 0, vec![vec![0; 10]]));
    let refused = bench.workers.queue_run(NOW, flow(Direction::Up), &bench.connection, job, vec![0; 10]);
    assert!(refused.is_err(), "jobs do not wait for batches");
    assert_eq!(bench.finished(NOW, true), [], "two wait for the first");
    bench.turn();
    let sizes: Vec<usize> = bench.finished(NOW, true).into_iter().map(|(_, size, _)| size).collect();
    assert_eq!(sizes, [LARGE, 100, 200]);
    assert!(bench.run(LARGE) && bench.run(2 * LARGE));
    let job = Arc::new(Decrypt::new(7, 0, vec![vec![0; 10]]));
    let queued = bench.workers.queue_run(NOW, flow(Direction::Up), &bench.connection, job, vec![0; 10]);
    assert!(queued.is_ok());
    bench.turn();
    assert_eq!(bench.finished(NOW, true), [("run", LARGE, true), ("run", 2 * LARGE, true), ("run", 10, true)]);
}

#[test]
fn only_packets_wait_for_their_socket() {
    let mut bench = Bench::new();
    assert!(bench.seal(6) && bench.open(LARGE) && bench.run(LARGE));
    bench.turn();
    assert_eq!(bench.finished(NOW, false), [("open", LARGE, true), ("run", LARGE, true)]);
    let packets = (plan(1), vec![1]);
    let queued = bench.workers.queue_sealed(NOW, flow(Direction::Out), &bench.connection, packets.0, packets.1, true);
    assert!(queued.is_ok(), "behind the one that waits");
    let other = ConnectionKey(4);
    assert!(bench.workers.poll_finished(Some(other), &|_| true).is_none(), "of another connection");
    assert_eq!(bench.finished(NOW, true), [("seal", 6, true), ("seal", 1, true)]);
    let packets = (plan(1), vec![1]);
    let queued = bench.workers.queue_sealed(NOW, flow(Direction::Out), &bench.connection, packets.0, packets.1, false);
    assert!(queued.is_ok(), "their socket is full");
    assert_eq!((bench.finished(NOW, false), bench.finished(NOW, true)), (vec![], vec![("seal", 1, true)]));
}

#[test]
fn the_driver_redoes_the_work_of_an_ended_worker_and_received_batches_are_lost() {
    let mut bench = Bench::new();
    assert!(bench.seal(6) && bench.open(LARGE) && bench.run(LARGE));
    bench.turns = None;
    let mut finished = bench.finished(NOW, true);
    finished.sort_unstable();
    assert_eq!(finished, [("lost", 3, false), ("run", 0, false), ("seal", 6, false)]);
    assert!(!bench.seal(6) && !bench.open(LARGE) && !bench.run(LARGE), "the driver does everything");
    let stats = bench.counters.read();
    assert_eq!((stats.workers_gone, stats.batches_redone, stats.batches_lost), (1, 2, 1));
}

#[test]
fn a_late_worker_is_not_used_until_it_responds() {
    let mut bench = Bench::new();
    assert!(bench.seal(6) && bench.open(LARGE) && bench.run(LARGE));
    let late = bench.workers.deadline().expect("the worker is checked");
    assert_eq!(bench.finished(late, true), [("seal", 6, false), ("run", 0, false)]);
    assert!(!bench.run(LARGE), "it gets no more work");
    let lost = bench.workers.deadline().expect("the worker is checked");
    assert!(lost > late + Duration::from_millis(100), "a received batch counts as lost later");
    assert_eq!(bench.finished(lost, true), [("lost", 3, false)]);
    bench.turn();
    assert_eq!(bench.finished(lost, true), [], "late results are ignored");
    assert!(bench.seal(6) && bench.open(LARGE) && bench.run(LARGE), "it responds again");
    bench.turn();
    assert_eq!(bench.finished(lost, true).len(), 3);
    let stats = bench.counters.read();
    assert_eq!((stats.workers_late, stats.batches_redone, stats.batches_lost), (1, 2, 1));
}

#[test]
fn without_workers_everything_is_refused() {
    let mut workers = Workers::<Toy>::default();
    let connection = Bench::new().connection;
    assert_eq!((workers.sealers(), workers.opens(), workers.is_full()), (None, false, false));
    assert!(workers.seal(NOW, flow(Direction::Out), &connection, plan(64)).is_err());
    assert!(workers.open(NOW, flow(Direction::In), &connection, Box::default(), batch(LARGE)).is_err());
    let job = Arc::new(Decrypt::new(7, 0, vec![vec![0; LARGE]]));
    assert!(workers.run(NOW, flow(Direction::Up), &connection, job, false).is_err());
    assert!(!workers.has_work() && workers.deadline().is_none() && workers.is_drained(NOW) && !workers.make_space());
    assert!(!workers.takes_receive_halves() && workers.has_space_for_updates());
}
