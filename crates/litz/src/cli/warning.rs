//! Warnings: something is not as the user wanted it, and the command goes on.

use serde_json::{Value, json};

use super::out;

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// A path that was wanted is not there.
    PathLeftOut,
    /// An address of this host is not listened at.
    NotListening,
    /// The system grants less buffer than a fast link needs.
    SmallBuffers,
    /// Not every choice of the scheduler is in the trace.
    Trace,
    /// Not everything that went into a connection is in its journal.
    Journal,
    /// A relay does not serve every client.
    ClientsNotServed,
}

impl Warning {
    /// A short word that does not change: for programs.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::PathLeftOut => "path_left_out",
            Self::NotListening => "not_listening",
            Self::SmallBuffers => "small_buffers",
            Self::Trace => "trace",
            Self::Journal => "journal",
            Self::ClientsNotServed => "clients_not_served",
        }
    }

    /// Advice goes where progress goes; what is missing is told even to those who want no progress.
    pub(crate) const fn is_advice(self) -> bool {
        matches!(self, Self::SmallBuffers)
    }

    /// As an event.
    pub(crate) fn json(self, message: &str) -> Value {
        json!({ "event": "warning", "kind": self.label(), "message": message })
    }

    /// For a command that shows no progress.
    pub(crate) fn tell(self, json: bool, quiet: bool, message: &str) {
        if json {
            out::json(&self.json(message));
        } else if !(quiet && self.is_advice()) {
            out::note(&format!("warning: {message}"));
        }
    }
}
