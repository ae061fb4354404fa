//! The process behind a component that has times of its own: it is woken when something happens, and hands out what has arrived.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;

use units::Instant;

use crate::kernel::{Sim, TaskId};

/// A component that is driven.
pub(super) trait Driven<F>: 'static {
    fn driver(&self) -> &Driver<F>;

    /// Does what happens at `now`.
    fn advance(&self, now: Instant);

    /// Takes what has arrived by `now`, with the number of its receiver.
    fn pop_arrival(&self, now: Instant) -> Option<(usize, F)>;

    /// When something happens next, as things stand.
    fn next_event(&self) -> Option<Instant>;
}

type Receiver<F> = Box<dyn FnMut(F)>;
/// By number. A receiver is away while it runs.
type Receivers<F> = RefCell<Vec<Option<Receiver<F>>>>;

/// When to wake the process, and whom it hands to.
pub(super) struct Driver<F> {
    sim: Sim,
    task: Cell<Option<TaskId>>,
    /// When the process is to be woken next; entries of the calendar for other times are old.
    next_wake: Cell<Option<Instant>>,
    /// The process owns them: they end with the run, though they may hold the component.
    receivers: RefCell<Weak<Receivers<F>>>,
    /// What came to nobody, or was not taken.
    refused: Cell<u64>,
}

impl<F: 'static> Driver<F> {
    pub(super) fn new(sim: &Sim) -> Self {
        Self {
            sim: sim.clone(),
            task: Cell::new(None),
            next_wake: Cell::new(None),
            receivers: RefCell::new(Weak::new()),
            refused: Cell::new(0),
        }
    }

    /// Starts the process that drives `component`, which has `receivers` receivers.
    pub(super) fn start<C: Driven<F>>(component: &Rc<C>, receivers: usize) {
        let owned: Rc<Receivers<F>> = Rc::new(RefCell::new((0..receivers).map(|_| None).collect()));
        let driver = component.driver();
        driver.receivers.replace(Rc::downgrade(&owned));
        let driven = Rc::clone(component);
        let task = driver.sim.spawn(poll_fn(move |_| {
            turn(&*driven, &owned);
            Poll::Pending
        }));
        driver.task.set(Some(task));
        driver.arm(component.next_event());
    }

    /// Has the process woken at `next`, unless it will be before.
    pub(super) fn arm(&self, next: Option<Instant>) {
        let Some(next) = next else { return };
        if self.next_wake.get().is_some_and(|wake| wake <= next) {
            return;
        }
        self.next_wake.set(Some(next));
        self.sim.wake_at(next, self.task.get().expect("started when the component was made"));
    }

    pub(super) fn set_receiver(&self, number: usize, receiver: impl FnMut(F) + 'static) {
        if let Some(receivers) = self.receivers.borrow().upgrade() {
            receivers.borrow_mut()[number] = Some(Box::new(receiver));
        }
    }

    pub(super) fn refuse(&self) {
        self.refused.set(self.refused.get() + 1);
    }

    pub(super) const fn refused(&self) -> u64 {
        self.refused.get()
    }

    fn deliver(&self, number: usize, frame: F, receivers: &Receivers<F>) {
        let receiver = receivers.borrow_mut()[number].take();
        let Some(mut receiver) = receiver else {
            self.refuse();
            return;
        };
        receiver(frame);
        // Unless it has named a successor.
        receivers.borrow_mut()[number].get_or_insert(receiver);
    }
}

/// Does what happens now, if anything does. A receiver may use the component: nothing of it is borrowed meanwhile.
fn turn<F: 'static>(component: &impl Driven<F>, receivers: &Receivers<F>) {
    let driver = component.driver();
    let now = driver.sim.now();
    if driver.next_wake.get().is_none_or(|wake| wake > now) {
        return;
    }
    driver.next_wake.set(None);
    component.advance(now);
    while let Some((number, frame)) = component.pop_arrival(now) {
        driver.deliver(number, frame, receivers);
    }
    driver.arm(component.next_event());
}
