//! Runs studies, or decides claims, on threads of their own, and hands out what they found in the order asked for.
//!
//! Long studies divide their replications among threads, short ones do not: so while more studies wait than there are threads, each
//! gets one, and the last ones share what is free. Together they never have more than were asked for. An interrupt does not wait for them: whoever runs this returns, and the
//! threads end with the process. They only compute.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use litz::transfer::CancelToken;
use studies::{Options, Outcome, Study};

/// How long an interrupt may go unseen.
const LOOK_FOR_INTERRUPT_EVERY: Duration = Duration::from_millis(50);

/// Something to run.
pub(super) trait Job: Send + Sync + 'static {
    /// What comes of it.
    type Found: Send + 'static;

    /// Its name for the user.
    fn id(&self) -> &str;

    /// Runs it.
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

/// What happens meanwhile. Jobs are named by their places.
pub(super) trait Watch<F> {
    /// A job has begun.
    fn began(&mut self, index: usize);

    /// A job has ended; others before it may still run.
    fn ended(&mut self, index: usize);

    /// What a job found. Called in order.
    ///
    /// # Errors
    /// In words for the user; nothing more is run then.
    fn found(&mut self, index: usize, found: F) -> Result<(), String>;
}

/// Why not all were run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// By a signal.
    Interrupted,
    /// In words.
    Error(String),
}

enum Event<F> {
    Began(usize),
    Ended(usize, F),
}

/// The next job, and whether there is one at all any more.
struct Queue {
    shares: Mutex<Shares>,
    /// Once the reader has gone, nothing more is begun.
    is_open: AtomicBool,
}

/// Who has which job, and how many threads.
struct Shares {
    next: usize,
    jobs: usize,
    /// Workers without a job.
    idle: usize,
    /// Threads that no job has: at least one for each idle worker that still finds a job.
    free: usize,
}

impl Shares {
    /// The next job and its share of the threads, for a worker that is idle; `None` if there is none.
    fn begin(&mut self) -> Option<(usize, usize)> {
        let index = self.next;
        let takers = self.idle.min(self.jobs.saturating_sub(index));
        // Nobody who comes later finds fewer than one: whoever takes leaves the others what is theirs.
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

/// Runs all of `jobs`, at most `at_once` of them at a time, with at most `options.threads` threads for all together.
///
/// # Errors
/// [`Stop`]: at an interrupt, or when a job breaks or `watch` fails.
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
    // A beginning and an end for each job: nobody ever waits to be heard.
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
        // If nobody listens any more, nobody needs the result.
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
            // The threads have gone and left something out: a job panicked, and said so on standard error.
            Err(RecvTimeoutError::Disconnected) => {
                let missing = (next..jobs.len()).filter(|index| !waiting.contains_key(index));
                let missing: Vec<_> = missing.map(|index| jobs[index].id()).collect();
                let words = format!("broke, or was not run because another broke: {}", missing.join(", "));
                return Err(Stop::Error(words));
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

    /// Tells how many threads it had; may wait for a word, and may panic.
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
                // An error is a word, too: the sender has gone.
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
    fn results_come_in_order_whichever_ends_first() {
        let (sender, receiver) = mpsc::channel();
        let slow: Box<dyn Study> = Box::new(Small { waits: Some(Mutex::new(receiver)), panics: false });
        let studies: Arc<[Box<dyn Study>]> = vec![slow, small(), small()].into();
        // The first study ends only when another one has.
        let on_ended = move || {
            let _gone = sender.send(());
        };
        let mut log = Log { on_ended: Some(Box::new(on_ended)), ..Log::default() };
        assert_eq!(make(&studies, 2, &options(2), &CancelToken::default(), &mut log), Ok(()));
        let order: Vec<_> = log.found.iter().map(|(index, _)| *index).collect();
        assert_eq!((order, log.ended), (vec![0, 1, 2], 3));
    }

    #[test]
    fn the_last_studies_get_the_threads_that_are_free() {
        let mut shares = Shares { next: 0, jobs: 4, idle: 3, free: 4 };
        assert_eq!([shares.begin(), shares.begin(), shares.begin()], [Some((0, 1)), Some((1, 1)), Some((2, 2))]);
        shares.end(1);
        shares.end(2);
        assert_eq!(shares.begin(), Some((3, 3)), "nobody else waits for any");
        shares.end(3);
        assert_eq!((shares.begin(), shares.idle, shares.free), (None, 2, 3));
    }

    #[test]
    fn one_study_at_a_time_has_all_threads() {
        let studies: Arc<[Box<dyn Study>]> = vec![small(), small(), small()].into();
        let mut log = Log::default();
        assert_eq!(make(&studies, 1, &options(4), &CancelToken::default(), &mut log), Ok(()));
        assert!(log.found.iter().all(|(_, words)| words == "4 threads"), "{:?}", log.found);
    }

    #[test]
    fn studies_never_have_more_threads_than_were_asked_for_and_never_none() {
        // Ended in an order that a seed decides: any may be the next one.
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
    fn an_interrupt_waits_for_nobody() {
        let (_sender, receiver) = mpsc::channel();
        let endless: Box<dyn Study> = Box::new(Small { waits: Some(Mutex::new(receiver)), panics: false });
        let cancel = CancelToken::default();
        cancel.cancel();
        let stop = make(&Arc::from(vec![endless]), 1, &options(1), &cancel, &mut Log::default());
        assert_eq!(stop, Err(Stop::Interrupted));
    }

    #[test]
    fn a_study_that_breaks_is_named_and_those_before_it_are_kept() {
        let broken: Box<dyn Study> = Box::new(Small { waits: None, panics: true });
        let mut log = Log::default();
        let stop = make(&Arc::from(vec![small(), broken]), 1, &options(1), &CancelToken::default(), &mut log);
        let Err(Stop::Error(words)) = stop else { panic!("{stop:?}") };
        assert!(words.contains("000-broken") && !words.contains("000-small"), "{words}");
        assert_eq!(log.found.len(), 1);
    }
}
