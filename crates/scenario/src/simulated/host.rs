//! The processes of a simulated host: they receive batches, pass them to the connection, and send
//! planned batches.
//!
//! ```text
//!   link ──▶ socket ── Call ── Stage ─┬─ Serial ──▶ connection ──▶ Application
//!                          in order ┘                 │
//!   link ◀── Call ──┬─ Stage ◀── Application ◀── Serial (plan)
//!          in order ┘
//! ```
//!
//! Each task takes its cost in time, on the threads that the placement assigns to it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use driver::Placement;
use quic::{PLAN_DATAGRAMS_MAX, Unsealed};
use sim::kernel::TaskId;
use sim::{Sim, Store};
use units::{Duration, Instant};

use super::costs::{End, Task};
use super::machine::{Machine, threads_of};
use super::process_waker::{ProcessWaker, wait_for_wake};
use super::processors::{Step, Threads};
use super::socket::{ReceivedBatch, Socket};
use crate::components::Component;
use crate::memory::accounting::Backlog;
use crate::memory::datagram::InFlightBatch;
use crate::memory::node::PlannedBatch;
use crate::memory::run::Run;
use crate::placement::ThreadCounts as _;

/// Maximum batches in progress for each thread that seals and opens, separately for sent batches
/// and for each socket. The engine's workers have the same bound.
const BATCHES_MAX: usize = 4;

/// Maximum batches, in each direction, that are complete except for their acknowledgements. A
/// further batch remains in progress until there is space. Otherwise a thread that only processes
/// acknowledgements, as under `split`, would not limit the host, and its backlog would grow without
/// bound.
const ANSWERS_MAX: usize = 4;

/// Number of visits without progress of virtual time that counts as a livelock.
const STALLED_VISITS_MAX: u32 = 100_000;

/// One host.
pub(crate) struct Host {
    pub(crate) threads: Threads,
    placement: Placement,
    batches_max: usize,
    /// One for each path.
    pub(crate) sockets: Vec<Socket>,
    /// Datagrams between plan and link, and between socket and connection.
    unsent: Cell<u64>,
    unabsorbed: Cell<u64>,
    /// Wakes the process that plans.
    sender: ProcessWaker,
    /// Batches in progress.
    sending: Cell<usize>,
    /// Slots of batches whose acknowledgements are to be processed, and to be sent.
    to_hear: Store<()>,
    to_give: Store<()>,
    /// Keep batches in order per path regardless of their thread, in each direction.
    order_out: Vec<Sequencer>,
    order_in: Vec<Sequencer>,
}

/// A queue whose members leave in the order in which they joined.
#[derive(Default)]
struct Sequencer {
    joined: Cell<u64>,
    left: Cell<u64>,
    waiting: RefCell<Vec<TaskId>>,
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

/// The name of a task in traces.
const fn name_of(end: End, task: Task) -> &'static str {
    match (end, task) {
        (End::Sending, Task::Application) => "write",
        (End::Sending, Task::Serial) => "plan",
        (End::Sending, Task::Stage) => "seal",
        (End::Sending, Task::Call) => "send",
        (End::Sending, Task::Answer) => "hear answers",
        (End::Receiving, Task::Application) => "read",
        (End::Receiving, Task::Serial) => "absorb",
        (End::Receiving, Task::Stage) => "open",
        (End::Receiving, Task::Call) => "receive",
        (End::Receiving, Task::Answer) => "give answers",
    }
}

/// Adds `more` to `count`.
fn add(count: &Cell<u64>, more: usize) {
    count.set(count.get() + more as u64);
}

impl Sequencer {
    fn join(&self) -> u64 {
        let place = self.joined.get();
        self.joined.set(place + 1);
        place
    }

    /// Waits until all earlier members have left.
    async fn wait(&self, sim: &Sim, place: u64) {
        while self.left.get() < place {
            self.waiting.borrow_mut().push(sim.current_task());
            wait_for_wake().await;
        }
    }

    fn leave(&self, sim: &Sim) {
        self.left.set(self.left.get() + 1);
        self.waiting.borrow_mut().drain(..).for_each(|task| sim.wake(task));
    }
}

impl Host {
    pub(crate) fn new(
        sim: &Sim,
        name: &str,
        placement: Placement,
        threads: Threads,
        paths: usize,
        coalesce: Duration,
    ) -> Self {
        let sequencers = || (0..paths).map(|_| Sequencer::default()).collect();
        let queue = |what: &str, batches_max| Store::new(sim, &format!("host {name}, {what}"), batches_max);
        Self {
            threads,
            placement,
            batches_max: BATCHES_MAX * placement.stage_count(),
            sockets: (0..paths).map(|path| Socket::new(name, path, coalesce)).collect(),
            unsent: Cell::new(0),
            unabsorbed: Cell::new(0),
            sender: ProcessWaker::default(),
            sending: Cell::new(0),
            to_hear: queue("answers to hear", ANSWERS_MAX),
            to_give: queue("answers to give", ANSWERS_MAX),
            order_out: sequencers(),
            order_in: sequencers(),
        }
    }

