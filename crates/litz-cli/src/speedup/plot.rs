//! The result as a plot: for each side a panel with the speedup over processors, the ideal line and
//! the bound.

use measure::plot::{Curve, Panel, Stroke, svg};

use super::report::{SideReport, SpeedupReport};

/// The plot, as the text of an SVG file.
pub(crate) fn render(report: &SpeedupReport) -> String {
    let what = format!("{}, {} bytes, {:.0} %", report.subject(), report.datagram_bytes, report.confidence * 100.0);
    svg(&report.sides.iter().map(|side| panel(side, &what)).collect::<Vec<_>>())
}

fn panel(side: &SideReport, what: &str) -> Panel {
    let most = side.points.iter().map(|point| point.processors).max().unwrap_or(1);
    let ideal = (1..=most).map(|count| (count as f64, count as f64)).collect();
    let bound = (1..=most).filter_map(|count| Some((count as f64, side.shares.speedup(count)?))).collect();
    let measured = side.points.iter().map(|point| (point.processors as f64, point.speedup)).collect();
    Panel {
        title: format!("{}: speedup by processors", side.title()),
        subtitle: what.to_owned(),
        x_label: "processors".to_owned(),
        y_label: "speedup".to_owned(),
        curves: vec![
            Curve::reference("ideal", ideal, Stroke::Dashed, "#999"),
            Curve::reference("bound", bound, Stroke::Dotted, "#d62728"),
            Curve { colour: Some("#1f77b4"), ..Curve::measured("measured", measured) },
        ],
        bands: Vec::new(),
        equal_scales: true,
        counts: true,
        is_never_negative: true,
    }
}
