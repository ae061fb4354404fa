//! What the threads of a host do: they take what has arrived, let the connection work, and send.
//!
//! ```text
//!   link ──▶ socket ── Call ── Stage ─┬─ Serial ──▶ connection ──▶ Application
//!                          in order ┘                 │
//!   link ◀── Call ──┬─ Stage ◀── Application ◀── Serial (plan)
//!          in order ┘
//! ```
//!
//! Each arrow takes the time that the task costs, on the threads that the placement gives it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use quic::{PLAN_DATAGRAMS_MAX, Unsealed};
use sim::kernel::TaskId;
use sim::{Sim, Store};
use units::{Duration, Instant};

use super::alarm::{Alarm, pause};
use super::costs::{End, Task};
use super::machine::Machine;
use super::processors::{Step, Threads};
use super::socket::{Batch, Socket};
use crate::components::Component;
use crate::memory::books::Inside;
use crate::memory::frame::Parcel;
use crate::memory::node::Flight;
use crate::memory::run::Run;
use crate::placement::Placement;

/// Batches begun and not done for each thread that seals and opens, those that are sent and those of each socket: as many as each of the
/// engine's workers has at a time.
const BATCHES_MAX: usize = 4;

/// Batches done but for their answers, each way, beside those begun. The next one keeps its place among those begun until there is room:
/// a thread for which nothing else waits, as under `split`, would otherwise never limit the host, and would have ever more to do.
const ANSWERS_MAX: usize = 4;

/// Visits in one moment after which somebody spins.
const SPIN_MAX: u32 = 100_000;

/// One host.
pub(crate) struct Host {
    pub(crate) threads: Threads,
    placement: Placement,
    batches_max: usize,
    /// One a path.
    pub(crate) sockets: Vec<Socket>,
    /// Datagrams on their way from the plan to a link, and from a socket to the connection.
    unsent: Cell<u64>,
    unabsorbed: Cell<u64>,
    /// The process that plans.
    sender: Alarm,
    /// Batches begun and not done.
    sending: Cell<usize>,
    /// Places of batches with answers to hear and to give.
    to_hear: Store<()>,
    to_give: Store<()>,
    /// Batches keep their order per path, whichever thread had them: both ways.
    order_out: Vec<Order>,
    order_in: Vec<Order>,
}

/// A line that is left in the order in which it was joined.
#[derive(Default)]
struct Order {
    joined: Cell<u64>,
    left: Cell<u64>,
    waiting: RefCell<Vec<TaskId>>,
}

/// What the processes of a run share.
pub(crate) struct Shared {
    pub(crate) sim: Sim,
    pub(crate) run: RefCell<Run>,
    pub(crate) machine: Machine,
    pub(crate) hosts: [Host; 2],
    pub(crate) wire: Alarm,
    /// Something was due again and again at this time.
    pub(crate) spins: Cell<Option<Instant>>,
}

/// What a trace calls it.
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

/// Counts `more`.
fn add(count: &Cell<u64>, more: usize) {
    count.set(count.get() + more as u64);
}

impl Order {
    fn join(&self) -> u64 {
        let place = self.joined.get();
        self.joined.set(place + 1);
        place
    }

