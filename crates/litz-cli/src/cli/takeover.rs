//! Takeover by a ticket's sender. A sender that reconnects (after a change of network) takes over
//! from its own earlier connection, which would otherwise end only by the idle timeout. It is
//! recognised by its run id. Another run with the same ticket is refused while the first one
//! answers, and takes over once it is silent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use litz::Connection;
use net::MonotonicClock;
use serde_json::json;
use transfer::{Authoriser, CLOSE_CODE, Proof, ProofContext, Refusal, RunId};
use units::Duration;

use super::out;

/// How long the earlier attempts of a reconnecting sender have, together, to release their files.
/// Then the new attempt continues; only a file that is still locked fails.
pub(crate) const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// A sender that answers no probe for this time is silent, and another run with its ticket takes
/// over. Several probe timeouts of a path with a round trip of 500 ms. Longer delays the user who
/// starts a killed sender again; shorter ends transfers during short outages.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(4);

/// Told to a sender whose later connection has taken over.
pub(crate) const SUPERSEDED: &str = "a later connection of the sender has taken over";

/// How often a sender whose ticket another run presents is probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// How often the answer is looked for.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

/// The attempt of the ticket's sender that is being served.
pub(crate) struct ActiveAttempt {
    state: Mutex<TakeoverState>,
    /// Signalled when the holder changes.
    changed: Condvar,
    clock: MonotonicClock,
    timeout: Duration,
    silence_max: Duration,
}

#[derive(Default)]
struct TakeoverState {
    holder: Option<Holder>,
    /// Number of attempts so far, which numbers the next one.
    attempts: u64,
    /// The user was told that another run was refused, and that another run took over.
    is_refusal_told: bool,
    is_replacement_told: bool,
}

struct Holder {
    number: u64,
    run: Option<RunId>,
    visit: Arc<dyn Visit>,
}

/// The connection of an attempt.
pub(crate) trait Visit: Send + Sync {
    /// Ends it, because the same sender has a later one.
    fn close(&self);
    /// Sends a packet that the sender has to acknowledge.
    fn probe(&self);
    /// Number of authentic packets that have arrived. It grows while the sender lives.
    fn packets_received(&self) -> u64;
    /// Whether it has ended.
    fn has_ended(&self) -> bool;
}

/// What an attempt may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It is the holder, with this number. `is_news`: another run was silent and is replaced, and
    /// the user has not been told of such a case before.
    Holder { number: u64, is_news: bool },
    /// A later attempt of the same sender became the holder, and this one is closed.
    Superseded,
}

/// The answer of a holder to probes.
#[derive(PartialEq, Eq)]
enum Answer {
    Alive,
    Silent,
    /// It is no longer the holder, or its connection has ended.
    Gone,
}

impl Holder {
    /// Whether an attempt of `run` may take over whether or not this holder is silent: it is the
    /// same run, or one of the two is an older program that sends no run id.
    fn yields_to(&self, run: Option<RunId>) -> bool {
        self.run.is_none() || run.is_none() || self.run == run
    }
}

impl ActiveAttempt {
    /// No attempt is active; a new one waits at most `timeout` for its predecessor to end, and one
    /// of another run `silence_max` for its answer.
    pub(crate) fn new(timeout: Duration, silence_max: Duration) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { state, changed, clock: MonotonicClock::start(), timeout, silence_max }
    }

    /// Ends the earlier attempts of the same sender and makes this one the holder; see [`Turn`].
    ///
    /// # Errors
    /// [`Refusal::Running`] if the holder is another run that is not silent.
    pub(crate) fn take_over(&self, run: Option<RunId>, visit: Arc<dyn Visit>) -> Result<Turn, Refusal> {
        let mut state = self.lock();
        state.attempts += 1;
        let number = state.attempts;
        let (mut last_closed, mut examined) = (0, 0);
        let (mut deadline, mut is_replacement) = (None, false);
        // Another waiting attempt may become the holder. It has to end too if it is older than this
        // one and of the same run.
        while let Some(holder) = &state.holder {
            if examined != holder.number && !holder.yields_to(run) {
                examined = holder.number;
                let holder = Arc::clone(&holder.visit);
                drop(state);
                let answer = self.examine(examined, holder.as_ref());
                if answer == Answer::Alive {
                    return Err(Refusal::Running);
                }
                is_replacement |= answer == Answer::Silent;
                (state, deadline) = (self.lock(), None);
                continue;
            }
            if holder.number > number {
                visit.close();
                return Ok(Turn::Superseded);
            }
            if holder.number > last_closed {
                last_closed = holder.number;
                holder.visit.close();
            }
            let now = self.clock.now();
            let left = deadline.get_or_insert(now + self.timeout).saturating_since(now);
            if left.is_zero() {
                break;
            }
            let wait = self.changed.wait_timeout(state, left.into());
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.holder = Some(Holder { number, run, visit });
        self.changed.notify_all();
        let is_news = is_replacement && !std::mem::replace(&mut state.is_replacement_told, true);
        Ok(Turn::Holder { number, is_news })
    }

    /// Probes the holder with this number until it answers or has been silent for too long.
    fn examine(&self, number: u64, visit: &dyn Visit) -> Answer {
        let before = visit.packets_received();
        let begun = self.clock.now();
        let mut probes = 0;
        loop {
            let waited = self.clock.now().saturating_since(begun);
            if visit.packets_received() > before {
                return Answer::Alive;
            }
            if waited >= self.silence_max {
                return Answer::Silent;
            }
            if waited >= PROBE_INTERVAL * probes {
                probes += 1;
                visit.probe();
            }
            let state = self.lock();
            if visit.has_ended() || state.holder.as_ref().is_none_or(|holder| holder.number != number) {
                return Answer::Gone;
            }
            // Signalled if the holder ends; packets are looked for at intervals.
            drop(self.changed.wait_timeout(state, LOOK_INTERVAL));
        }
    }

    /// The attempt of this number has released its files. Has no effect after its timeout.
    pub(crate) fn release(&self, number: u64) {
        let mut state = self.lock();
        if state.holder.as_ref().is_some_and(|holder| holder.number == number) {
            state.holder = None;
            self.changed.notify_all();
        }
    }

    /// Whether the user is to be told that another run was refused: true once.
    pub(crate) fn is_refusal_news(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_refusal_told, true)
    }

    fn lock(&self) -> MutexGuard<'_, TakeoverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of a sender that may be replaced by a later one.
