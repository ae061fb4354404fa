//! Bounded queues between processes. Putting into a full queue and taking from an empty one wait,
//! each in first-come, first-served order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use units::Instant;

use crate::kernel::{Sim, TaskId};
use crate::observe::{Accounting, ComponentReport, Observed};

/// A queue of at most `capacity` items, first in, first out. Cheap to clone: all clones are the
/// same queue.
pub struct Store<T> {
    inner: Rc<Inner<T>>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

struct Inner<T> {
    sim: Sim,
    name: String,
    capacity: usize,
    /// Whether traces show the number of items.
    is_shown: Cell<bool>,
    state: RefCell<StoreState<T>>,
}

struct StoreState<T> {
    items: VecDeque<(Instant, T)>,
    /// Processes that wait for space and for an item, in order of arrival. A ticket number
    /// identifies one wait.
    putters: VecDeque<(u64, TaskId)>,
    takers: VecDeque<(u64, TaskId)>,
    next_ticket: u64,
    accounting: Accounting,
}

impl<T: 'static> Store<T> {
    /// Creates a queue called `name` that holds up to `capacity` items.
    ///
    /// # Panics
    /// Panics if `capacity` is zero or the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, capacity: usize) -> Self {
        assert!(capacity > 0, "{name} needs a capacity of at least one item");
        let state = StoreState {
            items: VecDeque::new(),
            putters: VecDeque::new(),
            takers: VecDeque::new(),
            next_ticket: 0,
            accounting: Accounting::default(),
        };
        let (name_kept, state) = (name.to_owned(), RefCell::new(state));
        let inner = Rc::new(Inner { sim: sim.clone(), name: name_kept, capacity, is_shown: Cell::new(true), state });
        sim.register(name, Rc::clone(&inner) as Rc<dyn Observed>);
        Self { inner }
    }

    /// Excludes this queue from traces, for use where another track already shows its content.
    #[must_use]
    pub fn untraced(self) -> Self {
        self.inner.is_shown.set(false);
        self
    }

    /// Puts `item` into the queue. Waits for space behind all processes that already wait for it.
    pub async fn put(&self, item: T) {
        let inner = &*self.inner;
        let ticket = Ticket::draw(inner, Side::Putter);
        let mut item = Some(item);
        poll_fn(|_| {
            let mut state = inner.state.borrow_mut();
            if !ticket.may_go(&mut state, inner, inner.capacity) {
                return Poll::Pending;
            }
            state.accept(inner, item.take().expect("not polled after completion"));
            Poll::Ready(())
        })
        .await;
    }

    /// Puts `item` into the queue if there is space and no process waits for it.
    ///
    /// # Errors
    /// Returns `item` if there is no space.
    pub fn try_put(&self, item: T) -> Result<(), T> {
        let inner = &*self.inner;
        let mut state = inner.state.borrow_mut();
        if !state.putters.is_empty() || state.items.len() >= inner.capacity {
            return Err(item);
        }
        state.accept(inner, item);
        Ok(())
    }

    /// Takes the oldest item. Waits for one behind all processes that already wait.
    pub async fn take(&self) -> T {
        let inner = &*self.inner;
        let ticket = Ticket::draw(inner, Side::Taker);
        poll_fn(|_| {
            let mut state = inner.state.borrow_mut();
            if !ticket.may_go(&mut state, inner, inner.capacity) {
                return Poll::Pending;
            }
            Poll::Ready(state.release(inner))
        })
        .await
    }

    /// Takes the oldest item if there is one and no process waits for it.
    pub fn try_take(&self) -> Option<T> {
        let inner = &*self.inner;
        let mut state = inner.state.borrow_mut();
        (state.takers.is_empty() && !state.items.is_empty()).then(|| state.release(inner))
    }

    /// Returns the number of items in the queue.
    pub fn len(&self) -> usize {
        self.inner.state.borrow().items.len()
    }

    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the statistics since the end of the warm-up. The utilisation is the mean share of
    /// the capacity in use.
    pub fn report(&self) -> ComponentReport {
        Observed::report(&*self.inner, self.inner.sim.now())
    }
}

impl<T> Inner<T> {
    fn trace(&self, now: Instant, items: usize) {
        if self.is_shown.get() {
            self.sim.trace(|trace| trace.level(&self.name, now, items as u64));
        }
    }
}

impl<T> StoreState<T> {
    fn accept(&mut self, inner: &Inner<T>, item: T) {
        let now = inner.sim.now();
        self.items.push_back((now, item));
        self.accounting.arrive(now);
        inner.trace(now, self.items.len());
        wake_first(&self.takers, inner);
        if self.items.len() < inner.capacity {
            wake_first(&self.putters, inner);
        }
    }

