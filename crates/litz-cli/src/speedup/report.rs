//! The whole result, serialized in the format of `docs/spec/speedup.md`. A change of meaning needs
//! a new version.

use std::collections::BTreeMap;

use litz::{Placement, WorkerPoolStats};
use measure::{Estimate, Program};
use serde::Serialize;

use super::bound::{Shares, median};
use super::primitives::{Paper, Primitive};
use super::run::Outcome;
use super::settings::{Settings, Side};
use super::{Checked, Measured};
use crate::provenance::{Machine, PROGRAM};

/// The version of the JSON format. In version 1, `application_affinity` was named `seat`, and `directions` of a
/// placement `ways`.
const VERSION: u32 = 2;

/// If other programs had the processor for a larger share of the time, the figures are not
/// reliable.
const TAKEN_AWAY_SHARE_MAX: f64 = 0.05;

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct SpeedupReport {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    program: Program,
    /// Seconds since 1970; none without a file.
    pub(crate) date_unix: Option<u64>,
    pub(crate) machine: Machine,
    /// The cipher of QUIC; none for a stack of TCP/IP.
    pub(crate) cipher: Option<&'static str>,
    /// The stack of TCP/IP; none for QUIC.
    pub(crate) stack: Option<StackReport>,
    /// The processor of the application's threads: `first`, `last`, `apart` or `free`.
    application_affinity: &'static str,
    /// Number of paths of the connection, each with a socket.
    pub(crate) paths: u16,
    pub(crate) datagram_bytes: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) runs: usize,
    warm_up_ns: u64,
    time_ns: u64,
    /// Confidence level of all intervals, between 0 and 1.
    pub(crate) confidence: f64,
    pub(crate) sides: Vec<SideReport>,
    /// Reasons to doubt the figures.
    pub(crate) warnings: Vec<String>,
}

/// What was found of a stack of TCP/IP before the runs.
#[derive(Debug, Serialize)]
pub(crate) struct StackReport {
    /// Its layers, such as `des/tcp/md5/ip`.
    pub(crate) layers: String,
    /// What the paper prints of it; none if it has other layers.
    pub(crate) paper: Option<Paper>,
    /// Its layers alone, from above.
    pub(crate) primitives: Vec<Primitive>,
    /// The digest of what every placement sends in lock-step.
    pub(crate) wire_digest: String,
}

/// The result of one side.
#[derive(Debug, Serialize)]
pub(crate) struct SideReport {
    /// `send`, `receive` or `duplex`.
    pub(crate) side: &'static str,
    /// Nanoseconds per packet, from the metered runs.
    #[serde(flatten)]
    pub(crate) shares: Shares,
    /// The sum of the serial, parallel and application costs.
    pub(crate) total_ns: f64,
    /// The speedup that the papers report for two processors, if they do.
    pub(crate) gain_printed: Option<f64>,
    /// The time of a packet with one processor, from the throughput.
    pub(crate) measured_ns: f64,
    /// The metered time divided by the time of a packet.
    pub(crate) accounted_share: f64,
    /// `packet(n)` or `path(n)`, ascending, or `thread` and `split` or `pipeline`.
    pub(crate) points: Vec<Point>,
    /// Other placements of one processor.
    pub(crate) beside: Vec<Point>,
    /// The driver's costs with the most processors; none if that is one.
    pub(crate) busiest: Option<Busiest>,
}

/// The driver's time with the most processors, in nanoseconds per packet of the whole connection.
#[derive(Debug, Serialize)]
pub(crate) struct Busiest {
    pub(crate) placement: String,
    pub(crate) waiting_ns: f64,
    /// Mean busy time of the other processors.
    pub(crate) others_busy_ns: f64,
    pub(crate) application_ns: f64,
    /// Active time of the receiving processor; zero if that is the driver's.
    pub(crate) receiver_ns: f64,
    /// The share of time in which each processor was busy: the driver's first.
    pub(crate) busy_shares: Vec<f64>,
    pub(crate) stages_ns: BTreeMap<&'static str, f64>,
}