struct Replaceable {
    connection: Connection,
    is_superseded: Arc<AtomicBool>,
}

impl Visit for Replaceable {
    fn close(&self) {
        self.is_superseded.store(true, Ordering::Relaxed);
        self.connection.close(CLOSE_CODE, SUPERSEDED);
    }

    fn probe(&self) {
        // The sender's application does not read datagrams. Not empty, because its queue of unread
        // ones is bounded by their bytes. If the connection has ended, nothing is left to probe.
        let _over = self.connection.send_datagram(Bytes::from_static(&[0]));
    }

    fn packets_received(&self) -> u64 {
        self.connection.stats().receive.packets_received
    }

    fn has_ended(&self) -> bool {
        self.connection.close_reason().is_some()
    }
}

/// An authoriser that records whether it authorised the sender, and that lets the ticket's sender
/// take over from its own earlier connection.
pub(crate) struct TakeoverAuthoriser<'a> {
    pub(crate) inner: Box<dyn Authoriser>,
    pub(crate) connection: Connection,
    pub(crate) current: Option<&'a ActiveAttempt>,
    pub(crate) json: bool,
    pub(crate) let_in: bool,
    /// The sender's run id.
    pub(crate) run: Option<RunId>,
    /// The number of this attempt in `current`.
    pub(crate) attempt: Option<u64>,
    /// A later connection of the sender has taken over, so this one was closed.
    pub(crate) is_superseded: Arc<AtomicBool>,
}

impl Authoriser for TakeoverAuthoriser<'_> {
    fn on_run_id(&mut self, run: Option<RunId>) {
        self.run = run;
    }

    fn authorise(&mut self, context: &ProofContext, proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        let answer = self.inner.authorise(context, proof)?;
        if let Some(current) = self.current {
            let (connection, is_superseded) = (self.connection.clone(), Arc::clone(&self.is_superseded));
            let visit = Arc::new(Replaceable { connection, is_superseded });
            // If it is superseded, this connection is closed, so its next operation fails.
            if let Turn::Holder { number, is_news } = current.take_over(self.run, visit)? {
                self.attempt = Some(number);
                if is_news {
                    self.tell_replacement();
                }
            }
        }
        self.let_in = true;
        Ok(answer)
    }

    fn complete(&mut self) -> Result<(), String> {
        self.inner.complete()
    }

    fn release(&mut self) -> Result<(), String> {
        self.inner.release()
    }
}

