//! [`Shared`]: one host for two threads of packetdrill. One runs the script; the other makes the calls
//! that may block.
//!
//! The script's thread moves the clock. When it has changed something, it waits until every blocked
//! call has looked at it: otherwise the clock would run ahead of a call that is about to return, and
//! the script would see it return too late.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;

use units::{Duration, Instant};

use crate::host::Host;
use crate::settings::Settings;
use crate::socket::{Errno, Outcome};

/// How far the clock moves when it is read: packetdrill spins for the last microseconds before an event.
const TICK: Duration = Duration::from_micros(1);

/// How long the script waits for a packet, in virtual time.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long the script's thread waits, in real time, for a call that returns to read the clock. It does
/// so at once, unless packetdrill has no use for its time.
const READS_CLOCK_WITHIN: std::time::Duration = std::time::Duration::from_millis(20);

pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    host: Host,
    /// Counts changes that blocked calls must look at.
    change: u64,
    /// The last change that each blocked call has looked at.
    waiting: Vec<(ThreadId, u64)>,
    /// A call has returned whose thread has not read the clock since.
    returned: Option<ThreadId>,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Self {
        let state = State { host: Host::new(settings), change: 0, waiting: Vec::new(), returned: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a panic ends the script")
    }

    /// A call that does not wait.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&mut Host) -> T) -> T {
        let mut state = self.lock();
        let result = call(&mut state.host);
        state.host.flush();
        self.settle(state);
        result
    }

    /// A call that waits until it is done, or until `deadline`: `None` then.
    pub(crate) fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut call: impl FnMut(&mut Host) -> Outcome<T>,
    ) -> Option<Result<T, Errno>> {
        let me = std::thread::current().id();
        let mut state = self.lock();
        let mut has_waited = false;
        loop {
            let outcome = call(&mut state.host);
            state.host.flush();
            let result = match outcome {
                Outcome::Done(value) => Some(Ok(value)),
                Outcome::Failed(errno) => Some(Err(errno)),
                Outcome::Waits if deadline.is_some_and(|deadline| deadline <= state.host.now) => None,
                Outcome::Waits => {
                    let change = state.change;
                    state.waiting.retain(|(thread, _)| *thread != me);
                    state.waiting.push((me, change));
                    has_waited = true;
                    self.changed.notify_all();
                    state = self.changed.wait(state).expect("a panic ends the script");
                    continue;
                }
            };
            state.waiting.retain(|(thread, _)| *thread != me);
            if has_waited {
                state.returned = Some(me);
            }
            self.changed.notify_all();
            return result;
        }
    }

    /// Lets blocked calls look at what has changed, and those that return read the clock.
    fn settle(&self, mut state: MutexGuard<'_, State>) {
        if state.waiting.is_empty() {
            return;
        }
        state.change += 1;
        let change = state.change;
        let me = std::thread::current().id();
        loop {
            self.changed.notify_all();
            let has_all = state.waiting.iter().all(|(thread, seen)| *thread == me || *seen == change);
            match state.returned {
                _ if !has_all => state = self.changed.wait(state).expect("a panic ends the script"),
                Some(_) => {
                    let (later, timeout) =
                        self.changed.wait_timeout(state, READS_CLOCK_WITHIN).expect("a panic ends the script");
                    state = later;
                    if timeout.timed_out() {
                        state.returned = None;
                    }
                }
                None => return,
            }
        }
    }

    /// The time. Reading it moves it a little.
    pub(crate) fn clock(&self) -> Instant {
        let mut state = self.lock();
        let me = std::thread::current().id();
        if state.returned == Some(me) {
            state.returned = None;
            self.changed.notify_all();
            return state.host.now;
        }
        let to = state.host.now + TICK;
        while state.host.advance(to) {}
        let now = state.host.now;
        self.settle(state);
        now
    }

    pub(crate) fn now(&self) -> Instant {
        self.lock().host.now
    }

    /// Lets virtual time pass.
    pub(crate) fn sleep(&self, span: Duration) {
        let to = self.now() + span;
        while self.lock().host.advance(to) {
            self.settle(self.lock());
        }
        self.settle(self.lock());
    }

    /// The next packet that the stack sends, and when; waits for it in virtual time.
    pub(crate) fn next_packet(&self) -> Option<(Instant, Vec<u8>)> {
        let end = self.now() + PATIENCE;
        loop {
            if let Some(packet) = self.lock().host.sent.pop_front() {
                return Some(packet);
            }
            let has_more = self.lock().host.advance(end);
            self.settle(self.lock());
            if !has_more {
                return self.lock().host.sent.pop_front();
            }
        }
    }
}
