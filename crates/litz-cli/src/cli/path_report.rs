//! Statistics of the paths of a transfer, shown while it runs and reported at its end.

use std::sync::mpsc;
use std::time::Duration as StdDuration;

use litz::paths::shown::{Observation, ShownState};
use litz::{Connection, PathEvent, PathId, PathStats};
use quic_endpoint::local_ends::{LocalEnd, LocalEnds};
use serde_json::{Value, json};
use units::{Duration, Instant, Rate};

use super::connect::{Connected, UNANSWERED};
use super::links::Links;
use super::progress::{Direction, Progress};
use super::status::{is_silence, per_second, seconds};
use super::warning::Warning;

/// How often events of links are shown.
const LINK_INTERVAL: StdDuration = StdDuration::from_millis(50);

/// The paths are sampled each time this many of these intervals have passed: half a second.
const LOOKS_PER_SAMPLE: u32 = 10;

/// The user is told after so many samples why a path may not answer.
const SAMPLES_UNANSWERED: u32 =
    (UNANSWERED.as_millis() / (LINK_INTERVAL.as_millis() * LOOKS_PER_SAMPLE as u128)) as u32;

/// One path over the last interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathLine {
    pub(crate) id: PathId,
    pub(crate) end: LocalEnd,
    pub(crate) remote: String,
    pub(crate) state: ShownState,
    pub(crate) is_backup: bool,
    pub(crate) rate: Rate,
    pub(crate) round_trip: Duration,
    /// Packets lost so far, in percent.
    pub(crate) loss_percent: f64,
    /// Bytes transferred so far.
    pub(crate) bytes: u64,
    /// Time since a packet arrived on it.
    pub(crate) quiet_for: Duration,
}

/// Runs `transfer`, shows the paths of its connection while it runs, warns of requested paths that
/// are refused. `ends` has the local ends of the connection's sockets. Of a connection that this host
/// has made, `connected`, it tells which links have gone or come back, and why a path may not answer.
pub(crate) fn watch_paths<T>(
    connection: &Connection,
    direction: Direction,
    progress: &Progress,
    ends: &LocalEnds,
    connected: Option<&Connected>,
    transfer: impl FnOnce() -> T,
) -> T {
    let (ended, end) = mpsc::channel::<()>();
    let links = connected.and_then(|connected| connected.links.as_ref());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut meter = Meter { direction, before: Vec::new(), at: progress.now() };
            // The sending end is dropped when the transfer ends.
            let looks_per_sample = if links.is_some() { LOOKS_PER_SAMPLE } else { 1 };
            let (interval, mut looks) = (LINK_INTERVAL * (LOOKS_PER_SAMPLE / looks_per_sample), 0);
            while end.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                tell_of_links(links, progress);
                looks += 1;
                if looks % looks_per_sample != 0 {
                    continue;
                }
                if progress.wants_paths() {
                    progress.paths(&meter.read(progress.now(), &connection.stats().paths, ends));
                }
                warn_of_problems(connection, ends, progress);
                if let Some(connected) = connected.filter(|_| looks == SAMPLES_UNANSWERED * looks_per_sample) {
                    connected.warn_of_unanswered(|kind, message| progress.warn(kind, message));
                }
            }
            tell_of_links(links, progress);
            warn_of_problems(connection, ends, progress);
        });
        let result = transfer();
        drop(ended);
        result
    })
}

fn tell_of_links(links: Option<&Links>, progress: &Progress) {
    for event in links.iter().flat_map(|links| links.take_events()) {
        progress.note(&event.text());
        progress.json(&event.json());
    }
}

fn warn_of_problems(connection: &Connection, ends: &LocalEnds, progress: &Progress) {
    for (warning, message) in path_problems(connection, ends) {
        progress.warn(warning, &message);
    }
}

