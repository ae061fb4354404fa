//! Captures the message of a connection that panics in a replay, instead of printing it at once.

use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Mutex, PoisonError};

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

/// While this exists, panics are not printed, and the place of the last one is recorded. A replay
/// catches all panics.
pub(super) struct Quiet {
    place: Arc<Mutex<Option<String>>>,
    before: Option<Hook>,
}

impl Quiet {
    pub(super) fn begin() -> Self {
        let place = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&place);
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = info.location().map(ToString::to_string);
        }));
        Self { place, before: Some(before) }
    }

    /// The source location of the last panic.
    pub(super) fn place(&self) -> Option<String> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A panicking thread cannot change hooks.
        if let Some(before) = self.before.take().filter(|_| !std::thread::panicking()) {
            panic::set_hook(before);
        }
    }
}
