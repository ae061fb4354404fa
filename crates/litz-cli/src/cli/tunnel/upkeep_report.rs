//! The words for a user about the changes that a tunnel has made to its host: warnings, and a list for the status.

use std::sync::{Arc, Mutex, PoisonError};

use crate::cli::out;
use crate::cli::warning::Warning;

/// The missing ones of a tunnel's changes. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct UpkeepReport {
    json: bool,
    quiet: bool,
    missing: Arc<Mutex<Vec<String>>>,
}

impl UpkeepReport {
    pub(super) fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet, missing: Arc::default() }
    }

    /// Prints a warning, unless its reader takes nothing: the thread that keeps the changes never waits for one. The
    /// status lists what is missing in any case.
    pub(super) fn warn(&self, message: &str) {
        if self.json && !out::is_ready() {
            tracing::warn!(message, "the reader of the events takes none");
            return;
        }
        Warning::NetworkChanged.print(self.json, self.quiet, message);
    }

    pub(super) fn set_missing(&self, missing: Vec<String>) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = missing;
    }

    /// The changes that are missing and cannot be made again, in words.
    pub(super) fn missing(&self) -> Vec<String> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
