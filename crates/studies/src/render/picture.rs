//! Plots of curves as SVG.

use measure::plot::{Curve, Panel, svg};

use crate::outcome::{Column, Plot};

/// Returns an SVG file with one panel. `subtitle` describes the source.
pub fn render(plot: &Plot, subtitle: &str) -> String {
    let curve = |series: &crate::Series| Curve::measured(series.name.as_str(), series.points.clone());
    svg(&[Panel {
        title: plot.title.clone(),
        subtitle: subtitle.to_owned(),
        x_label: label(&plot.x),
        y_label: label(&plot.y),
        curves: plot.series.iter().map(curve).collect(),
        counts: plot.x.name == "processors",
        ..Panel::default()
    }])
}

fn label(column: &Column) -> String {
    if column.unit.is_empty() { column.name.clone() } else { format!("{}, {}", column.name, column.unit) }
}
