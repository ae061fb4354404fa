//! Runs studies, or decides claims, on threads of their own, and hands out what they found in the order asked for.
//!
//! Long studies divide their replications among threads, short ones do not: so while more studies wait than there are threads, each
//! gets one, and the last ones share what is free. An interrupt does not wait for them: whoever runs this returns, and the
//! threads end with the process. They only compute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
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
    next: AtomicUsize,
    /// Once the reader has gone, nothing more is begun.
    is_open: AtomicBool,
}

/// Runs all of `jobs`.
///
/// # Errors
/// [`Stop`]: at an interrupt, or when a job breaks or `watch` fails.
pub(super) fn make<J: Job>(
    jobs: &Arc<[J]>,
    options: &Options,
    cancel: &CancelToken,
    watch: &mut dyn Watch<J::Found>,
) -> Result<(), Stop> {
    let queue = Arc::new(Queue { next: AtomicUsize::new(0), is_open: AtomicBool::new(true) });
    // A beginning and an end for each job: nobody ever waits to be heard.
    let (sender, receiver) = sync_channel(2 * jobs.len().max(1));
    for _ in 0..options.threads.min(jobs.len()).max(1) {
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
        let index = queue.next.fetch_add(1, Ordering::Relaxed);
        let Some(job) = jobs.get(index) else { return };
        let waiting = jobs.len() - index;
        let options = Options { threads: (options.threads / waiting).max(1), ..*options };
        // If nobody listens any more, nobody needs the result.
        let is_heard =
            sender.send(Event::Began(index)).is_ok() && sender.send(Event::Ended(index, job.run(&options))).is_ok();
        if !is_heard {
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
    use std::sync::Mutex;
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
        Options { seed: 1, replications: 1, confidence: 0.9, effort: Effort::Quick, threads }
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
        assert_eq!(make(&studies, &options(2), &CancelToken::default(), &mut log), Ok(()));
        let order: Vec<_> = log.found.iter().map(|(index, _)| *index).collect();
        assert_eq!((order, log.ended), (vec![0, 1, 2], 3));
    }

    #[test]
    fn the_last_studies_get_the_threads_that_are_free() {
        let studies: Arc<[Box<dyn Study>]> = vec![small(), small(), small()].into();
        let mut log = Log::default();
        assert_eq!(make(&studies, &options(4), &CancelToken::default(), &mut log), Ok(()));
        let threads: Vec<_> = log.found.iter().map(|(_, words)| words.as_str()).collect();
        assert_eq!(threads, ["1 threads", "2 threads", "4 threads"]);
    }

    #[test]
    fn an_interrupt_waits_for_nobody() {
        let (_sender, receiver) = mpsc::channel();
        let endless: Box<dyn Study> = Box::new(Small { waits: Some(Mutex::new(receiver)), panics: false });
        let cancel = CancelToken::default();
        cancel.cancel();
        let stop = make(&Arc::from(vec![endless]), &options(1), &cancel, &mut Log::default());
        assert_eq!(stop, Err(Stop::Interrupted));
    }

    #[test]
    fn a_study_that_breaks_is_named_and_those_before_it_are_kept() {
        let broken: Box<dyn Study> = Box::new(Small { waits: None, panics: true });
        let mut log = Log::default();
        let stop = make(&Arc::from(vec![small(), broken]), &options(1), &CancelToken::default(), &mut log);
        let Err(Stop::Error(words)) = stop else { panic!("{stop:?}") };
        assert!(words.contains("000-broken") && !words.contains("000-small"), "{words}");
        assert_eq!(log.found.len(), 1);
    }
}
