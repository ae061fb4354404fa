//! HyStart++: leaves slow start when the round trip grows, before the queue overflows (RFC 9406).
//!
//! ```text
//!                  round trip up by the threshold              CSS_ROUNDS rounds
//!   SlowStart ───────────────────────────────► Conservative ─────────────────────► Done
//!       ▲                                           │                               ▲
//!       └───────────── round trip down again ───────┘                               │
//!       any loss or mark ────────────────────────────────────────────────────────────┘
//! ```
//!
//! Used in the first slow start only, as section 4.3 recommends: later ones know their threshold.
//! The growth per acknowledgement has no limit L: section 4.3 sets L to infinity for paced senders,
//! and all senders here are paced.

use units::Duration;

/// Smallest relevant increase of the round trip (section 4.3).
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
/// Largest increase required (section 4.3).
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
/// Divisor of the last round's minimum that gives the threshold between these bounds (section 4.3).
const MIN_RTT_DIVISOR: u64 = 8;
/// Number of samples required before the minimum of a round is used (section 4.3).
const N_RTT_SAMPLE: u32 = 8;
/// Factor by which conservative slow start grows more slowly (section 4.3).
const CSS_GROWTH_DIVISOR: u64 = 4;
/// Number of rounds of conservative slow start (section 4.3).
const CSS_ROUNDS: u32 = 5;

/// The minimum of a round without samples.
const NO_SAMPLE: Duration = Duration::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    SlowStart,
    /// `baseline` is the minimum of the round that began this phase; `rounds` is the number of
    /// rounds that have ended since.
    Conservative {
        baseline: Duration,
        rounds: u32,
    },
    Done,
}

/// The effect of one acknowledgement on the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Grow the window by the acknowledged bytes divided by this number.
    DividedBy(u64),
    /// Leave slow start: the current window becomes the threshold.
    Exit,
}

/// The state of HyStart++ on one path.
#[derive(Debug, Clone)]
pub struct HyStart {
    phase: Phase,
    last_round_min: Duration,
    round_min: Duration,
    round_samples: u32,
}

impl HyStart {
    /// Creates the state at the start of a connection.
    pub const fn new() -> Self {
        Self { phase: Phase::SlowStart, last_round_min: NO_SAMPLE, round_min: NO_SAMPLE, round_samples: 0 }
    }

    /// Processes the round-trip sample of one acknowledgement in slow start (section 4.2).
    /// `round_began` is true for the first acknowledgement of a round.
    pub fn on_ack(&mut self, latest_rtt: Duration, round_began: bool) -> Growth {
        if round_began {
            self.last_round_min = self.round_min;
            self.round_min = NO_SAMPLE;
            self.round_samples = 0;
            if let Phase::Conservative { rounds, .. } = &mut self.phase {
                // The round in which the phase began counts, although it was not complete (section
                // 4.2).
                *rounds += 1;
                if *rounds >= CSS_ROUNDS {
                    self.phase = Phase::Done;
                    return Growth::Exit;
                }
            }
        }
        self.round_min = self.round_min.min(latest_rtt);
        self.round_samples = self.round_samples.saturating_add(1);
        let trusted = self.round_samples >= N_RTT_SAMPLE;
        match self.phase {
            Phase::SlowStart if trusted && self.round_trip_grew() => {
                self.phase = Phase::Conservative { baseline: self.round_min, rounds: 0 };
                Growth::DividedBy(CSS_GROWTH_DIVISOR)
            }
            Phase::Conservative { baseline, .. } if trusted && self.round_min < baseline => {
                // The increase was jitter, not a queue (section 4.2).
                self.phase = Phase::SlowStart;
                Growth::DividedBy(1)
            }
            Phase::Conservative { .. } => Growth::DividedBy(CSS_GROWTH_DIVISOR),
            Phase::SlowStart | Phase::Done => Growth::DividedBy(1),
        }
    }

    /// Ends the first slow start because of a loss or a mark.
    pub fn on_congestion(&mut self) {
        self.phase = Phase::Done;
    }

    /// Returns true in conservative slow start.
    pub const fn is_conservative(&self) -> bool {
        matches!(self.phase, Phase::Conservative { .. })
    }

    fn round_trip_grew(&self) -> bool {
        if self.last_round_min == NO_SAMPLE {
            return false;
        }
        let threshold = (self.last_round_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        self.round_min >= self.last_round_min + threshold
    }
}

impl Default for HyStart {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one round of `count` samples of `millis` each; returns the growth of the last.
    fn round(hystart: &mut HyStart, count: u32, millis: u64) -> Growth {
        (0..count).map(|i| hystart.on_ack(Duration::from_millis(millis), i == 0)).last().expect("a round has samples")
    }

    #[test]
    fn a_longer_round_trip_slows_growth_and_five_rounds_end_slow_start() {
        let mut hystart = HyStart::new();
        assert_eq!(round(&mut hystart, 10, 50), Growth::DividedBy(1));
        // The threshold is 50 / 8 = 6.25 ms.
        assert_eq!(round(&mut hystart, 10, 56), Growth::DividedBy(1));
        assert_eq!(round(&mut hystart, 7, 63), Growth::DividedBy(1), "seven samples are not enough");
        assert_eq!(hystart.on_ack(Duration::from_millis(63), false), Growth::DividedBy(4));
        for _ in 0..4 {
            assert_eq!(round(&mut hystart, 10, 70), Growth::DividedBy(4));
        }
        assert_eq!(hystart.on_ack(Duration::from_millis(70), true), Growth::Exit);
        assert_eq!(round(&mut hystart, 10, 700), Growth::DividedBy(1), "slow start ends only once");
        assert!(!hystart.is_conservative());
    }

    #[test]
    fn jitter_returns_to_slow_start() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 10, 50);
        round(&mut hystart, 10, 60);
        assert!(hystart.is_conservative());
        assert_eq!(round(&mut hystart, 7, 50), Growth::DividedBy(4));
        assert_eq!(hystart.on_ack(Duration::from_millis(50), false), Growth::DividedBy(1));
        assert!(!hystart.is_conservative());
    }

    #[test]
    fn the_threshold_has_a_minimum_and_a_maximum() {
        for (first, second, grew) in [(1, 4, false), (1, 5, true), (400, 415, false), (400, 416, true)] {
            let mut hystart = HyStart::new();
            round(&mut hystart, 8, first);
            round(&mut hystart, 8, second);
            assert_eq!(hystart.is_conservative(), grew, "{first} ms, then {second} ms");
        }
    }

    #[test]
    fn the_first_round_never_leaves_slow_start() {
        let mut hystart = HyStart::new();
        assert_eq!(round(&mut hystart, 100, 500), Growth::DividedBy(1));
    }
}
