//! The state of each path, written when it changes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use quic::journal::PathMetrics;
use quic::{Addresses, EcnState};
use serde_json::{Map, Value, json};
use units::{Duration, Instant};
use wire::quic::PathId;

use crate::events::Events;

/// Last written state of each path. A connection has a bounded number of paths at a time, and paths
/// that are gone are removed.
#[derive(Debug, Default)]
pub(crate) struct Paths(BTreeMap<PathId, Known>);

/// Written state of a path.
#[derive(Debug, Default)]
struct Known {
    addresses: Option<Addresses>,
    state: Option<&'static str>,
    phase: Option<&'static str>,
    ecn: EcnState,
    datagram_size: Option<usize>,
    /// Numeric fields of `metrics_updated`.
    metrics: Map<String, Value>,
}

impl Paths {
    /// Writes the changes since the last call.
    pub(crate) fn update<W: Write>(
        &mut self,
        events: &mut Events<W>,
        at: Instant,
        paths: &[PathMetrics],
    ) -> io::Result<()> {
        for path in paths {
            self.0.entry(path.stats.id).or_default().update(events, at, path)?;
        }
        if self.0.len() > paths.len() {
            self.0.retain(|id, _| paths.iter().any(|path| path.stats.id == *id));
        }
        Ok(())
    }
}

fn ms(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e6
}

impl Known {
    fn update<W: Write>(&mut self, events: &mut Events<W>, at: Instant, path: &PathMetrics) -> io::Result<()> {
        let (stats, id) = (&path.stats, path.stats.id);
        if self.addresses != Some(stats.addresses) {
            self.addresses = Some(stats.addresses);
            events.put(at, id, "connectivity:path_assigned", &assigned(id, &stats.addresses))?;
        }
        // A suspect path is active for the application.
        let state =
            if path.is_suspect && stats.state == quic::PathState::Active { "suspect" } else { stats.state.name() };
        if let Some(data) = changed(id, &mut self.state, state) {
            events.put(at, id, "connectivity:path_state_updated", &data)?;
        }
        if let Some(data) = changed(id, &mut self.phase, stats.congestion.phase) {
            events.put(at, id, "recovery:congestion_state_updated", &data)?;
        }
        if self.ecn != stats.ecn {
            let data = json!({ "path_id": id.0, "old": self.ecn.name(), "new": stats.ecn.name() });
            self.ecn = stats.ecn;
            events.put(at, id, "recovery:ecn_state_updated", &data)?;
        }
        if self.datagram_size != Some(stats.datagram_size) {
            let old = self.datagram_size.replace(stats.datagram_size);
            let mut data = json!({ "path_id": id.0, "new": stats.datagram_size });
            if let Some(old) = old {
                data["old"] = old.into();
            }
            events.put(at, id, "connectivity:mtu_updated", &data)?;
        }
        self.update_metrics(events, at, path)
    }

    /// Writes the metrics that have changed (draft-ietf-quic-qlog-quic-events, `metrics_updated`).
    fn update_metrics<W: Write>(&mut self, events: &mut Events<W>, at: Instant, path: &PathMetrics) -> io::Result<()> {
        let (stats, has_sample) = (&path.stats, path.has_round_trip);
        let sample = |span: Duration| has_sample.then(|| Value::from(ms(span)));
        let now: [(&str, Option<Value>); 9] = [
            ("min_rtt", sample(stats.round_trip_min)),
            ("smoothed_rtt", sample(stats.round_trip)),
            ("latest_rtt", sample(path.round_trip_latest)),
            ("rtt_variance", sample(path.round_trip_variation)),
            ("pto_count", Some(path.probe_timeouts.into())),
            ("congestion_window", Some(stats.congestion.window.into())),
            ("bytes_in_flight", Some(stats.in_flight_bytes.into())),
            ("ssthresh", stats.congestion.slow_start_threshold.map(Value::from)),
            ("pacing_rate", has_sample.then(|| path.pacing_rate.as_bps().into())),
        ];
        let mut data = Map::new();
        for (name, value) in now {
            if let Some(value) = value.filter(|value| self.metrics.get(name) != Some(value)) {
                self.metrics.insert(name.to_owned(), value.clone());
                data.insert(name.to_owned(), value);
            }
        }
        if data.is_empty() {
            return Ok(());
        }
        data.insert("path_id".to_owned(), stats.id.0.into());
        events.put(at, stats.id, "recovery:metrics_updated", &Value::Object(data))
    }
}

/// Returns the change of a named state, if it has changed.
fn changed(id: PathId, known: &mut Option<&'static str>, now: &'static str) -> Option<Value> {
    let old = known.replace(now);
    if old == Some(now) {
        return None;
    }
    let mut data = json!({ "path_id": id.0, "new": now });
    if let Some(old) = old {
        data["old"] = old.into();
    }
    Some(data)
}

/// Returns the fields of `path_assigned` in draft-ietf-quic-qlog-quic-events-08 to -11.
fn assigned(id: PathId, addresses: &Addresses) -> Value {
    let remote = addresses.remote;
    let version = |is_v4: bool| if is_v4 { "v4" } else { "v6" };
    let end = version(remote.is_ipv4());
    let mut data = json!({
        "path_id": id.0, "socket": addresses.socket,
        "path_remote": { format!("ip_{end}"): remote.ip().to_string(), format!("port_{end}"): remote.port() },
    });
    if let Some(local) = addresses.local_ip {
        data["path_local"] = json!({ format!("ip_{}", version(local.is_ipv4())): local.to_string() });
    }
    data
}
