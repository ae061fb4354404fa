//! The placement without a thread: whoever waits runs the driver.
//!
//! One thread at a time runs it, inside its own call, until what it waits for has come. The others wait for their wakers.
//! A thread that leaves while others wait hands the driver over: it wakes one of them, which finds the driver free.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use units::Instant;

use crate::driver::{Driver, Tails};
use crate::engine::run_to_the_end;
use crate::shared::Shared;
use crate::sync::{Parker, lock};

/// The driver, and who may run it.
pub(crate) struct Inline {
    /// None once the engine has stopped. Locked by who has taken the turn, so never waited for, and by the owner of a stepped engine
    /// between turns.
    driver: Mutex<Option<Driver>>,
    turn: Mutex<Turn>,
    /// The last turn left something to send, which [`flush`](Self::flush) sends.
    has_more: AtomicBool,
    /// Somebody flushes: whoever runs the driver does another turn before leaving.
    flush_wanted: AtomicBool,
}

#[derive(Default)]
struct Turn {
    /// Somebody runs the driver.
    taken: bool,
    /// Those who wait for their own wakers, bounded by the threads inside calls.
    waiting: BTreeMap<u64, Waker>,
    next_ticket: u64,
}

/// The right to run the driver; given back, and handed over, when dropped.
struct Held<'a>(&'a Inline);

/// What came of asking for the turn.
enum Asked<'a> {
    Granted(Held<'a>),
    /// Somebody else has it; the ticket is for [`Inline::leave`].
    Queued(u64),
}

impl Inline {
    pub(crate) fn new(driver: Driver) -> Self {
        Self {
            driver: Mutex::new(Some(driver)),
            turn: Mutex::default(),
            has_more: AtomicBool::new(false),
            flush_wanted: AtomicBool::new(false),
        }
    }

