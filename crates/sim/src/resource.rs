//! Something that one process at a time keeps for as long as it likes: a bus that is held, a processor.
//!
//! A [`Facility`](crate::Facility) is cheaper where the time is known beforehand; here it is not.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::{Duration, Instant};

use crate::kernel::{Sim, TaskId};
use crate::observe::{Ledger, Observed, Report};

/// One of its kind, first come, first served; who is urgent goes before all others that wait. Cheap to clone: all clones are the
/// same resource.
#[derive(Clone)]
pub struct Resource {
    inner: Rc<Inner>,
}

/// The resource is its owner's until this is dropped.
#[must_use = "the resource is given back when this is dropped"]
pub struct Held {
    inner: Rc<Inner>,
    arrived: Instant,
}

struct Inner {
    sim: Sim,
    name: String,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// The number of the wait that ended in having it.
    holder: Option<u64>,
    urgent: VecDeque<(u64, TaskId)>,
    waiting: VecDeque<(u64, TaskId)>,
    next_ticket: u64,
    ledger: Ledger,
    busy_ns: u128,
    busy_since: Instant,
}

impl Resource {
    /// A resource called `name`, free.
    ///
    /// # Panics
    /// If the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str) -> Self {
        let inner = Rc::new(Inner { sim: sim.clone(), name: name.to_owned(), state: RefCell::default() });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Self { inner }
    }

    /// Waits in line until it is free, and keeps it.
    pub async fn acquire(&self) -> Held {
        self.wait(false).await
    }

    /// Waits before all that are not urgent until it is free, and keeps it. Nobody is interrupted.
    pub async fn acquire_urgently(&self) -> Held {
        self.wait(true).await
    }

    /// Who has it and who waits for it.
    pub fn present(&self) -> u64 {
        self.inner.state.borrow().ledger.present()
    }

    /// What was done since the warm-up ended.
    pub fn report(&self) -> Report {
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
        state.ledger.begin(now.saturating_since(arrived));
        Held { inner: Rc::clone(&self.inner), arrived }
    }
}

impl State {
    /// Joins the line, or has the resource at once.
    fn enter(&mut self, inner: &Inner, urgent: bool) -> u64 {
        let number = self.next_ticket;
        self.next_ticket += 1;
        self.ledger.arrive(inner.sim.now());
        if self.holder.is_none() {
            (self.holder, self.busy_since) = (Some(number), inner.sim.now());
        } else {
            let line = if urgent { &mut self.urgent } else { &mut self.waiting };
            line.push_back((number, inner.sim.current_task()));
        }
        number
    }

    /// Gives it to the next in line, if there is one.
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

/// A place in the line.
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
        // Gave up waiting: out of the line, and if it was given the resource meanwhile, the next one has it.
        let now = self.inner.sim.now();
        let mut state = self.inner.state.borrow_mut();
        let number = self.number;
        state.urgent.retain(|&(other, _)| other != number);
        state.waiting.retain(|&(other, _)| other != number);
        if state.holder == Some(number) {
            state.pass_on(self.inner);
        }
        state.ledger.depart(now, now);
    }
}

impl Held {
    /// How long it is kept already.
    pub fn since(&self) -> Duration {
        self.inner.sim.now().saturating_since(self.inner.state.borrow().busy_since)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let now = self.inner.sim.now();
        let mut state = self.inner.state.borrow_mut();
        state.ledger.depart(now, self.arrived);
        state.pass_on(&self.inner);
    }
}

impl Observed for Inner {
    fn reset(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.ledger.reset(now);
        (state.busy_ns, state.busy_since) = (0, now);
    }

    fn report(&self, now: Instant) -> Report {
        let state = self.state.borrow();
        let held_ns = if state.holder.is_some() { now.saturating_since(state.busy_since).as_nanos() } else { 0 };
        state.ledger.report(&self.name, now, Some(1), state.busy_ns + u128::from(held_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Simulation;

    /// Customers that come at 0, 1, 2... and keep it 10 ns each; those in `urgent` are. The order in which they have it.
    fn order(count: u64, urgent: &'static [u64]) -> (Vec<(u64, u64)>, Report) {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let desk = Resource::new(&sim, "desk");
        let log = Rc::new(RefCell::new(Vec::new()));
        for index in 0..count {
            let (sim, desk, log) = (sim.clone(), desk.clone(), Rc::clone(&log));
            simulation.spawn(async move {
                sim.sleep(Duration::from_nanos(index)).await;
                let held = if urgent.contains(&index) { desk.acquire_urgently().await } else { desk.acquire().await };
                log.borrow_mut().push((index, sim.now().as_nanos()));
                sim.sleep(Duration::from_nanos(10)).await;
                drop(held);
            });
        }
        simulation.run();
        let log = log.borrow().clone();
        (log, desk.report())
    }

    #[test]
    fn it_is_had_in_the_order_of_asking() {
        let (log, report) = order(3, &[]);
        assert_eq!(log, [(0, 0), (1, 10), (2, 20)]);
        assert!((report.utilisation - 1.0).abs() < 1e-12);
        assert_eq!((report.served, report.max_number), (3, 3));
    }

    #[test]
    fn who_is_urgent_goes_before_those_who_wait_but_interrupts_nobody() {
        assert_eq!(order(4, &[3]).0, [(0, 0), (3, 10), (1, 20), (2, 30)]);
    }

    #[test]
    fn who_gives_up_waiting_leaves_no_gap() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let desk = Resource::new(&sim, "desk");
        let (first, clock) = (desk.clone(), sim.clone());
        simulation.spawn(async move {
            let held = first.acquire().await;
            {
                // Another that is asked once and then dropped.
                let mut waiting = std::pin::pin!(first.acquire());
                let poll = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await;
                assert!(poll, "one at a time");
            }
            clock.sleep(Duration::from_nanos(5)).await;
            drop(held);
        });
        let (second, clock, done) = (desk.clone(), sim.clone(), Rc::new(RefCell::new(None)));
        let seen = Rc::clone(&done);
        simulation.spawn(async move {
            let _held = second.acquire().await;
            *seen.borrow_mut() = Some(clock.now().as_nanos());
        });
        simulation.run();
        assert_eq!(*done.borrow(), Some(5));
        assert_eq!(desk.present(), 0);
    }
}
