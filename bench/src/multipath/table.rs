//! The printed results.

use std::collections::BTreeSet;

use super::case::Case;
use super::run::{Row, Run, name};
use crate::compare::statistics::Spread;

/// Prints medians with their range, and the bytes of each link.
pub fn print(runs: &[Run]) {
    let cases: BTreeSet<Case> = runs.iter().map(|run| run.case).collect();
    for case in cases {
        let of_case: Vec<&Run> = runs.iter().filter(|run| run.case == case).collect();
        println!("\n{}", name(&case));
        let rows: BTreeSet<Row> = of_case.iter().map(|run| run.row).collect();
        for row in rows {
            let of_row: Vec<&Run> = of_case.iter().copied().filter(|run| run.row == row).collect();
            println!("  {row}");
            for line in lines(&of_row) {
                println!("    {line}");
            }
        }
    }
}

fn spread(runs: &[&Run], of: impl Fn(&Run) -> Option<f64>, scale: f64) -> Option<String> {
    let spread = Spread::of(runs.iter().filter_map(|run| of(run)))?;
    let Spread { median, min, max } = spread;
    Some(format!("{:.1} [{:.1} .. {:.1}]", median * scale, min * scale, max * scale))
}

fn lines(runs: &[&Run]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |words: &str, unit: &str, scale: f64, of: &dyn Fn(&Run) -> Option<f64>| {
        if let Some(spread) = spread(runs, of, scale) {
            lines.push(format!("{words} {spread} {unit}"));
        }
    };
    say("steady", "Mb/s", 1e-6, &|run| run.figures.steady_bps);
    say("steady", "% of capacity", 100.0, &|run| run.figures.steady_share);
    say("whole ", "% of capacity", 100.0, &|run| run.figures.whole_share);
    say("median", "ms", 1e-3, &|run| run.figures.median_us);
    say("p99   ", "ms", 1e-3, &|run| run.figures.p99_us);
    say("gap", "ms", 1.0, &|run| run.figures.failover.map(|failover| failover.gap_ms));
    say("rest", "% of the other links", 100.0, &|run| run.figures.failover.map(|failover| failover.rest_share));
    say("share again after", "ms", 1.0, &|run| run.figures.failover.and_then(|failover| failover.until_share_ms));
    let failovers = || runs.iter().filter_map(|run| run.figures.failover);
    let never = failovers().filter(|failover| failover.until_share_ms.is_none()).count();
    say("processor", "s per GB", 1.0, &|run| run.figures.cpu_s_per_gb);
    say("waited for a processor", "s, both sides", 1.0, &|run| Some(run.sent.waited_s + run.received.waited_s));
    if never > 0 {
        lines.push(format!("no share again in {never} of {} runs", failovers().count()));
    }
    let broken = runs.iter().filter(|run| !run.figures.is_intact).count();
    if broken > 0 {
        lines.push(format!("NOT INTACT in {broken} of {} runs", runs.len()));
    }
    if let Some(run) = runs.last() {
        lines.push(carried(run));
        lines.extend(paths(run));
    }
    lines
}

/// Bytes that the links carried in the last run.
fn carried(run: &Run) -> String {
    let total: u64 = run.carried.iter().map(|carried| carried.bytes).sum();
    let words = run.carried.iter().map(|carried| {
        let share = carried.bytes as f64 / total.max(1) as f64 * 100.0;
        format!("{share:.1} % ({} of {} dropped)", carried.dropped, carried.packets)
    });
    format!("links: {}", words.collect::<Vec<_>>().join(", "))
}

/// Litz's view of its paths shortly before the end of sending.
fn paths(run: &Run) -> Vec<String> {
    let before_end =
        run.sent.samples.iter().rev().find(|sample| run.sent.written_ns == 0 || sample.at_ns < run.sent.written_ns);
    let Some(sample) = before_end else { return Vec::new() };
    let seconds = (sample.at_ns - run.sent.connected_ns) as f64 / 1e9;
    let words = sample.paths.iter().map(|path| {
        format!(
            "path {} {} {}: {:.1} Mb/s acknowledged on average, srtt {:.1} ms (min {:.1}), window {} KiB, in flight {} \
             KiB, lost {} of {}, silent {} times",
            path.id,
            path.state,
            path.phase,
            path.bytes_acked as f64 * 8.0 / seconds / 1e6,
            path.srtt_us as f64 / 1e3,
            path.min_rtt_us as f64 / 1e3,
            path.window >> 10,
            path.in_flight >> 10,
            path.lost,
            path.sent,
            path.silences,
        )
    });
    let held = format!("held {} KiB, {} probe timeouts", sample.held_bytes >> 10, sample.probe_timeouts);
    words.chain([held]).collect()
}
