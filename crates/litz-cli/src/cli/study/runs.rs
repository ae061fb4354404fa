//! Runs studies, or decides claims, on worker threads, and delivers the results in the requested
//! order. Long studies divide their replications among threads, short ones do not. While more
//! studies wait than there are threads, each gets one thread; the last ones share the free threads.
//! Together they never use more threads than requested. An interrupt does not wait for the threads,
//! which only compute: `make` returns, and the threads end with the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use studies::{Options, Outcome, Study};
use transfer::CancelToken;

/// How often to check for an interrupt.
const LOOK_FOR_INTERRUPT_EVERY: Duration = Duration::from_millis(50);

/// A study to run, or a claim to decide.
pub(super) trait Job: Send + Sync + 'static {
    /// The result.
    type Found: Send + 'static;

    /// The name for the user.
    fn id(&self) -> &str;

    /// Runs the job.
    fn run(&self, options: &Options) -> Self::Found;
}

impl Job for Box<dyn Study> {
    type Found = Outcome;

    fn id(&self) -> &str {
        self.as_ref().id()
    }

    fn run(&self, options: &Options) -> Outcome {
        self.as_ref().run(options)
    }
}

/// Observes the jobs, which are identified by their indexes.
pub(super) trait Watch<F> {
    /// A job has begun.
    fn began(&mut self, index: usize);

    /// A job has ended; others before it may still run.
    fn ended(&mut self, index: usize);

    /// The result of a job. Called in order.
    ///
    /// # Errors
    /// A message for the user. No further job is started then.
    fn found(&mut self, index: usize, found: F) -> Result<(), String>;
}

/// Why not all jobs were run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The user interrupted the command.
    Interrupted,
    /// A message for the user.
    Error(String),
}

enum Event<F> {
    Began(usize),
    Ended(usize, F),
}

/// The queue of jobs.
struct Queue {
    shares: Mutex<Shares>,
    /// Set when the listener has returned: no further job is started.
    is_open: AtomicBool,
}

/// The assignment of jobs and threads to workers.
struct Shares {
    next: usize,
    jobs: usize,
    /// Number of workers without a job.
    idle: usize,
    /// Number of unassigned threads: at least one for each idle worker for which there is still a
    /// job.
    free: usize,
}

impl Shares {
    /// Assigns the next job and its share of the threads to an idle worker; `None` if there is no
    /// job.
    fn begin(&mut self) -> Option<(usize, usize)> {
        let index = self.next;
        let takers = self.idle.min(self.jobs.saturating_sub(index));
        // Every assignment leaves at least one thread for each of the other idle workers.
        let threads = self.free.checked_div(takers)?;
        self.next += 1;
        self.idle -= 1;
        self.free -= threads;
        Some((index, threads))
    }

    /// A job has ended, and its worker is idle.
    fn end(&mut self, threads: usize) {
        self.idle += 1;
        self.free += threads;
    }
}

