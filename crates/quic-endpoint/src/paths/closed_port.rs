//! Detects that a silent peer has ended: its host reports on every path that the port is closed.
//!
//! A host without the peer's process answers each datagram with an ICMP message. Such a message is
//! only a hint: routers and firewalls also send them, and a peer that restarts has no open port for
//! a moment. So the peer is queried only after a period of silence, and counts as ended when all
//! paths have reported a closed port several times in a row. A link outage gives no answer or a
//! different one, and ends nothing.

use units::{Duration, Instant};

use super::shown::SILENCE_MIN;

/// Interval between two queries.
const INTERVAL: Duration = Duration::from_secs(1);

/// Number of rounds with a closed port on every path after which the peer counts as ended.
const ROUNDS: u32 = 3;

/// Watches for a closed port of the peer.
#[derive(Clone, Debug)]
pub struct ClosedPortWatch {
    bytes_received: u64,
    heard_at: Instant,
    asked_at: Option<Instant>,
    refused_rounds: u32,
}

impl ClosedPortWatch {
    /// Creates the watch of a connection that exists at `now`.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { bytes_received: 0, heard_at: now, asked_at: None, refused_rounds: 0 }
    }

    /// Returns whether to query now on every path whose link is usable. `bytes_received` is the
    /// count of the connection, and `expects_packets` says that packets wait for an
    /// acknowledgement.
    pub fn is_due(&mut self, now: Instant, bytes_received: u64, expects_packets: bool) -> bool {
        if bytes_received != self.bytes_received || !expects_packets {
            *self = Self { bytes_received, ..Self::new(now) };
        }
        let is_silent = now.saturating_since(self.heard_at) >= SILENCE_MIN;
        let is_due = is_silent && self.asked_at.is_none_or(|at| now.saturating_since(at) >= INTERVAL);
        if is_due {
            self.asked_at = Some(now);
        }
        is_due
    }

    /// Records that `asked` paths were queried and `refused` of them reported a closed port.
    /// Returns true if the peer has ended.
    pub fn on_answers(&mut self, asked: usize, refused: usize) -> bool {
        self.refused_rounds = if asked > 0 && asked == refused { self.refused_rounds + 1 } else { 0 };
        self.refused_rounds >= ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_peer_has_ended_when_every_path_says_so_for_a_while() {
        let mut watch = ClosedPortWatch::new(at(0));
        let mut rounds = Vec::new();
        for millis in (0..7000).step_by(500) {
            if watch.is_due(at(millis), 100, millis > 0) {
                rounds.push((millis, watch.on_answers(2, 2)));
            }
        }
        assert_eq!(rounds, [(3000, false), (4000, false), (5000, true), (6000, true)]);
    }

    #[test]
    fn an_outage_a_single_path_and_a_packet_end_nothing() {
        let mut watch = ClosedPortWatch::new(at(0));
        for second in 3..100 {
            assert!(watch.is_due(at(second * 1000), 0, true));
            // No usable link; one path that says nothing; a refusal now and then.
            assert!(!watch.on_answers(0, 0) && !watch.on_answers(2, 1) && !watch.on_answers(1, 1));
        }
        assert!(!watch.on_answers(1, 1) || !watch.is_due(at(100_000), 1, true), "a packet arrived");
        assert!(!watch.is_due(at(100_500), 1, true) && !watch.on_answers(1, 1));
        assert!(!watch.is_due(at(200_000), 1, false), "nothing is expected");
    }
}
