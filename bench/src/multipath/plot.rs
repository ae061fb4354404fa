//! Plots: the figures of each contender, and the rate over time where a link was cut.

use std::collections::BTreeSet;
use std::path::Path;

use plotters::prelude::*;

use super::case::{CUT_AT_S, Case, FAILOVER_TIME_S, RESTORE_AT_S, Workload};
use super::run::{Row, Run, name};
use super::side::until_ns;
use crate::compare::statistics::Spread;
use crate::contender::Failure;

const WIDTH: u32 = 900;
const BAR_HEIGHT: u32 = 34;
const MARGIN: u32 = 12;
/// Height of everything in a bar chart that is not a bar.
const FRAME_HEIGHT: u32 = 110;
const LINE_HEIGHT: u32 = 180;
const TITLE_PIXELS: u32 = 20;
const LABEL_PIXELS: u32 = 15;
/// Seconds per point of a line.
const STEP_S: f64 = 0.05;
const BAR: RGBColor = RGBColor(126, 164, 208);
const INK: RGBColor = RGBColor(32, 44, 64);
const ALARM: RGBColor = RGBColor(190, 40, 40);

/// Draws one plot per case below `results`.
pub fn draw(runs: &[Run], results: &Path, date_unix: u64) -> Result<(), Failure> {
    let cases: BTreeSet<Case> = runs.iter().map(|run| run.case).collect();
    for case in cases {
        let of_case: Vec<&Run> = runs.iter().filter(|run| run.case == case).collect();
        let file = results.join(format!("multipath-{date_unix}-{}.svg", name(&case)));
        if case.is_failover() {
            lines(case, &of_case, &file)?;
        } else {
            bars(case, &of_case, &file)?;
        }
        println!("plot: {}", file.display());
    }
    Ok(())
}

/// The value of a bar: a share of the capacity in %, the 99th percentile in ms, or Mb/s.
fn measure(case: Case, run: &Run) -> Option<f64> {
    match case.workload() {
        Workload::Exchanges => run.figures.p99_us.map(|us| us / 1e3),
        Workload::Bulk => match run.figures.steady_share {
            Some(share) => Some(share * 100.0),
            None => run.figures.steady_bps.map(|bps| bps / 1e6),
        },
    }
}

/// The whole transfers of a row, in % of the capacity.
fn wholes(runs: &[&Run], row: Row) -> Vec<f64> {
    let of_row = runs.iter().filter(|run| run.row == row);
    of_row.filter_map(|run| Some(run.figures.whole_share? * 100.0)).collect()
}

fn unit(case: Case) -> &'static str {
    match (case.workload(), case.capacity_bps()) {
        (Workload::Exchanges, _) => "round trip of 200 bytes, 99th percentile, ms",
        (Workload::Bulk, Some(_)) => "goodput, % of the capacity of all links: steady (bar), whole transfer (mark)",
        (Workload::Bulk, None) => "steady goodput, Mb/s",
    }
}

/// One bar per contender: the median, with a whisker from the smallest to the largest.
fn bars(case: Case, runs: &[&Run], file: &Path) -> Result<(), Failure> {
    let rows: BTreeSet<Row> = runs.iter().map(|run| run.row).collect();
    let values = |row: Row| runs.iter().filter(move |run| run.row == row).filter_map(|run| measure(case, run));
    let spreads: Vec<(Row, Spread)> =
        rows.into_iter().rev().filter_map(|row| Some((row, Spread::of(values(row))?))).collect();
    let count = spreads.len();
    let largest = spreads.iter().map(|(_, spread)| spread.max).fold(1.0, f64::max);
    let end = if unit(case).contains('%') { 105.0_f64.max(largest) } else { largest * 1.05 };
    let root = SVGBackend::new(file, (WIDTH, FRAME_HEIGHT + BAR_HEIGHT * count as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(name(&case), ("sans-serif", TITLE_PIXELS))
        .margin(MARGIN)
        .x_label_area_size(40)
        .build_cartesian_2d(0.0..end, 0.0..count as f64)?;
    chart.configure_mesh().disable_y_mesh().disable_y_axis().x_desc(unit(case)).draw()?;
    for (index, (row, spread)) in spreads.iter().enumerate() {
        let (low, middle, high) = (index as f64 + 0.12, index as f64 + 0.5, index as f64 + 0.88);
        chart.draw_series([Rectangle::new([(0.0, low), (spread.median, high)], BAR.filled())])?;
        let whisker = vec![(spread.min, middle), (spread.max, middle)];
        chart.draw_series([PathElement::new(whisker, INK.stroke_width(2))])?;
        if let Some(whole) = Spread::of(wholes(runs, *row)) {
            chart.draw_series([PathElement::new(
                vec![(whole.median, low), (whole.median, high)],
                ALARM.stroke_width(2),
            )])?;
        }
        let words = format!("{row}: {:.1} [{:.1} .. {:.1}]", spread.median, spread.min, spread.max);
        let style = ("sans-serif", LABEL_PIXELS).into_font().color(&INK);
        chart.draw_series([Text::new(words, (end * 0.01, index as f64 + 0.66), style)])?;
    }
    root.present()?;
    Ok(())
}

/// Rates over time, one below the other: the first run of each contender.
fn lines(case: Case, runs: &[&Run], file: &Path) -> Result<(), Failure> {
    let rows: BTreeSet<Row> = runs.iter().map(|run| run.row).collect();
    let firsts: Vec<&Run> =
        rows.into_iter().filter_map(|row| runs.iter().copied().find(|run| run.row == row)).collect();
    let root = SVGBackend::new(file, (WIDTH, LINE_HEIGHT * firsts.len() as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = case.capacity_bps().unwrap_or(1e9) / 1e6 * 1.3;
    for (area, run) in root.split_evenly((firsts.len(), 1)).iter().zip(firsts) {
        let Some(failover) = &run.figures.failover else { continue };
        let (round, gap) = (run.round + 1, failover.gap_ms);
        let title = format!("{}, {}, round {round}: longest gap {gap:.0} ms", name(&case), run.row);
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", LABEL_PIXELS))
            .margin(MARGIN)
            .x_label_area_size(20)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..FAILOVER_TIME_S + 1.0, 0.0..most)?;
        chart.configure_mesh().light_line_style(WHITE).y_desc("Mb/s").y_labels(4).draw()?;
        chart.draw_series(LineSeries::new(rates(run), INK))?;
        for at_s in [CUT_AT_S, RESTORE_AT_S] {
            chart.draw_series([PathElement::new(vec![(at_s, 0.0), (at_s, most)], ALARM)])?;
        }
    }
    root.present()?;
    Ok(())
}

/// Seconds since the connection, and Mb/s.
fn rates(run: &Run) -> Vec<(f64, f64)> {
    let Some(arrivals) = &run.received.arrivals else { return Vec::new() };
    let at = |seconds| until_ns(run.sent.connected_ns, seconds);
    let steps = ((FAILOVER_TIME_S + 1.0) / STEP_S) as u32;
    let rate = |step: u32| {
        let start = f64::from(step) * STEP_S;
        (start, arrivals.bytes_between(at(start), at(start + STEP_S)) * 8.0 / STEP_S / 1e6)
    };
    (0..steps).map(rate).collect()
}
