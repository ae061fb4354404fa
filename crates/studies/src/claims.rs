//! What the papers say, as statements that can be wrong, and what we found.
//!
//! The statements are in `data/claims.toml`. Each is decided by a function that runs a model, or takes what a study found: no
//! verdict is written down anywhere. A refutation is as good as a confirmation; what needs a live TCP, the papers' hardware or
//! an opinion is not decided, and says why.
//!
//! | module | document |
//! |---|---|
//! | [`context`] | what deciders may use: options, and outcomes of studies, each run once |
//! | `document_NNN` | the deciders of a document |

pub mod context;
mod document_000;
mod document_001;
mod document_002;
mod document_003;
mod document_004;
mod models;

use std::sync::LazyLock;

use measure::Estimate;
use serde::{Deserialize, Serialize};

pub use context::{Context, Found};

/// A statement of a paper.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Number of its document and its own.
    pub id: String,
    /// What is said, in our words.
    pub statement: String,
    /// How to find out.
    pub check: String,
    /// The file of facts with the numbers.
    pub data: Option<String>,
    /// Whether it can be decided at all.
    pub testable: Testable,
}

/// Whether a claim can be decided by a simulation, or by a measurement on ordinary hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Testable {
    /// It can.
    Yes,
    /// Part of it can.
    Partly,
    /// It is an opinion or an outlook.
    No,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// What the model does is what the claim says.
    Holds,
    /// It is not.
    Refuted,
    /// Nothing here can say.
    NotDecidable,
}

/// A number that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its unit; empty for a pure number.
    pub unit: String,
    /// What the paper prints, if it does.
    pub paper: Option<f64>,
    /// What was found.
    pub ours: Estimate,
    /// True if a free parameter was chosen so that it comes out, or it is such a parameter: then it proves nothing.
    pub fitted: bool,
}

/// What was found out about a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// How it went.
    pub verdict: Verdict,
    /// The numbers it rests on.
    pub figures: Vec<Figure>,
    /// Why, in a line.
    pub explanation: String,
}

/// Finds out about one claim.
type Decider = fn(&Context) -> Decision;

/// Every claim, in the order of the documents.
///
/// # Panics
/// Never with the file as it is: a test reads it.
pub fn all() -> &'static [Claim] {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        claim: Vec<Claim>,
    }
    static ALL: LazyLock<Vec<Claim>> = LazyLock::new(|| {
        let file: File =
            toml::from_str(include_str!("../data/claims.toml")).expect("the file of claims is well-formed");
        file.claim
    });
    &ALL
}

/// Finds out about `claim`.
///
/// # Panics
/// If nothing here knows the claim: a test sees to it that every one of [`all`] is known.
pub fn decide(claim: &Claim, context: &Context) -> Decision {
    let (_, decider) = deciders().find(|(id, _)| *id == claim.id).expect("every claim has a decider");
    decider(context)
}

fn deciders() -> impl Iterator<Item = (&'static str, Decider)> {
    let small = document_000::DECIDERS.into_iter().chain(document_001::DECIDERS);
    small.chain(document_002::DECIDERS).chain(document_003::DECIDERS).chain(document_004::deciders())
}

impl Decision {
    /// What holds or not, and why in either case.
    pub fn of(holds: bool, if_it_holds: impl Into<String>, if_not: impl Into<String>) -> Self {
        if holds {
            Self { verdict: Verdict::Holds, figures: Vec::new(), explanation: if_it_holds.into() }
        } else {
            Self { verdict: Verdict::Refuted, figures: Vec::new(), explanation: if_not.into() }
        }
    }

    /// What holds if these checks of a study do. The numbers that decide them are told either way.
    pub(crate) fn by_checks(found: &Found, beginnings: &[&str], if_they_hold: &str, if_not: &str) -> Self {
        let checks: Vec<_> = beginnings.iter().map(|beginning| found.check(beginning)).collect();
        let failing: Vec<_> = checks.iter().filter(|check| !check.holds).collect();
        if failing.is_empty() {
            let details: Vec<_> = checks.iter().map(|check| check.detail.as_str()).collect();
            return Self::of(true, format!("{if_they_hold} ({})", details.join("; ")), "");
        }
        let details: Vec<_> = failing.iter().map(|check| format!("{}: {}", check.statement, check.detail)).collect();
        Self::of(false, "", format!("{if_not} (not so: {})", details.join("; ")))
    }

    /// What nothing here can say, and why.
    pub fn not_decidable(why: impl Into<String>) -> Self {
        Self { verdict: Verdict::NotDecidable, figures: Vec::new(), explanation: why.into() }
    }

