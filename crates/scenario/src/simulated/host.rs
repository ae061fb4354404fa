//! The processes of a simulated host: they receive batches, pass them to the driver, and send the
//! batches that it plans.
//!
//! ```text
//!   link ──▶ socket ── Call ── Stage ─┬─ Serial ──▶ driver ──▶ Application
//!                          in order ┘                 │
//!   link ◀── Call ──┬─ Stage ◀── Application ◀── Serial (plan)
//!          in order ┘
//! ```
//!
//! The driver is the one of the live engine. Its turns take no time; each task of a batch takes its
//! cost in time, on the threads that the placement assigns to it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use driver::{Driver, Flush, Place, Placement};
use quic::{PLAN_DATAGRAMS_MAX, Unsealed};
use sim::{ProcessWaker, Sequencer, Sim, Store, wait_for_wake};
use units::{Duration, Instant};

use super::costs::{End, Task};
use super::machine::{Machine, threads_of};
use super::pipeline::{PlannedBatch, QuicPipeline, UnsealedPlans};
use super::processors::{Step, Threads};
use super::socket::{ReceivedBatch, Socket};
use crate::components::Component;
use crate::memory::accounting::{Backlog, HostCounts};
use crate::memory::datagram::InFlightBatch;
use crate::memory::env::VirtualEnv;
use crate::memory::lengths::Lengths;
use crate::memory::representation::Representation as _;
use crate::memory::run::{DriverCounts, Run};
use crate::memory::setup::{HostSetup, LIMITS};
use crate::placement::ThreadCounts as _;
use crate::world::WorldError;

/// Maximum batches in progress for each thread that seals and opens, separately for sent batches
/// and for each socket. The engine's workers have the same bound.
const BATCHES_MAX: usize = 4;

/// Maximum batches, in each direction, that are complete except for their acknowledgements. A
/// further batch remains in progress until there is space. Otherwise a thread that only processes
/// acknowledgements, as under `split`, would not limit the host, and its backlog would grow without
/// bound.
const ACKS_MAX: usize = 4;

/// Number of visits without progress of virtual time that counts as a livelock.
const STALLED_VISITS_MAX: u32 = 100_000;

/// The driver of a simulated host.
type HostDriver = Driver<VirtualEnv<Lengths, QuicPipeline>>;

/// One host.
pub(crate) struct Host {
    pub(crate) threads: Threads,
    placement: Placement,
    batches_max: usize,
    setup: HostSetup,
    driver: RefCell<HostDriver>,
    pipeline: QuicPipeline,
    /// Sockets, one for each path.
    pub(crate) sockets: Vec<Socket>,
    /// Number of datagrams between socket and driver, and of those passed to the driver.
    unabsorbed: Cell<u64>,
    absorbed: Cell<u64>,
    /// Waker of the process that plans.
    sender: ProcessWaker,
    /// Slots of batches whose acknowledgements must be processed, and sent.
    acks_to_process: Store<()>,
    acks_to_send: Store<()>,
    /// Sequencers that keep batches in order per path regardless of their thread, in each
    /// direction.
    order_out: Vec<Sequencer>,
    order_in: Vec<Sequencer>,
}

/// The shared state of a run's processes.
pub(crate) struct Shared {
    pub(crate) sim: Sim,
    pub(crate) run: RefCell<Run>,
    pub(crate) machine: Machine,
    pub(crate) hosts: [Host; 2],
    pub(crate) wire: ProcessWaker,
    /// The time of a livelock.
    pub(crate) livelock_at: Cell<Option<Instant>>,
}

/// Returns the name of a task in traces.
const fn name_of(end: End, task: Task) -> &'static str {
    match (end, task) {
        (End::Sending, Task::Application) => "write",
        (End::Sending, Task::Serial) => "plan",
        (End::Sending, Task::Stage) => "seal",
        (End::Sending, Task::Call) => "send",
        (End::Sending, Task::Answer) => "process ACKs",
        (End::Receiving, Task::Application) => "read",
        (End::Receiving, Task::Serial) => "absorb",
        (End::Receiving, Task::Stage) => "open",
        (End::Receiving, Task::Call) => "receive",
        (End::Receiving, Task::Answer) => "send ACKs",
    }
}

/// Adds `more` to `count`.
fn add(count: &Cell<u64>, more: usize) {
    count.set(count.get() + more as u64);
}

