//! [`WorkerThread`]: a worker's thread, which repeats turns and sleeps until its driver is dropped.

use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::Waker;
use std::thread::JoinHandle;

use units::Duration;

use driver::worker::{Progress, WorkerLoop};

use super::idle::Idle;
use crate::clock::Clock;

/// The settings of a worker's thread.
pub(crate) struct WorkerSettings {
    pub(crate) name: String,
    /// The core to which it is pinned, if any.
    pub(crate) core: Option<usize>,
    pub(crate) clock: Clock,
    /// Time for which it polls for work before it sleeps.
    pub(crate) busy_poll: Duration,
    /// Wakes its driver.
    pub(crate) owner: Waker,
    /// Time for which the driver waits for the end of the thread.
    pub(crate) join_within: Duration,
    /// The consequence of a panic, for the log.
    pub(crate) if_it_panics: &'static str,
}

/// A running thread. Dropping this waits for the end of the thread for a limited time, because
/// sockets, keys and wakers come from the application and may hang. The driver's end of the worker
/// is dropped first, which makes the thread end.
pub(crate) struct WorkerThread {
    name: String,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread has dropped everything.
    ended: Receiver<Infallible>,
    progress: Arc<Progress>,
    join_within: Duration,
}

/// Pins the calling thread to this core, if the system permits.
pub(crate) fn pin_to(core: Option<usize>) {
    if let Some(core) = core
        && let Err(error) = net::processors::pin_to(core)
    {
        tracing::warn!(%error, core, "cannot pin a thread to a core");
    }
}

impl WorkerThread {
    /// Starts the thread of `worker`, which sleeps in `idle`.
    ///
    /// # Errors
    /// If the system refuses a thread.
    #[expect(clippy::disallowed_methods, reason = "this is where workers get their threads")]
    pub(super) fn start<W, R>(settings: WorkerSettings, progress: Arc<Progress>, worker: W, idle: R) -> io::Result<Self>
    where
        W: WorkerLoop + Send + 'static,
        R: Idle<W> + Send + 'static,
    {
        let (name, join_within) = (settings.name.clone(), settings.join_within);
        let (ends, ended) = channel();
        let run = move || run(&settings, worker, idle, ends);
        let thread = std::thread::Builder::new().name(name.clone()).spawn(run)?;
        Ok(Self { name, thread: Some(thread), ended, progress, join_within })
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        let is_join_skipped = self.progress.is_join_skipped();
        let within = if is_join_skipped { Duration::ZERO } else { self.join_within };
        match self.ended.recv_timeout(within.into()) {
            Err(RecvTimeoutError::Timeout) if is_join_skipped => {}
            Err(RecvTimeoutError::Timeout) => {
                tracing::error!(worker = %self.name, "a worker does not end: its thread keeps running");
            }
            Err(RecvTimeoutError::Disconnected) => {
                if let Some(thread) = self.thread.take() {
                    // A panic was logged when it happened.
                    let _panicked = thread.join();
                }
            }
            Ok(never) => match never {},
        }
    }
}

/// Runs the thread's main function.
fn run<W: WorkerLoop, R: Idle<W>>(settings: &WorkerSettings, mut worker: W, mut idle: R, ends: Sender<Infallible>) {
    pin_to(settings.core);
    idle.begin();
    if catch_unwind(AssertUnwindSafe(|| cycle(&mut worker, &mut idle))).is_err() {
        tracing::error!(worker = %settings.name, "a worker has panicked: {}", settings.if_it_panics);
    }
    drop((worker, idle));
    // The driver finds the rings abandoned in its next turn.
    settings.owner.wake_by_ref();
    drop(ends);
}