    /// Waits until all before have left.
    async fn wait(&self, sim: &Sim, place: u64) {
        while self.left.get() < place {
            self.waiting.borrow_mut().push(sim.current_task());
            pause().await;
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
        let orders = || (0..paths).map(|_| Order::default()).collect();
        let queue = |what: &str, batches_max| Store::new(sim, &format!("host {name}, {what}"), batches_max);
        Self {
            threads,
            placement,
            batches_max: BATCHES_MAX * placement.stage_count(),
            sockets: (0..paths).map(|path| Socket::new(name, path, coalesce)).collect(),
            unsent: Cell::new(0),
            unabsorbed: Cell::new(0),
            sender: Alarm::default(),
            sending: Cell::new(0),
            to_hear: queue("answers to hear", ANSWERS_MAX),
            to_give: queue("answers to give", ANSWERS_MAX),
            order_out: orders(),
            order_in: orders(),
        }
    }

    /// How busy its threads, its sockets, and the places before slow parts were.
    pub(crate) fn components(&self, now: Instant) -> Vec<Component> {
        let sockets = self.sockets.iter().map(|socket| socket.component(now));
        let places = [&self.to_hear, &self.to_give].map(|store| Component::places(&store.report()));
        self.threads.components().chain(sockets).chain(places).collect()
    }

    /// Datagrams that found a socket full.
    pub(crate) fn overflowed(&self) -> u64 {
        self.sockets.iter().map(Socket::overflowed).sum()
    }

    /// What is on its way inside it, and what never came to its connection.
    pub(crate) fn inside(&self) -> Inside {
        let untaken = self.sockets.iter().map(Socket::untaken).sum::<u64>() + self.unabsorbed.get();
        Inside { unsent: self.unsent.get(), untaken }
    }

    fn is_inline(&self) -> bool {
        self.placement == Placement::Inline
    }
}

impl Shared {
    /// The run, with its clock set.
    pub(crate) fn run_now(&self) -> std::cell::RefMut<'_, Run> {
        let mut run = self.run.borrow_mut();
        run.now = self.sim.now();
        run
    }

