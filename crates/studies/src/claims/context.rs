//! The input of deciders.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use measure::Estimate;

use crate::outcome::{Cell, Check, Column, Outcome};
use crate::study::Options;

/// Options, and the outcomes of studies under them. Each study runs once, when the first decider
/// requests it. Threads may share a context.
#[derive(Debug)]
pub struct Context {
    /// Options of models and studies.
    pub options: Options,
    outcomes: Arc<Outcomes>,
}

/// Outcomes by study ID.
type Outcomes = Mutex<BTreeMap<&'static str, Arc<OnceLock<Found>>>>;

/// The outcome of a study, with its ID for panic messages.
#[derive(Clone, Debug)]
pub struct Found {
    id: &'static str,
    outcome: Arc<Outcome>,
}

impl Context {
    /// Creates a context without outcomes.
    pub fn new(options: Options) -> Self {
        Self { options, outcomes: Arc::default() }
    }

    /// Returns the same context, with the same outcomes, for a caller that may use `threads`
    /// threads. The number of threads does not affect outcomes.
    #[must_use]
    pub fn with_threads(&self, threads: usize) -> Self {
        Self { options: Options { threads, ..self.options }, outcomes: Arc::clone(&self.outcomes) }
    }

    /// Returns the outcome of the study with this ID.
    ///
    /// # Panics
    /// Panics if there is no such study: deciders use IDs of this crate.
    pub fn study(&self, id: &'static str) -> Found {
        let cell = {
            let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(outcomes.entry(id).or_default())
        };
        let run = || {
            let study = crate::find(id).unwrap_or_else(|| panic!("there is no study {id}"));
            Found { id, outcome: Arc::new(study.run(&self.options)) }
        };
        cell.get_or_init(run).clone()
    }

    /// Returns the outcomes of all studies that were requested.
    #[cfg(test)]
    pub(super) fn outcomes(&self) -> Vec<Found> {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.values().filter_map(|cell| cell.get().cloned()).collect()
    }
}

impl Found {
    /// Returns the whole outcome.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns the first cell with this row label and column name, and its column.
    ///
    /// # Panics
    /// Panics if there is none: the names in deciders must match those of the studies.
    pub fn cell(&self, row: &str, column: &str) -> (&Column, &Cell) {
        self.find(row, |candidate| candidate.name == column)
            .unwrap_or_else(|| panic!("{} has no row {row:?} with a column {column:?}", self.id))
    }

    /// Returns our value in the column with this name and unit.
    ///
    /// # Panics
    /// Panics if there is no such cell, or it has no value.
    pub fn ours_in(&self, row: &str, column: &str, unit: &str) -> Estimate {
        let cell = self.find(row, |candidate| candidate.name == column && candidate.unit == unit);
        let ours = cell.and_then(|(_, cell)| cell.ours);
        ours.unwrap_or_else(|| panic!("{} found nothing in row {row:?}, column {column:?} in {unit}", self.id))
    }

    fn find(&self, row: &str, is_meant: impl Fn(&Column) -> bool) -> Option<(&Column, &Cell)> {
        self.outcome.tables.iter().find_map(|table| {
            let index = table.columns.iter().position(&is_meant)?;
            let row = table.rows.iter().find(|candidate| candidate.label == row)?;
            Some((&table.columns[index], row.cells.get(index)?))
        })
    }

    /// Returns the points of the first series of this name.
    ///
    /// # Panics
    /// Panics if there is none.
    pub fn curve(&self, series: &str) -> &[(f64, Estimate)] {
        let curve = self.outcome.plots.iter().flat_map(|plot| &plot.series).find(|curve| curve.name == series);
        &curve.unwrap_or_else(|| panic!("{} has no curve {series:?}", self.id)).points
    }

    /// Returns our value in this cell.
    ///
    /// # Panics
    /// Same panics as [`cell`](Self::cell); also panics if it has no value.
    pub fn ours(&self, row: &str, column: &str) -> Estimate {
        let ours = self.cell(row, column).1.ours;
        ours.unwrap_or_else(|| panic!("{} found nothing in row {row:?}, column {column:?}", self.id))
    }

    /// Returns whether our value is within the tolerance of the cell; false if it has none.
    ///
    /// # Panics
    /// Same panics as [`cell`](Self::cell).
    pub fn is_within(&self, row: &str, column: &str) -> bool {
        self.cell(row, column).1.is_within() == Some(true)
    }

    /// Returns the value of a series at `at`.
    ///
    /// # Panics
    /// Panics if there is no such plot, series or point.
    pub fn point(&self, title: &str, series: &str, at: f64) -> Estimate {
        let plot = self.outcome.plots.iter().find(|plot| plot.title == title);
        let curve = plot.and_then(|plot| plot.series.iter().find(|candidate| candidate.name == series));
        let point = curve.and_then(|curve| curve.points.iter().find(|(x, _)| (x - at).abs() < 1e-6));
        point.unwrap_or_else(|| panic!("{} has no point {at} of {series:?} in {title:?}", self.id)).1
    }

    /// Returns the check whose statement starts with `beginning`.
    ///
    /// # Panics
    /// Panics if there is none.
    pub fn check(&self, beginning: &str) -> &Check {
        let check = self.outcome.checks.iter().find(|check| check.statement.starts_with(beginning));
        check.unwrap_or_else(|| panic!("{} has no check {beginning:?}", self.id))
    }
}
