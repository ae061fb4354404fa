//! Decisions about claims.

use measure::Estimate;
use serde::Serialize;

use super::context::{Context, Found};

/// The result of deciding a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The model agrees with the claim.
    Holds,
    /// The model contradicts the claim.
    Refuted,
    /// It cannot be decided here.
    NotDecidable,
}

/// A number that a verdict is based on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its unit; empty for a pure number.
    pub unit: String,
    /// The number that the paper prints, if any.
    pub paper: Option<f64>,
    /// Our result.
    pub ours: Estimate,
    /// True if a free parameter was calibrated to this number, or if it is such a parameter. It is
    /// then no evidence.
    pub fitted: bool,
}

/// The decision about a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The numbers that the verdict is based on.
    pub figures: Vec<Figure>,
    /// The reason, in one line.
    pub explanation: String,
}

/// Decides one claim.
pub(super) type Decider = fn(&Context) -> Decision;

impl Decision {
    /// Creates a decision with the explanation for either case.
    pub fn of(holds: bool, if_it_holds: impl Into<String>, if_not: impl Into<String>) -> Self {
        if holds {
            Self { verdict: Verdict::Holds, figures: Vec::new(), explanation: if_it_holds.into() }
        } else {
            Self { verdict: Verdict::Refuted, figures: Vec::new(), explanation: if_not.into() }
        }
    }

    /// Creates a decision that holds if the checks of a study that begin with `beginnings` hold.
    /// The explanation includes their details in either case.
    pub(crate) fn by_checks(found: &Found, beginnings: &[&str], if_they_hold: &str, if_not: &str) -> Self {
        let checks: Vec<_> = beginnings.iter().map(|beginning| found.check(beginning)).collect();
        let failing: Vec<_> = checks.iter().filter(|check| !check.holds).collect();
        if failing.is_empty() {
            let details: Vec<_> = checks.iter().map(|check| check.detail.as_str()).collect();
            return Self::of(true, format!("{if_they_hold} ({})", details.join("; ")), "");
        }
        let details: Vec<_> = failing.iter().map(|check| format!("{}: {}", check.statement, check.detail)).collect();
        Self::of(false, "", format!("{if_not} (failed: {})", details.join("; ")))
    }

    /// Creates a claim that cannot be decided here, and the reason.
    pub fn not_decidable(why: impl Into<String>) -> Self {
        Self { verdict: Verdict::NotDecidable, figures: Vec::new(), explanation: why.into() }
    }

    /// Adds a number, with the paper's value if there is one.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, unit: &str, paper: impl Into<Option<f64>>, ours: Estimate) -> Self {
        self.figures.push(Figure {
            name: name.into(),
            unit: unit.to_owned(),
            paper: paper.into(),
            ours,
            fitted: false,
        });
        self
    }

    /// Marks the last number as fitted.
    ///
    /// # Panics
    /// Panics if there is no number.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        self.figures.last_mut().expect("there is a number").fitted = true;
        self
    }

    /// Adds the cell of a study in this row and column.
    #[must_use]
    pub fn with_cell(self, name: impl Into<String>, found: &Found, row: &str, column: &str) -> Self {
        let (of, cell) = found.cell(row, column);
        let (unit, paper, is_fitted) = (of.unit.clone(), cell.paper, cell.fitted);
        let decision = self.with(name, &unit, paper, found.ours(row, column));
        if is_fitted { decision.fitted() } else { decision }
    }
}

/// Returns a computed number without an interval.
pub(crate) const fn exact(mean: f64) -> Estimate {
    Estimate { mean, plus_minus: None }
}