    fn release(&mut self, inner: &Inner<T>) -> T {
        let now = inner.sim.now();
        let (arrived, item) = self.items.pop_front().expect("called only if the queue is not empty");
        self.accounting.begin(now.saturating_since(arrived));
        self.accounting.depart(now, arrived);
        inner.trace(now, self.items.len());
        wake_first(&self.putters, inner);
        if !self.items.is_empty() {
            wake_first(&self.takers, inner);
        }
        item
    }

    const fn waiters(&mut self, side: Side) -> &mut VecDeque<(u64, TaskId)> {
        match side {
            Side::Putter => &mut self.putters,
            Side::Taker => &mut self.takers,
        }
    }

    fn can(&self, side: Side, capacity: usize) -> bool {
        match side {
            Side::Putter => self.items.len() < capacity,
            Side::Taker => !self.items.is_empty(),
        }
    }
}

fn wake_first<T>(waiters: &VecDeque<(u64, TaskId)>, inner: &Inner<T>) {
    if let Some(&(_, task)) = waiters.front() {
        inner.sim.wake(task);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Putter,
    Taker,
}

/// A position in the wait queue. A dropped ticket leaves the wait queue and wakes the next process.
struct Ticket<'a, T> {
    inner: &'a Inner<T>,
    side: Side,
    number: u64,
}

impl<'a, T> Ticket<'a, T> {
    fn draw(inner: &'a Inner<T>, side: Side) -> Self {
        let mut state = inner.state.borrow_mut();
        let number = state.next_ticket;
        state.next_ticket += 1;
        Self { inner, side, number }
    }

    /// Returns true, and leaves the wait queue, if it is this ticket's turn and the queue has what
    /// it waits for. Joins the wait queue otherwise.
    fn may_go(&self, state: &mut StoreState<T>, inner: &Inner<T>, capacity: usize) -> bool {
        let possible = state.can(self.side, capacity);
        let waiters = state.waiters(self.side);
        match waiters.front() {
            None if possible => return true,
            Some(&(first, _)) if possible && first == self.number => {
                waiters.pop_front();
                return true;
            }
            _ => {}
        }
        if !waiters.iter().any(|&(number, _)| number == self.number) {
            waiters.push_back((self.number, inner.sim.current_task()));
        }
        false
    }
}

impl<T> Drop for Ticket<'_, T> {
    fn drop(&mut self) {
        let mut state = self.inner.state.borrow_mut();
        let waiters = state.waiters(self.side);
        if let Some(index) = waiters.iter().position(|&(number, _)| number == self.number) {
            waiters.remove(index);
            if index == 0 {
                wake_first(waiters, self.inner);
            }
        }
    }
}

impl<T> Observed for Inner<T> {
    fn reset(&self, now: Instant) {
        self.state.borrow_mut().accounting.reset(now);
    }

    fn report(&self, now: Instant) -> ComponentReport {
        let state = self.state.borrow();
        let mut report = state.accounting.report(&self.name, now, Some(self.capacity as u64), 0);
        report.utilisation = report.mean_number / self.capacity as f64;
        report
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;
    use crate::kernel::Simulation;

    #[test]
    fn putting_into_a_full_store_waits_and_order_is_preserved() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let store = Store::new(&sim, "buffer", 2);
        for index in 0..6_u32 {
            let store = store.clone();
            simulation.spawn(async move { store.put(index).await });
        }
        let taken = Rc::new(RefCell::new(Vec::new()));
        let (reader, seen, clock) = (store.clone(), Rc::clone(&taken), sim.clone());
        simulation.spawn(async move {
            for _ in 0..6 {
                clock.sleep(Duration::from_nanos(5)).await;
                let item = reader.take().await;
                assert!(reader.len() <= 2);
                seen.borrow_mut().push(item);
            }
        });
        simulation.run();
        assert_eq!(*taken.borrow(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(store.report().served, 6);
        assert!(store.try_put(9).is_ok() && store.try_put(9).is_ok() && store.try_put(7).is_err());
    }

    #[test]
    fn takers_are_served_in_order_even_if_another_asks_in_between() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let store = Store::new(&sim, "buffer", 8);
        let order = Rc::new(RefCell::new(Vec::new()));
        for index in 0..3_u32 {
            let (store, order) = (store.clone(), Rc::clone(&order));
            simulation.spawn(async move {
                let item: u32 = store.take().await;
                order.borrow_mut().push((index, item));
            });
        }
        simulation.run();
        for item in 10..13 {
            store.try_put(item).unwrap();
        }
        assert!(store.try_take().is_none(), "other takers are waiting");
        simulation.run();
        assert_eq!(*order.borrow(), [(0, 10), (1, 11), (2, 12)]);
    }
}
