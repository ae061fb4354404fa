//! Named random streams: one per source of randomness, so that an additional draw in one component
//! does not change any other.

use units::{Duration, Rng};

/// The random numbers of one source in one run.
#[derive(Clone, Debug)]
pub struct Stream {
    rng: Rng,
}

impl Stream {
    /// Creates the stream called `name` of run `run` under `seed`. The same three arguments always
    /// give the same sequence.
    pub fn new(seed: u64, run: u64, name: &str) -> Self {
        Self { rng: Rng::from_seed(seed).split(&format!("run {run}")).split(name) }
    }

    /// Returns the generator, for components that take one.
    pub fn into_rng(self) -> Rng {
        self.rng
    }

    /// Returns a uniform number in `[0, 1)`, with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Returns an exponential duration with mean `mean`: the interval between events of a Poisson
    /// process.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // 1 - u is in (0, 1], so the logarithm is finite.
        let factor = -(1.0 - self.unit()).ln();
        // Rounded to the nearest integer. `f64::round` compiles to a function call on baseline
        // x86-64.
        Duration::from_nanos((mean.as_nanos() as f64 * factor + 0.5) as u64)
    }

    /// Returns a uniform duration in `low..=high`.
    ///
    /// # Panics
    /// Panics if `low > high`.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_nanos(self.rng.between(low.as_nanos(), high.as_nanos()))
    }

    /// Returns a whole number in `0..bound`.
    ///
    /// # Panics
    /// Panics if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// Returns true with probability `probability`, which is clamped to `0..=1`.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_run_and_name_select_a_sequence() {
        let draws = |seed, run, name: &str| {
            let mut stream = Stream::new(seed, run, name);
            [stream.below(u64::MAX), stream.below(u64::MAX)]
        };
        assert_eq!(draws(1, 2, "arrivals"), draws(1, 2, "arrivals"));
        assert_ne!(draws(1, 2, "arrivals"), draws(1, 2, "service"));
        assert_ne!(draws(1, 2, "arrivals"), draws(1, 3, "arrivals"));
        assert_ne!(draws(1, 2, "arrivals"), draws(2, 2, "arrivals"));
    }

    #[test]
    fn exponential_times_have_the_mean_and_deviation_of_the_distribution() {
        let mut stream = Stream::new(7, 0, "times");
        let mean = Duration::from_micros(50);
        let draws: Vec<f64> = (0..200_000).map(|_| stream.exponential(mean).as_nanos() as f64).collect();
        let average = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| (draw - average).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((average / 50_000.0 - 1.0).abs() < 0.01, "{average}");
        assert!((variance.sqrt() / 50_000.0 - 1.0).abs() < 0.02, "{variance}");
    }
}