/// Runs turns until the driver is dropped. A panic that the worker can attribute to a connection
/// ends only that connection.
fn cycle<W: WorkerLoop, R: Idle<W>>(worker: &mut W, idle: &mut R) {
    while !worker.is_abandoned() {
        match catch_unwind(AssertUnwindSafe(|| worker.counted_turn())) {
            Ok(()) => idle.sleep(worker),
            Err(panic) => {
                if !worker.recover() {
                    resume_unwind(panic);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::task::Wake;

    use units::Instant;

    use super::*;
    use crate::worker::Spawner;

    /// The driver's end of a worker for tests.
    struct Owner {
        end: Arc<AtomicBool>,
        worker: Waker,
        /// A message for each turn, closed when the worker is dropped.
        turns: mpsc::Receiver<u32>,
    }

    impl Owner {
        fn end(&self) {
            self.end.store(true, Ordering::SeqCst);
            self.worker.wake_by_ref();
        }
    }

    /// A worker that panics in its first turns.
    struct PanickingWorker {
        end: Arc<AtomicBool>,
        progress: Arc<Progress>,
        turns: mpsc::Sender<u32>,
        count: u32,
        panics: u32,
        recovers: bool,
    }

    impl WorkerLoop for PanickingWorker {
        fn turn(&mut self) {
            self.count += 1;
            assert!(self.count > self.panics, "requested by the test");
            self.turns.send(self.count).expect("the test receives");
        }

        fn due_at(&self, _now: Instant) -> Option<Instant> {
            None
        }

        fn is_abandoned(&self) -> bool {
            self.end.load(Ordering::SeqCst)
        }

        fn progress(&self) -> &Arc<Progress> {
            &self.progress
        }

        fn recover(&mut self) -> bool {
            self.recovers
        }
    }

    /// Sends a message for each time it is woken.
    struct ChannelWaker(mpsc::Sender<()>);

    impl Wake for ChannelWaker {
        fn wake(self: Arc<Self>) {
            self.0.send(()).expect("the test receives");
        }
    }

    fn start(panics: u32, recovers: bool) -> (Owner, Arc<Progress>, mpsc::Receiver<()>, Vec<WorkerThread>) {
        let (woken, wakes) = mpsc::channel();
        let settings = WorkerSettings {
            name: "panicking".to_owned(),
            core: None,
            clock: Clock::start(),
            busy_poll: Duration::ZERO,
            owner: Waker::from(Arc::new(ChannelWaker(woken))),
            join_within: Duration::from_secs(600),
            if_it_panics: "the test continues",
        };
        let progress = Arc::<Progress>::default();
        let mut spawner = Spawner::threads();
        let owner = spawner.spawn_parking(settings, |worker| {
            let (end, (turn_sender, turns)) = (Arc::<AtomicBool>::default(), mpsc::channel());
            let owner = Owner { end: Arc::clone(&end), worker, turns };
            let progress = Arc::clone(&progress);
            (owner, PanickingWorker { end, progress, turns: turn_sender, count: 0, panics, recovers })
        });
        (owner.unwrap(), progress, wakes, spawner.take_threads())
    }

    #[test]
    fn a_worker_that_recovers_from_panics_runs_until_its_driver_ends() {
        let (owner, _, wakes, threads) = start(2, true);
        assert_eq!(owner.turns.recv(), Ok(3), "the turn after two panics");
        assert!(wakes.try_recv().is_err(), "it has not ended");
        owner.end();
        drop(threads);
        assert_eq!(wakes.try_recv(), Ok(()), "the driver is woken when the thread has ended");
        assert!(owner.turns.recv().is_err(), "and the worker is dropped then");
    }

    #[test]
    fn a_worker_that_cannot_recover_from_a_panic_ends_and_wakes_its_driver() {
        let (owner, _, wakes, threads) = start(1, false);
        assert_eq!(wakes.recv(), Ok(()));
        assert!(owner.turns.try_recv().is_err(), "no turn after the panic");
        drop(threads);
    }

    #[test]
    fn dropping_the_thread_of_a_hanging_worker_does_not_wait_for_it() {
        let (owner, progress, _wakes, threads) = start(0, false);
        assert_eq!(owner.turns.recv(), Ok(1));
        progress.skip_join();
        // Its driver has not ended, so the thread runs.
        drop(threads);
        owner.end();
        assert!(owner.turns.recv().is_err(), "it ends with its driver");
    }
}
