//! The rates of the paths of a peer, from samples of their counters that are taken for each request.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use net::MonotonicClock;
use units::{Duration, Instant, Rate};

/// Rates are over at least this time: in less, a path with few packets has had none or a burst.
pub const SPAN_MIN: Duration = Duration::from_millis(500);

/// And over at most this time: more says little about now.
const SPAN_MAX: Duration = Duration::from_secs(3);

/// Bytes of a path so far, or rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Both<T> {
    /// Towards the peer.
    pub sent: T,
    /// From the peer.
    pub received: T,
}

/// The rates of a peer. It keeps two samples.
#[derive(Debug)]
pub struct Rates {
    clock: MonotonicClock,
    samples: Mutex<Samples>,
}

impl Default for Rates {
    fn default() -> Self {
        Self { clock: MonotonicClock::start(), samples: Mutex::default() }
    }
}

impl Rates {
    /// The rates of paths, by their numbers, since a sample of an earlier call; none if that is less than
    /// [`SPAN_MIN`] ago, or so long that it says little. A path that is new begins with 0 bytes.
    pub fn read(&self, bytes: BTreeMap<u32, Both<u64>>) -> Option<BTreeMap<u32, Both<Rate>>> {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.read(self.clock.now(), bytes)
    }
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    bytes: BTreeMap<u32, Both<u64>>,
}

impl Sample {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_since(self.at)
    }

    fn rates(&self, now: Instant, bytes: &BTreeMap<u32, Both<u64>>) -> BTreeMap<u32, Both<Rate>> {
        let span = self.age(now);
        let rate = |now: u64, before: u64| Rate::from_transfer(now.saturating_sub(before), span).unwrap_or_default();
        let of_path = |(path, now): (&u32, &Both<u64>)| {
            let before = self.bytes.get(path).copied().unwrap_or_default();
            let rates = Both { sent: rate(now.sent, before.sent), received: rate(now.received, before.received) };
            (*path, rates)
        };
        bytes.iter().map(of_path).collect()
    }
}

/// The last sample, and one that was the last until it was old enough to compute rates from.
#[derive(Debug, Default)]
struct Samples {
    older: Option<Sample>,
    newer: Option<Sample>,
}

impl Samples {
    fn read(&mut self, now: Instant, bytes: BTreeMap<u32, Both<u64>>) -> Option<BTreeMap<u32, Both<Rate>>> {
        let is_of_use = |sample: &&Sample| (SPAN_MIN..=SPAN_MAX).contains(&sample.age(now));
        let base = [&self.newer, &self.older].into_iter().flatten().find(is_of_use);
        let rates = base.map(|base| base.rates(now, &bytes));
        if self.newer.as_ref().is_none_or(|newer| newer.age(now) >= SPAN_MIN) {
            self.older = self.newer.replace(Sample { at: now, bytes });
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn bytes(paths: &[(u32, u64, u64)]) -> BTreeMap<u32, Both<u64>> {
        paths.iter().map(|&(path, sent, received)| (path, Both { sent, received })).collect()
    }

    #[test]
    fn rates_are_those_since_a_sample_of_half_a_second_ago_or_more() {
        let mut samples = Samples::default();
        let sent = |rates: Option<BTreeMap<u32, Both<Rate>>>| rates.map(|rates| rates[&0].sent.as_bps());
        assert_eq!(sent(samples.read(at(0), bytes(&[(0, 0, 0)]))), None);
        // 1000 bytes each 100 ms, asked for as often.
        let read = |samples: &mut Samples, ms: u64| sent(samples.read(at(ms), bytes(&[(0, 10 * ms, 0)])));
        assert_eq!((1..5).map(|n| read(&mut samples, 100 * n)).collect::<Vec<_>>(), [None; 4]);
        for n in 5..40 {
            assert_eq!(read(&mut samples, 100 * n), Some(80_000));
        }
        // Nothing more is sent.
        let stopped = |samples: &mut Samples, ms| sent(samples.read(at(ms), bytes(&[(0, 39_000, 0)])));
        assert!(stopped(&mut samples, 4400).is_some_and(|bps| (1..80_000).contains(&bps)));
        assert_eq!(stopped(&mut samples, 4900), Some(0));
        // There was no request for long.
        assert_eq!(read(&mut samples, 60_000), None);
        assert_eq!(read(&mut samples, 60_500), Some(80_000));
    }

    #[test]
    fn each_path_has_its_rates_in_both_directions_and_a_new_one_began_with_nothing() {
        let mut samples = Samples::default();
        assert_eq!(samples.read(at(0), bytes(&[(0, 5000, 100), (3, 7, 7)])), None);
        let rates = samples.read(at(1000), bytes(&[(0, 6000, 100), (4, 0, 250)])).unwrap();
        let both = |sent, received| Both { sent: Rate::from_bps(sent), received: Rate::from_bps(received) };
        assert_eq!(rates, [(0, both(8000, 0)), (4, both(0, 2000))].into());
    }
}
