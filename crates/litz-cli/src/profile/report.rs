//! The whole result, serialized in the format of `docs/spec/profile.md`. A change of meaning needs
//! a new version.

use measure::Program;
use serde::Serialize;

use super::calibrate::payload_len;
use super::file::FileCosts;
use super::fit::median;
use super::run::{Run, Spent};
use super::settings::Settings;
use super::side::Side;
use crate::provenance::{Machine, PROGRAM};

/// The budget per packet and end for all work other than cipher, copy and system calls
/// (ARCHITECTURE.md).
pub(crate) const BUDGET_NS: f64 = 100.0;

/// The version of the JSON format.
const VERSION: u32 = 1;

/// If other programs had a processor for a larger share of the time, they also disturbed the
/// caches.
const TAKEN_AWAY_SHARE_MAX: f64 = 0.1;

/// If a larger share of packets was lost, loss dominated the run.
const LOST_SHARE_MAX: f64 = 0.001;

/// The result of a profile.
#[derive(Debug, Serialize)]
pub(crate) struct ProfileReport {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    program: Program,
    pub(crate) datagram_bytes: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) sizes_bytes: Vec<usize>,
    pub(crate) run_ns: u64,
    pub(crate) runs: usize,
    pub(crate) machine: Machine,
    pub(crate) budget_ns: f64,
    pub(crate) memory: Table,
    pub(crate) file: Option<FileTable>,
    pub(crate) overhead: Overhead,
    /// Time from waking a thread of the same end until it runs, in nanoseconds: the median of the
    /// runs.
    pub(crate) wake_ns: f64,
    /// Reasons to doubt the figures.
    pub(crate) warnings: Vec<String>,
}

/// Both ends.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) sending: Side,
    pub(crate) receiving: Side,
}

/// Both ends, from file to file.
#[derive(Debug, Serialize)]
pub(crate) struct FileTable {
    #[serde(flatten)]
    pub(crate) table: Table,
    pub(crate) costs: FileCosts,
    /// Cost of both ends according to the tables, in nanoseconds per byte.
    pub(crate) accounted_byte_ns: f64,
    /// The share of a real transfer's CPU time that the tables account for.
    pub(crate) accounted_share: Option<f64>,
}

/// The cost of measuring.
#[derive(Debug, Serialize)]
pub(crate) struct Overhead {
    /// Nanoseconds to read the clock once.
    pub(crate) reading_ns: f64,
    /// Readings per packet, both ends together.
    pub(crate) readings: f64,
    /// The product of both: nanoseconds per packet.
    pub(crate) counted_ns: f64,
    /// CPU time per packet, both ends together: the median of the runs without the meter.
    pub(crate) unmetered_cpu_ns: f64,
    /// The same with it.
    pub(crate) metered_cpu_ns: f64,
    /// Overhead of the meter in percent, computed from the number of readings.
    pub(crate) counted_percent: f64,
    /// Overhead of the meter in percent, by comparison of the runs. On a busy machine this is
    /// mostly noise: see the spread.
    pub(crate) compared_percent: f64,
    /// Range of the runs without the meter, in percent of their median.
    pub(crate) spread_percent: f64,
}

impl FileTable {
    pub(crate) fn new(table: Table, costs: FileCosts, datagram_size: usize) -> Self {
        let packet_ns = table.sending.total_ns + table.receiving.total_ns;
        let accounted_byte_ns = packet_ns / payload_len(datagram_size) as f64;
        let accounted_share = costs.transfer_byte_ns.map(|transfer_byte_ns| accounted_byte_ns / transfer_byte_ns);
        Self { table, costs, accounted_byte_ns, accounted_share }
    }
}

