//! A host without processing cost: the drivers and workers of its placement, which take their turns
//! in a fixed order.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use driver::crypto_pool::CryptoWorker;
use driver::path_worker::PathWorker;
use driver::placement::socket_workers;
use driver::receive_worker::ReceiveWorker;
use driver::worker::{WorkerLoop, WorkerSocket};
use driver::workers::Workers;
use driver::{Driver, Flush, Inlet, LocalSocket, Place, Placement, RECV_CALLS_PER_TURN};
use quic::{PLAN_DATAGRAMS_MAX, Side};
use quic_driver::{Quic, QuicShared};
use units::Instant;

use super::env::{ReceiveQueue, SentQueue, VirtualClock, VirtualEnv, VirtualSocket};
use super::representation::Representation;
use super::run::DriverCounts;
use super::runtime::InlineDriver;
use super::setup::{HostSetup, LIMITS};
use crate::world::WorldError;

/// The environment of hosts without processing cost.
type HostEnv<K> = VirtualEnv<K, Workers<Quic<K>>>;

/// The processors of a host: its drivers and workers.
pub(crate) trait Processors {
    /// Returns when a turn of any of them is due; `now` if there is work.
    fn due_at(&self, now: Instant) -> Option<Instant>;

    /// Runs a turn of each that is due, drivers last, because the others receive what has arrived.
    fn take_turns(&mut self, now: Instant);

    /// Calls `look` with the connection, if a driver has it.
    fn look_at_connection(&self, look: &mut dyn FnMut(&quic::Connection));

    /// Returns the counts of the drivers.
    fn counts(&self) -> DriverCounts;
}

/// A host's processors, and the queues between them and the links.
pub(crate) struct Host {
    pub(crate) processors: Box<dyn Processors>,
    /// Runs turns in calls of the application, under `inline`.
    pub(crate) inline: Option<Rc<dyn InlineDriver>>,
    /// Receive queues by path.
    pub(crate) arrivals: Vec<Rc<ReceiveQueue>>,
    pub(crate) sent: SentQueue,
}

struct HostDriver<K: Representation> {
    driver: RefCell<Driver<HostEnv<K>>>,
    shared: Arc<QuicShared>,
}

impl<K: Representation> InlineDriver for HostDriver<K> {
    fn run_turns(&self, mut flush: Flush) {
        loop {
            self.driver.borrow_mut().turn(flush);
            if !self.shared.has_todo() {
                return;
            }
            flush = Flush::Now;
        }
    }
}

struct HostProcessors<K: Representation> {
    drivers: Vec<Rc<HostDriver<K>>>,
    workers: Vec<Box<dyn WorkerLoop>>,
}

impl<K: Representation> Processors for HostProcessors<K> {
    fn due_at(&self, now: Instant) -> Option<Instant> {
        let drivers = self.drivers.iter().filter_map(|driver| driver.driver.borrow().due_at(now));
        drivers.chain(self.workers.iter().filter_map(|worker| worker.due_at(now))).min()
    }

