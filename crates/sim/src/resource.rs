//! An exclusive resource that one process at a time holds for as long as it needs: a held bus, a
//! processor.
//!
//! A [`Facility`](crate::Facility) is cheaper but needs to know the holding time in advance.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::{Duration, Instant};

use crate::kernel::{Sim, TaskId};
use crate::observe::{Accounting, ComponentReport, Observed};

/// An exclusive resource with a first-come, first-served queue. Urgent requests are served before
/// all others that wait. Cheap to clone: all clones are the same resource.
#[derive(Clone)]
pub struct Resource {
    inner: Rc<Inner>,
}

/// Holds the resource until it is dropped.
#[must_use = "the resource is released when this is dropped"]
pub struct Held {
    inner: Rc<Inner>,
    arrived: Instant,
}

struct Inner {
    sim: Sim,
    name: String,
    state: RefCell<ResourceState>,
}

#[derive(Default)]
struct ResourceState {
    /// The ticket number of the current holder.
    holder: Option<u64>,
    urgent: VecDeque<(u64, TaskId)>,
    waiting: VecDeque<(u64, TaskId)>,
    next_ticket: u64,
    accounting: Accounting,
    busy_ns: u128,
    busy_since: Instant,
}

impl Resource {
    /// Creates a free resource called `name`.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str) -> Self {
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), state: RefCell::default() });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Self { inner }
    }

    /// Waits in the queue until the resource is free, and holds it.
    pub async fn acquire(&self) -> Held {
        self.wait(false).await
    }

    /// Like [`acquire`](Self::acquire), but is served before all waiting requests that are not
    /// urgent. The current holder is not interrupted.
    pub async fn acquire_urgently(&self) -> Held {
        self.wait(true).await
    }

    /// Returns the number of processes that hold the resource or wait for it.
    pub fn present(&self) -> u64 {
        self.inner.state.borrow().accounting.present()
    }

    /// Returns the statistics since the end of the warm-up.
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }

    async fn wait(&self, urgent: bool) -> Held {
        let inner = &*self.inner;
        let arrived = inner.sim.now();
        let mut ticket = Ticket { inner, number: inner.state.borrow_mut().enter(inner, urgent), settled: false };
        poll_fn(|_| if inner.state.borrow().holder == Some(ticket.number) { Poll::Ready(()) } else { Poll::Pending })
            .await;
        ticket.settled = true;
        let now = inner.sim.now();
        let mut state = inner.state.borrow_mut();
        state.accounting.begin(now.saturating_since(arrived));
        Held { inner: Rc::clone(&self.inner), arrived }
    }
}

impl ResourceState {
    /// Joins the queue, or acquires the resource if it is free.
    fn enter(&mut self, inner: &Inner, urgent: bool) -> u64 {
        let number = self.next_ticket;
        self.next_ticket += 1;
        self.accounting.arrive(inner.sim.now());
        if self.holder.is_none() {
            (self.holder, self.busy_since) = (Some(number), inner.sim.now());
        } else {
            let line = if urgent { &mut self.urgent } else { &mut self.waiting };
            line.push_back((number, inner.sim.current_task()));
        }
        number
    }

    /// Passes the resource to the next process in the queue, if there is one.
    fn pass_on(&mut self, inner: &Inner) {
        let now = inner.sim.now();
        self.busy_ns += u128::from(now.saturating_since(self.busy_since).as_nanos());
        self.busy_since = now;
        self.holder = match self.urgent.pop_front().or_else(|| self.waiting.pop_front()) {
            Some((number, task)) => {
                inner.sim.wake(task);
                Some(number)
            }
            None => None,
        };
    }
}

/// A position in the queue.
struct Ticket<'a> {
    inner: &'a Inner,
    number: u64,
    /// True once it has become a [`Held`].
    settled: bool,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        // The wait was abandoned: leave the queue. If the resource was assigned in the meantime,
        // pass it to the next process.
        let now = self.inner.sim.now();
        let mut state = self.inner.state.borrow_mut();
        let number = self.number;
        state.urgent.retain(|&(other, _)| other != number);
        state.waiting.retain(|&(other, _)| other != number);
        if state.holder == Some(number) {
            state.pass_on(self.inner);
        }
        state.accounting.depart(now, now);
    }
}

impl Held {
    /// Returns how long the resource has been held.
    pub fn since(&self) -> Duration {
        self.inner.sim.now().saturating_since(self.inner.state.borrow().busy_since)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let now = self.inner.sim.now();
        let mut state = self.inner.state.borrow_mut();
        state.accounting.depart(now, self.arrived);
        state.pass_on(&self.inner);
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.accounting.reset(now);
        (state.busy_ns, state.busy_since) = (0, now);
    }

    fn report(&self, now: Instant) -> ComponentReport {
        let state = self.state.borrow();
        let held_ns = if state.holder.is_some() { now.saturating_since(state.busy_since).as_nanos() } else { 0 };
        state.accounting.report(&self.name, now, Some(1), state.busy_ns + u128::from(held_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Simulation;

    /// Customers arrive at 0, 1, 2... ns and hold the resource for 10 ns each; those in `urgent`
    /// acquire it urgently. Returns the order in which they acquire it.
    fn order(count: u64, urgent: &'static [u64]) -> (Vec<(u64, u64)>, ComponentReport) {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let server = Resource::new(&sim, "desk");
        let log = Rc::new(RefCell::new(Vec::new()));
        for index in 0..count {
            let (sim, server, log) = (sim.clone(), server.clone(), Rc::clone(&log));
            simulation.spawn(async move {
                sim.sleep(Duration::from_nanos(index)).await;
                let held =
                    if urgent.contains(&index) { server.acquire_urgently().await } else { server.acquire().await };
                log.borrow_mut().push((index, sim.now().as_nanos()));
                sim.sleep(Duration::from_nanos(10)).await;
                drop(held);
            });
        }
        simulation.run();
        let log = log.borrow().clone();
        (log, server.report())
    }

    #[test]
    fn it_is_acquired_in_order_of_request() {
        let (log, report) = order(3, &[]);
        assert_eq!(log, [(0, 0), (1, 10), (2, 20)]);
        assert!((report.utilisation - 1.0).abs() < 1e-12);
        assert_eq!((report.served, report.max_number), (3, 3));
    }

    #[test]
    fn urgent_requests_precede_waiting_ones_but_do_not_interrupt_the_holder() {
        assert_eq!(order(4, &[3]).0, [(0, 0), (3, 10), (1, 20), (2, 30)]);
    }

    #[test]
    fn an_abandoned_wait_leaves_the_queue() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let server = Resource::new(&sim, "desk");
        let (first, clock) = (server.clone(), sim.clone());
        simulation.spawn(async move {
            let held = first.acquire().await;
            {
                // A second request that is polled once and then dropped.
                let mut waiting = std::pin::pin!(first.acquire());
                let poll = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await;
                assert!(poll, "one at a time");
            }
            clock.sleep(Duration::from_nanos(5)).await;
            drop(held);
        });
        let (second, clock, done) = (server.clone(), sim.clone(), Rc::new(RefCell::new(None)));
        let seen = Rc::clone(&done);
        simulation.spawn(async move {
            let _held = second.acquire().await;
            *seen.borrow_mut() = Some(clock.now().as_nanos());
        });
        simulation.run();
        assert_eq!(*done.borrow(), Some(5));
        assert_eq!(server.present(), 0);
    }
}