    fn ask(&self, waker: &Waker) -> Asked<'_> {
        let mut turn = lock(&self.turn);
        if !turn.taken {
            turn.taken = true;
            return Asked::Granted(Held(self));
        }
        let ticket = turn.next_ticket;
        turn.next_ticket += 1;
        turn.waiting.insert(ticket, waker.clone());
        Asked::Queued(ticket)
    }

    /// Stops waiting. If the driver was handed to us and we do not want it, it goes to the next.
    fn leave(&self, ticket: u64) {
        lock(&self.turn).waiting.remove(&ticket);
    }

    /// Wakes one of those who wait if nobody runs the driver.
    fn hand_over(&self) {
        let next = {
            let mut turn = lock(&self.turn);
            if turn.taken { None } else { turn.waiting.pop_first() }
        };
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    /// Does a turn, so that what was just asked for leaves. If somebody runs the driver, it only needs to know.
    pub(crate) fn kick(&self, shared: &Shared, mut tails: Tails) {
        loop {
            let held = {
                let mut turn = lock(&self.turn);
                if std::mem::replace(&mut turn.taken, true) { None } else { Some(Held(self)) }
            };
            let Some(held) = held else {
                // Whoever runs it looks again after giving it up.
                shared.waker.wake();
                return;
            };
            match &mut *lock(&self.driver) {
                Some(driver) => self.turn(driver, tails),
                None => return,
            }
            drop(held);
            if !self.is_wanted(shared) {
                return;
            }
            // For others, who may have flushed: nothing of theirs is held back.
            tails = Tails::Sent;
        }
    }

    fn turn(&self, driver: &mut Driver, tails: Tails) {
        if tails == Tails::Sent {
            self.flush_wanted.store(false, Ordering::SeqCst);
        }
        let work = driver.turn(tails);
        self.has_more.store(work.has_more, Ordering::SeqCst);
    }

    /// Somebody asked for something while the driver was taken, and left it to whoever had it.
    fn is_wanted(&self, shared: &Shared) -> bool {
        shared.has_todo() || self.flush_wanted.load(Ordering::SeqCst)
    }

    /// Sends what earlier turns left, if they left something.
    pub(crate) fn flush(&self, shared: &Shared) {
        // A turn that goes on may be about to leave something of ours.
        if self.has_more.load(Ordering::SeqCst) || lock(&self.turn).taken {
            self.flush_wanted.store(true, Ordering::SeqCst);
            self.kick(shared, Tails::Sent);
        }
    }

    /// When the driver wants its next turn; `now` if there is something to do already.
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        lock(&self.driver).as_ref().and_then(|driver| driver.due_at(now))
    }

    /// Drops the driver, without a goodbye.
    pub(crate) fn abandon(&self) {
        // What it wakes as it goes may call the engine.
        let driver = lock(&self.driver).take();
        drop(driver);
    }

    /// See [`Engine::block_on`](crate::Engine::block_on).
    pub(crate) fn block_on<T>(
        &self,
        shared: &Shared,
        deadline: Option<Instant>,
        parker: &Parker,
        waker: &Waker,
        poll: &mut dyn FnMut(&Waker) -> Poll<T>,
    ) -> Option<T> {
        loop {
            if let Poll::Ready(value) = poll(waker) {
                // We may have been woken to take over the driver.
                self.hand_over();
                return Some(value);
            }
            match self.ask(waker) {
                Asked::Granted(held) => {
                    let outcome = self.run(shared, deadline, waker, poll);
                    drop(held);
                    // After the last turn.
                    if self.is_wanted(shared) {
                        self.kick(shared, Tails::Sent);
                    }
                    if let Outcome::Over(value) = outcome {
                        return value;
                    }
                    // The engine has stopped: the cells say so. Anything else would be a broken promise of ours, and
                    // then waiting beats spinning.
                    if let Poll::Ready(value) = poll(waker) {
                        return Some(value);
                    }
                    if !parker.park(&shared.clock, deadline) {
                        return None;
                    }
                }
                Asked::Queued(ticket) => {
                    let in_time = parker.park(&shared.clock, deadline);
                    self.leave(ticket);
                    if !in_time {
                        self.hand_over();
                        return None;
                    }
                }
            }
        }
    }

    /// Runs the driver until `poll` is ready or `deadline` comes.
    fn run<T>(
        &self,
        shared: &Shared,
        deadline: Option<Instant>,
        waker: &Waker,
        poll: &mut dyn FnMut(&Waker) -> Poll<T>,
    ) -> Outcome<T> {
        let mut driver = lock(&self.driver);
        let Some(driver) = driver.as_mut() else { return Outcome::NoDriver };
        loop {
            self.turn(driver, Tails::Sent);
            if let Poll::Ready(value) = poll(waker) {
                return Outcome::Over(Some(value));
            }
            if deadline.is_some_and(|deadline| deadline <= shared.clock.now()) {
                return Outcome::Over(None);
            }
            if driver.is_stopping() {
                // Who stops the engine waits for us to leave.
                return Outcome::NoDriver;
            }
            driver.wait(deadline);
        }
    }

    /// Says goodbye to all peers and drops the driver.
    pub(crate) fn stop(&self, shared: &Shared) {
        let parker = Parker::current();
        let waker = Waker::from(Arc::clone(&parker));
        loop {
            match self.ask(&waker) {
                Asked::Granted(_held) => {
                    let driver = lock(&self.driver).take();
                    if let Some(mut driver) = driver {
                        run_to_the_end(&mut driver);
                    }
                    return;
                }
                Asked::Queued(ticket) => {
                    shared.waker.wake();
                    parker.park(&shared.clock, None);
                    self.leave(ticket);
                }
            }
        }
    }
}

/// How running the driver ended.
enum Outcome<T> {
    /// With what was waited for, or with the deadline.
    Over(Option<T>),
    /// The engine stops or has stopped.
    NoDriver,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.0.turn).taken = false;
        self.0.hand_over();
    }
}
