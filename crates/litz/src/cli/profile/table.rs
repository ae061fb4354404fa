//! The profile as a table.

use std::fmt::Write;

use crate::profile::{BUDGET_NS, Bound, End, Report, Side, Source, Table};

/// Wide enough for the longest label.
const LABEL_WIDTH: usize = 40;

/// The whole report.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _written = write_report(&mut out, report);
    out
}

fn write_report(out: &mut String, report: &Report) -> std::fmt::Result {
    for warning in &report.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    let size = report.datagram_bytes;
    writeln!(
        out,
        "Nanoseconds for each packet of {size} bytes ({} of the application), median of {} runs over loopback, both ends on \
         this machine",
        report.payload_bytes, report.runs
    )?;
    write_table(out, "memory to memory", &report.memory, size)?;
    if let Some(file) = &report.file {
        write_table(out, "file to file", &file.table, size)?;
        if let Some((transfer_byte_ns, share)) = file.costs.transfer_byte_ns.zip(file.accounted_share) {
            writeln!(
                out,
                "  A real transfer took {transfer_byte_ns:.2} ns of processor time a byte, both ends together; the tables account \
                 for {:.2} ({:.0} %).",
                file.accounted_byte_ns,
                share * 100.0
            )?;
        }
    }
    let overhead = &report.overhead;
    writeln!(
        out,
        "\n* calibrated: measured alone, between the calls of the same run, on buffers of the same size\n\
         (rest): the stage less its calibrated parts; below zero where they took longer alone\n\
         fixed + each byte: the line through {:?} bytes; off: how far the worst of them lies from it\n\
         A system call is serial for one socket. On loopback, sending includes what the kernel does to receive.\n",
        report.sizes_bytes
    )?;
    writeln!(
        out,
        "Work besides cipher, copy and system calls: {:.0} ns a packet sending, {:.0} ns receiving (budget {BUDGET_NS:.0})",
        report.memory.sending.besides_ns, report.memory.receiving.besides_ns
    )?;
    writeln!(out, "Waking a thread takes {:.0} ns, on the processors of one end", report.wake_ns)?;
    writeln!(
        out,
        "Measuring costs {:.1} ns a packet, both ends together: {:.1} % of {:.0} ns; by comparison {:+.1} % (runs without it \
         differ by {:.1} %)",
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
        "who",
        "ns",
        "share",
        "fixed ns",
        "ns a byte",
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
    writeln!(out, "  {:<LABEL_WIDTH$}  {:<8} {:>8.1}", "all", "", side.total_ns)?;
    writeln!(
        out,
        "  serial {:.1}, parallel {:.1}, system calls {:.1} ns",
        shares.serial_ns, shares.parallel_ns, shares.system_ns
    )?;
    writeln!(out, "  at most faster, one path             processors {}", bounds(side, |bound| bound.speedup))?;
    writeln!(
        out,
        "  at most faster, a path a processor   processors {}",
        bounds(side, |bound| bound.speedup_many_paths)
    )?;
    if let Some(point) = side.points.iter().find(|point| point.datagram_bytes == size) {
        let (goodput, batch) = (point.goodput_bps / 1e9, point.packets_per_batch);
        writeln!(out, "  {goodput:.2} Gb/s, {batch:.1} packets a batch")?;
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
