//! Hosts on threads: a driver and its worker each have a thread, applications have others, and the
//! clock is real.
//!
//! Threads sleep until they are woken or a deadline is reached. A test waits for events; a time
//! limit only ends one that hangs.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};

use driver::sync::lock;
use net::MonotonicClock;
use units::{Duration, Instant, Ratio};

use crate::app::{End, Fault, ToyCell, ToyShared};
use crate::host::{Counters, Host, HostDriver, HostWakers, LIMITS, Placement, TestClock, Worker, address};
use crate::link::{Link, Quality, Traffic};
use crate::transfer::{Transfer, connection_number};

const LOSSY: Quality = Quality {
    loss: Ratio::new(1, 200),
    reorder: Ratio::new(1, 100),
    damage: Ratio::new(1, 2000),
    capacity: 256,
    no_buffers: Ratio::new(1, 500),
    ..Quality::PERFECT
};

/// The time limit of a test.
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// A token that a waker sets and a thread waits for.
#[derive(Default)]
struct Parker {
    token: Mutex<bool>,
    signal: Condvar,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        *lock(&self.token) = true;
        self.signal.notify_one();
    }
}

impl Parker {
    /// Sleeps until it is woken, or until `until`.
    fn park(&self, clock: &TestClock, until: Option<Instant>) {
        let mut token = lock(&self.token);
        while !*token {
            let now = clock.now();
            assert!(now < Instant::ZERO + HANGS_AFTER, "the test hangs");
            let until = until.unwrap_or(Instant::FAR_FUTURE).min(Instant::ZERO + HANGS_AFTER);
            let left = until.saturating_since(now);
            if left.is_zero() {
                return;
            }
            token = self.signal.wait_timeout(token, left.into()).expect("nothing panics while it holds the token").0;
        }
        *token = false;
    }
}

/// Runs the turns of a driver until the endpoint is stopped and its last segments are sent.
fn run_driver(mut driver: HostDriver, clock: &TestClock, parker: &Parker) {
    loop {
        let has_more = driver.turn();
        if driver.driver.shared().is_stopping() && driver.driver.is_drained() {
            return;
        }
        let now = clock.now();
        if !has_more {
            parker.park(clock, driver.due_at(now));
        }
    }
}

fn run_worker(mut worker: Worker, clock: &TestClock, parker: &Parker) {
    while !worker.is_over() {
        worker.turn();
        parker.park(clock, worker.due_at(clock.now()));
    }
}

/// The applications of one host: transfers over the connections that it opens and accepts.
struct Apps {
    shared: Arc<ToyShared>,
    /// Connections to be accepted.
    awaited: usize,
    len: u64,
    transfers: Vec<Transfer>,
    ends: Vec<End>,
}

impl Apps {
    /// Steps all transfers. Returns true once all are done.
    fn step(&mut self, waker: &Waker) -> bool {
        while self.awaited > 0
            && let Some(cell) = ToyCell::accept(&self.shared, waker)
        {
            self.awaited -= 1;
            let number = connection_number(&cell);
            self.transfers.push(Transfer::new(cell, false, number, self.len));
        }
        let ends = &mut self.ends;
        self.transfers.retain_mut(|transfer| {
            let is_over = transfer.step(waker);
            ends.extend(transfer.end().filter(|_| is_over).cloned());
            !is_over
        });
        self.awaited == 0 && self.transfers.is_empty()
    }

    /// Steps the transfers on a thread of their own. Returns how the connections ended.
    fn run(mut self, clock: &TestClock) -> Vec<End> {
        let parker = Arc::<Parker>::default();
        let waker = Waker::from(Arc::clone(&parker));
        while !self.step(&waker) {
            parker.park(clock, None);
        }
        self.ends
    }

    /// Steps the transfers on the thread that runs the turns of the driver, until the endpoint is
    /// stopped.
    fn run_inline(mut self, mut driver: HostDriver, clock: &TestClock, parker: &Arc<Parker>, over: &Sender<Vec<End>>) {
        let waker = Waker::from(Arc::clone(parker));
        let mut is_over = false;
        loop {
            if !is_over && self.step(&waker) {
                is_over = true;
                over.send(std::mem::take(&mut self.ends)).expect("the test listens");
            }
            let has_more = driver.turn();
            if driver.driver.shared().is_stopping() && driver.driver.is_drained() {
                return;
            }
            if !has_more {
                parker.park(clock, driver.due_at(clock.now()));
            }
        }
    }
}

/// Stops all endpoints when it is dropped, even if the test fails.
struct StopAll(Vec<Arc<ToyShared>>);

