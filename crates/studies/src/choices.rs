//! What papers do not say: what was taken, why, and what a headline figure becomes with something else.
//!
//! A study states its choices before it runs and tries them otherwise when it does. The list is one and the same.

use measure::Estimate;

use crate::outcome::{Assumption, Sensitivity};
use crate::study::{Effort, Options};

/// Replications of what is tried otherwise: two give an interval. It shows how much hangs on a choice, not a figure to three digits.
const RUNS_MAX: u32 = 2;

type Figure = Box<dyn Fn(&Options) -> Estimate>;

/// Something that a paper does not say.
pub struct Choice {
    key: String,
    value: String,
    reason: String,
    others: Vec<Other>,
}

/// Another value, and what becomes of a figure with it.
struct Other {
    value: String,
    figure: String,
    ours: Figure,
}

impl Choice {
    /// The parameter `key` is `value`, with its unit, because of `reason`.
    pub fn new(key: impl Into<String>, value: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), reason: reason.into(), others: Vec::new() }
    }

    /// It might be `value`: then `figure`, named with its unit, is what `ours` finds.
    #[must_use]
    pub fn or(
        mut self,
        value: impl Into<String>,
        figure: impl Into<String>,
        ours: impl Fn(&Options) -> Estimate + 'static,
    ) -> Self {
        self.others.push(Other { value: value.into(), figure: figure.into(), ours: Box::new(ours) });
        self
    }

    /// The choice, without what others give.
    pub fn stated(&self) -> Assumption {
        self.assumption(Vec::new())
    }

    /// The choice, with what others give under `options`.
    pub fn tried(&self, options: &Options) -> Assumption {
        let sensitivity = |other: &Other| Sensitivity {
            value: other.value.clone(),
            figure: other.figure.clone(),
            ours: (other.ours)(options),
        };
        self.assumption(self.others.iter().map(sensitivity).collect())
    }

    fn assumption(&self, sensitivity: Vec<Sensitivity>) -> Assumption {
        let (key, value, reason) = (self.key.clone(), self.value.clone(), self.reason.clone());
        Assumption { key, value, reason, sensitivity }
    }
}

/// All of `choices` for an outcome: tried otherwise in full runs, stated in quick ones.
pub(crate) fn assumptions(choices: &[Choice], options: &Options) -> Vec<Assumption> {
    match options.effort {
        Effort::Quick => choices.iter().map(Choice::stated).collect(),
        Effort::Full => {
            let few = Options { replications: options.replications.min(RUNS_MAX), precision: None, ..*options };
            choices.iter().map(|choice| choice.tried(&few)).collect()
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
    fn a_choice_is_stated_in_quick_runs_and_tried_otherwise_in_full_ones() {
        let runs = |options: &Options| Estimate { mean: f64::from(options.replications), plus_minus: None };
        let choices = [Choice::new("window", "2 packets", "usual").or("4 packets", "runs", runs)];
        assert_eq!(assumptions(&choices, &QUICK), [choices[0].stated()]);
        let full = Options { effort: Effort::Full, ..QUICK };
        let [tried] = &assumptions(&choices, &full)[..] else { panic!("one choice") };
        assert_eq!((tried.sensitivity.len(), tried.sensitivity[0].ours.mean), (1, 2.0));
    }

    #[test]
    fn every_study_states_what_it_assumes_with_two_other_values_at_least_and_each_once() {
        for study in crate::all() {
            let choices = study.choices();
            // What Table 1 says of the machines is all that is looked at there.
            assert!(!choices.is_empty() || study.id() == "004-table-1", "{} assumes nothing", study.id());
            let mut keys = BTreeSet::new();
            for choice in &choices {
                assert!(choice.others.len() >= 2, "{}: {} is not tried otherwise", study.id(), choice.key);
                assert!(keys.insert(&choice.key), "{} states {} twice", study.id(), choice.key);
            }
            assert_eq!(study.assumptions().len(), choices.len());
        }
    }

    #[test]
    fn whatever_is_tried_otherwise_makes_a_model_that_runs() {
        // One study of each model, as short as it goes: those of a model share their choices.
        for id in ["000-order", "000-today", "002-scenarios", "003-rate", "004-schemes", "004-coding", "004-table-5"] {
            let study = crate::find(id).expect("one of ours");
            for choice in study.choices() {
                for sensitivity in choice.tried(&Options { replications: 1, ..QUICK }).sensitivity {
                    let (key, value, ours) = (&choice.key, &sensitivity.value, sensitivity.ours.mean);
                    assert!(ours.is_finite() && ours >= 0.0, "{id}: {key} = {value}: {ours}");
                }
            }
        }
    }
}
