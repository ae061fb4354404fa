//! How a model is run so that its figures can be stated: warm-up cut off, independent runs, intervals, as many runs as the wanted
//! precision takes.
//!
//! The number of threads changes how long that takes and nothing else: a run is a function of (seed, number), results are
//! kept in the order of their numbers, and whether enough runs were made is decided from the first ones on, one by one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use measure::Estimate;
use units::Duration;

use crate::Simulation;

/// Values of a series that [`mser5`] takes together: one is too rough, and White's five is the custom.
const MSER_BATCH: usize = 5;

/// How often a model is run, and how sure its figures are to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Replications {
    /// The seed of all runs; they differ by their numbers.
    pub seed: u64,
    /// Runs to begin with. An interval needs two.
    pub runs_min: u64,
    /// The bound: no more runs are made, however wide the intervals are.
    pub runs_max: u64,
    /// How sure the intervals are to be, between 0 and 1.
    pub confidence: f64,
    /// Runs are added until the interval of each figure is at most this share of its mean to each side. `None`: `runs_min` runs.
    pub precision: Option<f64>,
    /// Threads that run at once.
    pub threads: usize,
}

/// Runs of a model and what they say.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicated<R> {
    /// What each run gave, by its number.
    pub runs: Vec<R>,
    /// Of each figure, its mean and interval over the runs.
    pub estimates: Vec<Estimate>,
    /// Whether each figure is as precise as was asked. False if the bound of runs came first.
    pub is_precise: bool,
}

impl Replications {
    /// `runs` runs under `seed` on as many threads as there are processors, intervals of 95 %.
    pub fn new(seed: u64, runs: u64) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { seed, runs_min: runs, runs_max: runs, confidence: 0.95, precision: None, threads }
    }

    /// Until each figure lies within `precision` of its mean, and `runs_max` runs at most.
    #[must_use]
    pub const fn until(self, precision: f64, runs_max: u64) -> Self {
        Self { precision: Some(precision), runs_max, ..self }
    }

    /// What `model`, a function of seed and run, gives for each of the first `runs_min` runs, in their order.
    pub fn run<R: Send>(&self, model: impl Fn(u64, u64) -> R + Sync) -> Vec<R> {
        self.run_some(0..self.runs_min, &model)
    }

    /// Runs `model` until its `figures` are precise enough. They are as many for each run.
    ///
    /// # Panics
    /// If two runs give unlike numbers of figures.
    pub fn estimate<R: Send>(
        &self,
        model: impl Fn(u64, u64) -> R + Sync,
        figures: impl Fn(&R) -> Vec<f64>,
    ) -> Replicated<R> {
        let mut runs = Vec::new();
        let mut values: Vec<Vec<f64>> = Vec::new();
        let runs_max = self.runs_max.max(self.runs_min);
        loop {
            // Beyond the least, a run for each thread at once; those that were not needed are forgotten.
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
        // A model that panics ends the scope with its panic, so here each run has its result.
        let take = |place: Mutex<Option<R>>| place.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|place| take(place).expect("every number was run")).collect()
    }
}

fn add_figures(values: &mut Vec<Vec<f64>>, figures: &[f64], runs_before: usize) {
    if runs_before == 0 {
        values.resize(figures.len(), Vec::new());
    }
    assert_eq!(values.len(), figures.len(), "each run gives as many figures");
    for (values, &figure) in values.iter_mut().zip(figures) {
        values.push(figure);
    }
}

/// True if the interval reaches at most `share` of the mean to each side; one value has none, so it is not.
fn is_within(estimate: &Estimate, share: f64) -> bool {
    estimate.plus_minus.is_some_and(|half| half <= share * estimate.mean.abs())
}

impl Simulation {
    /// Runs for `warm_up`, forgets what was counted, and runs on for `span`: the way to begin each measurement.
    pub fn run_measured(&mut self, warm_up: Duration, span: Duration) {
        let begin = self.sim().now() + warm_up;
        self.run_until(begin);
        self.reset_statistics();
        self.run_until(begin + span);
    }
}

/// A mean of values that depend on their neighbours, from one long run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchMeans {
    /// The mean and its interval, as if the batches' means were independent.
    pub estimate: Estimate,
    /// How much the mean of a batch says of the next one's, -1 to 1. Far above 0 the batches are too short, and the interval too
    /// narrow.
    pub correlation: f64,
}

/// Cuts `values` into `batches` equal ones and takes their means for independent values. What is left over at the beginning, fewer
/// than there are batches, is left out. `None` if there is not a value for each batch, or are fewer than two.
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

/// How many of the first `values` belong to the warm-up, by the rule MSER-5: the cut that leaves the mean of the rest with the least
/// standard error, values taken five at a time, half of them at most. `None` if the best cut is that half: then the run is too short to
/// tell.
pub fn mser5(values: &[f64]) -> Option<usize> {
    let batches: Vec<f64> = values.chunks_exact(MSER_BATCH).map(mean).collect();
    let half = batches.len() / 2;
    // From the end on, so that each cut is one more value.
    let (mut best, mut best_cut) = (f64::INFINITY, half);
    let mut tally = crate::Tally::default();
    for cut in (0..batches.len()).rev() {
        tally.add(batches[cut]);
        let count = tally.count() as f64;
        let error = tally.variance() * (count - 1.0) / (count * count);
        // Of equal cuts the shortest.
        if cut <= half && error <= best {
            (best, best_cut) = (error, cut);
        }
    }
    (best_cut < half).then_some(best_cut * MSER_BATCH)
}

#[cfg(test)]
mod tests;
