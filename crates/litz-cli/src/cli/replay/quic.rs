//! Journals of QUIC connections.

use journal::{LogEnd, Stopped};
use litz::{PathState, PathStats, Side};
use quic::Replay;
use quic::journal::{JournalHead, Step};
use quic_endpoint::local_ends::LocalEnds;
use serde_json::json;
use units::{ByteSize, Duration, Instant};

use super::logged::{Input, Logged, Stepped};
use super::show::{Counts, Show, joined};
use crate::cli::{out, path_report};

impl Stepped for Step {
    fn number(&self) -> u64 {
        self.number
    }

    fn at(&self) -> Instant {
        self.at
    }

    fn kind(&self) -> &'static str {
        self.entry.name()
    }

    fn is_milestone(&self) -> bool {
        self.entry.is_milestone()
    }

    fn planned(&self) -> Option<(u64, u64)> {
        self.planned()
    }
}

impl Logged for Replay<Input> {
    type Step = Step;

    fn begin(input: Input) -> Result<Self, Stopped> {
        Self::begin(input)
    }

    fn began_at(&self) -> Instant {
        self.head().began_at
    }

    fn entry_count(&self) -> u64 {
        self.entry_count()
    }

    fn next_at(&mut self) -> Result<Instant, Stopped> {
        self.next_at()
    }

    fn step(&mut self) -> Result<Option<Step>, Stopped> {
        self.step()
    }

    fn end(&self) -> Option<LogEnd> {
        self.end()
    }

    fn show_head(&self, show: &Show<'_>) {
        let JournalHead { side, began_at, addresses, local_id, original_destination, config } = self.head();
        if show.json {
            out::json(&json!({
                "event": "log", "log": show.log(), "protocol": "quic", "side": side.to_string(),
                "began_ns": began_at.as_nanos(), "remote": addresses.remote.to_string(), "socket": addresses.socket,
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
            show.log(),
            addresses.remote,
            config.congestion,
            config.scheduler,
            config.policy
        ));
    }

    fn show_end(&self, show: &Show<'_>, counts: &Counts, end: Option<LogEnd>) {
        let stats = self.connection().stats();
        if show.json {
            let state = json!({
                "established": self.connection().is_established(), "closed": self.connection().is_closed(),
                "cipher": stats.session.cipher_suite, "key_exchange": stats.session.key_exchange,
                "handshake_us": stats.handshake_time.map(Duration::as_micros),
                "packets_sent": stats.send.packets_sent, "packets_lost": stats.send.packets_lost,
                "packets_received": stats.receive.packets_received, "key_updates": stats.send.key_updates,
                "paths": stats.paths.iter().map(|path| path_report::as_json(path, &LocalEnds::default())).collect::<Vec<_>>(),
            });
            out::json(&joined(show.replayed(counts, "datagrams", end), state));
            return;
        }
        out::line(&counts.text("datagrams"));
        stats.paths.iter().for_each(|path| out::line(&format!("  {}", path_text(path))));
        show.ended(counts, end);
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
