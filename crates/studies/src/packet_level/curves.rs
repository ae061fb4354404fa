//! Several curves over the same x values, as a table and as a plot of the same numbers.

use measure::Estimate;

use crate::outcome::{Cell, Column, Plot, Row, Series, Table};

/// Creates one row per entry of `places`, and one column and one series per curve. Each curve has
/// one value per place, in the unit of `y`.
pub(super) fn table_and_plot(
    title: &str,
    x: Column,
    places: &[usize],
    y: Column,
    curves: &[(&str, Vec<Estimate>)],
) -> (Table, Plot) {
    let row = |(index, place): (usize, &usize)| Row {
        label: place.to_string(),
        cells: curves.iter().map(|(_, curve)| Cell::ours(curve[index])).collect(),
    };
    let series = |(name, curve): &(&str, Vec<Estimate>)| Series {
        name: (*name).to_owned(),
        points: places.iter().zip(curve).map(|(&place, &value)| (place as f64, value)).collect(),
    };
    let table = Table {
        title: title.to_owned(),
        columns: curves.iter().map(|(name, _)| Column::new(name, &y.unit)).collect(),
        rows: places.iter().enumerate().map(row).collect(),
    };
    let plot = Plot { title: title.to_owned(), x, y, series: curves.iter().map(series).collect() };
    (table, plot)
}
