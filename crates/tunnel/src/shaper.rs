//! A rate: what leaves within it, and what is above it.

use units::{Duration, Instant, Rate};

/// What may leave at once: 10 ms, more than a thread takes to come back.
const SENT_AT_ONCE: Duration = Duration::from_millis(10);

/// What a receiver admits at once: 200 ms, since the paths put together what left in order.
const ADMITTED_AT_ONCE: Duration = Duration::from_millis(200);

/// Bytes that are always admitted at once: two super-packets.
const BYTES_AT_ONCE: u64 = 128 << 10;

/// The smallest rate: below it, one packet would take longer than a minute.
const RATE_MIN: Rate = Rate::from_bps(8_000);

/// Follows the bytes that leave or arrive, at a rate.
#[derive(Debug)]
pub struct Shaper {
    rate: Rate,
    /// When all bytes so far have left, at the rate.
    free_at: Instant,
    at_once: Duration,
}

impl Shaper {
    /// For a sender that keeps to this rate. A rate of zero is the smallest.
    #[must_use]
    pub fn sender(rate: Rate) -> Self {
        Self::new(rate, SENT_AT_ONCE)
    }

    /// For a receiver of a sender that should keep to this rate: it admits a twentieth more.
    #[must_use]
    pub fn receiver(rate: Rate) -> Self {
        let rate = rate.max(RATE_MIN).mul_ratio(21, 20);
        Self::new(rate, ADMITTED_AT_ONCE.max(rate.time_for(BYTES_AT_ONCE)))
    }

    fn new(rate: Rate, at_once: Duration) -> Self {
        Self { rate: rate.max(RATE_MIN), free_at: Instant::ZERO, at_once }
    }

    /// When the next packet may leave, if that is not now.
    #[must_use]
    pub fn blocked_until(&self, now: Instant) -> Option<Instant> {
        let backlog = self.free_at.saturating_since(now);
        (backlog > self.at_once).then(|| now + backlog.saturating_sub(self.at_once))
    }

    /// Counts a packet that leaves.
    pub fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.free_at = self.free_at.max(now) + self.rate.time_for(bytes as u64);
    }

    /// Whether a packet that arrives is within the rate; counts it if so.
    pub fn admits(&mut self, now: Instant, bytes: usize) -> bool {
        let is_within = self.blocked_until(now).is_none();
        if is_within {
            self.on_sent(now, bytes);
        }
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbps(10);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + ms)
    }

    /// Bytes that leave within `ms`, if the sender waits as it should.
    fn sent(shaper: &mut Shaper, from: u64, ms: u64, bytes: usize) -> u64 {
        let (mut now, mut sent) = (at(from), 0);
        loop {
            if let Some(until) = shaper.blocked_until(now) {
                assert!(until > now, "it waits");
                now = until;
            }
            if now >= at(from + ms) {
                return sent;
            }
            shaper.on_sent(now, bytes);
            sent += bytes as u64;
        }
    }

    #[test]
    fn a_sender_keeps_to_the_rate_and_saves_nothing_up() {
        let mut shaper = Shaper::sender(RATE);
        for from in [0, 1000, 60_000] {
            let bytes = sent(&mut shaper, from, 1000, 1400);
            assert!(bytes.abs_diff(RATE.bytes_in(Duration::from_secs(1))) < 20_000, "{bytes} from {from}");
        }
    }

    #[test]
    fn a_receiver_admits_what_such_a_sender_sends_and_no_more() {
        for bytes in [100, 1400, 64_000] {
            let (mut sender, mut receiver) = (Shaper::sender(RATE), Shaper::receiver(RATE));
            let mut now = at(0);
            for _ in 0..2_000_000 / bytes {
                now = sender.blocked_until(now).unwrap_or(now);
                sender.on_sent(now, bytes);
                assert!(receiver.admits(now, bytes), "{bytes}");
            }
        }
        let mut receiver = Shaper::receiver(RATE);
        let admitted = (0..100_000).filter(|packet| receiver.admits(at(packet / 100), 1400)).count() * 1400;
        let most = RATE.bytes_in(Duration::from_millis(1250)) * 21 / 20;
        assert!((1_000_000..most).contains(&(admitted as u64)), "{admitted} of {most} in a second");
    }

    #[test]
    fn the_smallest_rate_does_not_panic() {
        let mut shaper = Shaper::receiver(Rate::from_bps(0));
        let admitted = (0..100_000).filter(|_| shaper.admits(at(0), 65_535)).count();
        assert!((1..=3).contains(&admitted), "{admitted}");
    }
}
