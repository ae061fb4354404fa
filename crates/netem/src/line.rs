//! The line itself: one packet at a time, for as long as its bits take.
//!
//! A packet of 1500 bytes takes 120 ns at 100 Gb/s, and one of 1499 takes 119.92 ns. Rounding each to a nanosecond would
//! move the rate by up to one part in a hundred, so the end of each packet is kept as whole nanoseconds and an exact
//! fraction; only what others see is rounded, up, because a packet is not there before its last bit.

use units::{Duration, Instant, Rate};

const BIT_NANOS_PER_BYTE: u128 = 8 * 1_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Line<P> {
    /// `None`: packets take no time.
    rate: Option<Rate>,
    /// When the line is, or was, free again: whole nanoseconds...
    free_at: Instant,
    /// ...and a fraction of the next one, in units of 1 ns / rate. `0 <= free_fraction < rate`.
    free_fraction: u64,
    /// The packet on the line.
    packet: Option<P>,
}

impl<P> Line<P> {
    pub(crate) const fn new(rate: Option<Rate>) -> Self {
        Self { rate, free_at: Instant::ZERO, free_fraction: 0, packet: None }
    }

    /// Packets that start from now on take this rate; the one on the line leaves when it would have.
    pub(crate) fn set_rate(&mut self, rate: Option<Rate>) {
        if self.rate != rate {
            // The fraction is in units of the old rate.
            self.free_at = self.end();
            self.free_fraction = 0;
            self.rate = rate;
        }
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.packet.is_none()
    }

    /// When the packet on the line has left it; `None` if the line is idle.
    pub(crate) fn departure(&self) -> Option<Instant> {
        self.packet.is_some().then(|| self.end())
    }

    /// Puts a packet on the idle line as soon as both are ready: the packet at `ready`, the line after the last one.
    pub(crate) fn start(&mut self, ready: Instant, line_bytes: u64, packet: P) {
        debug_assert!(self.packet.is_none(), "two packets on one line");
        self.packet = Some(packet);
        if ready > self.free_at {
            (self.free_at, self.free_fraction) = (ready, 0);
        }
        let Some(rate) = self.rate else { return };
        // At most 2^64 * 2^33 + 2^64, so nothing overflows.
        let bit_nanos = u128::from(line_bytes) * BIT_NANOS_PER_BYTE + u128::from(self.free_fraction);
        let rate_bps = u128::from(rate.as_bps());
        self.free_at += Duration::from_nanos(u64::try_from(bit_nanos / rate_bps).unwrap_or(u64::MAX));
        self.free_fraction = (bit_nanos % rate_bps) as u64;
    }

    /// Takes the packet off the line.
    pub(crate) fn finish(&mut self) -> Option<P> {
        self.packet.take()
    }

    fn end(&self) -> Instant {
        self.free_at + Duration::from_nanos(u64::from(self.free_fraction > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_train_of_packets_ends_when_one_long_packet_would(
            rate_bps in 1..=400_000_000_000_u64,
            lengths in prop::collection::vec(0..100_000_u64, 1..100),
        ) {
            let mut line = Line::new(Some(Rate::from_bps(rate_bps)));
            let mut sum = 0;
            for line_bytes in lengths {
                line.start(Instant::ZERO, line_bytes, ());
                sum += line_bytes;
                let whole = Rate::from_bps(rate_bps).time_for(sum);
                prop_assert_eq!(line.departure(), Some(Instant::ZERO + whole));
                prop_assert_eq!(line.finish(), Some(()));
            }
        }
    }

    #[test]
    fn an_idle_line_forgets_its_fraction() {
        let mut line = Line::new(Some(Rate::from_mbps(100_000)));
        line.start(Instant::ZERO, 1499, ());
        assert_eq!(line.departure(), Some(Instant::from_nanos(120)));
        line.finish();
        // 119.92 ns, then a start at 130: not at 129.92.
        line.start(Instant::from_nanos(130), 1499, ());
        assert_eq!(line.departure(), Some(Instant::from_nanos(250)));
    }

    #[test]
    fn the_end_of_time_is_never_passed() {
        let mut line = Line::new(Some(Rate::from_bps(1)));
        line.start(Instant::from_nanos(5), u64::MAX, ());
        assert_eq!(line.departure(), Some(Instant::FAR_FUTURE));
    }
}
