//! The process of a component with internal events. It wakes at each event and delivers frames that
//! have arrived.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;

use units::Instant;

use crate::kernel::{Sim, TaskId};

/// A component with internal events.
pub(super) trait TimedComponent<F>: 'static {
    fn process(&self) -> &ComponentProcess<F>;

    /// Brings the component up to date at `now`.
    fn advance(&self, now: Instant);

    /// Takes a frame that has arrived by `now`, with the index of its receiver.
    fn pop_arrival(&self, now: Instant) -> Option<(usize, F)>;

    /// Returns the time of the next event in the present state.
    fn next_event(&self) -> Option<Instant>;
}

type Receiver<F> = Box<dyn FnMut(F)>;
/// Receivers by index. The entry is empty while its receiver runs.
type Receivers<F> = RefCell<Vec<Option<Receiver<F>>>>;

/// Schedules the process and delivers frames to receivers.
pub(super) struct ComponentProcess<F> {
    sim: Sim,
    task: Cell<Option<TaskId>>,
    /// Time at which the process wakes next. Calendar entries for other times are obsolete.
    next_wake: Cell<Option<Instant>>,
    /// Owned by the process, so that they are dropped with the run even if they hold the component.
    receivers: RefCell<Weak<Receivers<F>>>,
    /// Frames without a receiver or not accepted by it.
    refused: Cell<u64>,
}

impl<F: 'static> ComponentProcess<F> {
    pub(super) fn new(sim: &Sim) -> Self {
        Self {
            sim: sim.clone(),
            task: Cell::new(None),
            next_wake: Cell::new(None),
            receivers: RefCell::new(Weak::new()),
            refused: Cell::new(0),
        }
    }

    /// Starts the process of `component`, which has `receivers` receivers.
    pub(super) fn start<C: TimedComponent<F>>(component: &Rc<C>, receivers: usize) {
        let owned: Rc<Receivers<F>> = Rc::new(RefCell::new((0..receivers).map(|_| None).collect()));
        let process = component.process();
        process.receivers.replace(Rc::downgrade(&owned));
        let driven = Rc::clone(component);
        let task = process.sim.spawn(poll_fn(move |_| {
            turn(&*driven, &owned);
            Poll::Pending
        }));
        process.task.set(Some(task));
        process.arm(component.next_event());
    }

    /// Schedules a wake-up at `next`, unless an earlier one is scheduled.
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
        // Unless the receiver replaced itself.
        receivers.borrow_mut()[number].get_or_insert(receiver);
    }
}

/// Handles the events due now. A receiver may use the component, so no part of it is borrowed
/// meanwhile.
fn turn<F: 'static>(component: &impl TimedComponent<F>, receivers: &Receivers<F>) {
    let process = component.process();
    let now = process.sim.now();
    if process.next_wake.get().is_none_or(|wake| wake > now) {
        return;
    }
    process.next_wake.set(None);
    component.advance(now);
    while let Some((number, frame)) = component.pop_arrival(now) {
        process.deliver(number, frame, receivers);
    }
    process.arm(component.next_event());
}
