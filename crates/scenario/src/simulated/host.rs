//! What the threads of a host do: they take what has arrived, let the connection work, and send.
//!
//! ```text
//!   link ──▶ inbox ── Call ── Stage ─┬─ Serial ──▶ connection ──▶ Application
//!                          in order ┘                 │
//!   link ◀── Call ──┬─ Stage ◀── Application ◀── Serial (plan)
//!          in order ┘
//! ```
//!
//! Each arrow takes the time that the task costs, on the threads that the placement gives it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use netem::Packet;
use quic::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Unsealed};
use sim::kernel::TaskId;
use sim::{Sim, Store};
use units::{Duration, Instant};

use super::costs::{End, Task};
use super::machine::{Machine, Placement};
use super::processors::{Step, Threads};
use crate::memory::network::{Body, Frame};
use crate::memory::node::Flight;
use crate::memory::run::Run;

/// Bytes that a socket holds: as much as the library asks the system for. More is lost.
pub(crate) const SOCKET_BYTES_MAX: usize = 8 << 20;

/// Batches begun and not done, each way: those of the engine's workers are as many.
const BATCHES_MAX: usize = 4;

/// Batches absorbed that the application has not read, beside those begun. The next one keeps its place among those begun until there
/// is room, so an application that is slow holds back who receives. (A real one lets the receive window fill first; if that is larger
/// than a socket, the socket here overflows where the real one does not.)
const READS_MAX: usize = 4;

/// Batches done but for their answers, each way, beside those begun. They hold back those before them in the same manner: a thread for
/// which nothing else waits, as under `split`, would otherwise never limit the host, and would have ever more to do.
const ANSWERS_MAX: usize = 4;

/// Visits in one moment after which somebody spins.
const SPIN_MAX: u32 = 100_000;

/// One host.
pub(crate) struct Host {
    pub(crate) threads: Threads,
    placement: Placement,
    /// Datagrams that have arrived and were not taken from the socket.
    inbox: RefCell<VecDeque<Frame>>,
    inbox_bytes: Cell<usize>,
    /// Datagrams that found the socket full.
    pub(crate) overflowed: Cell<u64>,
    /// The processes that plan and that take what arrives.
    sender: Alarm,
    receiver: Alarm,
    /// Batches begun and not done.
    sending: Cell<usize>,
    receiving: Cell<usize>,
    /// Places: of batches that the application has to read, and of those with answers to hear and to give.
    to_read: Store<()>,
    to_hear: Store<()>,
    to_give: Store<()>,
    /// Batches keep their order per path, whichever thread had them: both ways.
    order_out: Vec<Order>,
    order_in: Vec<Order>,
}

/// Wakes a process.
#[derive(Default)]
pub(crate) struct Alarm {
    task: Cell<Option<TaskId>>,
    /// The earliest time it was asked to be woken at.
    at: Cell<Option<Instant>>,
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

/// Datagrams that the system hands over together.
struct Batch {
    path: usize,
    unsealed: Rc<Unsealed>,
    datagrams: Range<usize>,
}

impl Alarm {
    /// The process that runs now is the one to wake.
    pub(crate) fn claim(&self, sim: &Sim) {
        self.task.set(Some(sim.current_task()));
    }

    /// Wakes it now.
    pub(crate) fn ring(&self, sim: &Sim) {
        if let Some(task) = self.task.get() {
            sim.wake(task);
        }
    }