/// The problems of paths since the last call, for the user: requested paths that were refused, and
/// paths on which the system refuses to send.
pub(crate) fn path_problems(connection: &Connection, ends: &LocalEnds) -> Vec<(Warning, String)> {
    let events = std::iter::from_fn(|| connection.next_path_event_timeout(StdDuration::ZERO).ok().flatten());
    let problems = events.filter_map(|event| match event {
        PathEvent::Refused { remote, error, .. } => {
            Some((Warning::PathLeftOut, format!("a path is left out: to {remote}: {error}")))
        }
        PathEvent::SendRefused { path, error, is_smaller } => {
            let stats = connection.stats().paths.into_iter().find(|stats| stats.id == path)?;
            let end = ends.of(&stats.addresses);
            // That its link is down is known already.
            end.down.is_none().then(|| {
                let path = end.path_text(&stats.addresses.remote.to_string());
                (Warning::SendRefused, refusal_text(&path, &error, is_smaller))
            })
        }
        _ => None,
    });
    problems.collect()
}

/// Says that the system refuses to send on a path.
fn refusal_text(path: &str, error: &str, is_smaller: bool) -> String {
    let then = if is_smaller { "smaller datagrams are sent now" } else { "trying again" };
    format!(
        "this host refuses to send {path}: {error}; {then}. A filter (`nft list ruleset`) or a missing route (`ip \
         route`) may be the cause"
    )
}

/// Computes rates from counters.
struct Meter {
    direction: Direction,
    before: Vec<Before>,
    at: Instant,
}

/// A path at the last reading.
#[derive(Clone, Copy)]
struct Before {
    id: PathId,
    bytes: u64,
    received: u64,
    /// When `received` last grew.
    heard_at: Instant,
}

impl Meter {
    fn read(&mut self, now: Instant, paths: &[PathStats], ends: &LocalEnds) -> Vec<PathLine> {
        let span = now.saturating_since(self.at);
        let bytes = |path: &PathStats| match self.direction {
            Direction::Sending => path.bytes_acked,
            Direction::Receiving => path.bytes_received,
        };
        let before = |path: &PathStats| {
            let new = Before { id: path.id, bytes: 0, received: 0, heard_at: self.at };
            self.before.iter().find(|before| before.id == path.id).copied().unwrap_or(new)
        };
        let heard_at = |path: &PathStats| {
            if path.bytes_received > before(path).received { now } else { before(path).heard_at }
        };
        let line = |path: &PathStats| {
            let (end, before, quiet_for) =
                (ends.of(&path.addresses), before(path), now.saturating_since(heard_at(path)));
            let state = ShownState::of(&Observation {
                state: path.state,
                is_link_usable: end.down.is_none(),
                is_carrying: bytes(path) > before.bytes || path.bytes_received > before.received,
                expects_packets: path.in_flight_bytes > 0,
                quiet_for,
            });
            PathLine {
                id: path.id,
                end,
                remote: path.addresses.remote.to_string(),
                state,
                is_backup: path.is_backup,
                rate: Rate::from_transfer(bytes(path).saturating_sub(before.bytes), span).unwrap_or_default(),
                round_trip: path.round_trip,
                loss_percent: loss_percent(path),
                bytes: bytes(path),
                quiet_for,
            }
        };
        let lines = paths.iter().map(line);
        let lines = lines.collect();
        let seen = paths.iter().map(|path| Before {
            id: path.id,
            bytes: bytes(path),
            received: path.bytes_received,
            heard_at: heard_at(path),
        });
        self.before = seen.collect();
        self.at = now;
        lines
    }
}

fn loss_percent(path: &PathStats) -> f64 {
    loss_percent_of(std::slice::from_ref(path))
}

/// Packets of these paths that were lost so far, in percent of those whose fate is known.
pub(crate) fn loss_percent_of(paths: &[PathStats]) -> f64 {
    let (lost, acked) =
        paths.iter().fold((0, 0), |(lost, acked), path| (lost + path.packets_lost, acked + path.packets_acked));
    if lost + acked == 0 { 0.0 } else { lost as f64 * 100.0 / (lost + acked) as f64 }
}