impl Host {
    /// Creates a host with this setup.
    ///
    /// # Errors
    /// Fails if the transport settings are invalid.
    pub(crate) fn new(
        sim: &Sim,
        name: &str,
        placement: Placement,
        threads: Threads,
        setup: HostSetup,
        coalesce: Duration,
    ) -> Result<Self, WorldError> {
        let (paths, batches_max) = (setup.path_count, BATCHES_MAX * placement.stage_count());
        let pipeline = QuicPipeline::new(paths, batches_max, UnsealedPlans::default());
        let workers = (0..paths).map(|worker| Place::Offloaded { worker, batch_max: PLAN_DATAGRAMS_MAX });
        let driver = Driver::new(
            VirtualEnv::new(setup.clock.clone()),
            std::sync::Arc::clone(&setup.shared),
            Vec::new(),
            setup.protocol(0, placement.driver_count())?,
            workers.collect(),
            (),
            pipeline.clone(),
            LIMITS,
        );
        let sequencers = || (0..paths).map(|_| Sequencer::default()).collect();
        let queue = |what: &str, batches_max| Store::new(sim, &format!("host {name}, {what}"), batches_max);
        Ok(Self {
            threads,
            placement,
            batches_max,
            setup,
            driver: RefCell::new(driver),
            pipeline,
            sockets: (0..paths).map(|path| Socket::new(name, path, coalesce)).collect(),
            unabsorbed: Cell::new(0),
            absorbed: Cell::new(0),
            sender: ProcessWaker::default(),
            acks_to_process: queue("ACKs to process", ACKS_MAX),
            acks_to_send: queue("ACKs to send", ACKS_MAX),
            order_out: sequencers(),
            order_in: sequencers(),
        })
    }

    /// Returns the statistics of its threads, sockets and bounded queues.
    pub(crate) fn components(&self, now: Instant) -> Vec<Component> {
        let sockets = self.sockets.iter().map(|socket| socket.component(now));
        let places = [&self.acks_to_process, &self.acks_to_send].map(|store| Component::bounded_queue(&store.report()));
        self.threads.components().chain(sockets).chain(places).collect()
    }

    /// Returns the number of datagrams dropped because a socket was full.
    pub(crate) fn overflowed(&self) -> u64 {
        self.sockets.iter().map(Socket::overflowed).sum()
    }

    /// Returns the numbers of datagrams inside the host, including those that were dropped before
    /// the connection.
    pub(crate) fn backlog(&self) -> Backlog {
        let untaken = self.sockets.iter().map(Socket::untaken).sum::<u64>() + self.unabsorbed.get();
        Backlog { unsent: self.pipeline.unsent(), untaken }
    }

    /// Returns the datagram counts of the host with number `number` in `run`.
    pub(crate) fn counts(&self, run: &Run, number: usize) -> HostCounts {
        let driver = self.driver.borrow();
        let counts = DriverCounts {
            connection: driver.connections().next().map(|connection| connection.quic().stats()),
            unrouted: driver.unrouted_packets(),
            replies: driver.replies(),
        };
        run.counts(number, counts, self.absorbed.get())
    }

    fn is_inline(&self) -> bool {
        self.placement == Placement::Inline
    }
}

