//! The profile of TCP as a table.

use std::fmt::Write;

use super::super::tables::with_warnings;
use crate::profile::{Job, Jobs, SerialStep, Source, TcpReport};

/// The width of the longest name of a process and of the longest label.
const ID_WIDTH: usize = 18;
const LABEL_WIDTH: usize = 50;

pub(super) fn render(report: &TcpReport) -> String {
    with_warnings(&report.warnings, |out| write_report(out, report))
}

fn write_report(out: &mut String, report: &TcpReport) -> std::fmt::Result {
    writeln!(
        out,
        "Nanoseconds per TCP segment of {} bytes, one processor, device in memory, median of {} runs; beside them \
         the times\nof Ruetsche and Kaiserswerth 1992 (segments of 4096 bytes) in microseconds",
        report.segment_bytes, report.runs
    )?;
    write_side(out, "receive", &report.receiving)?;
    write_side(out, "transmit", &report.sending)?;
    write_head(out, "when it happens")?;
    report.events.iter().try_for_each(|job| write_job(out, job))?;
    writeln!(
        out,
        "\n* calibrated: measured separately; (rest): the activity less its calibrated parts; negative if they took \
         longer alone\n"
    )?;
    writeln!(
        out,
        "A processor for each side gains at most {:.2} with data in both directions (printed: {})",
        report.duplex_gain_max, report.paper_duplex_gain
    )?;
    let serial = &report.serial;
    write_step(out, "Serial step, a lone segment", &serial.lone, serial.lone_target_ns)?;
    let name = format!("Serial step, a super-segment of {}", serial.super_segment.segments);
    write_step(out, &name, &serial.super_segment, serial.super_segment_target_ns)
}

fn write_head(out: &mut String, title: &str) -> std::fmt::Result {
    writeln!(out, "\n{title:<ID_WIDTH$}  {:<LABEL_WIDTH$} {:>10} {:>12}", "", "ns", "printed us")
}

fn write_job(out: &mut String, job: &Job) -> std::fmt::Result {
    let mark = match job.source {
        Source::Calibrated => " *",
        Source::Rest => " (rest)",
        Source::Metered => "",
    };
    let label = format!("{}{mark}", job.label);
    write!(out, "  {:<ID_WIDTH$}{label:<LABEL_WIDTH$} {:>10.1}", job.id, job.ns)?;
    match job.paper_us {
        Some(us) => writeln!(out, " {us:>12.1}"),
        None => writeln!(out),
    }
}

fn write_side(out: &mut String, title: &str, jobs: &Jobs) -> std::fmt::Result {
    write_head(out, title)?;
    jobs.rows.iter().try_for_each(|job| write_job(out, job))?;
    let printed: f64 = jobs.rows.iter().filter_map(|job| job.paper_us).sum();
    writeln!(out, "  {:<ID_WIDTH$}{:<LABEL_WIDTH$} {:>10.1} {printed:>12.1}", "total", "", jobs.total_ns)?;
    writeln!(
        out,
        "  {:<ID_WIDTH$}{:<LABEL_WIDTH$} {:>10.0} {:>12.0}",
        "segments/s",
        "",
        jobs.segments_per_second,
        1e6 / printed
    )
}

fn write_step(out: &mut String, name: &str, step: &SerialStep, target_ns: f64) -> std::fmt::Result {
    writeln!(
        out,
        "{name}: plan {:.0} ns, arrival {:.0} ns (target {target_ns:.0}); an acknowledgement arrives in {:.0} ns",
        step.plan_ns, step.arrival_ns, step.acknowledgement_ns
    )
}
