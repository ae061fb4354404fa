//! The output of a replay.

use std::path::Path;

use litz::{PathState, PathStats, Side};
use quic::Replay;
use quic::journal::{Difference, JournalHead, LogEnd, Step, Stopped};
use serde_json::json;
use units::{ByteSize, Duration, Instant};

use super::quiet::Quiet;
use crate::cli::{out, path_report};

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
    datagrams: u64,
    bytes: u64,
    /// Time from the beginning to the last entry.
    span: Duration,
}

impl Counts {
    pub(super) fn add(&mut self, step: &Step, at: Duration) {
        self.entries += 1;
        self.span = at;
        if let Some((datagrams, bytes)) = step.planned() {
            self.plans += 1;
            self.datagrams += datagrams;
            self.bytes += bytes;
        }
    }
}

fn seconds(at: Duration) -> String {
    format!("{:>11.6} s", at.as_secs_f64())
}

impl Show<'_> {
    fn log(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn head(&self, head: &JournalHead) {
        let JournalHead { side, began_at, addresses, local_id, original_destination, config } = head;
        if self.json {
            out::json(&json!({
                "event": "log", "log": self.log(), "side": side.to_string(), "began_ns": began_at.as_nanos(),
                "remote": addresses.remote.to_string(), "socket": addresses.socket,
                "connection": original_destination.to_string(), "local_id": local_id.to_string(),
                "congestion": config.congestion.to_string(), "scheduler": config.scheduler.to_string(),
                "policy": config.policy.to_string(), "max_paths": config.max_paths,
                "datagram_size_bytes": config.datagram_size,
            }));
            return;
        }
        let preposition = if *side == Side::Client { "to" } else { "from" };
        out::line(&format!(
            "{}: {side} of connection {original_destination}, {preposition} {}, {}, {}, {}",
            self.log(),
            addresses.remote,
            config.congestion,
            config.scheduler,
            config.policy
        ));
    }

    pub(super) fn step(&self, step: &Step, at: Duration) {
        if self.json {
            out::json(&json!({
                "event": "step", "entry": step.number, "at_ns": at.as_nanos(), "kind": step.entry.name(),
                "text": step.to_string(),
            }));
        } else {
            out::line(&format!("{}  #{:<6} {step}", seconds(at), step.number));
        }
    }

    /// The replay ended without a difference: shows the state.
    pub(super) fn end<R: std::io::Read>(&self, replay: &Replay<R>, counts: &Counts, end: Option<LogEnd>) {
        let stats = replay.connection().stats();
        let Counts { entries, plans, datagrams, bytes, span } = *counts;
        let word = match end {
            Some(LogEnd::Complete) => "complete",
            None => "stopped",
            Some(_) => "cut_off",
        };
        if self.json {
            let cut_bytes = if let Some(LogEnd::Cut(bytes)) = end { bytes } else { 0 };
            out::json(&json!({
                "event": "replayed", "log": self.log(), "same": true, "end": word, "unused_bytes": cut_bytes,
                "entries": entries, "span_ns": span.as_nanos(), "plans": plans, "datagrams": datagrams, "bytes": bytes,
                "established": replay.connection().is_established(), "closed": replay.connection().is_closed(),
                "cipher": stats.session.cipher_suite, "key_exchange": stats.session.key_exchange,
                "handshake_us": stats.handshake_time.map(Duration::as_micros),
                "packets_sent": stats.send.packets_sent, "packets_lost": stats.send.packets_lost,
                "packets_received": stats.receive.packets_received, "key_updates": stats.send.key_updates,
                "paths": stats.paths.iter().map(path_report::as_json).collect::<Vec<_>>(),
            }));
            return;
        }
        out::line(&format!(
            "  {entries} entries over {span}: {plans} plans of {datagrams} datagrams, {}: no differences",
            ByteSize::from_bytes(bytes)
        ));
        stats.paths.iter().for_each(|path| out::line(&format!("  {}", path_text(path))));
        match end {
            Some(LogEnd::Complete) => {}
            None => out::line(&format!("  stopped at {}, as requested", seconds(span).trim_start())),
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
        context: &[Step],
        quiet: &Quiet,
    ) {
        let difference = match stopped {
            Stopped::Differs(difference) | Stopped::Broke(difference) => Some(difference.as_ref()),
            Stopped::Journal(_) => None,
        };
        context.iter().for_each(|step| self.step(step, step.at.saturating_since(began_at)));
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

fn path_text(path: &PathStats) -> String {
    let state = match (path.state, path.is_backup) {
        (PathState::Active, true) => "backup",
        (state, _) => state.name(),
    };
    format!(
        "{} to {}: {state}, round trip {} (least {}), window {}, {} packets sent, {} lost",
        path.id,
        path.addresses.remote,
        path.round_trip,
        path.round_trip_min,
        ByteSize::from_bytes(path.congestion.window),
        path.packets_sent,
        path.packets_lost
    )
}
