//! The output of a replay.

use std::path::Path;

use journal::{Difference, LogEnd, Stopped};
use serde_json::{Value, json};
use units::{ByteSize, Duration, Instant};

use super::logged::Stepped;
use super::quiet::Quiet;
use crate::cli::out;

/// The output for one log.
pub(super) struct Show<'a> {
    pub(super) path: &'a Path,
    pub(super) json: bool,
}

/// Counters of the replayed entries.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    entries: u64,
    plans: u64,
    /// Datagrams or segments.
    packets: u64,
    bytes: u64,
    /// Time from the beginning to the last entry.
    span: Duration,
}

impl Counts {
    pub(super) fn add(&mut self, step: &impl Stepped, at: Duration) {
        self.entries += 1;
        self.span = at;
        if let Some((packets, bytes)) = step.planned() {
            self.plans += 1;
            self.packets += packets;
            self.bytes += bytes;
        }
    }

    /// As a line; `packets` is the name of what plans consist of.
    pub(super) fn text(&self, packets: &str) -> String {
        let Self { entries, plans, packets: count, bytes, span } = *self;
        let bytes = ByteSize::from_bytes(bytes);
        format!("  {entries} entries over {span}: {plans} plans of {count} {packets}, {bytes}: no differences")
    }
}

/// The members of an object, and then those of another.
pub(super) fn joined(mut all: Value, more: Value) -> Value {
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

fn seconds(at: Duration) -> String {
    format!("{:>11.6} s", at.as_secs_f64())
}

impl Show<'_> {
    pub(super) fn log(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn step(&self, step: &impl Stepped, at: Duration) {
        if self.json {
            out::json(&json!({
                "event": "step", "entry": step.number(), "at_ns": at.as_nanos(), "kind": step.kind(),
                "text": step.to_string(),
            }));
        } else {
            out::line(&format!("{}  #{:<6} {step}", seconds(at), step.number()));
        }
    }

    /// The end of a replay without a difference, for programs, with what `counts`. `packets` is the name of
    /// what plans consist of.
    pub(super) fn replayed(&self, counts: &Counts, packets: &str, end: Option<LogEnd>) -> Value {
        let Counts { entries, plans, packets: count, bytes, span } = *counts;
        let word = match end {
            Some(LogEnd::Complete) => "complete",
            None => "stopped",
            Some(_) => "cut_off",
        };
        let cut_bytes = if let Some(LogEnd::Cut(bytes)) = end { bytes } else { 0 };
        json!({
            "event": "replayed", "log": self.log(), "same": true, "end": word, "unused_bytes": cut_bytes,
            "entries": entries, "span_ns": span.as_nanos(), "plans": plans, packets: count, "bytes": bytes,
        })
    }

    /// The replay ended without a difference, perhaps before the end of the log.
    pub(super) fn ended(&self, counts: &Counts, end: Option<LogEnd>) {
        match end {
            Some(LogEnd::Complete) => {}
            None => out::line(&format!("  stopped at {}, as requested", seconds(counts.span).trim_start())),
            Some(LogEnd::TooLong) => out::line("  the log is truncated: its next entry would have been too long"),
            Some(LogEnd::Cut(bytes)) => {
                out::line(&format!("  the log is truncated: its last {bytes} bytes are unusable"))
            }
            Some(_) => out::line("  the log is truncated"),
        }
    }

    /// The qlog file that was written.
    pub(super) fn qlog(&self, path: &Path) {
        if self.json {
            out::json(&json!({ "event": "qlog", "log": self.log(), "path": path.display().to_string() }));
        } else {
            out::line(&format!("  qlog: {}", path.display()));
        }
    }

    /// The replay stopped: shows the entries before it and the reason. The error itself is the
    /// command's last message.
    pub(super) fn stopped(
        &self,
        stopped: &Stopped,
        counts: &Counts,
        began_at: Instant,
        context: &[impl Stepped],
        quiet: &Quiet,
    ) {
        let difference = match stopped {
            Stopped::Differs(difference) | Stopped::Broke(difference) => Some(difference.as_ref()),
            Stopped::Journal(_) => None,
        };
        context.iter().for_each(|step| self.step(step, step.at().saturating_since(began_at)));
        if self.json {
            let kind = match stopped {
                Stopped::Differs(_) => "difference",
                Stopped::Broke(_) => "broke",
                Stopped::Journal(_) => "unreadable",
            };
            out::json(&json!({
                "event": "stopped", "log": self.log(), "kind": kind, "entries": counts.entries,
                "entry": difference.map(|difference| difference.entry),
                "at_ns": difference.map(|difference| difference.at.saturating_since(began_at).as_nanos()),
                "input": difference.map(|difference| &difference.input),
                "expected": difference.map(|difference| &difference.expected),
                "got": difference.map(|difference| &difference.got),
                "place": quiet.place(), "message": stopped.to_string(),
            }));
            return;
        }
        if let Some(Difference { entry, at, input, .. }) = difference {
            out::line(&format!("{}  #{entry:<6} {input}", seconds(at.saturating_since(began_at))));
        }
        out::line(&format!("  {} entries before it were the same", counts.entries));
        if let Some(Difference { expected, got, .. }) = difference {
            let is_broken = matches!(stopped, Stopped::Broke(_));
            if !is_broken {
                out::line(&format!("  expected: {expected}"));
            }
            out::line(&format!("  {}: {got}", if is_broken { "panicked" } else { "     got" }));
        }
    }
}
