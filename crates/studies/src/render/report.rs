//! What `litz study run --json` prints. What is serialised here is the format of `docs/spec/study.md`: a change of meaning is a
//! new version.
//!
//! Nothing in it depends on when, where and on how many threads a study ran: the same program, seed and options give the same bytes.

use measure::Program;
use serde::Serialize;

use crate::document::{self, Document};
use crate::outcome::Outcome;
use crate::study::{Effort, Options, Study};

/// What `format` says.
pub const FORMAT: &str = "litz-study";
/// What `version` says.
pub const FORMAT_VERSION: u32 = 1;

/// Studies that ran under the same conditions.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    format: &'static str,
    version: u32,
    /// How they ran.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// One for each, in the order asked for.
    pub studies: Vec<StudyReport>,
}

/// What an outcome depends on beside the study itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Conditions {
    /// The program that ran them.
    #[serde(flatten)]
    pub program: Program,
    /// What all randomness came from.
    pub seed: u64,
    /// Of each point.
    pub replications: u32,
    /// Of all intervals, between 0 and 1.
    pub confidence: f64,
    /// Up to which more replications were added, if that was asked for.
    pub precision: Option<f64>,
    /// How long each replication was.
    pub effort: Effort,
}

/// A study that ran.
#[derive(Clone, Debug, Serialize)]
pub struct StudyReport {
    /// Its name.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// The paper; none if it is about no paper.
    pub document: Option<Document>,
    /// The files of facts it read.
    pub data: &'static [&'static str],
    /// How it went.
    pub summary: Summary,
    /// What it said.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How many promises were kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Cells within their tolerance that were not fitted.
    pub cells_within: usize,
    /// Cells outside their tolerance, fitted or not.
    pub cells_outside: usize,
    /// Cells within their tolerance for which a parameter was chosen.
    pub cells_fitted: usize,
    /// Checks that hold.
    pub checks_hold: usize,
    /// Checks that do not.
    pub checks_fail: usize,
}

impl Report {
    /// Of these studies.
    pub const fn new(conditions: Conditions, studies: Vec<StudyReport>) -> Self {
        Self { format: FORMAT, version: FORMAT_VERSION, conditions, studies }
    }
}

impl Conditions {
    /// Of these options in this program; the number of threads is none.
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

    /// For people.
    pub fn words(&self) -> String {
        let effort = match self.effort {
            Effort::Quick => ", quick",
            Effort::Full => "",
        };
        let confidence = super::numbers::percent(self.confidence);
        let (seed, count) = (self.seed, self.replications);
        let more = match self.precision {
            Some(share) => format!(" or more, to {}", super::numbers::percent(share)),
            None => String::new(),
        };
        let program = self.program.words();
        format!("{program}, seed {seed}, {count} replications{more}, intervals of {confidence}{effort}")
    }
}

impl StudyReport {
    /// What a study said.
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
    /// Of an outcome.
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

    /// Whether every tolerance and every check holds.
    pub const fn is_kept(&self) -> bool {
        self.cells_outside == 0 && self.checks_fail == 0
    }

    /// For people.
    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.cells_within + self.cells_outside + self.cells_fitted > 0 {
            parts.push(format!(
                "cells: {} within their tolerance, {} outside, {} fitted",
                self.cells_within, self.cells_outside, self.cells_fitted
            ));
        }
        if self.checks_hold + self.checks_fail > 0 {
            parts.push(format!("checks: {} hold, {} fail", self.checks_hold, self.checks_fail));
        }
        if parts.is_empty() { "nothing is promised".to_owned() } else { parts.join("; ") }
    }
}
