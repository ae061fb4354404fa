//! The profile as a table.

use std::fmt::Write;

use super::super::tables::with_warnings;
use crate::profile::{BUDGET_NS, Bound, End, ProfileReport, Side, Source, Table};

/// The width of the longest label.
const LABEL_WIDTH: usize = 40;

pub(super) fn render(report: &ProfileReport) -> String {
    with_warnings(&report.warnings, |out| write_report(out, report))
}

fn write_report(out: &mut String, report: &ProfileReport) -> std::fmt::Result {
    let size = report.datagram_bytes;
    writeln!(
        out,
        "Nanoseconds per packet of {size} bytes ({} of application data), median of {} runs over loopback, \
         both ends on this machine",
        report.payload_bytes, report.runs
    )?;
    write_table(out, "memory to memory", &report.memory, size)?;
    if let Some(file) = &report.file {
        write_table(out, "file to file", &file.table, size)?;
        if let Some((transfer_byte_ns, share)) = file.costs.transfer_byte_ns.zip(file.accounted_share) {
            writeln!(
                out,
                "  A real transfer took {transfer_byte_ns:.2} ns of CPU time per byte, both ends together; the \
                 tables account for {:.2} ({:.0} %).",
                file.accounted_byte_ns,
                share * 100.0
            )?;
        }
    }
    let overhead = &report.overhead;
    writeln!(
        out,
        "\n* calibrated: measured separately, between the calls of the same run, on buffers of the same size\n\
         (rest): the stage less its calibrated parts; negative if they took longer when measured separately\n\
         fixed ns + ns/byte: line fitted through {:?} bytes; off: largest deviation from the line, in ns\n\
         System calls are serial per socket. On loopback, sending includes the kernel's receive work.\n",
        report.sizes_bytes
    )?;
    writeln!(
        out,
        "Work other than cipher, copy and system calls: {:.0} ns per packet sending, {:.0} ns receiving \
         (budget {BUDGET_NS:.0})",
        report.memory.sending.besides_ns, report.memory.receiving.besides_ns
    )?;
    writeln!(out, "Waking a thread on the processors of one end takes {:.0} ns", report.wake_ns)?;
    writeln!(
        out,
        "Measuring costs {:.1} ns per packet, both ends together: {:.1} % of {:.0} ns; by comparison {:+.1} % \
         (runs without it differ by {:.1} %)",
        overhead.counted_ns,
        overhead.counted_percent,
        overhead.unmetered_cpu_ns,
        overhead.compared_percent,
        overhead.spread_percent
    )
}

fn write_table(out: &mut String, title: &str, table: &Table, size: usize) -> std::fmt::Result {
    for (end, side) in [(End::Sending, &table.sending), (End::Receiving, &table.receiving)] {
        writeln!(out)?;
        write_side(out, &format!("{}, {title}", end.label()), side, size)?;
    }
    Ok(())
}

fn write_side(out: &mut String, title: &str, side: &Side, size: usize) -> std::fmt::Result {
    writeln!(
        out,
        "{title:<width$}  {:<8} {:>8} {:>7} {:>9} {:>10} {:>7}",
        "kind",
        "ns",
        "share",
        "fixed ns",
        "ns/byte",
        "off",
        width = LABEL_WIDTH + 2
    )?;
    for row in &side.rows {
        let mark = match row.source {
            Source::Calibrated => " *",
            Source::Rest => " (rest)",
            Source::Metered => "",
        };
        writeln!(
            out,
            "  {:<LABEL_WIDTH$}  {:<8} {:>8.1} {:>5.1} % {:>9.1} {:>10.4} {:>7.1}",
            format!("{}{mark}", row.label),
            row.kind.label(),
            row.ns,
            row.share * 100.0,
            row.fit.packet_ns,
            row.fit.byte_ns,
            row.fit.residual_ns
        )?;
    }
    let shares = &side.shares;
    writeln!(out, "  {:<LABEL_WIDTH$}  {:<8} {:>8.1}", "total", "", side.total_ns)?;
    writeln!(
        out,
        "  serial {:.1}, parallel {:.1}, system calls {:.1} ns",
        shares.serial_ns, shares.parallel_ns, shares.system_ns
    )?;
    writeln!(out, "  max. speedup, one path                processors {}", bounds(side, |bound| bound.speedup))?;
    writeln!(
        out,
        "  max. speedup, one path per processor  processors {}",
        bounds(side, |bound| bound.speedup_many_paths)
    )?;
    if let Some(point) = side.points.iter().find(|point| point.datagram_bytes == size) {
        let (goodput, batch) = (point.goodput_bps / 1e9, point.packets_per_batch);
        writeln!(out, "  {goodput:.2} Gb/s, {batch:.1} packets per batch")?;
    }
    Ok(())
}

fn bounds(side: &Side, of: impl Fn(&Bound) -> Option<f64>) -> String {
    let one = |bound: &Bound| {
        let processors = bound.processors.map_or("any".to_owned(), |processors| processors.to_string());
        of(bound).map_or(format!("{processors}: no bound"), |speedup| format!("{processors}: {speedup:.2}"))
    };
    side.bounds.iter().map(one).collect::<Vec<_>>().join("   ")
}
