//! The result as a picture: a panel for each side, speedup over processors, with the ideal line and the bound.

use std::fmt::Write;

use super::{Estimate, Report, SideReport};

/// Of a panel, in pixels.
const PANEL_WIDTH: f64 = 420.0;
const PANEL_HEIGHT: f64 = 400.0;

/// Around the axes: title above, labels left and below.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 48.0;

/// Marks on an axis, at most.
const TICKS_MAX: usize = 8;

/// Half the width of the ends of an error bar.
const WHISKER: f64 = 4.0;

/// The whole picture, as the text of an SVG file.
pub(crate) fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _written = write_all(&mut out, report);
    out
}

fn write_all(out: &mut String, report: &Report) -> std::fmt::Result {
    let width = PANEL_WIDTH * report.sides.len() as f64;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{PANEL_HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    for (index, side) in report.sides.iter().enumerate() {
        writeln!(out, "<g transform=\"translate({},0)\">", PANEL_WIDTH * index as f64)?;
        let what = format!("{}, {} bytes, {:.0} %", report.cipher, report.datagram_bytes, report.confidence * 100.0);
        write_panel(out, side, &what)?;
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>")
}

/// Where values are in a panel: both axes begin at zero and have the same scale, so that the ideal line is the diagonal.
struct Scale {
    max: f64,
}

impl Scale {
    fn x(&self, processors: f64) -> f64 {
        LEFT + processors / self.max * (PANEL_WIDTH - LEFT - RIGHT)
    }

    fn y(&self, speedup: f64) -> f64 {
        PANEL_HEIGHT - BOTTOM - speedup / self.max * (PANEL_HEIGHT - TOP - BOTTOM)
    }
}

fn write_panel(out: &mut String, side: &SideReport, what: &str) -> std::fmt::Result {
    let most = side.points.iter().map(|point| point.processors).max().unwrap_or(1);
    let highest = side.points.iter().map(|point| point.speedup.range().1).fold(0.0, f64::max);
    let scale = Scale { max: (most as f64 + 0.5).max(highest * 1.05) };
    write_axes(out, &scale, most)?;
    writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}: speedup by processors</text>\n\
         <text x=\"{LEFT}\" y=\"38\" fill=\"#555\">{}</text>",
        side.title(),
        escape(what)
    )?;
    let ideal: Vec<_> = (1..=most).map(|count| (count as f64, count as f64)).collect();
    write_line(out, &scale, &ideal, "stroke=\"#999\" stroke-dasharray=\"6 4\"", "ideal")?;
    let bound: Vec<_> = (1..=most).filter_map(|count| Some((count as f64, side.shares.speedup(count)?))).collect();
    write_line(out, &scale, &bound, "stroke=\"#d62728\" stroke-dasharray=\"2 3\"", "bound")?;
    let measured: Vec<_> = side.points.iter().map(|point| (point.processors as f64, point.speedup.mean)).collect();
    write_line(out, &scale, &measured, "stroke=\"#1f77b4\" stroke-width=\"2\"", "measured")?;
    for point in &side.points {
        write_point(out, &scale, point.processors as f64, &point.speedup)?;
    }
    for (row, (name, colour)) in [("ideal", "#999"), ("bound", "#d62728"), ("measured", "#1f77b4")].iter().enumerate() {
        let y = TOP + 14.0 + 16.0 * row as f64;
        writeln!(
            out,
            "<line x1=\"{}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            LEFT + 12.0,
            LEFT + 36.0,
            LEFT + 42.0,
            y + 4.0
        )?;
    }
    Ok(())
}

fn write_axes(out: &mut String, scale: &Scale, most: usize) -> std::fmt::Result {
    let (left, right) = (scale.x(0.0), scale.x(scale.max));
    let (bottom, top) = (scale.y(0.0), scale.y(scale.max));
    writeln!(out, "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"black\"/>")?;
    let step = most.div_ceil(TICKS_MAX).max(1);
    for count in (step..=scale.max as usize).step_by(step) {
        let (x, y) = (scale.x(count as f64), scale.y(count as f64));
        writeln!(
            out,
            "<path d=\"M{x:.1} {bottom:.1}v4M{left:.1} {y:.1}h-4\" stroke=\"black\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{count}</text>",
            bottom + 18.0,
            left - 8.0,
            y + 4.0
        )?;
    }
    let middle = f64::midpoint(left, right);
    writeln!(out, "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">processors</text>", bottom + 38.0)
}

fn write_line(out: &mut String, scale: &Scale, points: &[(f64, f64)], style: &str, class: &str) -> std::fmt::Result {
    let places: Vec<_> = points.iter().map(|(x, y)| format!("{:.1},{:.1}", scale.x(*x), scale.y(*y))).collect();
    writeln!(out, "<polyline class=\"{class}\" points=\"{}\" fill=\"none\" {style}/>", places.join(" "))
}

fn write_point(out: &mut String, scale: &Scale, processors: f64, speedup: &Estimate) -> std::fmt::Result {
    let (x, y) = (scale.x(processors), scale.y(speedup.mean));
    if speedup.plus_minus.is_some() {
        let (low, high) = speedup.range();
        let (low, high) = (scale.y(low), scale.y(high));
        let (before, after) = (x - WHISKER, x + WHISKER);
        writeln!(
            out,
            "<path class=\"interval\" d=\"M{x:.1} {low:.1}V{high:.1}M{before:.1} {low:.1}H{after:.1}M{before:.1} \
             {high:.1}H{after:.1}\" stroke=\"#1f77b4\"/>"
        )?;
    }
    writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"#1f77b4\"/>")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_lie_on_the_diagonal_and_larger_ones_further_up() {
        let scale = Scale { max: 4.0 };
        assert!((scale.x(0.0) - LEFT).abs() < 1e-9 && (scale.x(4.0) - (PANEL_WIDTH - RIGHT)).abs() < 1e-9);
        assert!((scale.y(4.0) - TOP).abs() < 1e-9 && scale.y(3.0) < scale.y(2.0));
    }

    #[test]
    fn an_interval_is_drawn_where_there_is_one() {
        let mut out = String::new();
        let scale = Scale { max: 2.0 };
        write_point(&mut out, &scale, 1.0, &Estimate { mean: 1.0, plus_minus: None }).unwrap();
        assert!(out.contains("circle") && !out.contains("interval"));
        write_point(&mut out, &scale, 1.0, &Estimate { mean: 1.0, plus_minus: Some(0.5) }).unwrap();
        let (low, high) = (format!("{:.1}V", scale.y(0.5)), format!("V{:.1}M", scale.y(1.5)));
        assert!(out.contains(&low) && out.contains(&high), "{out}");
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
