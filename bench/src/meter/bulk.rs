//! Bytes of a bulk transfer, and the processor time they took.

use std::time::{Duration, Instant};

use super::bins::{Bins, monotonic_ns};
use crate::usage;
use crate::work::{Figures, Job, Test, Timing};

/// Seconds for which a server continues to receive after its own count is over, so that the
/// client's, which began slightly later, ends too.
const GRACE_S: f64 = 0.3;

/// Counts bytes after a warm-up, with the processor time they took.
pub struct BulkMeter {
    timing: Timing,
    started: Option<Instant>,
    from: Option<(Instant, Duration)>,
    counted: u64,
    bins: Option<Bins>,
    figures: Figures,
}

impl BulkMeter {
    pub fn new(job: &Job) -> Self {
        let bins = (job.test == Test::KeyUpdate).then(Bins::new);
        Self { timing: job.timing, started: None, from: None, counted: 0, bins, figures: Figures::default() }
    }

    /// Counts `bytes`; false once the time is over for both sides.
    pub fn note(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        let elapsed = (now - *self.started.get_or_insert(now)).as_secs_f64();
        let Some((from, cpu)) = self.from else {
            if elapsed >= self.timing.warm_up {
                self.from = Some((now, usage::cpu_time()));
            }
            return true;
        };
        if self.figures.goodput_bps.is_some() {
            return elapsed < self.timing.warm_up + self.timing.time + GRACE_S;
        }
        self.counted += bytes as u64;
        if let Some(bins) = &mut self.bins {
            bins.add(monotonic_ns(), bytes);
        }
        if elapsed >= self.timing.warm_up + self.timing.time {
            let span = (now - from).as_secs_f64();
            self.figures.goodput_bps = Some(self.counted as f64 * 8.0 / span);
            self.figures.cpu_s_per_gb = Some((usage::cpu_time() - cpu).as_secs_f64() / (self.counted as f64 / 1e9));
            self.figures.bins = self.bins.take();
        }
        true
    }

    /// The figures, once the time is over.
    pub fn figures(&self) -> Figures {
        self.figures.clone()
    }

    /// The same on the sending side, whose bytes are not yet goodput.
    pub fn sender_figures(&self) -> Figures {
        Figures { goodput_bps: None, sent_bps: self.figures.goodput_bps, bins: None, ..self.figures.clone() }
    }
}