/// The result of one placement.
#[derive(Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) placement: String,
    pub(crate) processors: usize,
    /// Throughput of both directions together.
    pub(crate) throughput_bps: Estimate,
    /// The directions, if there was data in both.
    pub(crate) directions: Option<DirectionsReport>,
    /// Speedup relative to one processor in the same run.
    pub(crate) speedup: Estimate,
    /// The bound from the costs; none without costs.
    pub(crate) bound: Option<f64>,
    /// The speedup divided by the bound.
    pub(crate) reached: Option<f64>,
    /// CPU time of all threads, in nanoseconds per packet: unlike the throughput, it hardly depends on
    /// other programs. None on the receive side, where it has the sealing in advance.
    pub(crate) cpu_ns: Option<f64>,
    runs_bps: Vec<f64>,
    runs_speedup: Vec<f64>,
    /// Counters of the processors other than the driver's, in the last run; none if there were
    /// none.
    workers: Option<Workers>,
}

/// The directions of a placement, over all runs.
#[derive(Debug, Serialize)]
pub(crate) struct DirectionsReport {
    sent_bytes: f64,
    received_bytes: f64,
    pub(crate) sent_bps: f64,
    pub(crate) received_bps: f64,
    /// The share of time in which only one direction was active.
    pub(crate) one_way_share: f64,
}

impl DirectionsReport {
    /// None if there was data in one direction only.
    fn new(outcomes: &[Outcome]) -> Option<Self> {
        let all: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.directions).collect();
        let seconds: f64 = outcomes.iter().map(|outcome| outcome.time.as_secs_f64()).sum();
        if all.is_empty() || seconds <= 0.0 {
            return None;
        }
        let sent_bytes: f64 = all.iter().map(|directions| directions.sent_bytes).sum();
        let received_bytes: f64 = all.iter().map(|directions| directions.received_bytes).sum();
        let one_way_s: f64 = all.iter().map(|directions| directions.one_way.as_secs_f64()).sum();
        let bps = |bytes: f64| bytes * 8.0 / seconds;
        let (sent_bps, received_bps) = (bps(sent_bytes), bps(received_bytes));
        Some(Self { sent_bytes, received_bytes, sent_bps, received_bps, one_way_share: one_way_s / seconds })
    }
}

/// See [`WorkerPoolStats`].
#[derive(Debug, Serialize)]
struct Workers {
    batches: Vec<u64>,
    busy_ns: Vec<u64>,
    batches_by_driver: u64,
    waits_full: u64,
    batches_redone: u64,
    batches_lost: u64,
}

impl SpeedupReport {
    pub(super) fn new(settings: &Settings, checked: Option<Checked>, sides: Vec<Measured>) -> Self {
        let machine = Machine::here(settings.cores.len());
        let mut warnings = Vec::new();
        if !machine.optimised {
            warnings.push("this is a debug build: only a release build has realistic costs".to_owned());
        }
        if settings.runs < 2 {
            warnings.push("confidence intervals need at least --runs 2".to_owned());
        }
        for measured in &sides {
            warnings.extend(measured.warnings());
        }
        let sides = sides.into_iter().map(|measured| SideReport::new(settings, &measured)).collect();
        Self {
            format: "litz-speedup",
            version: VERSION,
            program: PROGRAM,
            date_unix: None,
            machine,
            cipher: settings.stack.is_none().then(|| settings.cipher.id()),
            stack: settings.stack.zip(checked).map(|(measured, checked)| StackReport {
                layers: measured.stack.to_string(),
                paper: Paper::of(measured.stack),
                primitives: checked.primitives,
                // All are equal, or there would be no result.
                wire_digest: checked.wire_digests.into_iter().map(|(_, digest)| digest).next().unwrap_or_default(),
            }),
            application_affinity: settings.app_core.id(),
            paths: settings.paths,
            datagram_bytes: settings.stack.map_or(settings.datagram_size, |measured| measured.packet_len()),
            payload_bytes: settings.payload_len(),
            runs: settings.runs,
            warm_up_ns: settings.warm_up.as_nanos(),
            time_ns: settings.time.as_nanos(),
            confidence: settings.confidence,
            sides,
            warnings,
        }
    }
}

impl SpeedupReport {
    /// What was measured: a cipher of QUIC, or a stack.
    pub(crate) fn subject(&self) -> &str {
        self.stack.as_ref().map_or_else(|| self.cipher.unwrap_or_default(), |stack| &stack.layers)
    }
}

impl Measured {
    fn outcomes_of(&self, wanted: Placement) -> &[Outcome] {
        let found = self.outcomes.iter().find(|(placement, _)| *placement == wanted);
        found.map_or(&[], |(_, outcomes)| outcomes)
    }