    /// Wakes it at `at`, at the latest.
    pub(crate) fn set(&self, sim: &Sim, at: Instant) {
        let (now, Some(task)) = (sim.now(), self.task.get()) else { return };
        let is_set = self.at.get().is_some_and(|set| set > now && set <= at);
        if !is_set {
            let at = at.max(now);
            self.at.set(Some(at));
            sim.wake_at(at, task);
        }
    }
}

/// Waits until somebody wakes the process, for whatever reason.
pub(crate) async fn pause() {
    let mut has_waited = false;
    poll_fn(|_| if std::mem::replace(&mut has_waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
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
    pub(crate) fn new(sim: &Sim, name: &str, placement: Placement, threads: Threads, paths: usize) -> Self {
        let orders = || (0..paths).map(|_| Order::default()).collect();
        let queue = |what: &str, batches_max| Store::new(sim, &format!("host {name}, {what}"), batches_max);
        Self {
            threads,
            placement,
            inbox: RefCell::default(),
            inbox_bytes: Cell::new(0),
            overflowed: Cell::new(0),
            sender: Alarm::default(),
            receiver: Alarm::default(),
            sending: Cell::new(0),
            receiving: Cell::new(0),
            to_read: queue("reads", READS_MAX),
            to_hear: queue("answers to hear", ANSWERS_MAX),
            to_give: queue("answers to give", ANSWERS_MAX),
            order_out: orders(),
            order_in: orders(),
        }
    }

    /// A datagram arrives at the socket.
    pub(crate) fn arrive(&self, sim: &Sim, frame: Frame) {
        let bytes = self.inbox_bytes.get() + frame.len_bytes();
        if bytes > SOCKET_BYTES_MAX {
            self.overflowed.set(self.overflowed.get() + 1);
            return;
        }
        self.inbox_bytes.set(bytes);
        self.inbox.borrow_mut().push_back(frame);
        self.receiver.ring(sim);
    }

    /// The next datagrams that one call gets: of one path, one behind the other, as offloading in the system joins them.
    fn take_batch(&self) -> Option<Batch> {
        let mut inbox = self.inbox.borrow_mut();
        let (mut batch, mut bytes) = loop {
            let frame = inbox.pop_front()?;
            let bytes = frame.len_bytes();
            match frame.body {
                Body::Unsealed(unsealed, first) => {
                    break (Batch { path: frame.path, unsealed, datagrams: first..first + 1 }, bytes);
                }
                // It has a bit turned around, and no checksum of the system lets it pass.
                Body::Bytes(_) => self.inbox_bytes.set(self.inbox_bytes.get() - bytes),
            }
        };
        while let Some(Frame { path, body: Body::Unsealed(next, number) }) = inbox.front()
            && *path == batch.path
            && Rc::ptr_eq(next, &batch.unsealed)
            && *number == batch.datagrams.end
            && !next.is_sealed(*number)
            && !next.is_sealed(batch.datagrams.start)
            && batch.datagrams.len() < PLAN_DATAGRAMS_MAX
            && bytes + next.len_bytes(*number) <= PLAN_BYTES_MAX
        {
            bytes += next.len_bytes(*number);
            batch.datagrams.end += 1;
            inbox.pop_front();
        }
        self.inbox_bytes.set(self.inbox_bytes.get() - bytes);
        Some(batch)
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
        Step { threads: host.placement.threads_of(end, task, path), cost }
    }

    /// The process that plans: at each visit what is due, then what may leave.
    pub(crate) async fn send(self: Rc<Self>, number: usize) {
        let host = &self.hosts[number];
        host.sender.claim(&self.sim);
        let (mut last, mut visits) = (self.sim.now(), 0);
        loop {
            self.do_what_is_due(number);
            while host.sending.get() < BATCHES_MAX {
                let flight = self.run_now().nodes[number].next_flight(self.sim.now(), PLAN_DATAGRAMS_MAX);
                let Some(flight) = flight else { break };
                host.sending.set(host.sending.get() + 1);
                let all = 0..flight.unsealed.datagram_count();
                let step = self.step(host, End::Sending, Task::Serial, flight.path, &flight.unsealed, all);
                let thread = host.threads.run(step, None).await;
                let place = host.order_out[flight.path].join();
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
        let all = 0..flight.unsealed.datagram_count();
        let step = |task| self.step(host, End::Sending, task, flight.path, &flight.unsealed, all.clone());
        // Writing it was before the plan; on a thread of its own it is beside the others all the same.
        host.threads.run(step(Task::Application), None).await;
        let thread = host.threads.run(step(Task::Stage), Some(planned_by)).await;
        let order = &host.order_out[flight.path];
        order.wait(&self.sim, place).await;
        host.threads.run(step(Task::Call), Some(thread)).await;
        order.leave(&self.sim);
        {
            let mut run = self.run_now();
            let now = self.sim.now();
            run.nodes[number].emitted(now, &flight);
            flight.frames().for_each(|frame| run.network.send(now, number, frame));
        }
        self.wire.ring(&self.sim);
        host.to_hear.put(()).await;
        host.sending.set(host.sending.get() - 1);
        host.sender.ring(&self.sim);
        host.threads.run(step(Task::Answer), None).await;
        host.to_hear.try_take().expect("who has a place gives it back");
    }

    /// The process that takes what arrives.
    pub(crate) async fn receive(self: Rc<Self>, number: usize) {
        let host = &self.hosts[number];
        host.receiver.claim(&self.sim);
        loop {
            while host.receiving.get() < BATCHES_MAX {
                let Some(batch) = host.take_batch() else { break };
                host.receiving.set(host.receiving.get() + 1);
                let place = host.order_in[batch.path].join();
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
        let Batch { path, unsealed, datagrams } = batch;
        let step = |task| self.step(host, End::Receiving, task, path, &unsealed, datagrams.clone());
        let thread = host.threads.run(step(Task::Call), None).await;
        let thread = host.threads.run(step(Task::Stage), Some(thread)).await;
        let order = &host.order_in[path];
        order.wait(&self.sim, place).await;
        let thread = host.threads.run(step(Task::Serial), Some(thread)).await;
        order.leave(&self.sim);
        self.run_now().nodes[number].receive_batch(self.sim.now(), path, &unsealed, datagrams.clone());
        host.sender.ring(&self.sim);
        host.to_read.put(()).await;
        host.receiving.set(host.receiving.get() - 1);
        host.receiver.ring(&self.sim);
        host.threads.run(step(Task::Application), Some(thread)).await;
        {
            let mut run = self.run_now();
            run.visit(number);
            if run.is_over() {
                self.sim.stop();
            }
        }
        host.sender.ring(&self.sim);
        host.to_give.put(()).await;
        host.to_read.try_take().expect("who has a place gives it back");
        host.threads.run(step(Task::Answer), None).await;
        host.to_give.try_take().expect("who has a place gives it back");
    }

    /// The process of all links.
    pub(crate) async fn carry(self: Rc<Self>) {
        self.wire.claim(&self.sim);
        loop {
            let next = {
                let mut run = self.run_now();
                let now = self.sim.now();
                run.network.receive(now, |direction, frame| self.hosts[1 - direction].arrive(&self.sim, frame));
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

#[cfg(test)]
mod tests {
    use sim::{Facility, Simulation};

    use super::*;

    #[test]
    fn a_socket_full_of_damaged_datagrams_is_emptied_by_one_call() {
        let simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let threads = Threads::new(&sim, "a", 1, Facility::new(&sim, "processors", 1), 0.0);
        let host = Host::new(&sim, "a", Placement::Inline, threads, 1);
        // Some 400,000, the smallest that a short header and a tag allow.
        let frame = Frame { path: 0, body: Body::Bytes(vec![0; 21]) };
        while host.overflowed.get() == 0 {
            host.arrive(&sim, frame.clone());
        }
        assert_eq!(host.inbox.borrow().len(), SOCKET_BYTES_MAX / 21);
        assert!(host.take_batch().is_none());
        assert_eq!((host.inbox_bytes.get(), host.inbox.borrow().len()), (0, 0));
    }
}
