//! What a connection says that breaks, kept to be told in its place instead of printed at once.

use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Mutex, PoisonError};

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

/// While this lives, no panic is printed; the place of the last one is kept. A replay catches them all.
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

    /// Where the last panic was, in the source.
    pub(super) fn place(&self) -> Option<String> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // Hooks cannot be changed by a thread that panics.
        if let Some(before) = self.before.take().filter(|_| !std::thread::panicking()) {
            panic::set_hook(before);
        }
    }
}