impl Overhead {
    /// Compares runs of both kinds, made in turn.
    pub(crate) fn new(metered: &[Run], unmetered: &[Run], reading_ns: f64) -> Self {
        let cpu_ns = |runs: &[Run]| -> Vec<f64> {
            runs.iter().map(|run| run.sending.cpu_ns() + run.receiving.cpu_ns()).collect()
        };
        let readings_of = |spent: &Spent| spent.costs.unwrap_or_default().readings as f64 / spent.packets;
        let readings: Vec<_> =
            metered.iter().map(|run| readings_of(&run.sending) + readings_of(&run.receiving)).collect();
        let (bare, full) = (cpu_ns(unmetered), cpu_ns(metered));
        let (unmetered_cpu_ns, metered_cpu_ns, readings) = (median(&bare), median(&full), median(&readings));
        let percent = |ns: f64| if unmetered_cpu_ns > 0.0 { ns / unmetered_cpu_ns * 100.0 } else { 0.0 };
        let extreme = |pick: fn(f64, f64) -> f64| bare.iter().copied().reduce(pick).unwrap_or_default();
        Self {
            reading_ns,
            readings,
            counted_ns: readings * reading_ns,
            unmetered_cpu_ns,
            metered_cpu_ns,
            counted_percent: percent(readings * reading_ns),
            compared_percent: percent(metered_cpu_ns - unmetered_cpu_ns),
            spread_percent: percent(extreme(f64::max) - extreme(f64::min)),
        }
    }
}

impl ProfileReport {
    pub(crate) fn new(
        settings: &Settings,
        memory: Table,
        file: Option<FileTable>,
        overhead: Overhead,
        wake_ns: f64,
    ) -> Self {
        let machine = Machine::here(net::processors::count());
        let mut warnings = warnings(&machine, &memory);
        warnings.extend(file.as_ref().and_then(|file| file.costs.transfer_failure.clone()));
        Self {
            format: "litz-profile",
            version: VERSION,
            program: PROGRAM,
            datagram_bytes: settings.datagram_size,
            payload_bytes: payload_len(settings.datagram_size),
            sizes_bytes: settings.sizes.clone(),
            run_ns: settings.time.as_nanos(),
            runs: settings.runs,
            machine,
            budget_ns: BUDGET_NS,
            memory,
            file,
            overhead,
            wake_ns,
            warnings,
        }
    }
}

fn warnings(machine: &Machine, memory: &Table) -> Vec<String> {
    let mut warnings = Vec::new();
    if !machine.optimised {
        warnings.push("this is a debug build: only a release build has realistic costs".to_owned());
    }
    if machine.processors < 2 {
        warnings.push("both ends share one processor and preempt each other".to_owned());
    }
    let points = || memory.sending.points.iter().chain(&memory.receiving.points);
    let taken_away = points().map(|point| point.taken_away_share).fold(0.0, f64::max);
    if taken_away > TAKEN_AWAY_SHARE_MAX {
        let percent = taken_away * 100.0;
        warnings.push(format!("other programs used a processor for {percent:.0} % of a run: stop them and repeat"));
    }
    if points().any(|point| point.packets_lost as f64 > point.packets * LOST_SHARE_MAX) {
        warnings.push("packets were lost on loopback: raise net.core.rmem_max to 4 MiB and repeat".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;

    fn run(cpu_nanos: u64) -> Run {
        let spent = |cpu_nanos| Spent {
            packets: 10.0,
            packets_lost: 0,
            wall: Duration::from_secs(1),
            cpu: Duration::from_nanos(cpu_nanos),
            costs: None,
            calibrating: Duration::ZERO,
            alone: None,
        };
        Run { sending: spent(cpu_nanos / 2), receiving: spent(cpu_nanos / 2) }
    }

    #[test]
    fn the_overhead_compares_medians_and_reports_the_spread() {
        let unmetered = [run(1000), run(1100), run(900)];
        let metered = [run(1050), run(5000), run(1040)];
        let overhead = Overhead::new(&metered, &unmetered, 20.0);
        assert!((overhead.unmetered_cpu_ns - 100.0).abs() < 1e-9 && (overhead.metered_cpu_ns - 105.0).abs() < 1e-9);
        assert!((overhead.compared_percent - 5.0).abs() < 1e-9 && (overhead.spread_percent - 20.0).abs() < 1e-9);
    }
}
