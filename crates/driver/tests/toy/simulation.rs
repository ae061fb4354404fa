//! Hosts in virtual time: one thread runs all turns in a fixed order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use units::{Duration, Instant, Ratio};

use crate::app::{End, ToyCell};
use crate::host::{Host, HostWakers, LIMITS, Placement, TestClock, address};
use crate::link::{Link, Quality, Traffic};
use crate::transfer::Transfer;

/// A link that loses and reorders segments and delivers them several at a time.
pub(crate) const LOSSY: Quality = Quality {
    delay: Duration::from_millis(5),
    tick: Duration::from_millis(1),
    spacing: Duration::from_micros(10),
    loss: Ratio::new(1, 100),
    reorder: Ratio::new(1, 50),
    damage: Ratio::new(1, 500),
    capacity: 48,
    no_buffers: Ratio::new(1, 100),
};

/// The limit of a test in virtual time.
const TIME_MAX: Instant = Instant::from_nanos(600_000_000_000);

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A step of an application. Returns true once it is done.
type Step = Box<dyn FnMut(&Waker) -> bool>;

/// Two hosts and a link, with applications.
pub(crate) struct World {
    pub(crate) clock: TestClock,
    pub(crate) link: Link,
    pub(crate) hosts: Vec<Host>,
    apps: Vec<(Arc<Flag>, Step)>,
}

impl World {
    pub(crate) fn new(placement: Placement, quality: Quality, seed: u64) -> Self {
        Self::with_limits(placement, quality, seed, LIMITS)
    }

    pub(crate) fn with_limits(placement: Placement, quality: Quality, seed: u64, limits: driver::DriverLimits) -> Self {
        let (clock, link) = (TestClock::manual(), Link::new(quality, seed));
        let host = |number| Host::new(number, placement, &link, &clock, &HostWakers::none(), limits);
        let hosts = vec![host(0), host(1)];
        Self { clock, link, hosts, apps: Vec::new() }
    }

    /// Adds an application, which is stepped when it is woken, until it is done.
    pub(crate) fn add(&mut self, step: impl FnMut(&Waker) -> bool + 'static) {
        self.apps.push((Arc::new(Flag(AtomicBool::new(true))), Box::new(step)));
    }

    pub(crate) fn connect(&self) -> Arc<ToyCell> {
        ToyCell::connect(&self.hosts[0].shared, address(1)).expect("the endpoint is open")
    }

    pub(crate) fn accept(&self) -> Option<Arc<ToyCell>> {
        ToyCell::accept(&self.hosts[1].shared, Waker::noop())
    }

    /// Runs all turns that are due now, workers first, and then steps applications. Returns false
    /// if there was nothing to do.
    pub(crate) fn settle(&mut self) -> bool {
        let now = self.clock.now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let mut has_done = false;
        loop {
            let mut has_turned = false;
            for host in &mut self.hosts {
                if let Some(worker) = host.worker.as_mut().filter(|worker| is_due(worker.due_at(now))) {
                    worker.turn();
                    has_turned = true;
                }
                if is_due(host.driver.due_at(now)) {
                    host.driver.turn();
                    has_turned = true;
                }
            }
            if !has_turned {
                let mut has_stepped = false;
                self.apps.retain_mut(|(flag, step)| {
                    let is_woken = flag.0.swap(false, Ordering::SeqCst);
                    has_stepped |= is_woken;
                    !is_woken || !step(&Waker::from(Arc::clone(flag)))
                });
                if !has_stepped {
                    return has_done;
                }
            }
            has_done = true;
        }
    }

    /// Returns the time of the next event.
    fn next_at(&self) -> Option<Instant> {
        let now = self.clock.now();
        let drivers = self.hosts.iter().filter_map(|host| host.driver.due_at(now));
        let workers = self.hosts.iter().filter_map(|host| host.worker.as_ref()?.due_at(now));
        drivers.chain(workers).chain(self.link.next_arrival()).min()
    }

