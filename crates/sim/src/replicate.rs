//! Replication of a model: warm-up removal, independent runs, confidence intervals, and as many
//! runs as the requested precision needs.
//!
//! The number of threads affects only the execution time. A run is a function of its seed and run
//! number, results are kept in order of their run numbers, and whether enough runs were made is
//! decided on the results in that order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use measure::Estimate;
use units::Duration;

use super::kernel::Simulation;

/// Values that [`mser5`] averages into one batch; five is White's choice.
const MSER_BATCH: usize = 5;

/// Number of runs of a model and the required precision of its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Replications {
    /// The seed of all runs; they differ by their run numbers.
    pub seed: u64,
    /// Minimum number of runs. An interval needs two.
    pub runs_min: u64,
    /// Maximum number of runs, whatever the width of the intervals.
    pub runs_max: u64,
    /// Confidence level of the intervals, between 0 and 1.
    pub confidence: f64,
    /// Relative half-width that the interval of each figure must reach before no more runs are
    /// added. `None`: exactly `runs_min` runs.
    pub precision: Option<f64>,
    /// Number of threads.
    pub threads: usize,
}

/// The runs of a model and their estimates.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicated<R> {
    /// The result of each run, by run number.
    pub runs: Vec<R>,
    /// Mean and interval of each figure over the runs.
    pub estimates: Vec<Estimate>,
    /// Whether each figure has the requested precision. False if `runs_max` was reached first.
    pub is_precise: bool,
}

impl Replications {
    /// Plans `runs` runs under `seed` on one thread per processor, with intervals of 95 %.
    pub fn new(seed: u64, runs: u64) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { seed, runs_min: runs, runs_max: runs, confidence: 0.95, precision: None, threads }
    }

    /// Adds runs until the half-width of each interval is within `precision` of its mean, with at
    /// most `runs_max` runs.
    #[must_use]
    pub const fn until(self, precision: f64, runs_max: u64) -> Self {
        Self { precision: Some(precision), runs_max, ..self }
    }

    /// Returns the results of `model`, a function of seed and run number, for the first `runs_min`
    /// runs, in order.
    pub fn run<R: Send>(&self, model: impl Fn(u64, u64) -> R + Sync) -> Vec<R> {
        self.run_some(0..self.runs_min, &model)
    }

    /// Runs `model` until its `figures` are precise enough. Each run must have the same number of
    /// figures.
    ///
    /// # Panics
    /// Panics if two runs have different numbers of figures.
    pub fn estimate<R: Send>(
        &self,
        model: impl Fn(u64, u64) -> R + Sync,
        figures: impl Fn(&R) -> Vec<f64>,
    ) -> Replicated<R> {
        let mut runs = Vec::new();
        let mut values: Vec<Vec<f64>> = Vec::new();
        let runs_max = self.runs_max.max(self.runs_min);
        loop {
            // Beyond the minimum, one run per thread is made at a time. Runs that turn out not to
            // be needed are discarded.
            let made = runs.len() as u64;
            let until = if made < self.runs_min { self.runs_min } else { made + self.threads.max(1) as u64 };
            for run in self.run_some(made..until.min(runs_max), &model) {
                add_figures(&mut values, &figures(&run), runs.len());
                runs.push(run);
                let count = runs.len() as u64;
                if count < self.runs_min {
                    continue;
                }
                let estimates: Vec<_> = values.iter().map(|values| Estimate::of(values, self.confidence)).collect();
                let is_precise = self.precision.is_none_or(|share| estimates.iter().all(|of| is_within(of, share)));
                if is_precise || count >= runs_max {
                    return Replicated { runs, estimates, is_precise };
                }
            }
            if runs_max == 0 {
                return Replicated { runs, estimates: Vec::new(), is_precise: false };
            }
        }
    }

    fn run_some<R: Send>(&self, numbers: std::ops::Range<u64>, model: &(impl Fn(u64, u64) -> R + Sync)) -> Vec<R> {
        let count = numbers.end.saturating_sub(numbers.start);
        let threads = self.threads.clamp(1, usize::try_from(count).unwrap_or(usize::MAX).max(1));
        if threads == 1 {
            return numbers.map(|number| model(self.seed, number)).collect();
        }
        let next = AtomicU64::new(numbers.start);
        let results: Vec<Mutex<Option<R>>> = numbers.clone().map(|_| Mutex::new(None)).collect();
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return;
                }
                let result = model(self.seed, number);
                let place = &results[(number - numbers.start) as usize];
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        // The scope propagates the panic of a model, so every run has a result here.
        let take = |place: Mutex<Option<R>>| place.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|place| take(place).expect("every number was run")).collect()
    }
}

