//! Pins the threads of the application, and reads their time.

use rustix::time::{ClockId, clock_gettime};
use units::Duration;

use super::settings::AppCore;

/// The processors of the application's threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pins {
    app_core: AppCore,
    /// The first and the last of the processors in use, if their numbers are known.
    cores: Option<(usize, usize)>,
}

/// The work of a thread of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Writing,
    Reading,
}

impl Pins {
    /// `cores` are the processors in use.
    pub(crate) fn new(app_core: AppCore, cores: &[usize]) -> Self {
        Self { app_core, cores: cores.first().copied().zip(cores.last().copied()) }
    }

    /// Pins the calling thread of the application to its processor.
    ///
    /// # Errors
    /// A message for the user, if the system refuses.
    pub(crate) fn pin_thread(&self, work: Work) -> Result<(), String> {
        let Some((first, last)) = self.cores else { return Ok(()) };
        let core = match (self.app_core, work) {
            (AppCore::First, _) | (AppCore::Separate, Work::Writing) => first,
            (AppCore::Last, _) | (AppCore::Separate, Work::Reading) => last,
            (AppCore::Free, _) => return Ok(()),
        };
        net::processors::pin_to(core).map_err(|error| format!("cannot pin a thread to processor {core}: {error}"))
    }
}

/// CPU time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

/// CPU time of all threads.
pub(crate) fn process_time() -> Duration {
    time_of(ClockId::ProcessCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let spent = clock_gettime(clock);
    Duration::from_secs(spent.tv_sec as u64) + Duration::from_nanos(spent.tv_nsec as u64)
}
