//! What deciders may use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use measure::Estimate;

use crate::outcome::{Cell, Check, Column, Outcome};
use crate::study::Options;

/// Options, and what studies found under them: each runs once, when the first decider asks. Several threads may ask.
#[derive(Debug)]
pub struct Context {
    /// How models and studies are run.
    pub options: Options,
    outcomes: Arc<Outcomes>,
}

/// What studies found, by their names.
type Outcomes = Mutex<BTreeMap<&'static str, Arc<OnceLock<Found>>>>;

/// What a study found, with its name for the words of a panic.
#[derive(Clone, Debug)]
pub struct Found {
    id: &'static str,
    outcome: Arc<Outcome>,
}

impl Context {
    /// Nothing has run yet.
    pub fn new(options: Options) -> Self {
        Self { options, outcomes: Arc::default() }
    }

    /// The same, with the same outcomes, for one who may use so many threads: they change no outcome.
    #[must_use]
    pub fn with_threads(&self, threads: usize) -> Self {
        Self { options: Options { threads, ..self.options }, outcomes: Arc::clone(&self.outcomes) }
    }

    /// What the study of this name finds.
    ///
    /// # Panics
    /// If there is no such study: deciders name those of this crate.
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

    /// What all studies found that were asked for.
    #[cfg(test)]
    pub(super) fn outcomes(&self) -> Vec<Found> {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.values().filter_map(|cell| cell.get().cloned()).collect()
    }
}

impl Found {
    /// All of it.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// The first cell in a row and a column of these names, and its column.
    ///
    /// # Panics
    /// If there is none: names of studies and deciders have to fit.
    pub fn cell(&self, row: &str, column: &str) -> (&Column, &Cell) {
        self.find(row, |candidate| candidate.name == column)
            .unwrap_or_else(|| panic!("{} has no row {row:?} with a column {column:?}", self.id))
    }

    /// Our value there, of the column with this name and this unit.
    ///
    /// # Panics
    /// If there is no such cell, or nothing was found.
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

    /// The points of the first curve of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn curve(&self, series: &str) -> &[(f64, Estimate)] {
        let curve = self.outcome.plots.iter().flat_map(|plot| &plot.series).find(|curve| curve.name == series);
        &curve.unwrap_or_else(|| panic!("{} has no curve {series:?}", self.id)).points
    }

    /// Our value there.
    ///
    /// # Panics
    /// As [`cell`](Self::cell), and if nothing was found.
    pub fn ours(&self, row: &str, column: &str) -> Estimate {
        let ours = self.cell(row, column).1.ours;
        ours.unwrap_or_else(|| panic!("{} found nothing in row {row:?}, column {column:?}", self.id))
    }

    /// Whether ours is within the tolerance that the study promises there; false if it promises nothing.
    ///
    /// # Panics
    /// As [`cell`](Self::cell).
    pub fn is_within(&self, row: &str, column: &str) -> bool {
        self.cell(row, column).1.is_within() == Some(true)
    }

    /// The value of a curve at a place.
    ///
    /// # Panics
    /// If there is no such picture, curve or point.
    pub fn point(&self, title: &str, series: &str, at: f64) -> Estimate {
        let plot = self.outcome.plots.iter().find(|plot| plot.title == title);
        let curve = plot.and_then(|plot| plot.series.iter().find(|candidate| candidate.name == series));
        let point = curve.and_then(|curve| curve.points.iter().find(|(x, _)| (x - at).abs() < 1e-6));
        point.unwrap_or_else(|| panic!("{} has no point {at} of {series:?} in {title:?}", self.id)).1
    }

    /// The check whose statement begins so.
    ///
    /// # Panics
    /// If there is none.
    pub fn check(&self, beginning: &str) -> &Check {
        let check = self.outcome.checks.iter().find(|check| check.statement.starts_with(beginning));
        check.unwrap_or_else(|| panic!("{} has no check {beginning:?}", self.id))
    }
}
