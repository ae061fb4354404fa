//! Choices for parameters that a paper does not give: the value, the reason, and the effect of
//! alternatives on a main figure.
//!
//! A study states its choices before it runs, and evaluates the alternatives in a full run. Both
//! use the same list.

use measure::Estimate;

use crate::outcome::{Assumption, Sensitivity};
use crate::study::{Effort, Options};

/// Replications per alternative. Two give an interval; the purpose is to show how sensitive a
/// figure is, not to estimate it precisely.
const RUNS_MAX: u32 = 2;

type Figure = Box<dyn Fn(&Options) -> Estimate>;

/// A parameter that a paper does not give.
pub struct Choice {
    key: String,
    value: String,
    reason: String,
    alternatives: Vec<Alternative>,
}

/// An alternative value and its effect on a figure.
struct Alternative {
    value: String,
    figure: String,
    ours: Figure,
}

impl Choice {
    /// Creates a choice: the parameter `key` has `value`, with its unit, for `reason`.
    pub fn new(key: impl Into<String>, value: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), reason: reason.into(), alternatives: Vec::new() }
    }

    /// Adds the alternative `value`. With it, `ours` returns `figure`, named with its unit.
    #[must_use]
    pub fn or(
        mut self,
        value: impl Into<String>,
        figure: impl Into<String>,
        ours: impl Fn(&Options) -> Estimate + 'static,
    ) -> Self {
        self.alternatives.push(Alternative { value: value.into(), figure: figure.into(), ours: Box::new(ours) });
        self
    }

    /// Returns the choice without results of its alternatives.
    pub fn without_alternatives(&self) -> Assumption {
        self.assumption(Vec::new())
    }

    /// Returns the choice with the results of its alternatives under `options`.
    pub fn with_alternatives(&self, options: &Options) -> Assumption {
        let sensitivity = |other: &Alternative| Sensitivity {
            value: other.value.clone(),
            figure: other.figure.clone(),
            ours: (other.ours)(options),
        };
        self.assumption(self.alternatives.iter().map(sensitivity).collect())
    }

    fn assumption(&self, sensitivity: Vec<Sensitivity>) -> Assumption {
        let (key, value, reason) = (self.key.clone(), self.value.clone(), self.reason.clone());
        Assumption { key, value, reason, sensitivity }
    }
}

/// Returns the assumptions of an outcome: full runs evaluate the alternatives, quick runs only
/// state the choices.
pub(crate) fn assumptions(choices: &[Choice], options: &Options) -> Vec<Assumption> {
    match options.effort {
        Effort::Quick => choices.iter().map(Choice::without_alternatives).collect(),
        Effort::Full => {
            let few = Options { replications: options.replications.min(RUNS_MAX), precision: None, ..*options };
            choices.iter().map(|choice| choice.with_alternatives(&few)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const QUICK: Options =
        Options { seed: 1, replications: 3, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 2 };

    #[test]
    fn quick_runs_state_choices_and_full_runs_evaluate_alternatives() {
        let runs = |options: &Options| Estimate { mean: f64::from(options.replications), plus_minus: None };
        let choices = [Choice::new("window", "2 packets", "usual").or("4 packets", "runs", runs)];
        assert_eq!(assumptions(&choices, &QUICK), [choices[0].without_alternatives()]);
        let full = Options { effort: Effort::Full, ..QUICK };
        let [tried] = &assumptions(&choices, &full)[..] else { panic!("one choice") };
        assert_eq!((tried.sensitivity.len(), tried.sensitivity[0].ours.mean), (1, 2.0));
    }

    #[test]
    fn every_study_states_each_assumption_once_with_two_alternatives_at_least() {
        for study in crate::all() {
            let choices = study.choices();
            // That study only checks the machine parameters of Table 1.
            assert!(!choices.is_empty() || study.id() == "004-table-1", "{} has no assumptions", study.id());
            let mut keys = BTreeSet::new();
            for choice in &choices {
                assert!(
                    choice.alternatives.len() >= 2,
                    "{}: {} has fewer than two alternatives",
                    study.id(),
                    choice.key
                );
                assert!(keys.insert(&choice.key), "{} states {} twice", study.id(), choice.key);
            }
            assert_eq!(study.assumptions().len(), choices.len());
        }
    }

    #[test]
    fn every_alternative_gives_a_model_that_runs() {
        // One study per model, as short as possible: the studies of a model share their choices.
        for id in ["000-order", "000-today", "002-scenarios", "003-rate", "004-schemes", "004-coding", "004-table-5"] {
            let study = crate::find(id).expect("the study exists");
            for choice in study.choices() {
                for sensitivity in choice.with_alternatives(&Options { replications: 1, ..QUICK }).sensitivity {
                    let (key, value, ours) = (&choice.key, &sensitivity.value, sensitivity.ours.mean);
                    assert!(ours.is_finite() && ours >= 0.0, "{id}: {key} = {value}: {ours}");
                }
            }
        }
    }
}