fn add_figures(values: &mut Vec<Vec<f64>>, figures: &[f64], runs_before: usize) {
    if runs_before == 0 {
        values.resize(figures.len(), Vec::new());
    }
    assert_eq!(values.len(), figures.len(), "all runs have the same number of figures");
    for (values, &figure) in values.iter_mut().zip(figures) {
        values.push(figure);
    }
}

/// Returns true if the half-width of the interval is at most `share` of the mean. Returns false
/// without an interval.
fn is_within(estimate: &Estimate, share: f64) -> bool {
    estimate.plus_minus.is_some_and(|half| half <= share * estimate.mean.abs())
}

impl Simulation {
    /// Runs for `warm_up`, resets the statistics and runs for `span`: the start of every
    /// measurement.
    pub fn run_measured(&mut self, warm_up: Duration, span: Duration) {
        let begin = self.sim().now() + warm_up;
        self.run_until(begin);
        self.reset_statistics();
        self.run_until(begin + span);
    }
}

/// The mean of autocorrelated values of one long run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchMeans {
    /// The mean and its interval, treating the batch means as independent.
    pub estimate: Estimate,
    /// Correlation of neighbouring batch means, -1 to 1. If it is far above 0, the batches are too
    /// short and the interval is too narrow.
    pub correlation: f64,
}

/// Divides `values` into `batches` batches of equal size and treats their means as independent. The
/// remainder, fewer values than batches, is dropped from the beginning. Returns `None` if there are
/// fewer than two batches or fewer values than batches.
pub fn batch_means(values: &[f64], batches: usize, confidence: f64) -> Option<BatchMeans> {
    let size = values.len().checked_div(batches)?;
    if size == 0 || batches < 2 {
        return None;
    }
    let means: Vec<f64> = values[values.len() - size * batches..].chunks_exact(size).map(mean).collect();
    let centre = mean(&means);
    let squares: f64 = means.iter().map(|value| (value - centre).powi(2)).sum();
    let products: f64 = means.windows(2).map(|pair| (pair[0] - centre) * (pair[1] - centre)).sum();
    let correlation = if squares > 0.0 { products / squares } else { 0.0 };
    Some(BatchMeans { estimate: Estimate::of(&means, confidence), correlation })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the number of leading `values` that belong to the warm-up, by the rule MSER-5: the
/// truncation that minimises the standard error of the mean of the rest, in batches of five values,
/// at most half of the values. Returns `None` if the best truncation is that half: the run is then
/// too short to tell.
pub fn mser5(values: &[f64]) -> Option<usize> {
    let batches: Vec<f64> = values.chunks_exact(MSER_BATCH).map(mean).collect();
    let half = batches.len() / 2;
    // From the end backwards, so that each truncation adds one value.
    let (mut best, mut best_cut) = (f64::INFINITY, half);
    let mut tally = crate::Tally::default();
    for cut in (0..batches.len()).rev() {
        tally.add(batches[cut]);
        let count = tally.count() as f64;
        let error = tally.variance() * (count - 1.0) / (count * count);
        // Among equal truncations, the shortest.
        if cut <= half && error <= best {
            (best, best_cut) = (error, cut);
        }
    }
    (best_cut < half).then_some(best_cut * MSER_BATCH)
}

#[cfg(test)]
mod tests;
