//! When packets with nothing but acknowledgements were sent. They are neither ack-eliciting nor in
//! flight, so the log of sent packets does not have them.
//!
//! The peer acknowledges them together with others, and then the largest number of its
//! acknowledgement, of which a sender takes the round trip (RFC 9002, section 5.1), may be theirs.

use units::Instant;

/// The latest of them whose times are kept, at most. An acknowledgement that comes later than that
/// gives no sample.
const KEPT: u64 = 4;

/// The send times of the latest packets, each in the place of its number.
#[derive(Debug, Default)]
pub(crate) struct AckOnlyTimes(Option<Box<[(u64, Instant); KEPT as usize]>>);

impl AckOnlyTimes {
    /// None was sent.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// A packet is sent.
    pub(crate) fn on_sent(&mut self, number: u64, now: Instant) {
        let times = self.0.get_or_insert_with(|| Box::new([(u64::MAX, Instant::ZERO); KEPT as usize]));
        times[(number % KEPT) as usize] = (number, now);
    }

    /// When the packet was sent; `None` if it was of another kind, or is forgotten.
    pub(crate) fn sent_at(&self, number: u64) -> Option<Instant> {
        let (kept, sent_at) = self.0.as_ref()?[(number % KEPT) as usize];
        (kept == number).then_some(sent_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Duration;

    #[test]
    fn the_latest_packets_are_known() {
        let at = |number| Instant::ZERO + Duration::from_millis(number);
        let mut times = AckOnlyTimes::new();
        assert_eq!(times.sent_at(0), None);
        let sent = [3, 4, 8, 9, 10, 17];
        sent.iter().for_each(|&number| times.on_sent(number, at(number)));
        for number in [8, 10, 17] {
            assert_eq!(times.sent_at(number), Some(at(number)));
        }
        for number in [0, 1, 4, 9, 11, 21, u64::MAX] {
            assert_eq!(times.sent_at(number), None, "{number} is another packet, or forgotten");
        }
    }
}
