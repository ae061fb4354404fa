//! The papers' claims, as falsifiable statements, and the decisions about them.
//!
//! The statements are in `data/claims.toml`. Each is decided by a function that runs a model or
//! uses the outcome of a study; no verdict is stored. A refutation is as valid as a confirmation. A
//! claim that needs a live TCP or the papers' hardware, or that is an opinion, is not decided, and
//! the decision says why.
//!
//! | module | contents |
//! |---|---|
//! | [`context`] | the options and study outcomes that deciders use; each study runs once |
//! | `decision` | verdicts, with the numbers they are based on |
//! | `nahum`, `gigabit_kits`, `ruetsche`, `safenet`, `old_dominion` | the deciders of each paper |
//! | `models` | models for claims that no study covers |

pub mod context;
pub(crate) mod decision;
mod gigabit_kits;
mod models;
mod nahum;
mod old_dominion;
mod ruetsche;
mod safenet;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use context::{Context, Found};
use decision::Decider;
pub use decision::{Decision, Figure, Verdict};

/// A claim of a paper.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Number of its paper, followed by its own number.
    pub id: String,
    /// The statement, in our words.
    pub statement: String,
    /// Way to decide it.
    pub check: String,
    /// The data file with the numbers.
    pub data: Option<String>,
    /// Whether it can be decided.
    pub testable: Testable,
}

/// Whether a simulation, or a measurement on ordinary hardware, can decide a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Testable {
    /// It can be decided.
    Yes,
    /// Part of it can be decided.
    Partly,
    /// It is an opinion or an outlook.
    No,
}

/// Returns all claims, in the order of the papers.
///
/// # Panics
/// Never panics with the shipped file, which a test parses.
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

/// Decides `claim`.
///
/// # Panics
/// Panics if `claim` has no decider. A test checks that all claims of [`all`] have one.
pub fn decide(claim: &Claim, context: &Context) -> Decision {
    let (_, decider) = deciders().find(|(id, _)| *id == claim.id).expect("every claim has a decider");
    decider(context)
}

fn deciders() -> impl Iterator<Item = (&'static str, Decider)> {
    let small = nahum::DECIDERS.into_iter().chain(gigabit_kits::DECIDERS);
    small.chain(ruetsche::DECIDERS).chain(safenet::DECIDERS).chain(old_dominion::deciders())
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
        assert_eq!(known.len(), claims.len(), "no duplicates");
    }

    #[test]
    fn every_data_file_of_a_claim_exists() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        for claim in all() {
            let Some(file) = &claim.data else { continue };
            assert!(folder.join(file).is_file(), "{} names {file}", claim.id);
        }
    }

    #[test]
    fn every_claim_belongs_to_a_paper() {
        for claim in all() {
            assert!(crate::document::of(&claim.id).is_some(), "{}", claim.id);
        }
    }

    /// Returns whether the explanation contains a number that is neither part of a name ("1-bus")
    /// nor of the statement of a check.
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
    fn numbers_in_names_and_statements_are_not_results() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let context = Context::new(options);
        let table = context.study("004-table-1");
        let statement = &table.outcome().checks[0].statement;
        let has = |words: String| has_found_numbers(&Decision::of(true, words, ""), &context);
        assert!(!has(format!("the 1-bus does as study 004-x says ({statement}: was run)")));
        assert!(has(format!("the 1-bus does ({statement}: [1.25, 3.5] Mb/s)")));
        assert!(has("it grows by +45.4 %".to_owned()));
    }

    #[test]
    fn a_figure_keeps_the_fitted_mark_of_its_cell() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let context = Context::new(options);
        let fitted = |id: &str| -> Vec<bool> {
            let claim = all().iter().find(|claim| claim.id == id).expect("the claim exists");
            decide(claim, &context).figures.iter().map(|figure| figure.fitted).collect()
        };
        // The costs of hosts and boards were calibrated to the fixed latencies; the slope at MAC
        // level was not used for calibration.
        assert_eq!((fitted("003-06"), fitted("003-02")), (vec![true, true], vec![false]));
        // A difference of two fitted numbers, and one of which only one operand is fitted.
        assert_eq!(fitted("003-04"), [true, false]);
    }

    #[test]
    fn every_claim_is_decided_with_numbers() {
        let options =
            Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 2 };
        let context = Context::new(options);
        let mut verdicts = BTreeSet::new();
        for claim in all() {
            let decision = decide(claim, &context);
            assert!(!decision.explanation.is_empty(), "{}", claim.id);
            // Results of study checks are in the text.
            let has_numbers = !decision.figures.is_empty() || has_found_numbers(&decision, &context);
            let is_open = decision.verdict == Verdict::NotDecidable;
            assert!(has_numbers || is_open, "{}: {}", claim.id, decision.explanation);
            // An opinion is never decided. A testable claim is decided unless it needs hardware or
            // a number that is not printed.
            assert!(claim.testable != Testable::No || decision.verdict == Verdict::NotDecidable, "{}", claim.id);
            verdicts.insert(format!("{:?}", decision.verdict));
        }
        assert_eq!(verdicts.len(), 3, "some hold, some are refuted, some are undecided: {verdicts:?}");
    }
}