impl Queue {
    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs all `jobs`, at most `at_once` at a time, with at most `options.threads` threads in total.
///
/// # Errors
/// [`Stop`]: after an interrupt, or if a job panics or `watch` fails.
pub(super) fn make<J: Job>(
    jobs: &Arc<[J]>,
    at_once: usize,
    options: &Options,
    cancel: &CancelToken,
    watch: &mut dyn Watch<J::Found>,
) -> Result<(), Stop> {
    let free = options.threads.max(1);
    let workers = at_once.min(free).min(jobs.len()).max(1);
    let shares = Mutex::new(Shares { next: 0, jobs: jobs.len(), idle: workers, free });
    let queue = Arc::new(Queue { shares, is_open: AtomicBool::new(true) });
    // Space for two messages of each job, its start and its end, so that no worker blocks.
    let (sender, receiver) = sync_channel(2 * jobs.len().max(1));
    for _ in 0..workers {
        let (jobs, queue, sender, options) = (Arc::clone(jobs), Arc::clone(&queue), sender.clone(), *options);
        #[expect(clippy::disallowed_methods, reason = "an interrupt must not wait for a study that takes a minute")]
        std::thread::spawn(move || work(&jobs, &options, &queue, &sender));
    }
    drop(sender);
    let done = listen(jobs, &receiver, cancel, watch);
    queue.is_open.store(false, Ordering::Relaxed);
    done
}

fn work<J: Job>(jobs: &[J], options: &Options, queue: &Queue, sender: &SyncSender<Event<J::Found>>) {
    while queue.is_open.load(Ordering::Relaxed) {
        let Some((index, threads)) = queue.shares().begin() else { return };
        let options = Options { threads, ..*options };
        // If the listener has returned, the result is not needed.
        if sender.send(Event::Began(index)).is_err() {
            return;
        }
        let found = jobs[index].run(&options);
        queue.shares().end(threads);
        if sender.send(Event::Ended(index, found)).is_err() {
            return;
        }
    }
}

fn listen<J: Job>(
    jobs: &[J],
    receiver: &Receiver<Event<J::Found>>,
    cancel: &CancelToken,
    watch: &mut dyn Watch<J::Found>,
) -> Result<(), Stop> {
    let mut waiting = BTreeMap::new();
    let mut next = 0;
    while next < jobs.len() {
        if cancel.is_cancelled() {
            return Err(Stop::Interrupted);
        }
        match receiver.recv_timeout(LOOK_FOR_INTERRUPT_EVERY) {
            Ok(Event::Began(index)) => watch.began(index),
            Ok(Event::Ended(index, outcome)) => {
                watch.ended(index);
                waiting.insert(index, outcome);
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The threads have ended without some results: a job panicked, and the panic was
            // printed on standard error.
            Err(RecvTimeoutError::Disconnected) => {
                let missing = (next..jobs.len()).filter(|index| !waiting.contains_key(index));
                let missing: Vec<_> = missing.map(|index| jobs[index].id()).collect();
                let message = format!("failed, or was not run because another failed: {}", missing.join(", "));
                return Err(Stop::Error(message));
            }
        }
        while let Some(outcome) = waiting.remove(&next) {
            watch.found(next, outcome).map_err(Stop::Error)?;
            next += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use studies::Effort;

    use super::*;

    /// A study that reports its number of threads; it may wait for a message, and may panic.
    struct Small {
        waits: Option<Mutex<mpsc::Receiver<()>>>,
        panics: bool,
    }

    impl Study for Small {
        fn id(&self) -> &'static str {
            if self.panics { "000-broken" } else { "000-small" }
        }

        fn title(&self) -> &'static str {
            "for tests"
        }

        fn run(&self, options: &Options) -> Outcome {
            assert!(!self.panics, "as the test wants");
            if let Some(waits) = &self.waits {
                // An error counts as a message: the sender was dropped.
                let _word = waits.lock().expect("one reader").recv();
            }
            Outcome { notes: vec![format!("{} threads", options.threads)], ..Outcome::default() }
        }
    }

    #[derive(Default)]
    struct Log {
        found: Vec<(usize, String)>,
        ended: usize,
        on_ended: Option<Box<dyn FnMut()>>,
    }

    impl Watch<Outcome> for Log {
        fn began(&mut self, _index: usize) {}

        fn ended(&mut self, _index: usize) {
            self.ended += 1;
            if let Some(act) = &mut self.on_ended {
                act();
            }
        }

        fn found(&mut self, index: usize, outcome: Outcome) -> Result<(), String> {
            self.found.push((index, outcome.notes.join(" ")));
            Ok(())
        }
    }

    fn small() -> Box<dyn Study> {
        Box::new(Small { waits: None, panics: false })
    }

    const fn options(threads: usize) -> Options {
        Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads }
    }

    #[test]
    fn results_are_in_order_regardless_of_which_ends_first() {
        let (sender, receiver) = mpsc::channel();
        let slow: Box<dyn Study> = Box::new(Small { waits: Some(Mutex::new(receiver)), panics: false });
        let studies: Arc<[Box<dyn Study>]> = vec![slow, small(), small()].into();
        // The first study ends only after another one has.
        let on_ended = move || {
            let _gone = sender.send(());
        };
        let mut log = Log { on_ended: Some(Box::new(on_ended)), ..Log::default() };
        assert_eq!(make(&studies, 2, &options(2), &CancelToken::default(), &mut log), Ok(()));
        let order: Vec<_> = log.found.iter().map(|(index, _)| *index).collect();
        assert_eq!((order, log.ended), (vec![0, 1, 2], 3));
    }

    #[test]
    fn the_last_studies_share_the_free_threads() {
        let mut shares = Shares { next: 0, jobs: 4, idle: 3, free: 4 };
        assert_eq!([shares.begin(), shares.begin(), shares.begin()], [Some((0, 1)), Some((1, 1)), Some((2, 2))]);
        shares.end(1);
        shares.end(2);
        assert_eq!(shares.begin(), Some((3, 3)), "no other worker needs a thread");
        shares.end(3);
        assert_eq!((shares.begin(), shares.idle, shares.free), (None, 2, 3));
    }

    #[test]
    fn one_study_at_a_time_has_all_threads() {
        let studies: Arc<[Box<dyn Study>]> = vec![small(), small(), small()].into();
        let mut log = Log::default();
        assert_eq!(make(&studies, 1, &options(4), &CancelToken::default(), &mut log), Ok(()));
        assert!(log.found.iter().all(|(_, message)| message == "4 threads"), "{:?}", log.found);
    }

    #[test]
    fn studies_never_exceed_the_requested_threads_and_each_has_one() {
        // A seed determines the order in which the jobs end.
        for seed in 0..200_usize {
            let (threads, jobs) = (1 + seed % 9, 1 + seed % 14);
            let mut shares = Shares { next: 0, jobs, idle: threads.min(jobs), free: threads };
            let mut running: Vec<usize> = Vec::new();
            let mut begun = 0;
            loop {
                while let Some((index, share)) = shares.begin() {
                    assert!(share > 0 && index == begun, "job {index} has {share} threads");
                    (running, begun) = ([running, vec![share]].concat(), begun + 1);
                    assert!(running.iter().sum::<usize>() <= threads, "{running:?} of {threads}");
                }
                if running.is_empty() {
                    break;
                }
                shares.end(running.remove(seed / 3 % running.len()));
            }
            assert_eq!((begun, shares.free), (jobs, threads));
        }
    }

    #[test]
    fn an_interrupt_does_not_wait_for_running_studies() {
        let (_sender, receiver) = mpsc::channel();
        let endless: Box<dyn Study> = Box::new(Small { waits: Some(Mutex::new(receiver)), panics: false });
        let cancel = CancelToken::default();
        cancel.cancel();
        let stop = make(&Arc::from(vec![endless]), 1, &options(1), &cancel, &mut Log::default());
        assert_eq!(stop, Err(Stop::Interrupted));
    }

    #[test]
    fn a_study_that_panics_is_named_and_earlier_results_are_kept() {
        let broken: Box<dyn Study> = Box::new(Small { waits: None, panics: true });
        let mut log = Log::default();
        let stop = make(&Arc::from(vec![small(), broken]), 1, &options(1), &CancelToken::default(), &mut log);
        let Err(Stop::Error(message)) = stop else { panic!("{stop:?}") };
        assert!(message.contains("000-broken") && !message.contains("000-small"), "{message}");
        assert_eq!(log.found.len(), 1);
    }
}
