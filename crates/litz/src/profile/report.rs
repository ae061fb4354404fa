//! The whole result. What is serialised here is the format of `docs/spec/profile.md`: a change of meaning is a new version.

use measure::Program;
use serde::Serialize;

use super::Settings;
use super::calibrate::payload_len;
use super::file::FileCosts;
use super::fit::median;
use super::run::{Run, Spent};
use super::side::Side;
use crate::provenance::{Machine, PROGRAM};

/// What everything besides cipher, copy and system calls may cost a packet at each end, as ARCHITECTURE.md wants it.
pub(crate) const BUDGET_NS: f64 = 100.0;

/// The version of the JSON format.
const VERSION: u32 = 1;

/// A share of time in which others had the processor, above which their traces in the caches tell.
const TAKEN_AWAY_SHARE_MAX: f64 = 0.1;

/// A share of packets lost above which the run was about loss.
const LOST_SHARE_MAX: f64 = 0.001;

/// The result of a profile.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
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
    /// From waking a thread of the same end until it runs, in nanoseconds: the median over the runs.
    pub(crate) wake_ns: f64,
    /// What makes the figures doubtful, in words.
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
    /// Both ends together by the tables, in nanoseconds a byte.
    pub(crate) accounted_byte_ns: f64,
    /// The share of a real transfer's processor time that the tables account for.
    pub(crate) accounted_share: Option<f64>,
}

/// What measuring itself costs.
#[derive(Debug, Serialize)]
pub(crate) struct Overhead {
    /// One reading of the clock.
    pub(crate) reading_ns: f64,
    /// Readings a packet, both ends together.
    pub(crate) readings: f64,
    /// Their product: nanoseconds a packet.
    pub(crate) counted_ns: f64,
    /// Processor time a packet, both ends together: the median of the runs without the meter.
    pub(crate) unmetered_cpu_ns: f64,
    /// The same with it.
    pub(crate) metered_cpu_ns: f64,
    /// What the meter adds, in percent, by the count.
    pub(crate) counted_percent: f64,
    /// What it adds by comparison of the two. On a busy machine this is mostly noise: see the spread.
    pub(crate) compared_percent: f64,
    /// From the cheapest to the dearest run without the meter, in percent of their median.
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
    /// From runs of both kinds, taken in turn.
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

impl Report {
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
        warnings.push("this is a build for debugging: only a release build shows real costs".to_owned());
    }
    if machine.processors < 2 {
        warnings.push("both ends share one processor: it is taken from one end for the other".to_owned());
    }
    let points = || memory.sending.points.iter().chain(&memory.receiving.points);
    let taken_away = points().map(|point| point.taken_away_share).fold(0.0, f64::max);
    if taken_away > TAKEN_AWAY_SHARE_MAX {
        let percent = taken_away * 100.0;
        warnings.push(format!("other programs had a processor for {percent:.0} % of a run: stop them and repeat"));
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
    fn the_overhead_compares_medians_and_tells_the_spread() {
        let unmetered = [run(1000), run(1100), run(900)];
        let metered = [run(1050), run(5000), run(1040)];
        let overhead = Overhead::new(&metered, &unmetered, 20.0);
        assert!((overhead.unmetered_cpu_ns - 100.0).abs() < 1e-9 && (overhead.metered_cpu_ns - 105.0).abs() < 1e-9);
        assert!((overhead.compared_percent - 5.0).abs() < 1e-9 && (overhead.spread_percent - 20.0).abs() < 1e-9);
    }
}