    /// The same with a number, which the paper prints as well or not.
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

    /// The same; its last number was fitted.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        self.figures.last_mut().expect("a number that was fitted").fitted = true;
        self
    }

    /// The same with what a study has in the cell of this row and this column.
    #[must_use]
    pub fn with_cell(self, name: impl Into<String>, found: &Found, row: &str, column: &str) -> Self {
        let (of, cell) = found.cell(row, column);
        let (unit, paper, is_fitted) = (of.unit.clone(), cell.paper, cell.fitted);
        let decision = self.with(name, &unit, paper, found.ours(row, column));
        if is_fitted { decision.fitted() } else { decision }
    }
}

/// A number that was worked out, not drawn: it has no interval.
pub(crate) const fn exact(mean: f64) -> Estimate {
    Estimate { mean, plus_minus: None }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Effort, Options};

    #[test]
    fn every_claim_has_one_decider_and_every_decider_a_claim() {
        let claims: Vec<_> = all().iter().map(|claim| claim.id.as_str()).collect();
        let known: Vec<_> = deciders().map(|(id, _)| id).collect();
        assert_eq!(claims.len(), 75);
        assert_eq!(known.iter().copied().collect::<BTreeSet<_>>(), claims.iter().copied().collect());
        assert_eq!(known.len(), claims.len(), "none twice");
    }

    #[test]
    fn every_file_that_a_claim_names_is_there() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        for claim in all() {
            let Some(file) = &claim.data else { continue };
            assert!(folder.join(file).is_file(), "{} names {file}", claim.id);
        }
    }

    #[test]
    fn every_claim_belongs_to_a_document() {
        for claim in all() {
            assert!(crate::document::of(&claim.id).is_some(), "{}", claim.id);
        }
    }

    /// Whether the explanation has a number that is not a name ("1-bus") nor part of what was to be found out.
    fn has_found_numbers(decision: &Decision, context: &Context) -> bool {
        let mut found = decision.explanation.clone();
        for outcome in context.outcomes() {
            for check in &outcome.outcome().checks {
                found = found.replace(&check.statement, "");
            }
        }
        let is_number = |word: &str| word.trim_matches(|c: char| "()[]+,;:.%".contains(c)).parse::<f64>().is_ok();
        found.split_whitespace().any(is_number)
    }

    #[test]
    fn names_and_statements_are_no_numbers_that_were_found() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let context = Context::new(options);
        let table = context.study("004-table-1");
        let statement = &table.outcome().checks[0].statement;
        let has = |words: String| has_found_numbers(&Decision::of(true, words, ""), &context);
        assert!(!has(format!("the 1-bus does as document 004-x says ({statement}: was run)")));
        assert!(has(format!("the 1-bus does ({statement}: [1.25, 3.5] Mb/s)")));
        assert!(has("it grows by +45.4 %".to_owned()));
    }

    #[test]
    fn a_number_says_whether_the_cell_that_it_comes_from_was_fitted() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let context = Context::new(options);
        let fitted = |id: &str| -> Vec<bool> {
            let claim = all().iter().find(|claim| claim.id == id).expect("one of ours");
            decide(claim, &context).figures.iter().map(|figure| figure.fitted).collect()
        };
        // What hosts and boards cost was solved from the fixed latencies; the slope at MAC level was used for nothing.
        assert_eq!((fitted("003-06"), fitted("003-02")), (vec![true, true], vec![false]));
        // A difference of two fitted numbers, and one of which only one was.
        assert_eq!(fitted("003-04"), [true, false]);
    }

    #[test]
    fn every_claim_is_decided_and_the_numbers_are_there() {
        let options =
            Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 2 };
        let context = Context::new(options);
        let mut verdicts = BTreeSet::new();
        for claim in all() {
            let decision = decide(claim, &context);
            assert!(!decision.explanation.is_empty(), "{}", claim.id);
            // What studies have checked is told in words.
            let has_numbers = !decision.figures.is_empty() || has_found_numbers(&decision, &context);
            let is_open = decision.verdict == Verdict::NotDecidable;
            assert!(has_numbers || is_open, "{}: {}", claim.id, decision.explanation);
            // An opinion is never decided; what can be tested is, but for what takes hardware or a number that is not printed.
            assert!(claim.testable != Testable::No || decision.verdict == Verdict::NotDecidable, "{}", claim.id);
            verdicts.insert(format!("{:?}", decision.verdict));
        }
        assert_eq!(verdicts.len(), 3, "some hold, some are refuted, some are left open: {verdicts:?}");
    }
}