    fn take_turns(&mut self, now: Instant) {
        if let ([driver], []) = (&self.drivers[..], &self.workers[..]) {
            driver.driver.borrow_mut().turn(Flush::Now);
            return;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        for worker in self.workers.iter_mut().rev() {
            // A driver makes this many calls to a socket in one turn, a worker one.
            for _ in 0..RECV_CALLS_PER_TURN {
                if is_due(worker.due_at(now)) {
                    worker.counted_turn();
                }
            }
        }
        for driver in self.drivers.iter().rev() {
            let mut driver = driver.driver.borrow_mut();
            if is_due(driver.due_at(now)) {
                driver.turn(Flush::Now);
            }
        }
    }

    fn look_at_connection(&self, look: &mut dyn FnMut(&quic::Connection)) {
        for driver in &self.drivers {
            driver.driver.borrow().connections().for_each(|connection| look(connection.quic()));
        }
    }

    fn counts(&self) -> DriverCounts {
        let mut counts = DriverCounts::default();
        for driver in &self.drivers {
            let driver = driver.driver.borrow();
            counts.connection = counts.connection.or(driver.connections().next().map(|one| one.quic().stats()));
            counts.unrouted += driver.unrouted_packets();
            counts.replies += driver.replies();
        }
        counts
    }
}

impl Host {
    /// Creates a host with packets of representation `K`.
    ///
    /// # Errors
    /// Fails if the transport settings are invalid.
    pub(crate) fn new<K: Representation>(setup: &HostSetup, placement: Placement) -> Result<Self, WorldError> {
        let drivers = placement.driver_count();
        let sent = SentQueue::default();
        let queues = |_| (0..setup.path_count).map(|_| Rc::default()).collect();
        let arrivals: Vec<Vec<Rc<ReceiveQueue>>> = (0..drivers).map(queues).collect();
        let inlet = |_| Arc::new(Inlet::new(Waker::noop().clone()));
        let inlets: Vec<_> = if drivers > 1 { (0..drivers).map(inlet).collect() } else { Vec::new() };
        let mut processors = HostProcessors { drivers: Vec::new(), workers: Vec::new() };
        for (index, arrivals) in arrivals.iter().enumerate() {
            let sockets = arrivals.iter().enumerate().map(|(path, arrivals)| {
                VirtualSocket::new(path, setup.side, Rc::clone(arrivals), Rc::clone(&sent), setup.joins)
            });
            let shared = setup.shared_of(index);
            let DriverParts { sockets, offload, workers } = place::<K>(placement, &setup.clock, sockets.collect());
            processors.workers.extend(workers);
            let (env, protocol) = (VirtualEnv::new(setup.clock.clone()), setup.protocol(index, drivers)?);
            let driver = Driver::new(env, Arc::clone(&shared), inlets.clone(), protocol, sockets, (), offload, LIMITS);
            processors.drivers.push(Rc::new(HostDriver { driver: RefCell::new(driver), shared }));
        }
        let first = Rc::clone(&processors.drivers[0]);
        let inline = placement.is_inline().then_some(first as Rc<dyn InlineDriver>);
        // Paths are distributed among the drivers, as a system distributes the packets of a shared
        // port.
        let arrivals = (0..setup.path_count).map(|path| Rc::clone(&arrivals[path % drivers][path])).collect();
        Ok(Self { processors: Box::new(processors), inline, arrivals, sent })
    }
}

/// The sockets and workers of a driver.
struct DriverParts<K: Representation> {
    sockets: Vec<Place<HostEnv<K>>>,
    offload: Workers<Quic<K>>,
    workers: Vec<Box<dyn WorkerLoop>>,
}

impl<K: Representation> DriverParts<K> {
    fn new(sockets: Vec<Place<HostEnv<K>>>) -> Self {
        Self { sockets, offload: Workers::default(), workers: Vec::new() }
    }
}

/// Returns a waker without effect: no processor sleeps in virtual time, because the owner of the
/// host asks each when its turn is due.
fn waker() -> Waker {
    Waker::noop().clone()
}

fn local<K: Representation>(sockets: Vec<VirtualSocket>) -> Vec<Place<HostEnv<K>>> {
    sockets.into_iter().map(|socket| Place::Local(LocalSocket::new(socket))).collect()
}

/// Distributes the sockets and creates the workers of the placement.
fn place<K: Representation>(placement: Placement, clock: &VirtualClock, sockets: Vec<VirtualSocket>) -> DriverParts<K> {
    match placement {
        Placement::Split => place_split(clock, sockets),
        Placement::Packet(count) => place_packet(clock, sockets, count),
        Placement::Path(count) => place_path(clock, sockets, count),
        _ => DriverParts::new(local(sockets)),
    }
}

/// Places the processors of `split`: the driver sends, the receive worker receives.
fn place_split<K: Representation>(clock: &VirtualClock, sockets: Vec<VirtualSocket>) -> DriverParts<K> {
    let receiving = sockets.iter().cloned().enumerate();
    let receiving = receiving.map(|(index, socket)| WorkerSocket { index, socket: LocalSocket::new(socket) });
    let (receiver, turns) = ReceiveWorker::new::<HostEnv<K>>(clock.clone(), waker(), waker(), receiving.collect());
    let sending = sockets.into_iter().map(|socket| Place::Local(LocalSocket::only_sending(socket)));
    DriverParts { sockets: sending.collect(), offload: Workers::of_receiver(receiver), workers: vec![Box::new(turns)] }
}

/// Places the processors of `packet`: the driver serves all sockets, crypto workers encrypt and
/// decrypt.
fn place_packet<K: Representation>(clock: &VirtualClock, sockets: Vec<VirtualSocket>, count: usize) -> DriverParts<K> {
    let (mut pool, mut workers): (Vec<_>, Vec<Box<dyn WorkerLoop>>) = (Vec::new(), Vec::new());
    for _ in 1..count {
        let (worker, turns) = CryptoWorker::new(clock.clone(), waker(), waker());
        pool.push(worker);
        workers.push(Box::new(turns));
    }
    DriverParts { sockets: local(sockets), offload: Workers::of_pool(pool), workers }
}

/// Places the processors of `path`: each path worker serves some of the sockets. If there are more
/// processors than sockets, the driver serves none.
fn place_path<K: Representation>(clock: &VirtualClock, sockets: Vec<VirtualSocket>, count: usize) -> DriverParts<K> {
    let mut places = Vec::with_capacity(sockets.len());
    let mut assigned: Vec<Vec<_>> = Vec::new();
    let workers = socket_workers(count, sockets.len());
    for ((index, socket), worker) in sockets.into_iter().enumerate().zip(workers) {
        let socket = LocalSocket::new(socket);
        let Some(worker) = worker else {
            places.push(Place::Local(socket));
            continue;
        };
        places.push(Place::Offloaded { worker, batch_max: PLAN_DATAGRAMS_MAX });
        assigned.resize_with(assigned.len().max(worker + 1), Vec::new);
        assigned[worker].push(WorkerSocket { index, socket });
    }
    // If the driver serves a socket, path workers also encrypt and decrypt for it while they are
    // idle.
    let has_local = places.iter().any(|place| matches!(place, Place::Local(_)));
    let (mut helpers, mut paths) = (Vec::new(), Vec::new());
    let mut workers: Vec<Box<dyn WorkerLoop>> = Vec::new();
    for sockets in assigned {
        let (worker, helper) = CryptoWorker::helped_by(waker());
        helpers.extend(has_local.then_some(worker));
        let helper = has_local.then_some(helper);
        let (path, turns) = PathWorker::new::<HostEnv<K>>(clock.clone(), waker(), waker(), sockets, helper);
        paths.push(path);
        workers.push(Box::new(turns));
    }
    DriverParts { sockets: places, offload: Workers::of_paths(paths, helpers), workers }
}

/// Returns the side of a host: the first begins the connection.
pub(crate) const fn side_of(host: usize) -> Side {
    if host == 0 { Side::Client } else { Side::Server }
}