    /// Runs until `is_done`.
    pub(crate) fn run_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        loop {
            self.settle();
            if is_done(self) {
                return;
            }
            let next = self.next_at().expect("there is a next event");
            assert!(next < TIME_MAX, "it takes too long");
            self.clock.advance_to(next.max(self.clock.now()));
        }
    }

    /// Returns whether all applications are done.
    pub(crate) fn is_done(&self) -> bool {
        self.apps.is_empty()
    }

    /// Runs until all applications are done.
    pub(crate) fn run(&mut self) {
        self.run_until(|world| world.is_done());
    }

    /// Adds transfers in both directions over this many connections, which must end with
    /// `Finished`.
    pub(crate) fn add_transfers(&mut self, connections: u64, len: u64) {
        for number in 0..connections {
            let cell = self.connect();
            self.add_transfer(Transfer::new(cell, true, number, len), |end| assert_eq!(*end, End::Finished));
            let accepted = self.next_accepted();
            self.add_transfer(Transfer::new(accepted, false, number, len), |end| assert_eq!(*end, End::Finished));
        }
    }

    /// Runs until the second host accepts a connection.
    pub(crate) fn next_accepted(&mut self) -> Arc<ToyCell> {
        let mut accepted = None;
        self.run_until(|world| {
            accepted = world.accept();
            accepted.is_some()
        });
        accepted.expect("the simulation ran until one was accepted")
    }

    /// Adds a transfer. `check` checks how it ends.
    pub(crate) fn add_transfer(&mut self, mut transfer: Transfer, check: impl Fn(&End) + 'static) {
        self.add(move |waker| {
            let is_over = transfer.step(waker);
            transfer.end().into_iter().for_each(&check);
            is_over
        });
    }
}

/// Returns the traffic of connections over a link.
fn transfer(placement: Placement, quality: Quality, seed: u64, connections: u64, len: u64) -> (World, [Traffic; 2]) {
    let mut world = World::new(placement, quality, seed);
    world.add_transfers(connections, len);
    world.run();
    let traffic = world.link.traffic();
    (world, traffic)
}

#[test]
fn megabytes_arrive_in_both_directions_over_a_lossy_link_under_every_placement() {
    for placement in Placement::ALL {
        let (world, traffic) = transfer(placement, LOSSY, 7, 2, 2 << 20);
        for direction in traffic {
            let Traffic { lost, reordered, damaged, refused, mixed, .. } = direction;
            assert!(lost > 0 && reordered > 0 && damaged > 0 && refused > 0, "{placement:?}: {direction:?}");
            assert!(mixed > 0, "{placement:?}: connections share batches: {direction:?}");
        }
        for host in &world.hosts {
            if let Some(split) = &host.counters.split {
                let stats = split.read();
                assert!(stats.detached > 0 && stats.returned > 0 && stats.lost == 0, "{stats:?}");
                assert!(stats.batches > 100, "{stats:?}");
            }
            if let Some(pool) = &host.counters.pool {
                let stats = pool.read();
                assert!(stats.workers[0].batches > 40 && stats.batches_lost == 0, "{stats:?}");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_at_the_same_times() {
    for placement in Placement::ALL {
        let (first, second) =
            (transfer(placement, LOSSY, 11, 3, 1 << 20).1, transfer(placement, LOSSY, 11, 3, 1 << 20).1);
        assert_eq!(first, second, "{placement:?}");
        assert_ne!(
            first[0].digest,
            transfer(placement, LOSSY, 12, 3, 1 << 20).1[0].digest,
            "another seed: {placement:?}"
        );
    }
}

/// With one connection there is one order of segments. The sockets always have space, because the
/// sealing processor changes the times at which waiting plans are made.
#[test]
fn placements_do_not_change_the_sent_bytes() {
    let quality = Quality { capacity: 10_000, no_buffers: Ratio::ZERO, ..LOSSY };
    for seed in 0..5 {
        let of =
            |placement| transfer(placement, quality, seed, 1, 2 << 20).1.map(|traffic| (traffic.digest, traffic.sent));
        let inline = of(Placement::Inline);
        for placement in [Placement::Thread, Placement::Split, Placement::Packet] {
            assert_eq!(of(placement), inline, "seed {seed}, {placement:?}");
        }
    }
}