impl Shared {
    /// Returns the run, with its clock set to the current time.
    pub(crate) fn run_now(&self) -> std::cell::RefMut<'_, Run> {
        let run = self.run.borrow_mut();
        run.clock.set(self.sim.now());
        run
    }

    /// Runs turns of a host's driver while they are due. Returns true if a timer has fired.
    fn run_driver(&self, number: usize) -> bool {
        let (host, now) = (&self.hosts[number], self.sim.now());
        host.setup.clock.set(now);
        let mut driver = host.driver.borrow_mut();
        let (mut has_fired, mut turns) = (false, 0);
        while driver.due_at(now).is_some_and(|at| at <= now) {
            has_fired |= driver.turn(Flush::Now).fired > 0;
            turns += 1;
            if turns > STALLED_VISITS_MAX {
                self.livelock_at.set(Some(now));
                self.sim.stop();
                break;
            }
        }
        has_fired
    }

    /// Runs a host's application, and turns of its driver as far as the application makes them due.
    fn run_application(&self, number: usize) {
        let (host, now) = (&self.hosts[number], self.sim.now());
        loop {
            self.run_now().run_application(number);
            let is_due = host.driver.borrow().due_at(now).is_some_and(|at| at <= now);
            if !is_due || self.livelock_at.get().is_some() {
                break;
            }
            self.run_driver(number);
        }
        let (mut run, driver) = (self.run_now(), host.driver.borrow());
        run.record_connection(number, |look| driver.connections().for_each(|connection| look(connection.quic())));
        if run.is_over() {
            self.sim.stop();
        }
    }

    /// Returns the step of `task` for these datagrams. Only datagrams with payload have a cost.
    fn step(
        &self,
        host: &Host,
        end: End,
        task: Task,
        path: usize,
        unsealed: &Unsealed,
        datagrams: Range<usize>,
    ) -> Step {
        let (mut packets, mut bytes) = (0, 0);
        for index in datagrams.filter(|index| unsealed.has_data(*index)) {
            packets += 1;
            bytes += unsealed.len_bytes(index);
        }
        let cost = match packets {
            0 => Duration::ZERO,
            _ => self.machine.costs.of(end, task, packets, bytes / packets),
        };
        Step { threads: threads_of(host.placement, end, task, path), cost, what: name_of(end, task) }
    }

    /// Runs the process that plans. Each visit handles timers and due application work, then takes
    /// the batches that the driver plans.
    pub(crate) async fn send(self: Rc<Self>, number: usize) {
        let host = &self.hosts[number];
        host.sender.register(&self.sim);
        let (mut last, mut visits) = (self.sim.now(), 0);
        loop {
            self.do_what_is_due(number);
            while let Some(planned) = host.pipeline.take_planned() {
                let (in_flight, all) = (&planned.packets, 0..planned.packets.unsealed().datagram_count());
                let path = in_flight.path();
                let step = self.step(host, End::Sending, Task::Serial, path, in_flight.unsealed(), all);
                let thread = host.threads.run(step, None).await;
                let place = host.order_out[path].join();
                let planned = Rc::new(planned);
                let emission = Rc::clone(&self).emit(number, Rc::clone(&planned), place, thread);
                if host.is_inline() {
                    emission.await;
                } else {
                    self.sim.spawn(emission);
                }
                host.pipeline.finish_serial_step(&planned);
                self.do_what_is_due(number);
            }
            let next_deadline = host.driver.borrow().next_deadline();
            let app_at = self.run.borrow().app_timeout(number);
            if let Some(at) = next_deadline.into_iter().chain(app_at).min() {
                host.sender.wake_at(&self.sim, at);
            }
            visits = if self.sim.now() > last { 0 } else { visits + 1 };
            last = self.sim.now();
            if visits > STALLED_VISITS_MAX {
                self.livelock_at.set(Some(last));
                self.sim.stop();
                return;
            }
            wait_for_wake().await;
        }
    }

    /// Handles due timers and the application.
    fn do_what_is_due(&self, number: usize) {
        let has_fired = self.run_driver(number);
        let now = self.sim.now();
        let app_at = self.run.borrow().app_timeout(number);
        if has_fired || now == Instant::ZERO || app_at.is_some_and(|at| at <= now) {
            self.run_application(number);
        }
    }

    /// Carries a planned batch to its link.
    async fn emit(self: Rc<Self>, number: usize, planned: Rc<PlannedBatch>, place: u64, planned_by: usize) {
        let host = &self.hosts[number];
        let in_flight = &planned.packets;
        let all = 0..in_flight.unsealed().datagram_count();
        let step = |task| self.step(host, End::Sending, task, in_flight.path(), in_flight.unsealed(), all.clone());
        // The application wrote the data before it was planned. On its own thread, the order makes
        // no difference.
        host.threads.run(step(Task::Application), Some(planned_by)).await;
        let thread = host.threads.run(step(Task::Stage), Some(planned_by)).await;
        let sequencer = &host.order_out[in_flight.path()];
        sequencer.wait(&self.sim, place).await;
        host.threads.run(step(Task::Call), Some(thread)).await;
        sequencer.leave(&self.sim);
        {
            let mut run = self.run_now();
            let now = self.sim.now();
            host.pipeline.report_emitted(now, &planned);
            InFlightBatch::datagrams(in_flight).for_each(|datagram| run.network.send(now, number, datagram));
        }
        self.wire.wake(&self.sim);
        // The driver is notified now, so that its timers run from now.
        host.sender.wake(&self.sim);
        host.acks_to_process.put(()).await;
        host.pipeline.finish_sending(&planned);
        host.sender.wake(&self.sim);
        host.threads.run(step(Task::Answer), None).await;
        host.acks_to_process.try_take().expect("this batch has a slot");
    }

    /// Runs the process that receives on a path. It takes datagrams when its thread is free, so a
    /// busy thread finds larger batches.
    pub(crate) async fn receive(self: Rc<Self>, number: usize, path: usize) {
        let host = &self.hosts[number];
        let socket = &host.sockets[path];
        let calling = threads_of(host.placement, End::Receiving, Task::Call, path).start;
        socket.receiver.register(&self.sim);
        loop {
            while socket.receiving.get() < host.batches_max && !socket.is_empty() {
                let acquired = host.threads.acquire(calling).await;
                let Some(batch) = socket.take_batch(&self.sim) else {
                    acquired.release();
                    break;
                };
                socket.receiving.set(socket.receiving.get() + 1);
                add(&host.unabsorbed, batch.datagrams.len());
                let place = host.order_in[path].join();
                acquired
                    .execute(self.step(
                        host,
                        End::Receiving,
                        Task::Call,
                        path,
                        batch.in_flight.unsealed(),
                        batch.datagrams.clone(),
                    ))
                    .await;
                let absorption = Rc::clone(&self).absorb(number, batch, place);
                if host.is_inline() {
                    absorption.await;
                } else {
                    self.sim.spawn(absorption);
                }
            }
            wait_for_wake().await;
        }
    }

    /// Carries a received batch to the application.
    async fn absorb(self: Rc<Self>, number: usize, batch: ReceivedBatch, place: u64) {
        let host = &self.hosts[number];
        let ReceivedBatch { in_flight, datagrams } = batch;
        let (path, unsealed) = (in_flight.path(), in_flight.unsealed());
        let step = |task| self.step(host, End::Receiving, task, path, unsealed, datagrams.clone());
        let calling = threads_of(host.placement, End::Receiving, Task::Call, path).start;
        let thread = host.threads.run(step(Task::Stage), Some(calling)).await;
        let sequencer = &host.order_in[path];
        sequencer.wait(&self.sim, place).await;
        let thread = host.threads.run(step(Task::Serial), Some(thread)).await;
        sequencer.leave(&self.sim);
        let received = InFlightBatch::datagrams(&in_flight).skip(datagrams.start).take(datagrams.len());
        host.pipeline.push_arrival(path, Lengths::received(host.setup.side, received));
        host.unabsorbed.set(host.unabsorbed.get() - datagrams.len() as u64);
        add(&host.absorbed, datagrams.len());
        self.run_driver(number);
        host.sender.wake(&self.sim);
        host.acks_to_send.put(()).await;
        let socket = &host.sockets[path];
        socket.receiving.set(socket.receiving.get() - 1);
        socket.receiver.wake(&self.sim);
        let bytes = datagrams.clone().filter(|index| unsealed.has_data(*index));
        let reading = Rc::clone(&self).read(
            number,
            bytes.map(|index| unsealed.data_len_bytes(index)).sum(),
            step(Task::Application),
            thread,
        );
        if host.is_inline() {
            reading.await;
        } else {
            self.sim.spawn(reading);
        }
        host.threads.run(step(Task::Answer), None).await;
        host.acks_to_send.try_take().expect("this batch has a slot");
    }

    /// Lets the application read the data of a batch. If it is slow, its inboxes and then the
    /// receive window fill, which limits the sender instead of the receiving host.
    async fn read(self: Rc<Self>, number: usize, bytes: usize, step: Step, absorbed_by: usize) {
        let host = &self.hosts[number];
        host.threads.run(step, Some(absorbed_by)).await;
        self.run_now().allow_reading(number, bytes);
        self.run_application(number);
        host.sender.wake(&self.sim);
    }

    /// Runs the process that delivers the datagrams of all links.
    pub(crate) async fn carry(self: Rc<Self>) {
        self.wire.register(&self.sim);
        loop {
            let next = {
                let mut run = self.run_now();
                let now = self.sim.now();
                run.network.receive(now, |direction, datagram| {
                    self.hosts[1 - direction].sockets[datagram.path()].arrive(&self.sim, datagram);
                });
                run.look_at_faults();
                run.network.timeout().into_iter().chain(run.proof_timeout()).min()
            };
            if let Some(at) = next {
                self.wire.wake_at(&self.sim, at);
            }
            wait_for_wake().await;
        }
    }
}
