//! Makes the runs of one scenario: in virtual time in parallel, in real time sequentially.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::recording::Recording;
use scenario::simulated::{Machine, Sim};
use scenario::world::{OnProgress, Progress, RunPlan, WorldError};
use transfer::CancelToken;

use super::options::WorldName;
use super::progress::RunProgress;

/// The runs to make.
pub(super) struct Runs<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) world: WorldName,
    /// The machines of the hosts in the simulated world.
    pub(super) machine: Option<&'a Machine>,
    pub(super) plans: Vec<RunPlan>,
    /// The files that record the first run, if requested.
    pub(super) recording: Mutex<Option<Recording>>,
    /// The recorded packets include the keys that decrypt them.
    pub(super) records_keys: bool,
    pub(super) quiet: bool,
    pub(super) cancel: &'a CancelToken,
}

/// Why not all runs were made.
pub(super) enum Stop {
    /// The user interrupted the command.
    Interrupted,
    /// A message for the user.
    Error(String),
}

/// State shared by the threads.
struct Shared {
    /// Index of the next run.
    next: AtomicUsize,
    /// A run has failed: the other threads stop.
    has_failed: AtomicBool,
    outcomes: Mutex<BTreeMap<RunPlan, Outcome>>,
    error: Mutex<Option<WorldError>>,
}

impl Runs<'_> {
    /// Makes the runs, `jobs` at a time in virtual time, where this does not change the outcomes.
    ///
    /// # Errors
    /// [`Stop`].
    pub(super) fn make(&self, jobs: Option<u16>) -> Result<BTreeMap<RunPlan, Outcome>, Stop> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = jobs.map_or_else(processors, usize::from).min(self.plans.len()).max(1);
        let shown = RunProgress::new(&self.scenario.name, self.plans.len(), self.quiet);
        let shared = Shared {
            next: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            outcomes: Mutex::default(),
            error: Mutex::default(),
        };
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| self.work(&shared, &shown));
            }
        });
        shown.clear();
        if self.cancel.is_cancelled() {
            return Err(Stop::Interrupted);
        }
        match shared.error.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(error) => Err(Stop::Error(error.to_string())),
            None => Ok(shared.outcomes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())),
        }
    }

    fn work(&self, shared: &Shared, shown: &RunProgress) {
        loop {
            let index = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(plan) = self.plans.get(index) else { return };
            let goes_on = || !self.cancel.is_cancelled() && !shared.has_failed.load(Ordering::Relaxed);
            if !goes_on() {
                return;
            }
            let paths = self.scenario.path_names(&plan.paths).join("+");
            let what = format!("{} seed {} {paths}", self.scenario.name, plan.seed);
            shown.say(&what);
            let mut on_progress = |progress: &Progress| {
                let (so_far, at_most) = (progress.now.since_start().as_secs_f64(), progress.duration.as_secs_f64());
                shown.say(&format!("{what}, {so_far:.0} s of at most {at_most:.0} s"));
                goes_on()
            };
            match self.run(index, plan, &mut on_progress) {
                Ok(outcome) => {
                    if let Ok(mut outcomes) = shared.outcomes.lock() {
                        outcomes.insert(plan.clone(), outcome);
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
            shown.end();
        }
    }

    /// Makes a run, and records it if it is the first.
    fn run(&self, index: usize, plan: &RunPlan, on_progress: OnProgress<'_>) -> Result<Outcome, WorldError> {
        let taken = || self.recording.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (index == 0).then(taken).flatten() {
            #[cfg(target_os = "linux")]
            Some(recording) if self.world == WorldName::Netns => {
                let world = super::netns::Netns::default();
                world.run_recorded(self.scenario, plan, recording, self.records_keys, on_progress)
            }
            Some(recording) => {
                let world = Sim { machine: self.machine.cloned() };
                world.run_recorded(self.scenario, plan, recording, on_progress)
            }
            None => self.world.make(self.machine).run(self.scenario, plan, on_progress),
        }
    }
}
