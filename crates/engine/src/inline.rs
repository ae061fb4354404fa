//! Placement `inline`: the driver has no thread; waiting threads run it.
//!
//! One thread at a time runs the driver, inside its own blocking call, until its condition is true.
//! Other threads wait for their wakers. A thread that leaves while others wait wakes one of them,
//! which then runs the driver.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use units::Instant;

use driver::Flush;
use driver::sync::lock;

use crate::clock::Clock;
use crate::device::{Device, SharedOf};
use crate::driver_thread::LiveDriver;
use crate::parker::Parker;

/// The driver, and the right to run it.
pub(crate) struct Inline<D: Device> {
    /// The driver; `None` once the engine has stopped. The lock is never contended: only the holder
    /// of the turn takes it, and the owner of a stepped engine between turns.
    driver: Mutex<Option<LiveDriver<D>>>,
    clock: Clock,
    turn: Mutex<Turn>,
    /// Whether the last turn left data to send. [`flush`](Self::flush) sends it.
    has_more: AtomicBool,
    /// Whether a flush was requested while another thread ran the driver. That thread runs another
    /// turn.
    flush_wanted: AtomicBool,
}

#[derive(Default)]
struct Turn {
    /// Whether a thread runs the driver.
    taken: bool,
    /// The wakers of waiting threads by ticket, bounded by the number of threads inside calls.
    waiting: BTreeMap<u64, Waker>,
    next_ticket: u64,
}

/// The right to run the driver. Dropping it passes it to a waiting thread.
struct Held<'a, D: Device>(&'a Inline<D>);

/// The result of [`Inline::request_turn`].
enum TurnRequest<'a, D: Device> {
    Granted(Held<'a, D>),
    /// Another thread runs the driver. The ticket is for [`Inline::leave`].
    Queued(u64),
}

impl<D: Device> Inline<D> {
    pub(crate) fn new(driver: LiveDriver<D>, clock: Clock) -> Self {
        Self {
            driver: Mutex::new(Some(driver)),
            clock,
            turn: Mutex::default(),
            has_more: AtomicBool::new(false),
            flush_wanted: AtomicBool::new(false),
        }
    }

