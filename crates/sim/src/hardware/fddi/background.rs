//! What others send: worked out when the token has passed them, so that their arrivals are no events.

use std::collections::VecDeque;

use units::{Duration, Instant};

use super::config::{Arrivals, Background, RingConfig};
use crate::{Stream, Tally};

/// The background station. Nobody influences it but the token, so all it does with one is known when it gets it.
pub(super) struct Others {
    config: Background,
    frame_time: Duration,
    stream: Stream,
    /// `None` while its share is zero.
    next_arrival: Option<Instant>,
    /// When those that wait have come: (time, how many).
    waiting: VecDeque<(Instant, u64)>,
    waiting_count: u64,
    pub(super) books: BackgroundReport,
    waits: Tally,
}

/// What the background did since the warm-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackgroundReport {
    /// Frames that came.
    pub offered: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that found its queue full.
    pub dropped: u64,
    /// Mean time from coming to being sent, in nanoseconds, of those that were.
    pub mean_wait_ns: f64,
}

impl Others {
    pub(super) fn new(config: Background, ring: &RingConfig, stream: Stream, now: Instant) -> Self {
        let mut others = Self {
            frame_time: ring.frame_time(config.frame_bytes),
            config,
            stream,
            next_arrival: None,
            waiting: VecDeque::new(),
            waiting_count: 0,
            books: BackgroundReport::default(),
            waits: Tally::default(),
        };
        others.restart(now);
        others
    }

    pub(super) const fn station(&self) -> usize {
        self.config.station
    }

    /// Asks for `share` of the ring from `now` on. What came before must have been taken in.
    pub(super) fn set_share(&mut self, now: Instant, share: f64) {
        self.take_in(now);
        self.config.share = share;
        self.restart(now);
    }

    pub(super) fn reset(&mut self) {
        (self.books, self.waits) = (BackgroundReport::default(), Tally::default());
    }

    pub(super) fn report(&self) -> BackgroundReport {
        BackgroundReport { mean_wait_ns: self.waits.mean(), ..self.books.clone() }
    }

    /// True if a token that comes at `at` finds something to send.
    pub(super) fn has_work_at(&self, at: Instant) -> bool {
        self.waiting_count > 0 || self.next_arrival.is_some_and(|arrival| arrival <= at)
    }

    /// When it has something to send if it never gets the token before.
    pub(super) fn work_from(&self) -> Option<Instant> {
        if self.waiting_count > 0 { Some(Instant::ZERO) } else { self.next_arrival }
    }

    /// Sends from `at` on, for as long as a frame may begin within `holding`. Returns when it has done.
    pub(super) fn use_token(&mut self, at: Instant, holding: Duration) -> Instant {
        let mut now = at;
        loop {
            self.take_in(now);
            if self.waiting_count == 0 || now.saturating_since(at) >= holding {
                return now;
            }
            let (arrived, count) = self.waiting.front_mut().expect("somebody waits");
            self.waits.add(now.saturating_since(*arrived).as_nanos() as f64);
            *count -= 1;
            if *count == 0 {
                self.waiting.pop_front();
            }
            self.waiting_count -= 1;
            self.books.sent += 1;
            now += self.frame_time;
        }
    }

    /// Takes in what has come until `now`.
    pub(super) fn take_in(&mut self, now: Instant) {
        while let Some(arrival) = self.next_arrival.filter(|&arrival| arrival <= now) {
            let room = self.config.queue_frames - self.waiting_count;
            let taken = self.config.batch.min(room);
            self.books.offered += self.config.batch;
            self.books.dropped += self.config.batch - taken;
            if taken > 0 {
                self.waiting.push_back((arrival, taken));
                self.waiting_count += taken;
            }
            self.next_arrival = self.interval().map(|interval| arrival + self.draw(interval));
        }
    }

    /// The mean time between arrivals; `None` if nothing comes.
    fn interval(&self) -> Option<Duration> {
        let batch_ns = (self.frame_time * self.config.batch).as_nanos() as f64;
        // At least a nanosecond, so that time goes on.
        (self.config.share > 0.0).then(|| Duration::from_nanos((batch_ns / self.config.share).round().max(1.0) as u64))
    }

    fn draw(&mut self, interval: Duration) -> Duration {
        match self.config.arrivals {
            // Never in no time at all, so that time goes on.
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
