//! Makes the runs of one scenario: in memory as many at a time as there are processors, in real time one after the other.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use litz::transfer::CancelToken;
use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::simulated::{Machine, Sim};
use scenario::tape::Recording;
use scenario::world::{Order, Progress, Watch, WorldError};

use super::options::WorldName;

/// The runs that are wanted.
pub(super) struct Runs<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) world: WorldName,
    /// What the hosts of the simulated world are.
    pub(super) machine: Option<&'a Machine>,
    pub(super) orders: Vec<Order>,
    /// Where the first of them is written down, if it is.
    pub(super) recording: Mutex<Option<Recording>>,
    pub(super) quiet: bool,
    pub(super) cancel: &'a CancelToken,
}

/// Why not all were made.
pub(super) enum Stop {
    /// By a signal.
    Interrupted,
    /// In words.
    Error(String),
}

/// What the threads share.
struct Shared {
    /// The next run to be made.
    next: AtomicUsize,
    /// One has failed: the others need not go on.
    has_failed: AtomicBool,
    outcomes: Mutex<BTreeMap<Order, Outcome>>,
    error: Mutex<Option<WorldError>>,
}

impl Runs<'_> {
    /// Makes them, `jobs` at a time where time is virtual: their number changes no outcome there.
    ///
    /// # Errors
    /// [`Stop`].
    pub(super) fn make(&self, jobs: Option<u16>) -> Result<BTreeMap<Order, Outcome>, Stop> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = jobs.map_or_else(processors, usize::from).min(self.orders.len()).max(1);
        let bar = self.bar();
        let shared = Shared {
            next: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            outcomes: Mutex::default(),
            error: Mutex::default(),
        };
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| self.work(&shared, &bar));
            }
        });
        bar.finish_and_clear();
        if self.cancel.is_cancelled() {
            return Err(Stop::Interrupted);
        }
        match shared.error.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(error) => Err(Stop::Error(error.to_string())),
            None => Ok(shared.outcomes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())),
        }
    }

    fn work(&self, shared: &Shared, bar: &ProgressBar) {
        loop {
            let index = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(order) = self.orders.get(index) else { return };
            let goes_on = || !self.cancel.is_cancelled() && !shared.has_failed.load(Ordering::Relaxed);
            if !goes_on() {
                return;
            }
            let paths = self.scenario.path_names(&order.paths).join("+");
            let what = format!("{} seed {} {paths}", self.scenario.name, order.seed);
            bar.set_message(what.clone());
            let mut watch = |progress: &Progress| {
                if self.world.is_live() {
                    let (so_far, at_most) = (progress.now.since_start().as_secs_f64(), progress.duration.as_secs_f64());
                    bar.set_message(format!("{what}, {so_far:.0} s of at most {at_most:.0} s"));
                }
                goes_on()
            };
            match self.run(index, order, &mut watch) {
                Ok(outcome) => {
                    if let Ok(mut outcomes) = shared.outcomes.lock() {
                        outcomes.insert(order.clone(), outcome);
                    }
                }
                Err(error) => {
                    shared.has_failed.store(true, Ordering::Relaxed);
                    if let Ok(mut first) = shared.error.lock() {
                        first.get_or_insert(error);
                    }
                    return;
                }
            }
            bar.inc(1);
        }
    }

    /// Makes a run, and writes it down if it is the one.
    fn run(&self, index: usize, order: &Order, watch: Watch<'_>) -> Result<Outcome, WorldError> {
        let taken = || self.recording.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (index == 0).then(taken).flatten() {
            Some(recording) => {
                let world = Sim { machine: self.machine.cloned() };
                world.run_recorded(self.scenario, order, recording, watch)
            }
            None => self.world.make(self.machine).run(self.scenario, order, watch),
        }
    }

    /// On standard error, if somebody looks.
    fn bar(&self) -> ProgressBar {
        if self.quiet || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(self.orders.len() as u64), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos} of {len} runs  {wide_msg}") {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar
    }
}