impl TakeoverAuthoriser<'_> {
    fn tell_replacement(&self) {
        let peer = self.connection.remote_addr();
        let message =
            format!("the sender was silent for {SILENCE_MAX}; another `litz send` with its ticket takes over");
        if self.json {
            out::json(&json!({ "event": "sender_replaced", "peer": peer.to_string(), "message": message }));
        } else {
            out::note(&format!("litz: {peer}: {message}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::*;

    const TEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);

    /// A connection that answers each probe, or none, and tells when it is closed or probed.
    struct TestVisit {
        answers: bool,
        packets: AtomicU64,
        closing: Sender<()>,
        probing: Sender<()>,
    }

    impl Visit for TestVisit {
        fn close(&self) {
            self.closing.send(()).unwrap_or_default();
        }

        fn probe(&self) {
            self.packets.fetch_add(u64::from(self.answers), Ordering::Relaxed);
            self.probing.send(()).unwrap_or_default();
        }

        fn packets_received(&self) -> u64 {
            self.packets.load(Ordering::Relaxed)
        }

        fn has_ended(&self) -> bool {
            false
        }
    }

    /// An attempt on its own thread.
    struct Attempt {
        taken: Receiver<Result<Turn, Refusal>>,
        closed: Receiver<()>,
        probed: Receiver<()>,
    }

    impl Attempt {
        fn new(current: &Arc<ActiveAttempt>, run: Option<u8>, answers: bool) -> Self {
            let ((closing, closed), (probing, probed)) = (mpsc::channel(), mpsc::channel());
            let (taking, taken) = mpsc::channel();
            let theirs = Arc::clone(current);
            #[expect(clippy::disallowed_methods, reason = "attempts wait for each other")]
            std::thread::spawn(move || {
                let visit = TestVisit { answers, packets: AtomicU64::new(0), closing, probing };
                let turn = theirs.take_over(run.map(|run| RunId::from_bytes([run; 16])), Arc::new(visit));
                taking.send(turn).unwrap_or_default();
            });
            Self { taken, closed, probed }
        }

        fn turn(&self) -> Result<Turn, Refusal> {
            self.taken.recv_timeout(TEST_TIMEOUT).expect("a turn in time")
        }

        fn number(&self) -> u64 {
            match self.turn() {
                Ok(Turn::Holder { number, .. }) => number,
                other => panic!("not the holder: {other:?}"),
            }
        }
    }

    /// Waits that do not end during a test.
    const LONG: Duration = Duration::from_secs(60);
    /// A wait that a test lets pass.
    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn the_latest_attempt_of_a_run_becomes_the_holder() {
        // Equal run ids, and older senders without one.
        for run in [Some(1), None] {
            let current = Arc::new(ActiveAttempt::new(LONG, LONG));
            let first = Attempt::new(&current, run, true);
            let first_number = first.number();
            let second = Attempt::new(&current, run, true);
            first.closed.recv_timeout(TEST_TIMEOUT).unwrap();
            let third = Attempt::new(&current, run, true);
            // Once the third has closed the first, as the second has, both wait.
            first.closed.recv_timeout(TEST_TIMEOUT).unwrap();
            current.release(first_number);
            // Whichever wakes first, the second ends and the third becomes the holder.
            let second_turn = second.turn();
            second.closed.recv_timeout(TEST_TIMEOUT).unwrap();
            if let Ok(Turn::Holder { number, .. }) = second_turn {
                current.release(number);
            }
            assert_eq!(third.number(), 3);
            assert!(third.closed.try_recv().is_err(), "the third stays");
            assert!(first.probed.try_recv().is_err(), "its silence is not waited for");
        }
    }

    #[test]
    fn an_attempt_that_does_not_end_is_abandoned_after_the_timeout() {
        let current = Arc::new(ActiveAttempt::new(SHORT, LONG));
        assert_eq!(Attempt::new(&current, None, true).number(), 1);
        assert_eq!(Attempt::new(&current, None, true).number(), 2, "after the timeout");
        current.release(1);
        assert!(current.lock().holder.is_some(), "an abandoned attempt does not release its successor");
        current.release(2);
        assert!(current.lock().holder.is_none());
    }

    #[test]
    fn another_run_is_refused_while_the_holder_answers() {
        let current = Arc::new(ActiveAttempt::new(LONG, LONG));
        let first = Attempt::new(&current, Some(1), true);
        first.number();
        for _ in 0..3 {
            assert_eq!(Attempt::new(&current, Some(2), true).turn(), Err(Refusal::Running));
            first.probed.recv_timeout(TEST_TIMEOUT).expect("a probe made it answer");
        }
        assert!(first.closed.try_recv().is_err(), "the first is not disturbed");
        assert!(current.is_refusal_news() && !current.is_refusal_news(), "the user is told once");
    }

    #[test]
    fn another_run_replaces_a_silent_holder_and_the_user_is_told_once() {
        let current = Arc::new(ActiveAttempt::new(SHORT, SHORT));
        assert_eq!(Attempt::new(&current, Some(1), false).turn(), Ok(Turn::Holder { number: 1, is_news: false }));
        let second = Attempt::new(&current, Some(2), false);
        assert_eq!(second.turn(), Ok(Turn::Holder { number: 2, is_news: true }));
        let third = Attempt::new(&current, Some(3), true);
        assert_eq!(third.turn(), Ok(Turn::Holder { number: 3, is_news: false }));
        second.closed.recv_timeout(TEST_TIMEOUT).unwrap();
        // The first comes back and finds a holder that answers.
        assert_eq!(Attempt::new(&current, Some(1), true).turn(), Err(Refusal::Running));
    }

    #[test]
    fn a_holder_that_ends_while_it_is_probed_is_followed_at_once() {
        let current = Arc::new(ActiveAttempt::new(LONG, LONG));
        let first = Attempt::new(&current, Some(1), false);
        let number = first.number();
        let second = Attempt::new(&current, Some(2), true);
        first.probed.recv_timeout(TEST_TIMEOUT).unwrap();
        current.release(number);
        assert_eq!(second.turn(), Ok(Turn::Holder { number: 2, is_news: false }));
        assert!(first.closed.try_recv().is_err());
    }
}
