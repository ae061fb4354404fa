//! Replication: a fixed number of runs, or as many as a precision needs.

use sim::Replications;

use crate::study::{Options, PRECISE_RUNS_MAX};

/// Returns the results of `model`, a function of seed and run number. `figures` returns the figures
/// that must be precise, the same number for each run.
pub(crate) fn replicate<R: Send>(
    options: &Options,
    model: impl Fn(u64, u64) -> R + Sync,
    figures: impl Fn(&R) -> Vec<f64>,
) -> Vec<R> {
    let runs = u64::from(options.replications.max(1));
    let replications = Replications {
        seed: options.seed,
        runs_min: runs,
        runs_max: if options.precision.is_some() { runs.max(u64::from(PRECISE_RUNS_MAX)) } else { runs },
        confidence: options.confidence,
        precision: options.precision,
        threads: options.threads,
    };
    replications.estimate(model, figures).runs
}

#[cfg(test)]
mod tests {
    use measure::Estimate;
    use sim::Stream;

    use super::*;
    use crate::study::Effort;

    const OPTIONS: Options =
        Options { seed: 1, replications: 3, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 2 };

    fn draw(seed: u64, number: u64) -> f64 {
        0.5 + Stream::new(seed, number, "draw").unit()
    }

    #[test]
    fn runs_are_added_until_the_interval_has_the_requested_precision() {
        let runs = |precision, threads| replicate(&Options { precision, threads, ..OPTIONS }, draw, |&run| vec![run]);
        assert_eq!(runs(None, 2).len(), 3);
        let precise = runs(Some(0.05), 2);
        assert!(precise.len() > 10, "{}", precise.len());
        let estimate = Estimate::of(&precise, OPTIONS.confidence);
        assert!(estimate.plus_minus.is_some_and(|half| half <= 0.05 * estimate.mean), "{estimate:?}");
        assert_eq!(precise, runs(Some(0.05), 1), "the number of threads has no effect");
        assert_eq!(runs(Some(0.0001), 2).len() as u64, u64::from(PRECISE_RUNS_MAX), "the maximum is reached first");
    }
}
