//! Packets across channels with errors: go-back-N on each channel against parity across all of them.
//!
//! Go-back-N sends everything again from a bad packet on to the last one sent. With a code, each group of packets has one on
//! each channel, some of them parity; the receiver rebuilds a group as long as no more of it are bad than it has parity, and only a
//! group that it cannot rebuild is sent again.

use measure::Estimate;
use sim::Stream;

use crate::study::{Effort, Options};

/// A set of channels and how bad they are.
#[derive(Clone, Copy, Debug)]
pub(in crate::claims) struct Channels {
    /// Channels.
    pub(in crate::claims) count: u32,
    /// Packets of parity in a group that has one packet on each channel; zero is no code.
    pub(in crate::claims) parity: u32,
    /// How probable a bad packet is, each for itself.
    pub(in crate::claims) packet_error: f64,
    /// Packets under way on a channel when an error becomes known: rate times round trip, one at least.
    pub(in crate::claims) in_flight: u32,
    /// A channel that carries nothing at all, if any: then how many.
    pub(in crate::claims) dead: u32,
}

impl Channels {
    /// Packets sent again for each packet of data that gets through, over runs.
    pub(in crate::claims) fn retransmissions(&self, options: &Options) -> Estimate {
        let groups = match options.effort {
            Effort::Quick => 20_000,
            Effort::Full => 400_000,
        };
        let run = |run| {
            let mut stream = Stream::new(options.seed, u64::from(run), "errors");
            let again: u64 = (0..groups).map(|_| self.group(&mut stream)).sum();
            again as f64 / (f64::from(groups) * f64::from(self.count - self.parity))
        };
        Estimate::of(&(0..options.replications).map(run).collect::<Vec<_>>(), options.confidence)
    }

    /// Packets sent again for one group.
    fn group(&self, stream: &mut Stream) -> u64 {
        let bad =
            self.dead + (0..self.count - self.dead).map(|_| u32::from(stream.chance(self.packet_error))).sum::<u32>();
        if self.parity == 0 {
            // What a dead channel was given goes to another one; a bad packet takes along what was sent after it.
            let alive = u64::from(bad - self.dead) * u64::from(self.in_flight);
            return alive + u64::from(self.dead);
        }
        if bad > self.parity { u64::from(self.count) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options { seed: 1, replications: 4, confidence: 0.9, effort: Effort::Quick, threads: 1 };

    #[test]
    fn go_back_n_repeats_what_was_under_way_for_each_error() {
        let channels = Channels { count: 6, parity: 0, packet_error: 0.01, in_flight: 10, dead: 0 };
        let again = channels.retransmissions(&OPTIONS).mean;
        assert!((again / 0.1 - 1.0).abs() < 0.1, "{again}");
    }

    #[test]
    fn a_group_is_repeated_as_often_as_the_binomial_law_says() {
        let channels = Channels { count: 6, parity: 1, packet_error: 0.05, in_flight: 10, dead: 0 };
        // Two or more of six bad: 1 - 0.95^6 - 6 * 0.05 * 0.95^5.
        let repeated = 1.0 - 0.95_f64.powi(6) - 6.0 * 0.05 * 0.95_f64.powi(5);
        let again = channels.retransmissions(&OPTIONS).mean;
        assert!((again / (repeated * 6.0 / 5.0) - 1.0).abs() < 0.1, "{again}");
    }

    #[test]
    fn as_many_dead_channels_as_parity_cost_nothing() {
        let channels = Channels { count: 6, parity: 2, packet_error: 0.0, in_flight: 10, dead: 2 };
        assert_eq!(channels.retransmissions(&OPTIONS).mean, 0.0);
        let channels = Channels { dead: 3, ..channels };
        assert!(channels.retransmissions(&OPTIONS).mean > 1.0);
    }
}
