//! What a user is told of the changes that a tunnel has made to its host: warnings, and a list for the status.

use std::sync::{Arc, Mutex, PoisonError};

use crate::cli::warning::Warning;

/// What is missing of a tunnel's changes. Clones are the same.
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

    pub(super) fn warn(&self, message: &str) {
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
