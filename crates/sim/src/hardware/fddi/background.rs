//! Background load, computed when the token passes, so that its arrivals are not events.

use std::collections::VecDeque;

use units::{Duration, Instant};

use super::config::{Arrivals, Background, RingConfig};
use crate::observe::Tally;
use crate::stream::Stream;

/// The background station. It depends only on the token, so its use of a token is computed when the
/// token arrives.
pub(super) struct BackgroundStation {
    config: Background,
    frame_time: Duration,
    stream: Stream,
    /// Time of the next arrival; `None` while the share is zero.
    next_arrival: Option<Instant>,
    /// Arrivals of waiting frames: (time, count).
    waiting: VecDeque<(Instant, u64)>,
    waiting_count: u64,
    pub(super) stats: BackgroundReport,
    waits: Tally,
}

/// Statistics of the background load since the end of the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackgroundReport {
    /// Frames that arrived.
    pub offered: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames dropped because the queue was full.
    pub dropped: u64,
    /// Mean time in nanoseconds from the arrival of a frame to the start of its transmission.
    pub mean_wait_ns: f64,
}

impl BackgroundStation {
    pub(super) fn new(config: Background, ring: &RingConfig, stream: Stream, now: Instant) -> Self {
        let mut background = Self {
            frame_time: ring.frame_time(config.frame_bytes),
            config,
            stream,
            next_arrival: None,
            waiting: VecDeque::new(),
            waiting_count: 0,
            stats: BackgroundReport::default(),
            waits: Tally::default(),
        };
        background.restart(now);
        background
    }

    pub(super) const fn station(&self) -> usize {
        self.config.station
    }

    /// Sets the offered load to `share` of the ring from `now` on. Earlier arrivals are processed
    /// first.
    pub(super) fn set_share(&mut self, now: Instant, share: f64) {
        self.process_arrivals(now);
        self.config.share = share;
        self.restart(now);
    }

    pub(super) fn reset(&mut self) {
        (self.stats, self.waits) = (BackgroundReport::default(), Tally::default());
    }

    pub(super) fn report(&self) -> BackgroundReport {
        BackgroundReport { mean_wait_ns: self.waits.mean(), ..self.stats.clone() }
    }

    /// Returns true if a token that arrives at `at` finds a frame to send.
    pub(super) fn has_work_at(&self, at: Instant) -> bool {
        self.waiting_count > 0 || self.next_arrival.is_some_and(|arrival| arrival <= at)
    }

    /// Returns when the station has a frame to send, if no token arrives earlier.
    pub(super) fn work_from(&self) -> Option<Instant> {
        if self.waiting_count > 0 { Some(Instant::ZERO) } else { self.next_arrival }
    }

    /// Sends from `at` on, for as long as frames may start within `holding`. Returns the end of the
    /// transmission.
    pub(super) fn use_token(&mut self, at: Instant, holding: Duration) -> Instant {
        let mut now = at;
        loop {
            self.process_arrivals(now);
            if self.waiting_count == 0 || now.saturating_since(at) >= holding {
                return now;
            }
            let (arrived, count) = self.waiting.front_mut().expect("a frame waits");
            self.waits.add(now.saturating_since(*arrived).as_nanos() as f64);
            *count -= 1;
            if *count == 0 {
                self.waiting.pop_front();
            }
            self.waiting_count -= 1;
            self.stats.sent += 1;
            now += self.frame_time;
        }
    }

    /// Processes the arrivals up to `now`.
    pub(super) fn process_arrivals(&mut self, now: Instant) {
        while let Some(arrival) = self.next_arrival.filter(|&arrival| arrival <= now) {
            let free = self.config.queue_frames - self.waiting_count;
            let taken = self.config.batch.min(free);
            self.stats.offered += self.config.batch;
            self.stats.dropped += self.config.batch - taken;
            if taken > 0 {
                self.waiting.push_back((arrival, taken));
                self.waiting_count += taken;
            }
            self.next_arrival = self.interval().map(|interval| arrival + self.draw(interval));
        }
    }

    /// Returns the mean time between arrivals; `None` if the load is zero.
    fn interval(&self) -> Option<Duration> {
        let batch_ns = (self.frame_time * self.config.batch).as_nanos() as f64;
        // At least one nanosecond, so that time advances.
        (self.config.share > 0.0).then(|| Duration::from_nanos((batch_ns / self.config.share).round().max(1.0) as u64))
    }

    fn draw(&mut self, interval: Duration) -> Duration {
        match self.config.arrivals {
            // Never zero, so that time advances.
            Arrivals::Exponential => self.stream.exponential(interval).max(Duration::from_nanos(1)),
            Arrivals::Regular => interval,
        }
    }

    fn restart(&mut self, now: Instant) {
        self.next_arrival = self.interval().map(|interval| match self.config.arrivals {
            Arrivals::Exponential => now + self.draw(interval),
            Arrivals::Regular => now + self.stream.between(Duration::from_nanos(1), interval),
        });
    }
}
