//! What the user is told: lines of JSON, or text on standard error.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use forwarding::carry::{Broken, Carried};
use forwarding::events::{Events, Label};
use net::MonotonicClock;
use serde_json::{Value, json};

use crate::cli::serving::refusals::RefusalLimit;
use crate::cli::transport_options::TransportOptions;
use crate::cli::warning::Warning;
use crate::cli::{exit, out};

/// Shared by all tasks of a command.
pub(crate) struct Report {
    json: bool,
    quiet: bool,
    next_number: AtomicU64,
    /// Limits the text about failures, of which a peer can cause any number.
    failures: Mutex<RefusalLimit>,
    clock: MonotonicClock,
}

impl Report {
    pub(crate) fn new(options: &TransportOptions) -> Self {
        Self {
            json: options.json,
            quiet: options.quiet,
            next_number: AtomicU64::new(1),
            failures: Mutex::default(),
            clock: MonotonicClock::start(),
        }
    }

    /// A line of JSON, if the user wants that, else the text, unless the user wants none.
    pub(crate) fn tell(&self, event: &Value, text: &str) {
        if self.json {
            out::json(event);
        } else if !self.quiet {
            out::note(text);
        }
    }

    /// A line of JSON, if the user wants that; else nothing.
    pub(crate) fn event(&self, event: &Value) {
        if self.json {
            out::json(event);
        }
    }

    pub(crate) fn warn(&self, warning: Warning, message: &str) {
        warning.print(self.json, self.quiet, message);
    }

    /// Tells of a failure that does not end the command; the text not more than a few times a minute.
    pub(crate) fn fail(&self, event: &Value, text: &str) {
        if self.json {
            return out::json(event);
        }
        tracing::info!("{text}");
        let now = self.clock.now();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = failures.poll_count(now) {
            out::note(&format!("litz: {count} more failures in the last minute were not shown"));
        }
        if failures.on_refusal(now) {
            exit::report(false, exit::FAILED, text);
        }
    }
}

impl Events for Report {
    fn label(&self, from: &dyn Display, target: &dyn Display) -> Label {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Label { number, from: from.to_string(), target: target.to_string() }
    }

    fn opened(&self, label: &Label) {
        tracing::info!(number = label.number, from = label.from, target = label.target, "opened");
        self.event(&json!({
            "event": "opened", "number": label.number, "from": label.from, "target": label.target,
        }));
    }

    fn refused(&self, label: &Label, reason: &str, message: &str) {
        let event = json!({
            "event": "refused", "number": label.number, "from": label.from, "target": label.target, "reason": reason,
            "message": message,
        });
        self.fail(&event, &format!("{} to {}: {message}", label.from, label.target));
    }

    fn closed(&self, label: &Label, carried: &Carried, result: &Result<(), Broken>) {
        let (sent, received) = (carried.sent.load(Ordering::Relaxed), carried.received.load(Ordering::Relaxed));
        let error = result.as_ref().err().map(ToString::to_string);
        tracing::info!(number = label.number, target = label.target, sent, received, error, "closed");
        let mut event = json!({
            "event": "closed", "number": label.number, "from": label.from, "target": label.target,
            "bytes_sent": sent, "bytes_received": received,
        });
        if let Some(error) = error {
            event["error"] = error.into();
        }
        self.event(&event);
    }
}
