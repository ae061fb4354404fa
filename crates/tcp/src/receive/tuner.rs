//! How large the receive buffer should be: it follows what the application reads in a round trip.
//!
//! A sender that has filled the window waits for the rest of a round trip. So a window of what is read
//! in one is enough, if nothing gets lost; twice that lets the sender go on while a loss is repaired,
//! and twice that again keeps up with a sender in slow start, which doubles its rate each round trip.

use units::{Duration, Instant};

/// The present round trip, as far as the receiver can tell.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    began_at: Instant,
    /// Bytes read before it.
    read_before: u64,
    /// The end of the window at its beginning: what lies beyond it was sent a round trip after it. Zero
    /// before the first round.
    edge: u64,
}

/// Measures what the application reads.
#[derive(Debug, Default)]
pub(super) struct Tuner {
    round: Round,
    /// Bytes that were read in the last round.
    last: u64,
}

impl Tuner {
    /// Data were received in order up to `nxt`; `read` bytes were read so far, and the peer may send up
    /// to `edge`. The size that the buffer should have at least, at the end of a round.
    pub(super) fn on_data(&mut self, now: Instant, rtt: Duration, nxt: u64, read: u64, edge: u64) -> Option<u64> {
        let (round, next) = (self.round, Round { began_at: now, read_before: read, edge });
        if round.edge == 0 {
            self.round = next;
            return None;
        }
        if now.saturating_since(round.began_at) < rtt && nxt < round.edge {
            return None;
        }
        let bytes = read - round.read_before;
        let growth = bytes.saturating_sub(self.last).min(self.last);
        // The first round has nothing to compare with: it counts as slow start.
        let growth = if self.last == 0 {
            bytes
        } else {
            (u128::from(bytes) * u128::from(growth) / u128::from(self.last)) as u64
        };
        self.last = bytes;
        self.round = next;
        Some(2 * bytes + 2 * growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn the_size_is_twice_what_is_read_and_four_times_while_that_doubles() {
        let mut tuner = Tuner::default();
        assert_eq!(tuner.on_data(at(0), RTT, 0, 0, 1_000_000), None);
        assert_eq!(tuner.on_data(at(9), RTT, 900, 900, 1_000_000), None);
        assert_eq!(tuner.on_data(at(10), RTT, 1000, 1000, 1_000_000), Some(4000));
        assert_eq!(tuner.on_data(at(20), RTT, 3000, 3000, 1_000_000), Some(8000));
        assert_eq!(tuner.on_data(at(30), RTT, 6000, 6000, 1_000_000), Some(9000));
        assert_eq!(tuner.on_data(at(40), RTT, 9000, 9000, 1_000_000), Some(6000));
        // What is not read counts for nothing.
        assert_eq!(tuner.on_data(at(50), RTT, 20_000, 9000, 1_000_000), Some(0));
    }

    #[test]
    fn a_window_that_was_filled_has_taken_a_round_trip_whatever_was_measured() {
        let mut tuner = Tuner::default();
        assert_eq!(tuner.on_data(at(0), RTT * 100, 500, 500, 1000), None);
        assert_eq!(tuner.on_data(at(1), RTT * 100, 999, 999, 1500), None);
        assert_eq!(tuner.on_data(at(2), RTT * 100, 1000, 1000, 1500), Some(2000));
        assert_eq!(tuner.on_data(at(3), RTT * 100, 1400, 1400, 1900), None);
    }
}
