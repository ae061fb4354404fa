//! Results of a study: tables, curves, assumptions, checks and notes.

use measure::Estimate;
use serde::Serialize;

/// The results of a study.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Comparison of the paper's tables with ours, cell by cell.
    pub tables: Vec<Table>,
    /// Curves.
    pub plots: Vec<Plot>,
    /// Parameters that the paper does not give and that we had to choose.
    pub assumptions: Vec<Assumption>,
    /// Orderings, bounds and laws that should hold, with the numbers found.
    pub checks: Vec<Check>,
    /// Notes that are needed to judge the numbers.
    pub notes: Vec<String>,
}

/// A table of numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// One per cell of a row.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its unit, such as `Mb/s`; empty for a pure number.
    pub unit: String,
}

/// A configuration and its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The configuration.
    pub label: String,
    /// A value for each column.
    pub cells: Vec<Cell>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// The printed value; `None` if the paper prints none.
    pub paper: Option<f64>,
    /// Our value; `None` if it was not computed.
    pub ours: Option<Estimate>,
    /// Accepted relative deviation of our value from the paper's; `None` if there is no tolerance.
    pub tolerance: Option<f64>,
    /// True if a free parameter was fitted to this cell, or if the cell is such a parameter. It is
    /// then no evidence.
    pub fitted: bool,
}

/// A parameter that the paper does not give.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumption {
    /// The name of the parameter.
    pub key: String,
    /// The value used, with its unit.
    pub value: String,
    /// The reason.
    pub reason: String,
    /// Effect of alternative values on a main figure.
    pub sensitivity: Vec<Sensitivity>,
}

/// A main figure with an alternative value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The alternative value, with its unit.
    pub value: String,
    /// The figure, with its unit.
    pub figure: String,
    /// Its value.
    pub ours: Estimate,
}

/// A statement that was checked against the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The statement.
    pub statement: String,
    /// Whether it holds.
    pub holds: bool,
    /// The numbers that decide it.
    pub detail: String,
}

/// A plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// Its title.
    pub title: String,
    /// Name and unit of the x axis.
    pub x: Column,
    /// Name and unit of the y axis.
    pub y: Column,
    /// The curves.
    pub series: Vec<Series>,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points: x and our value.
    pub points: Vec<(f64, Estimate)>,
}

impl Cell {
    /// Creates a cell without a printed value.
    pub const fn ours(ours: Estimate) -> Self {
        Self { paper: None, ours: Some(ours), tolerance: None, fitted: false }
    }

    /// Creates a cell with the paper's value and a tolerance.
    pub const fn compared(paper: f64, ours: Estimate, tolerance: f64) -> Self {
        Self { paper: Some(paper), ours: Some(ours), tolerance: Some(tolerance), fitted: false }
    }

    /// Returns the same cell, marked as fitted.
    #[must_use]
    pub const fn fitted(mut self) -> Self {
        self.fitted = true;
        self
    }

    /// Returns the relative deviation of our value from the paper's.
    pub fn difference(&self) -> Option<f64> {
        match (self.paper, self.ours) {
            (Some(paper), Some(ours)) if paper != 0.0 => Some(ours.mean / paper - 1.0),
            _ => None,
        }
    }

    /// Returns whether our value is within the tolerance; `None` if there is none.
    pub fn is_within(&self) -> Option<bool> {
        // Tolerates rounding errors at the limit.
        Some(self.difference()?.abs() <= self.tolerance? + 1e-9)
    }
}

impl Column {
    /// Creates a quantity and its unit.
    pub fn new(name: &str, unit: &str) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned() }
    }
}

impl Check {
    /// Creates a statement, whether it holds, and the numbers that decide it.
    pub fn new(statement: impl Into<String>, holds: bool, detail: impl Into<String>) -> Self {
        Self { statement: statement.into(), holds, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_within_its_tolerance_up_to_the_limit() {
        let estimate = |mean| Estimate { mean, plus_minus: None };
        let cell = Cell::compared(200.0, estimate(210.0), 0.05);
        assert_eq!(cell.is_within(), Some(true));
        assert!((cell.difference().unwrap() - 0.05).abs() < 1e-12);
        assert_eq!(Cell::compared(200.0, estimate(189.0), 0.05).is_within(), Some(false));
        assert_eq!(Cell::ours(estimate(1.0)).is_within(), None);
    }
}