    /// What `task` is for these datagrams: those with payload cost something.
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
        for datagram in datagrams.filter(|datagram| unsealed.has_data(*datagram)) {
            packets += 1;
            bytes += unsealed.len_bytes(datagram);
        }
        let cost = match packets {
            0 => Duration::ZERO,
            _ => self.machine.costs.of(end, task, packets, bytes / packets),
        };
        Step { threads: host.placement.threads_of(end, task, path), cost, what: name_of(end, task) }
    }

    /// The process that plans: at each visit what is due, then what may leave.
    pub(crate) async fn send(self: Rc<Self>, number: usize) {
        let host = &self.hosts[number];
        host.sender.claim(&self.sim);
        let (mut last, mut visits) = (self.sim.now(), 0);
        loop {
            self.do_what_is_due(number);
            while host.sending.get() < host.batches_max {
                let flight = self.run_now().nodes[number].next_flight(self.sim.now(), PLAN_DATAGRAMS_MAX);
                let Some(flight) = flight else { break };
                host.sending.set(host.sending.get() + 1);
                let all = 0..flight.parcel.unsealed().datagram_count();
                add(&host.unsent, all.len());
                let step =
                    self.step(host, End::Sending, Task::Serial, flight.parcel.path(), flight.parcel.unsealed(), all);
                let thread = host.threads.run(step, None).await;
                let place = host.order_out[flight.parcel.path()].join();
                let emission = Rc::clone(&self).emit(number, flight, place, thread);
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
                host.sender.set(&self.sim, at);
            }
            visits = if self.sim.now() > last { 0 } else { visits + 1 };
            last = self.sim.now();
            if visits > SPIN_MAX {
                self.spins.set(Some(last));
                self.sim.stop();
                return;
            }
            pause().await;
        }
    }

    /// Timers and the application.
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

    /// A plan on its way to the link.
    async fn emit(self: Rc<Self>, number: usize, flight: Flight, place: u64, planned_by: usize) {
        let host = &self.hosts[number];
        let Flight { parcel, .. } = &flight;
        let all = 0..parcel.unsealed().datagram_count();
        let step = |task| self.step(host, End::Sending, task, parcel.path(), parcel.unsealed(), all.clone());
        // Writing it was before the plan; on a thread of its own it is beside the others all the same.
        host.threads.run(step(Task::Application), Some(planned_by)).await;
        let thread = host.threads.run(step(Task::Stage), Some(planned_by)).await;
        let order = &host.order_out[parcel.path()];
        order.wait(&self.sim, place).await;
        host.threads.run(step(Task::Call), Some(thread)).await;
        order.leave(&self.sim);
        {
            let mut run = self.run_now();
            let now = self.sim.now();
            run.nodes[number].emitted(now, &flight);
            Parcel::frames(parcel).for_each(|frame| run.network.send(now, number, frame));
            host.unsent.set(host.unsent.get() - all.len() as u64);
        }
        self.wire.ring(&self.sim);
        host.to_hear.put(()).await;
        host.sending.set(host.sending.get() - 1);
        host.sender.ring(&self.sim);
        host.threads.run(step(Task::Answer), None).await;
        host.to_hear.try_take().expect("who has a place gives it back");
    }

    /// The process that takes what arrives on a path. What has arrived is taken when the thread gets to it, not before: the busier it is,
    /// the more it finds.
    pub(crate) async fn receive(self: Rc<Self>, number: usize, path: usize) {
        let host = &self.hosts[number];
        let socket = &host.sockets[path];
        let calling = host.placement.threads_of(End::Receiving, Task::Call, path).start;
        socket.receiver.claim(&self.sim);
        loop {
            while socket.receiving.get() < host.batches_max && !socket.is_empty() {
                let turn = host.threads.turn(calling).await;
                let Some(batch) = socket.take_batch(&self.sim) else {
                    turn.pass();
                    break;
                };
                socket.receiving.set(socket.receiving.get() + 1);
                add(&host.unabsorbed, batch.datagrams.len());
                let place = host.order_in[path].join();
                turn.work(self.step(
                    host,
                    End::Receiving,
                    Task::Call,
                    path,
                    batch.parcel.unsealed(),
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
            pause().await;
        }
    }

    /// A batch on its way to the application.
    async fn absorb(self: Rc<Self>, number: usize, batch: Batch, place: u64) {
        let host = &self.hosts[number];
        let Batch { parcel, datagrams } = batch;
        let (path, unsealed) = (parcel.path(), parcel.unsealed());
        let step = |task| self.step(host, End::Receiving, task, path, unsealed, datagrams.clone());
        let calling = host.placement.threads_of(End::Receiving, Task::Call, path).start;
        let thread = host.threads.run(step(Task::Stage), Some(calling)).await;
        let order = &host.order_in[path];
        order.wait(&self.sim, place).await;
        let thread = host.threads.run(step(Task::Serial), Some(thread)).await;
        order.leave(&self.sim);
        self.run_now().nodes[number].receive_batch(self.sim.now(), &parcel, datagrams.clone());
        host.unabsorbed.set(host.unabsorbed.get() - datagrams.len() as u64);
        self.run_now().tell(number);
        host.sender.ring(&self.sim);
        host.to_give.put(()).await;
        let socket = &host.sockets[path];
        socket.receiving.set(socket.receiving.get() - 1);
        socket.receiver.ring(&self.sim);
        let bytes = datagrams.clone().filter(|datagram| unsealed.has_data(*datagram));
        let reading = Rc::clone(&self).read(
            number,
            bytes.map(|datagram| unsealed.data_len_bytes(datagram)).sum(),
            step(Task::Application),
            thread,
        );
        if host.is_inline() {
            reading.await;
        } else {
            self.sim.spawn(reading);
        }
        host.threads.run(step(Task::Answer), None).await;
        host.to_give.try_take().expect("who has a place gives it back");
    }

    /// The application reads what a batch has brought. If it is slow, its inboxes fill, and then the receive window: so many batches
    /// wait for it at most, and it holds back who sends, not who receives.
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
        host.sender.ring(&self.sim);
    }

    /// The process of all links.
    pub(crate) async fn carry(self: Rc<Self>) {
        self.wire.claim(&self.sim);
        loop {
            let next = {
                let mut run = self.run_now();
                let now = self.sim.now();
                run.network.receive(now, |direction, frame| {
                    self.hosts[1 - direction].sockets[frame.path()].arrive(&self.sim, frame);
                });
                run.look_at_faults();
                run.network.timeout().into_iter().chain(run.proof_timeout()).min()
            };
            if let Some(at) = next {
                self.wire.set(&self.sim, at);
            }
            pause().await;
        }
    }
}