    /// The statistics of its threads, sockets and bounded queues.
    pub(crate) fn components(&self, now: Instant) -> Vec<Component> {
        let sockets = self.sockets.iter().map(|socket| socket.component(now));
        let places = [&self.to_hear, &self.to_give].map(|store| Component::bounded_queue(&store.report()));
        self.threads.components().chain(sockets).chain(places).collect()
    }

    /// Datagrams dropped because a socket was full.
    pub(crate) fn overflowed(&self) -> u64 {
        self.sockets.iter().map(Socket::overflowed).sum()
    }

    /// Datagrams inside the host, including those that were dropped before the connection.
    pub(crate) fn backlog(&self) -> Backlog {
        let untaken = self.sockets.iter().map(Socket::untaken).sum::<u64>() + self.unabsorbed.get();
        Backlog { unsent: self.unsent.get(), untaken }
    }

    fn is_inline(&self) -> bool {
        self.placement == Placement::Inline
    }
}

impl Shared {
    /// The run, with its clock set to the current time.
    pub(crate) fn run_now(&self) -> std::cell::RefMut<'_, Run> {
        let mut run = self.run.borrow_mut();
        run.now = self.sim.now();
        run
    }

    /// The step of `task` for these datagrams. Only datagrams with payload have a cost.
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

    /// The process that plans. Each visit handles timers and due application work, then plans
    /// batches.
    pub(crate) async fn send(self: Rc<Self>, number: usize) {
        let host = &self.hosts[number];
        host.sender.register(&self.sim);
        let (mut last, mut visits) = (self.sim.now(), 0);
        loop {
            self.do_what_is_due(number);
            while host.sending.get() < host.batches_max {
                let planned = self.run_now().nodes[number].next_planned_batch(self.sim.now(), PLAN_DATAGRAMS_MAX);
                let Some(planned) = planned else { break };
                host.sending.set(host.sending.get() + 1);
                let all = 0..planned.in_flight.unsealed().datagram_count();
                add(&host.unsent, all.len());
                let step = self.step(
                    host,
                    End::Sending,
                    Task::Serial,
                    planned.in_flight.path(),
                    planned.in_flight.unsealed(),
                    all,
                );
                let thread = host.threads.run(step, None).await;
                let place = host.order_out[planned.in_flight.path()].join();
                let emission = Rc::clone(&self).emit(number, planned, place, thread);
                if host.is_inline() {
                    emission.await;
                } else {
                    self.sim.spawn(emission);
                }
                self.do_what_is_due(number);
            }
            let (timeout, app_at) = {
                let run = self.run.borrow();
                (run.nodes[number].timeout(), run.app_timeout(number))
            };
            if let Some(at) = timeout.into_iter().chain(app_at).min() {
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
        let mut run = self.run_now();
        let now = self.sim.now();
        let node = &mut run.nodes[number];
        if node.timeout().is_some_and(|at| at <= now) {
            node.handle_timeout(now);
            run.visit(number);
        } else if now == Instant::ZERO || run.app_timeout(number).is_some_and(|at| at <= now) {
            run.visit(number);
        }
        if run.is_over() {
            self.sim.stop();
        }
    }

    /// Carries a planned batch to its link.
    async fn emit(self: Rc<Self>, number: usize, planned: PlannedBatch, place: u64, planned_by: usize) {
        let host = &self.hosts[number];
        let PlannedBatch { in_flight, .. } = &planned;
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
            run.nodes[number].emitted(now, &planned);
            InFlightBatch::datagrams(in_flight).for_each(|datagram| run.network.send(now, number, datagram));
            host.unsent.set(host.unsent.get() - all.len() as u64);
        }
        self.wire.wake(&self.sim);
        host.to_hear.put(()).await;
        host.sending.set(host.sending.get() - 1);
        host.sender.wake(&self.sim);
        host.threads.run(step(Task::Answer), None).await;
        host.to_hear.try_take().expect("this batch has a slot");
    }

    /// The process that receives on a path. It takes datagrams when its thread is free, so a busy
    /// thread finds larger batches.
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
        self.run_now().nodes[number].receive_batch(self.sim.now(), &in_flight, datagrams.clone());
        host.unabsorbed.set(host.unabsorbed.get() - datagrams.len() as u64);
        self.run_now().process_events(number);
        host.sender.wake(&self.sim);
        host.to_give.put(()).await;
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
        host.to_give.try_take().expect("this batch has a slot");
    }

    /// Lets the application read the data of a batch. If it is slow, its inboxes and then the
    /// receive window fill, which limits the sender instead of the receiving host.
    async fn read(self: Rc<Self>, number: usize, bytes: usize, step: Step, absorbed_by: usize) {
        let host = &self.hosts[number];
        host.threads.run(step, Some(absorbed_by)).await;
        {
            let mut run = self.run_now();
            run.allow_reading(number, bytes);
            run.visit(number);
            if run.is_over() {
                self.sim.stop();
            }
        }
        host.sender.wake(&self.sim);
    }

    /// The process that delivers the datagrams of all links.
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
