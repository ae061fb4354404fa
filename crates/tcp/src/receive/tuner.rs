//! Choice of the receive buffer's size: it follows the bytes that the application reads in a round
//! trip.
//!
//! A sender that has filled the window waits for the rest of a round trip. Without losses, a window
//! of the bytes read in a round trip is enough. Twice that lets the sender continue while a loss is
//! repaired, and four times that keeps up with a sender in slow start, which doubles its rate each
//! round trip.

use units::{Duration, Instant};

/// The present round trip, as estimated by the receiver.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    began_at: Instant,
    /// Bytes read before it.
    read_before: u64,
    /// End of the window at the beginning of the round: data beyond it were sent a round trip
    /// later. Zero before the first round.
    edge: u64,
}

/// Measures the application's reading rate.
#[derive(Debug, Default)]
pub(super) struct Tuner {
    round: Round,
    /// Bytes read in the last round.
    last: u64,
}

impl Tuner {
    /// Records that data were received in order up to `nxt`, that `read` bytes were read so far,
    /// and that the peer may send up to `edge`. At the end of a round, returns the minimum size for
    /// the buffer.
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
        // The first round has no predecessor: it counts as slow start.
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
        // Unread data count for nothing.
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
