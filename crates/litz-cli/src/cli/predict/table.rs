//! The prediction as a table.

use std::fmt::Write;

use super::super::tables::with_warnings;
use super::{PredictionReport, Row};

pub(super) fn render(report: &PredictionReport) -> String {
    with_warnings(&report.warnings, |out| write_report(out, report))
}

fn write_report(out: &mut String, report: &PredictionReport) -> std::fmt::Result {
    let processors = match report.processors {
        _ if report.is_shared => "both ends share one processor".to_owned(),
        [sending, receiving] => format!("processors {sending} and {receiving}"),
    };
    writeln!(out, "{}: {processors}, {:.0} ns to wake a thread", report.scenario, report.hand_over_ns)?;
    for row in report.rows.iter().filter(|row| row.placements.iter().any(|placement| *placement != row.placement)) {
        let [sending, receiving] = &row.placements;
        let size = row.datagram_bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
        let both =
            if sending == receiving { String::new() } else { format!(" at the sender, {receiving} at the receiver") };
        writeln!(out, "{}{size}: {sending}{both}", row.placement)?;
    }
    let is_verified = report.rows.iter().any(|row| row.measured.is_some());
    write!(
        out,
        "{:<14} {:>8} {:>14} {:>6} {:>6} {:>8}",
        "placement", "datagram", "predicted Mb/s", "cpu a", "cpu b", "cpu s/GB"
    )?;
    let measured = " | measured Mb/s         (range)  cpu a+b cpu s/GB |   error";
    writeln!(out, "{}", if is_verified { measured } else { "" })?;
    for row in &report.rows {
        write_row(out, row)?;
    }
    Ok(())
}

fn write_row(out: &mut String, row: &Row) -> std::fmt::Result {
    let size = row.datagram_bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    let [sending, receiving] = row.predicted.processors;
    let predicted = row.predicted.goodput_bps / 1e6;
    write!(out, "{:<14} {size:>8} {predicted:>14.0} {sending:>6.2} {receiving:>6.2}", row.placement)?;
    let figure = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
    write!(out, " {:>8}", figure(row.predicted.cpu_s_per_gb))?;
    if let (Some(measured), Some(error)) = (row.measured, row.error) {
        let [low, high] = measured.range_bps.map(|bps| bps / 1e6);
        let goodput = measured.goodput_bps / 1e6;
        let (processors, cost) = (figure(measured.processors), figure(measured.cpu_s_per_gb));
        write!(out, " | {goodput:>13.0} ({low:>5.0} .. {high:>5.0}) {processors:>7} {cost:>8}")?;
        write!(out, " | {:>+5.1} %", error * 100.0)?;
    }
    writeln!(out)
}