impl Drop for StopAll {
    fn drop(&mut self) {
        self.0.iter().for_each(|shared| shared.stop());
    }
}

struct Outcome {
    /// The ends of the connections at each host, in the order in which they ended.
    ends: [Vec<End>; 2],
    traffic: [Traffic; 2],
    counters: Vec<Counters>,
}

/// Runs transfers in both directions over this many connections. The first has a fault, if one is
/// given.
fn transfer(placement: Placement, quality: Quality, connections: usize, len: u64, fault: Option<Fault>) -> Outcome {
    let clock = TestClock::System(MonotonicClock::start());
    let link = Link::new(quality, 3);
    let (mut hosts, mut parkers) = (Vec::new(), Vec::new());
    for number in 0..2 {
        let own = [Arc::<Parker>::default(), Arc::<Parker>::default()];
        let wakers = HostWakers { driver: Arc::clone(&own[0]).into(), worker: Arc::clone(&own[1]).into() };
        hosts.push(Host::new(number, placement, &link, &clock, &wakers, LIMITS));
        parkers.push(own);
    }
    let mut apps = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let awaited = if number == 1 { connections } else { 0 };
        let (transfers, ends) = (Vec::new(), Vec::new());
        apps.push(Apps { shared: Arc::clone(&host.shared), awaited, len, transfers, ends });
    }
    for number in 0..connections {
        let cell = ToyCell::connect(&hosts[0].shared, address(1)).expect("the endpoint is open");
        let transfer = Transfer::new(cell, true, number as u64, len).with_fault(fault.filter(|_| number == 0));
        apps[0].transfers.push(transfer);
    }
    let mut counters = Vec::new();
    let ends = std::thread::scope(|scope| {
        let _stop = StopAll(hosts.iter().map(|host| Arc::clone(&host.shared)).collect());
        let mut over = Vec::new();
        for ((host, apps), parkers) in hosts.into_iter().zip(apps).zip(parkers) {
            let (clock, [driver_parker, worker_parker]) = (clock.clone(), parkers);
            counters.push(host.counters);
            let (ends, ended) = channel();
            over.push(ended);
            if let Some(worker) = host.worker {
                let clock = clock.clone();
                scope.spawn(move || run_worker(worker, &clock, &worker_parker));
            }
            if placement == Placement::Inline {
                scope.spawn(move || apps.run_inline(host.driver, &clock, &driver_parker, &ends));
            } else {
                let of_apps = clock.clone();
                scope.spawn(move || run_driver(host.driver, &clock, &driver_parker));
                scope.spawn(move || ends.send(apps.run(&of_apps)).expect("the test listens"));
            }
        }
        // A thread that panics drops its end of the channel.
        [0, 1].map(|host| over[host].recv().expect("the applications of a host end"))
    });
    Outcome { ends, traffic: link.traffic(), counters }
}

#[test]
fn megabytes_arrive_in_both_directions_over_a_lossy_link_under_every_placement() {
    for placement in Placement::ALL {
        let Outcome { ends, traffic, counters } = transfer(placement, LOSSY, 3, 4 << 20, None);
        assert_eq!(ends, [vec![End::Finished; 3], vec![End::Finished; 3]], "{placement:?}");
        assert!(traffic.iter().all(|direction| direction.lost > 0 && direction.reordered > 0), "{traffic:?}");
        for counters in counters {
            if let Some(split) = counters.split {
                let stats = split.read();
                assert!(stats.detached > 0 && stats.lost == 0, "{stats:?}");
            }
            if let Some(pool) = counters.pool {
                let stats = pool.read();
                assert!(stats.workers[0].batches > 0 && stats.workers_gone == 0, "{stats:?}");
            }
        }
    }
}

#[test]
fn a_panic_ends_only_its_connection() {
    for placement in Placement::ALL {
        for fault in [Fault::Absorb, Fault::Job, Fault::Plan, Fault::Seal] {
            let Outcome { ends: [ours, theirs], .. } = transfer(placement, Quality::PERFECT, 3, 4 << 20, Some(fault));
            let gone = End::Closed(driver::EndReason::ProcessorGone);
            let count = |ends: &[End], end: &End| ends.iter().filter(|other| *other == end).count();
            assert_eq!(
                (count(&ours, &gone), count(&ours, &End::Finished)),
                (1, 2),
                "{placement:?} {fault:?}: {ours:?}"
            );
            assert_eq!(count(&theirs, &End::Finished), 2, "{placement:?} {fault:?}: {theirs:?}");
        }
    }
}