    fn request_turn(&self, waker: &Waker) -> TurnRequest<'_, D> {
        let mut turn = lock(&self.turn);
        if !turn.taken {
            turn.taken = true;
            return TurnRequest::Granted(Held(self));
        }
        let ticket = turn.next_ticket;
        turn.next_ticket += 1;
        turn.waiting.insert(ticket, waker.clone());
        TurnRequest::Queued(ticket)
    }

    /// Removes the waker with this ticket.
    fn leave(&self, ticket: u64) {
        lock(&self.turn).waiting.remove(&ticket);
    }

    /// Wakes one of the waiting threads if no thread runs the driver.
    fn pass_on(&self) {
        let next = {
            let mut turn = lock(&self.turn);
            if turn.taken { None } else { turn.waiting.pop_first() }
        };
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    /// Runs a turn, which processes new requests. If another thread runs the driver, that thread
    /// processes them.
    pub(crate) fn kick(&self, shared: &SharedOf<D>, mut flush: Flush) {
        loop {
            let held = {
                let mut turn = lock(&self.turn);
                if std::mem::replace(&mut turn.taken, true) { None } else { Some(Held(self)) }
            };
            let Some(held) = held else {
                // The thread that runs the driver checks for requests after it has released the
                // turn.
                shared.wake();
                return;
            };
            match &mut *lock(&self.driver) {
                Some(driver) => self.turn(driver, flush),
                None => return,
            }
            drop(held);
            if !self.is_wanted(shared) {
                return;
            }
            // The next turn is for other threads, which may have requested a flush.
            flush = Flush::Now;
        }
    }

    fn turn(&self, driver: &mut LiveDriver<D>, flush: Flush) {
        if flush == Flush::Now {
            self.flush_wanted.store(false, Ordering::SeqCst);
        }
        let work = driver.turn(flush);
        self.has_more.store(work.has_more, Ordering::SeqCst);
    }

    /// Returns whether another thread left requests while this one ran the driver.
    fn is_wanted(&self, shared: &SharedOf<D>) -> bool {
        shared.has_todo() || self.flush_wanted.load(Ordering::SeqCst)
    }

    /// Sends data that earlier turns left.
    pub(crate) fn flush(&self, shared: &SharedOf<D>) {
        // A turn in progress may leave data of this thread.
        if self.has_more.load(Ordering::SeqCst) || lock(&self.turn).taken {
            self.flush_wanted.store(true, Ordering::SeqCst);
            self.kick(shared, Flush::Now);
        }
    }

    /// Returns the time at which the driver's next turn is due; `now` if there is work.
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        lock(&self.driver).as_ref().and_then(|driver| driver.due_at(now))
    }

    /// Drops the driver without closing its connections.
    pub(crate) fn abandon(&self) {
        // The lock is not held: wakers that are called by the drop may call the engine.
        let driver = lock(&self.driver).take();
        drop(driver);
    }

    /// See [`Drivers::block_on`](crate::Drivers::block_on).
    pub(crate) fn block_on<T>(
        &self,
        shared: &SharedOf<D>,
        deadline: Option<Instant>,
        parker: &Parker,
        waker: &Waker,
        poll: &mut dyn FnMut(&Waker) -> Poll<T>,
    ) -> Option<T> {
        loop {
            if let Poll::Ready(value) = poll(waker) {
                // This thread may have been woken to run the driver.
                self.pass_on();
                return Some(value);
            }
            match self.request_turn(waker) {
                TurnRequest::Granted(held) => {
                    let outcome = self.run(deadline, waker, poll);
                    drop(held);
                    // Requests may have come after the last turn.
                    if self.is_wanted(shared) {
                        self.kick(shared, Flush::Now);
                    }
                    if let Outcome::Over(value) = outcome {
                        return value;
                    }
                    // The engine has stopped, so `poll` is ready. If it is not, this is a bug, and
                    // waiting is better than spinning.
                    if let Poll::Ready(value) = poll(waker) {
                        return Some(value);
                    }
                    if !parker.park(&self.clock, deadline) {
                        return None;
                    }
                }
                TurnRequest::Queued(ticket) => {
                    let in_time = parker.park(&self.clock, deadline);
                    self.leave(ticket);
                    if !in_time {
                        self.pass_on();
                        return None;
                    }
                }
            }
        }
    }

    /// Runs the driver until `poll` is ready or `deadline` is reached.
    fn run<T>(&self, deadline: Option<Instant>, waker: &Waker, poll: &mut dyn FnMut(&Waker) -> Poll<T>) -> Outcome<T> {
        let mut driver = lock(&self.driver);
        let Some(driver) = driver.as_mut() else { return Outcome::NoDriver };
        loop {
            self.turn(driver, Flush::Now);
            if let Poll::Ready(value) = poll(waker) {
                return Outcome::Over(Some(value));
            }
            if deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
                return Outcome::Over(None);
            }
            if driver.is_stopping() {
                // The thread that stops the engine waits for this one to leave.
                return Outcome::NoDriver;
            }
            driver.wait(deadline);
        }
    }

    /// Closes all connections and drops the driver.
    pub(crate) fn stop(&self, shared: &SharedOf<D>) {
        let parker = Parker::current();
        let waker = Waker::from(Arc::clone(&parker));
        loop {
            match self.request_turn(&waker) {
                TurnRequest::Granted(_held) => {
                    let driver = lock(&self.driver).take();
                    if let Some(mut driver) = driver {
                        driver.close_all();
                    }
                    return;
                }
                TurnRequest::Queued(ticket) => {
                    shared.wake();
                    parker.park(&self.clock, None);
                    self.leave(ticket);
                }
            }
        }
    }
}

/// The result of running the driver.
enum Outcome<T> {
    /// The awaited value, or `None` at the deadline.
    Over(Option<T>),
    /// The engine is stopping or has stopped.
    NoDriver,
}

impl<D: Device> Drop for Held<'_, D> {
    fn drop(&mut self) {
        lock(&self.0.turn).taken = false;
        self.0.pass_on();
    }
}