impl PathLine {
    /// The text for the user.
    pub(crate) fn text(&self) -> String {
        let state = match (self.state, self.is_backup, self.end.down) {
            (ShownState::Active, true, _) => "backup".to_owned(),
            (ShownState::Down, _, Some(why)) => format!("down ({why})"),
            (state, ..) => state.name().to_owned(),
        };
        let rate = match is_silence(self.quiet_for) {
            true => format!("no packets for {}", seconds(self.quiet_for)),
            false => per_second(self.rate),
        };
        format!(
            "path {} {}: {state}, {rate}, round trip {}, {:.2} % lost",
            self.id.0,
            self.end.path_text(&self.remote),
            self.round_trip,
            self.loss_percent
        )
    }

    /// The JSON form.
    pub(crate) fn json(&self) -> Value {
        json!({
            "path": self.id.0, "device": self.end.device, "local": self.end.address(), "remote": self.remote,
            "state": self.state.name(), "backup": self.is_backup,
            "rate_bps": self.rate.as_bps(), "round_trip_us": self.round_trip.as_micros(),
            "loss_percent": self.loss_percent, "bytes": self.bytes, "silent_us": self.quiet_for.as_micros(),
        })
    }
}

/// Statistics of a path from this local end, as JSON.
pub(crate) fn as_json(path: &PathStats, ends: &LocalEnds) -> Value {
    let end = ends.of(&path.addresses);
    let state = if end.down.is_some() { ShownState::Down.name() } else { path.state.name() };
    json!({
        "path": path.id.0, "device": end.device, "local": end.address(),
        "remote": path.addresses.remote.to_string(), "state": state,
        "backup": path.is_backup, "round_trip_us": path.round_trip.as_micros(),
        "round_trip_min_us": path.round_trip_min.as_micros(), "packets_sent": path.packets_sent,
        "packets_acked": path.packets_acked, "packets_lost": path.packets_lost, "ecn": path.ecn.name(),
        "packets_marked": path.packets_marked, "bytes_sent": path.bytes_sent,
        "bytes_acked": path.bytes_acked, "bytes_received": path.bytes_received, "silences": path.silences,
        "suspicions": path.suspicions, "false_suspicions": path.false_suspicions,
        "window_bytes": path.congestion.window, "congestion": path.congestion.name,
    })
}

#[cfg(test)]
mod tests {
    use litz::identity::{self, KeyPair};
    use litz::{Endpoint, EndpointConfig, OpenPathError, TransportConfig};

    use super::*;

    #[test]
    fn a_refusal_of_the_system_names_the_path_the_error_and_where_to_look() {
        let text = refusal_text("over eth0 (192.0.2.1) to 192.0.2.9:4433", "Operation not permitted", true);
        for words in ["eth0", "192.0.2.9:4433", "Operation not permitted", "smaller datagrams", "nft list ruleset"] {
            assert!(text.contains(words), "{text}");
        }
        assert!(refusal_text("to 192.0.2.9:4433", "no", false).contains("trying again"));
    }

    #[test]
    fn a_refused_path_is_named_once_with_its_reason() {
        let (server_key, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let tls =
            identity::client_config(&client_key, &[server_key.public().fingerprint()], transfer::PROTOCOLS).unwrap();
        let transport = TransportConfig::default().with_max_paths(2);
        let config = EndpointConfig::loopback().with_transport(transport);
        let server_tls = identity::server_config(&server_key, transfer::PROTOCOLS).unwrap();
        let server = Endpoint::bind(config.clone().with_server_tls(server_tls)).unwrap();
        let client = Endpoint::bind(config).unwrap();
        let remote = server.local_addr();
        let connection = client.connect(remote, "litz", tls.config.clone()).unwrap();
        let _theirs = server.accept().unwrap();
        let ends = LocalEnds::default();
        assert_eq!(path_problems(&connection, &ends), []);
        for _ in 0..2 {
            connection.open_path(0, remote, false).unwrap();
        }
        let refused = loop {
            let refused = path_problems(&connection, &ends);
            if !refused.is_empty() {
                break refused;
            }
            std::thread::yield_now();
        };
        let message = format!("a path is left out: to {remote}: {}", OpenPathError::TooMany);
        assert_eq!(refused, [(Warning::PathLeftOut, message)]);
    }
}
