//! Journals of TCP connections.

use journal::{LogEnd, Side, Stopped};
use serde_json::json;
use tcp::journal::{JournalHead, Step};
use tcp::{Connection, Replay};
use units::{ByteSize, Instant};

use super::logged::{Input, Logged, Stepped};
use super::show::{Counts, Show, joined};
use crate::cli::out;

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
        let JournalHead { side, began_at, tuple, config, .. } = self.head();
        let congestion = config.congestion.map(|congestion| congestion.to_string());
        if show.json {
            out::json(&json!({
                "event": "log", "log": show.log(), "protocol": "tcp", "side": side.to_string(),
                "began_ns": began_at.as_nanos(), "local": tuple.local.to_string(),
                "remote": tuple.remote.to_string(), "congestion": congestion, "mtu_bytes": config.mtu,
            }));
            return;
        }
        let preposition = if *side == Side::Client { "to" } else { "from" };
        let congestion = congestion.unwrap_or_else(|| "no congestion control".to_owned());
        let (log, local, remote) = (show.log(), tuple.local, tuple.remote);
        out::line(&format!("{log}: TCP {side} {local}, {preposition} {remote}, {congestion}"));
    }

    fn show_end(&self, show: &Show<'_>, counts: &Counts, end: Option<LogEnd>) {
        let connection = self.connection();
        let (stats, (window, in_flight)) = (connection.stats(), connection.congestion());
        if show.json {
            let state = json!({
                "state": format!("{:?}", connection.state()),
                "closed": connection.close_reason().map(|reason| reason.to_string()),
                "round_trip_us": connection.rtt().as_micros(), "window_bytes": window, "in_flight_bytes": in_flight,
                "bytes_sent": stats.send.bytes_sent, "bytes_resent": stats.send.bytes_resent,
                "bytes_lost": stats.send.bytes_lost, "timeouts": stats.send.timeouts,
                "bytes_received": stats.receive.bytes_received, "bytes_duplicate": stats.receive.bytes_duplicate,
                "dropped_by_paws": stats.receive.dropped_by_paws,
            });
            out::json(&joined(show.replayed(counts, "segments", end), state));
            return;
        }
        out::line(&counts.text("segments"));
        out::line(&format!("  {}", state_text(connection)));
        show.ended(counts, end);
    }
}

fn state_text(connection: &Connection) -> String {
    let (stats, (window, _)) = (connection.stats(), connection.congestion());
    let state = match connection.close_reason() {
        Some(reason) => format!("ended: {reason}"),
        None => format!("{:?}", connection.state()),
    };
    format!(
        "{state}; round trip {}, window {}, {} sent, {} sent again, {} received",
        connection.rtt(),
        ByteSize::from_bytes(window),
        ByteSize::from_bytes(stats.send.bytes_sent),
        ByteSize::from_bytes(stats.send.bytes_resent),
        ByteSize::from_bytes(stats.receive.bytes_received)
    )
}
