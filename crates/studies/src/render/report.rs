//! The output of `litz study run --json`. The types serialised here define the format of
//! `docs/spec/study.md`; a change of meaning needs a new version.
//!
//! The output does not depend on time, place or number of threads: the same program, seed and
//! options give the same bytes.

use measure::Program;
use serde::Serialize;

use crate::document::{self, Document};
use crate::outcome::Outcome;
use crate::study::{Effort, Options, Study};

/// Value of `format`.
pub const FORMAT: &str = "litz-study";
/// Value of `version`.
pub const FORMAT_VERSION: u32 = 1;

/// Studies that ran under the same conditions.
#[derive(Clone, Debug, Serialize)]
pub struct StudiesReport {
    format: &'static str,
    version: u32,
    /// Conditions of the runs.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The studies, in the requested order.
    pub studies: Vec<StudyReport>,
}

/// Everything apart from the study that determines an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Conditions {
    /// The program that ran them.
    #[serde(flatten)]
    pub program: Program,
    /// The seed.
    pub seed: u64,
    /// Replications of each point.
    pub replications: u32,
    /// Confidence level of all intervals, between 0 and 1.
    pub confidence: f64,
    /// Requested precision, if more replications could be added.
    pub precision: Option<f64>,
    /// Length of each replication.
    pub effort: Effort,
}

/// A study and its outcome.
#[derive(Clone, Debug, Serialize)]
pub struct StudyReport {
    /// The study's ID.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its paper; `None` if it has none.
    pub document: Option<Document>,
    /// The data files it reads.
    pub data: &'static [&'static str],
    /// Counts of kept and missed tolerances and checks.
    pub summary: Summary,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Counts of kept and missed tolerances and checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Cells within their tolerance that were not fitted.
    pub cells_within: usize,
    /// Cells outside their tolerance, fitted or not.
    pub cells_outside: usize,
    /// Cells within their tolerance because a parameter was calibrated to them.
    pub cells_fitted: usize,
    /// Checks that hold.
    pub checks_hold: usize,
    /// Checks that do not hold.
    pub checks_fail: usize,
}

impl StudiesReport {
    /// Creates a report on these studies.
    pub const fn new(conditions: Conditions, studies: Vec<StudyReport>) -> Self {
        Self { format: FORMAT, version: FORMAT_VERSION, conditions, studies }
    }
}

impl Conditions {
    /// Returns the conditions for these options in this program. The number of threads is not a
    /// condition.
    pub const fn of(options: &Options, program: Program) -> Self {
        Self {
            program,
            seed: options.seed,
            replications: options.replications,
            confidence: options.confidence,
            precision: options.precision,
            effort: options.effort,
        }
    }

    /// Returns the conditions as text.
    pub fn describe(&self) -> String {
        let effort = match self.effort {
            Effort::Quick => ", quick",
            Effort::Full => "",
        };
        let confidence = super::numbers::percent(self.confidence);
        let (seed, count) = (self.seed, self.replications);
        let more = match self.precision {
            Some(share) => format!(" or more, for a precision of {}", super::numbers::percent(share)),
            None => String::new(),
        };
        let program = self.program.summary();
        format!("{program}, seed {seed}, {count} replications{more}, intervals of {confidence}{effort}")
    }
}

impl StudyReport {
    /// Creates a report on a study with this outcome.
    pub fn new(study: &dyn Study, outcome: Outcome) -> Self {
        Self {
            id: study.id(),
            title: study.title(),
            document: document::of(study.id()).copied(),
            data: study.data(),
            summary: Summary::of(&outcome),
            outcome,
        }
    }
}

impl Summary {
    /// Counts the tolerances and checks of an outcome.
    pub fn of(outcome: &Outcome) -> Self {
        let mut summary = Self::default();
        for cell in outcome.tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells) {
            match cell.is_within() {
                Some(true) if cell.fitted => summary.cells_fitted += 1,
                Some(true) => summary.cells_within += 1,
                Some(false) => summary.cells_outside += 1,
                None => {}
            }
        }
        summary.checks_hold = outcome.checks.iter().filter(|check| check.holds).count();
        summary.checks_fail = outcome.checks.len() - summary.checks_hold;
        summary
    }

    /// Returns whether all tolerances and checks hold.
    pub const fn is_kept(&self) -> bool {
        self.cells_outside == 0 && self.checks_fail == 0
    }

    /// Returns the counts as text.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        if self.cells_within + self.cells_outside + self.cells_fitted > 0 {
            parts.push(format!(
                "cells: {} within tolerance, {} outside, {} fitted",
                self.cells_within, self.cells_outside, self.cells_fitted
            ));
        }
        if self.checks_hold + self.checks_fail > 0 {
            parts.push(format!("checks: {} hold, {} fail", self.checks_hold, self.checks_fail));
        }
        if parts.is_empty() { "no tolerances or checks".to_owned() } else { parts.join("; ") }
    }
}
