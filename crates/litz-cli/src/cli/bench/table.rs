//! The speedup as a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::tables::with_warnings;
use crate::speedup::{Estimate, Paper, Primitive, SideReport, SpeedupReport, StackReport};

pub(super) fn render(report: &SpeedupReport) -> String {
    with_warnings(&report.warnings, |out| write_report(out, report))
}

fn write_report(out: &mut String, report: &SpeedupReport) -> std::fmt::Result {
    let processor = report.machine.processor.as_deref().unwrap_or("processors");
    writeln!(
        out,
        "{} on {} x {processor}: {} of {} bytes, {} runs, intervals of {:.0} %",
        report.subject(),
        report.machine.processors,
        if report.stack.is_some() { "packets" } else { "datagrams" },
        report.datagram_bytes,
        report.runs,
        report.confidence * 100.0
    )?;
    if let Some(stack) = &report.stack {
        write_stack(out, stack)?;
    }
    for side in &report.sides {
        write_side(out, side)?;
    }
    Ok(())
}

/// The layers alone, beside the paper, and the digest of the stream.
fn write_stack(out: &mut String, stack: &StackReport) -> std::fmt::Result {
    for Primitive { layer, throughput_bps, paper_stack_bps } in &stack.primitives {
        write!(out, "  {layer} alone: {:.3} Gb/s on one processor", throughput_bps / 1e9)?;
        match paper_stack_bps {
            Some(bps) => writeln!(out, "; with all below it in Nahum et al. 1996: {:.1} Mb/s", bps / 1e6)?,
            None => writeln!(out)?,
        }
    }
    if let Some(Paper { throughput_bps, speedup, processors }) = &stack.paper {
        let speedup = match speedup {
            Some([least, most]) => format!("{least:.1} to {most:.1}"),
            None => "minimal".to_owned(),
        };
        let mbps = throughput_bps / 1e6;
        writeln!(out, "  Nahum et al. 1996: {mbps:.1} Mb/s on one processor; speedup with {processors}: {speedup}")?;
    }
    writeln!(out, "  every placement sends the same stream in lock-step: {}", stack.wire_digest)
}

fn write_side(out: &mut String, side: &SideReport) -> std::fmt::Result {
    writeln!(
        out,
        "\n{:<14} {:>10} {:>22} {:>18} {:>8} {:>8}",
        side.title(),
        "processors",
        "Gb/s",
        "speedup",
        "bound",
        "reached"
    )?;
    for point in side.beside.iter().chain(&side.points) {
        let bound = point.bound.map_or("-".to_owned(), |bound| format!("{bound:.2}"));
        let reached = point.reached.map_or("-".to_owned(), |reached| format!("{:.0} %", reached * 100.0));
        writeln!(
            out,
            "{:<14} {:>10} {:>22} {:>18} {bound:>8} {reached:>8}",
            format!("  {}", point.placement),
            point.processors,
            interval(&point.throughput_bps, 1e9, 3),
            interval(&point.speedup, 1.0, 3),
        )?;
    }
    let cpu: Vec<_> = side.points.iter().filter_map(|point| Some((&point.placement, point.cpu_ns?))).collect();
    if !cpu.is_empty() {
        let cpu: Vec<_> = cpu.into_iter().map(|(placement, ns)| format!("{placement} {ns:.0}")).collect();
        writeln!(out, "  CPU time of all threads per packet, ns: {}", cpu.join(", "))?;
    }
    let shares = &side.shares;
    writeln!(
        out,
        "  a packet takes {:.0} ns; measured: {:.0} serial, {:.0} parallel, {:.0} application ({:.0} %)",
        side.measured_ns,
        shares.serial_ns,
        shares.parallel_ns,
        shares.application_ns,
        side.accounted_share * 100.0
    )?;
    writeln!(out, "  by stage, ns: {}", stages(&shares.stages_ns))?;
    write_directions(out, side)?;
    if let Some(busiest) = &side.busiest {
        writeln!(
            out,
            "  driver with {}, ns: {}, waiting {:.0}; other processors busy {:.0}",
            busiest.placement,
            stages(&busiest.stages_ns),
            busiest.waiting_ns,
            busiest.others_busy_ns
        )?;
        let names: &[_] = match busiest.placement.as_str() {
            "pipeline" => &["TCP send ", "IP send ", "IP receive ", "TCP receive "],
            "split" => &["send ", "receive "],
            _ => &[],
        };
        let named = |(at, share): (usize, &f64)| format!("{}{:.0} %", names.get(at).unwrap_or(&""), share * 100.0);
        let busy: Vec<_> = busiest.busy_shares.iter().enumerate().map(named).collect();
        writeln!(out, "  processors busy with {}: {}", busiest.placement, busy.join(", "))?;
        if busiest.receiver_ns > 0.0 {
            writeln!(out, "  receiving processor awake for {:.0} ns per packet", busiest.receiver_ns)?;
        }
    }
    Ok(())
}

/// The lines for data in both directions.
fn write_directions(out: &mut String, side: &SideReport) -> std::fmt::Result {
    for point in side.beside.iter().chain(&side.points) {
        let Some(directions) = &point.directions else { continue };
        writeln!(
            out,
            "  {}: sent {:.3} Gb/s, received {:.3} Gb/s, only one direction active for {:.0} % of the time",
            point.placement,
            directions.sent_bps / 1e9,
            directions.received_bps / 1e9,
            directions.one_way_share * 100.0
        )?;
    }
    if let Some(halves) = &side.shares.halves {
        writeln!(
            out,
            "  the send half takes {:.0} ns per packet, the receive half {:.0}",
            halves.send_ns, halves.receive_ns
        )?;
    }
    if let (Some(printed), Some(two)) = (side.gain_printed, side.points.iter().find(|point| point.processors == 2)) {
        let (placement, speedup) = (&two.placement, two.speedup.mean);
        writeln!(out, "  speedup of {placement}: {speedup:.2}; Ruetsche and Kaiserswerth 1992 report {printed:.1}")?;
    }
    Ok(())
}

/// The stages, most expensive first.
fn stages(stages_ns: &BTreeMap<&'static str, f64>) -> String {
    let mut stages: Vec<_> = stages_ns.iter().filter(|(_, ns)| **ns >= 0.5).collect();
    stages.sort_by(|a, b| b.1.total_cmp(a.1));
    stages.iter().map(|(id, ns)| format!("{id} {ns:.0}")).collect::<Vec<_>>().join(", ")
}

fn interval(estimate: &Estimate, unit: f64, digits: usize) -> String {
    let mean = estimate.mean / unit;
    match estimate.plus_minus {
        Some(half) => format!("{mean:.digits$} ± {:.digits$}", half / unit),
        None => format!("{mean:.digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_the_unit_of_their_mean() {
        assert_eq!(interval(&Estimate { mean: 2.5e9, plus_minus: Some(1e7) }, 1e9, 2), "2.50 ± 0.01");
        assert_eq!(interval(&Estimate { mean: 1.96, plus_minus: None }, 1.0, 3), "1.960");
    }
}
