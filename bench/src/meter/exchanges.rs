//! Durations of repeated exchanges.

use std::time::{Duration, Instant};

use crate::work::{Figures, Timing};

/// Times exchanges one after the other, after a warm-up.
pub struct Exchanges {
    timing: Timing,
    started: Instant,
    samples: Vec<Duration>,
}

impl Exchanges {
    pub fn new(timing: Timing) -> Self {
        Self { timing, started: Instant::now(), samples: Vec::new() }
    }

    /// When the next exchange begins; `None` when the time is over.
    pub fn begin(&self) -> Option<Instant> {
        let now = Instant::now();
        ((now - self.started).as_secs_f64() < self.timing.warm_up + self.timing.time).then_some(now)
    }

    /// Records that the exchange begun at `begun` is complete.
    pub fn end(&mut self, begun: Instant) {
        if (begun - self.started).as_secs_f64() > self.timing.warm_up {
            self.samples.push(begun.elapsed());
        }
    }

    /// The number of exchanges timed.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn figures(&self) -> Figures {
        latencies(&self.samples)
    }
}

/// Median and 99th percentile of durations.
pub fn latencies(samples: &[Duration]) -> Figures {
    let mut histogram = hdrhistogram::Histogram::<u64>::new(3).expect("three digits are possible");
    for sample in samples {
        histogram.record(sample.as_nanos() as u64).expect("the histogram grows");
    }
    Figures {
        median_us: Some(histogram.value_at_quantile(0.5) as f64 / 1000.0),
        p99_us: Some(histogram.value_at_quantile(0.99) as f64 / 1000.0),
        ..Figures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ninety_ninth_percentile_sees_the_slow_tail_and_the_median_does_not() {
        let mut samples = vec![Duration::from_micros(10); 98];
        samples.extend([Duration::from_micros(500); 2]);
        let figures = latencies(&samples);
        assert!((figures.median_us.expect("samples") - 10.0).abs() < 0.1);
        assert!((figures.p99_us.expect("samples") - 500.0).abs() < 1.0);
    }
}
