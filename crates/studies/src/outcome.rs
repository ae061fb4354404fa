//! What a study says: what the paper has, what we have, and what it rests on.

use measure::Estimate;
use serde::Serialize;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The paper's tables and ours, cell by cell.
    pub tables: Vec<Table>,
    /// Curves.
    pub plots: Vec<Plot>,
    /// What the paper does not say and we had to choose.
    pub assumptions: Vec<Assumption>,
    /// Orderings, bounds and laws that must hold, with what was found.
    pub checks: Vec<Check>,
    /// What a reader must know to judge the numbers.
    pub notes: Vec<String>,
}

/// Numbers in rows and columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// One for each cell of a row.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// What it is.
    pub name: String,
    /// Its unit, such as `Mb/s`; empty for a pure number.
    pub unit: String,
}

/// A configuration and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The configuration.
    pub label: String,
    /// A value for each column.
    pub cells: Vec<Cell>,
}

/// One value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// What the paper prints; `None` where it prints nothing.
    pub paper: Option<f64>,
    /// What we found; `None` where it was not run.
    pub ours: Option<Estimate>,
    /// How far ours may be from the paper's, as a share of it; `None` if nothing is promised.
    pub tolerance: Option<f64>,
    /// True if a free parameter was chosen so that this cell fits, or the cell is such a parameter: then it proves nothing.
    pub fitted: bool,
}

/// Something the paper does not say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumption {
    /// The parameter.
    pub key: String,
    /// What we took, with its unit.
    pub value: String,
    /// Why.
    pub reason: String,
    /// What a headline figure becomes with other values.
    pub sensitivity: Vec<Sensitivity>,
}

/// A headline figure under another assumption.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The other value, with its unit.
    pub value: String,
    /// Which figure, with its unit.
    pub figure: String,
    /// What it becomes.
    pub ours: Estimate,
}

/// A statement that was held against the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What should hold.
    pub statement: String,
    /// Whether it does.
    pub holds: bool,
    /// The numbers that decide it.
    pub detail: String,
}

/// A picture of curves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// Its heading.
    pub title: String,
    /// Name and unit of the axis from left to right.
    pub x: Column,
    /// Name and unit of the axis upwards.
    pub y: Column,
    /// The curves.
    pub series: Vec<Series>,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Places on the x axis and what was found there.
    pub points: Vec<(f64, Estimate)>,
}

impl Cell {
    /// What we found, where the paper prints nothing.
    pub const fn ours(ours: Estimate) -> Self {
        Self { paper: None, ours: Some(ours), tolerance: None, fitted: false }
    }

    /// Both, with the tolerance that is promised.
    pub const fn compared(paper: f64, ours: Estimate, tolerance: f64) -> Self {
        Self { paper: Some(paper), ours: Some(ours), tolerance: Some(tolerance), fitted: false }
    }

    /// The same cell, chosen to fit.
    #[must_use]
    pub const fn fitted(mut self) -> Self {
        self.fitted = true;
        self
    }

    /// How far ours is from the paper's, as a share of it.
    pub fn difference(&self) -> Option<f64> {
        match (self.paper, self.ours) {
            (Some(paper), Some(ours)) if paper != 0.0 => Some(ours.mean / paper - 1.0),
            _ => None,
        }
    }

    /// Whether the promise is kept; `None` if there is none.
    pub fn is_within(&self) -> Option<bool> {
        // A hair of room, so that a value on the line is on the right side of it.
        Some(self.difference()?.abs() <= self.tolerance? + 1e-9)
    }
}

impl Column {
    /// A quantity and its unit.
    pub fn new(name: &str, unit: &str) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned() }
    }
}

impl Check {
    /// A statement, whether it holds, and the numbers that decide it.
    pub fn new(statement: impl Into<String>, holds: bool, detail: impl Into<String>) -> Self {
        Self { statement: statement.into(), holds, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_keeps_its_promise_up_to_the_line() {
        let estimate = |mean| Estimate { mean, plus_minus: None };
        let cell = Cell::compared(200.0, estimate(210.0), 0.05);
        assert_eq!(cell.is_within(), Some(true));
        assert!((cell.difference().unwrap() - 0.05).abs() < 1e-12);
        assert_eq!(Cell::compared(200.0, estimate(189.0), 0.05).is_within(), Some(false));
        assert_eq!(Cell::ours(estimate(1.0)).is_within(), None);
    }
}