    fn warnings(&self) -> Vec<String> {
        let side = self.side.id();
        let mut warnings = Vec::new();
        let taken = self.shares.iter().map(|shares| shares.taken_away_share).fold(0.0, f64::max);
        if taken > TAKEN_AWAY_SHARE_MAX {
            let percent = taken * 100.0;
            warnings.push(format!(
                "{side}: other programs used the processor for {percent:.0} % of a run: stop them and repeat"
            ));
        }
        let all = || self.outcomes.iter().flat_map(|(_, outcomes)| outcomes);
        let lost: u64 = all().map(|outcome| outcome.packets_lost).sum();
        if lost > 0 {
            warnings
                .push(format!("{side}: {lost} packets were declared lost: the machine paused the threads for a while"));
        }
        let late: u64 = all().filter_map(|outcome| outcome.stage.as_ref()).map(|stage| stage.batches_redone).sum();
        if late > 0 {
            warnings.push(format!("{side}: {late} batches were processed twice, because a worker was late"));
        }
        warnings
    }
}

impl SideReport {
    /// The title for the user.
    pub(crate) fn title(&self) -> String {
        if self.side == Side::Duplex.id() { "both sides".to_owned() } else { format!("{} side", self.side) }
    }

    fn new(settings: &Settings, measured: &Measured) -> Self {
        let shares = Shares::median(&measured.shares);
        let base: Vec<f64> =
            measured.outcomes_of(settings.kind.placement(1)).iter().map(Outcome::throughput_bps).collect();
        let point = |placement: Placement| {
            let outcomes = measured.outcomes_of(placement);
            Point::new((placement, settings.processors_of(placement)), outcomes, &base, &shares, settings.confidence)
        };
        let points: Vec<_> = settings.processors.iter().map(|count| point(settings.kind.placement(*count))).collect();
        let beside = settings.beside.iter().map(|placement| point(*placement)).collect();
        let mean_bps = Estimate::of(&base, settings.confidence).mean;
        let payload_bits = settings.payload_len() as f64 * 8.0;
        let measured_ns = if mean_bps > 0.0 { payload_bits / mean_bps * 1e9 } else { 0.0 };
        let total_ns = shares.total_ns();
        let accounted_share = if measured_ns > 0.0 { total_ns / measured_ns } else { 0.0 };
        let busiest = settings.most_processors().map(|most| {
            let Shares { waiting_ns, others_busy_ns, busy_shares, application_ns, receiver_ns, stages_ns, .. } =
                Shares::median(&measured.busiest);
            let placement = settings.kind.placement(most).to_string();
            Busiest { placement, waiting_ns, others_busy_ns, application_ns, receiver_ns, busy_shares, stages_ns }
        });
        let (side, gain_printed) = (measured.side.id(), settings.kind.gain_printed());
        Self { side, shares, total_ns, gain_printed, measured_ns, accounted_share, points, beside, busiest }
    }
}

impl Point {
    fn new(
        (placement, processors): (Placement, usize),
        outcomes: &[Outcome],
        base: &[f64],
        shares: &Shares,
        confidence: f64,
    ) -> Self {
        let runs_bps: Vec<f64> = outcomes.iter().map(Outcome::throughput_bps).collect();
        let runs_speedup: Vec<f64> = runs_bps.iter().zip(base).map(|(here, one)| here / one).collect();
        let speedup = Estimate::of(&runs_speedup, confidence);
        let bound = shares.speedup(processors);
        Self {
            placement: placement.to_string(),
            processors,
            throughput_bps: Estimate::of(&runs_bps, confidence),
            directions: DirectionsReport::new(outcomes),
            speedup,
            bound,
            reached: bound.map(|bound| speedup.mean / bound),
            cpu_ns: outcomes.iter().all(|outcome| !outcome.process.is_zero()).then(|| {
                median(outcomes.iter().map(|outcome| outcome.process.as_nanos() as f64 / outcome.packets).collect())
            }),
            runs_bps,
            runs_speedup,
            workers: outcomes.last().and_then(|outcome| outcome.stage.as_ref()).map(Workers::new),
        }
    }
}

impl Workers {
    fn new(stats: &WorkerPoolStats) -> Self {
        Self {
            batches: stats.workers.iter().map(|worker| worker.batches).collect(),
            busy_ns: stats.workers.iter().map(|worker| worker.busy.as_nanos()).collect(),
            batches_by_driver: stats.batches_by_driver,
            waits_full: stats.waits_full,
            batches_redone: stats.batches_redone,
            batches_lost: stats.batches_lost,
        }
    }
}
