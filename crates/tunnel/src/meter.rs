//! The rate of a client: a meter that all its bytes share, whichever way they take.
//!
//! ```text
//!  packets ──────────────── [Turn] ─┐
//!  terminated connection ── [Turn] ─┼─▶ [Meter]: when the next bytes may leave
//!  terminated connection ── [Turn] ─┘
//! ```
//!
//! A sender that has used up what it may send reserves a little more, and waits until that is due. Each has one
//! reservation at a time, so senders that all wait get equal shares.
//!
//! A rate is one of data: [`data_bytes`] says what counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use units::{Duration, Instant, Rate};

/// A sender reserves what leaves in this time. A longer one makes bursts that congestion controllers take for the
/// rate of the path, a shorter one wakes the thread more often.
const QUANTUM: Duration = Duration::from_millis(2);

/// A sender reserves this many bytes at most: what the entry reads in a round.
const QUANTUM_BYTES_MAX: u64 = 256 << 10;

/// A sender that comes back late makes up for this much: longer than a thread waits for a processor, mostly.
const LATE_MAX: Duration = Duration::from_millis(50);

/// What a receiver admits at once: a second. The buffers of links hold back about as much, and a link that recovers
/// delivers it together.
const ADMITTED_AT_ONCE: Duration = Duration::from_secs(1);

/// Bytes that are always admitted at once: two super-packets.
const BYTES_AT_ONCE: u64 = 128 << 10;

/// The smallest rate: below it, one packet would take longer than a minute.
const RATE_MIN: Rate = Rate::from_bps(8_000);

/// The bytes with which a packet counts: those of its payload, but at least half of its length, so that headers
/// are not a way around a rate. A super-packet with `segment` bytes of payload in each packet counts as its packets do.
#[must_use]
pub fn data_bytes(header_bytes: usize, payload_bytes: usize, segment: Option<u16>) -> usize {
    let of_one = |payload: usize| payload.max((header_bytes + payload) / 2);
    match segment.map(usize::from) {
        Some(segment) if segment > 0 && payload_bytes > segment => {
            let rest = payload_bytes % segment;
            payload_bytes / segment * of_one(segment) + if rest > 0 { of_one(rest) } else { 0 }
        }
        _ => of_one(payload_bytes),
    }
}

/// Follows the bytes that leave or arrive, at a rate.
#[derive(Debug)]
pub struct Meter {
    rate: Rate,
    /// How much may be ahead of the rate.
    at_once: Duration,
    /// When all bytes so far have left, at the rate, in nanoseconds of the callers' clock.
    free_at_ns: AtomicU64,
}

impl Meter {
    /// For senders that keep to this rate together. A rate of zero is the smallest.
    #[must_use]
    pub fn sender(rate: Rate) -> Self {
        Self::new(rate.max(RATE_MIN), Duration::ZERO)
    }

    /// For receivers from senders that should keep to this rate: it admits a twentieth more, and what links have held
    /// back.
    #[must_use]
    pub fn receiver(rate: Rate) -> Self {
        let rate = rate.max(RATE_MIN).mul_ratio(21, 20);
        Self::new(rate, ADMITTED_AT_ONCE.max(rate.time_for(BYTES_AT_ONCE)))
    }

    const fn new(rate: Rate, at_once: Duration) -> Self {
        Self { rate, at_once, free_at_ns: AtomicU64::new(0) }
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Reserves `bytes` for a sender that has waited since `since`. Returns when they may leave.
    fn reserve(&self, since: Instant, bytes: u64) -> Instant {
        let cost = self.rate.time_for(bytes).as_nanos();
        let reserve = |free_at: u64| Some(free_at.max(since.as_nanos()).saturating_add(cost));
        let before = self.free_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        let begins = Instant::from_nanos(before.expect("there is always a next value"));
        begins.saturating_sub(self.at_once).max(since)
    }

    /// Whether bytes that arrive are within the rate; counts them if so.
    pub fn admits(&self, now: Instant, bytes: usize) -> bool {
        let cost = self.rate.time_for(bytes as u64).as_nanos();
        let latest = now.as_nanos().saturating_add(self.at_once.as_nanos());
        let count = |free_at: u64| (free_at <= latest).then(|| free_at.max(now.as_nanos()).saturating_add(cost));
        self.free_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

/// The place of one sender at a meter.
#[derive(Debug)]
pub struct Turn {
    meter: Arc<Meter>,
    /// Bytes that may leave now. Below zero after a packet that was longer than that.
    credit: i64,
    reserved: Option<Reserved>,
    /// When the latest reservation came due, if the sender has had something to send since.
    due_at: Option<Instant>,
    /// The sender has had nothing to send.
    is_resting: bool,
}

/// Bytes that may leave later.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    at: Instant,
    bytes: u64,
}

impl Turn {
    /// Of a sender with nothing to send.
    #[must_use]
    pub const fn new(meter: Arc<Meter>) -> Self {
        Self { meter, credit: 0, reserved: None, due_at: None, is_resting: false }
    }

    /// Bytes that a sender with something to send may send now. A packet that is longer may leave as long as they are
    /// more than none. If they are none, more are reserved.
    pub fn available(&mut self, now: Instant) -> usize {
        if std::mem::take(&mut self.is_resting) {
            self.due_at = None;
            if let Some(reserved) = &mut self.reserved {
                // It came due meanwhile, and was not waited for.
                reserved.at = reserved.at.max(now);
            }
        }
        loop {
            if self.credit > 0 {
                return self.credit as usize;
            }
            match self.reserved {
                Some(Reserved { at, .. }) if at > now => return 0,
                Some(Reserved { at, bytes }) => {
                    self.credit += bytes as i64;
                    (self.due_at, self.reserved) = (Some(at), None);
                }
                None => {
                    let since = self.due_at.map_or(now, |at| at.max(now.saturating_sub(LATE_MAX)));
                    let bytes = self.quantum() + self.credit.unsigned_abs();
                    self.reserved = Some(Reserved { at: self.meter.reserve(since, bytes), bytes });
                }
            }
        }
    }

    fn quantum(&self) -> u64 {
        self.meter.rate.bytes_in(QUANTUM).clamp(1, QUANTUM_BYTES_MAX)
    }

    /// Counts bytes that leave.
    pub fn spend(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_sub_unsigned(bytes as u64);
    }

    /// Whether a packet may leave before its turn: those that have done so have not used up much of the rate.
    #[must_use]
    pub fn may_overdraw(&self) -> bool {
        self.credit.saturating_neg() < self.quantum() as i64
    }

    /// When more may leave, if none might when the sender last asked. That time may have come since: a sender that took
    /// this for a reason not to wait would never send again.
    #[must_use]
    pub fn blocked_until(&self) -> Option<Instant> {
        self.reserved.map(|reserved| reserved.at).filter(|_| self.credit <= 0)
    }

    /// Nothing waits to be sent: the sender has no claim to the time that passes now.
    pub const fn rest(&mut self) {
        self.is_resting = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbps(10);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + ms)
    }

    /// A sender that sends packets of `bytes` whenever it may. It comes back late by each of `late` in turn.
    struct Sender {
        turn: Turn,
        bytes: usize,
        sent: u64,
    }

    impl Sender {
        fn new(meter: &Arc<Meter>, bytes: usize) -> Self {
            Self { turn: Turn::new(Arc::clone(meter)), bytes, sent: 0 }
        }

        /// Sends what it may now; when it may send more.
        fn send(&mut self, now: Instant) -> Instant {
            while self.turn.available(now) > 0 {
                self.turn.spend(self.bytes);
                self.sent += self.bytes as u64;
            }
            self.turn.blocked_until().expect("it waits")
        }
    }

    /// Lets each sender send when it may from `from` on for `ms`, and up to `late_ms` later.
    fn run(senders: &mut [Sender], from: u64, ms: u64, late_ms: u64) {
        let mut next: Vec<Instant> = senders.iter().map(|_| at(from)).collect();
        for round in 0.. {
            let (who, now) = next.iter().copied().enumerate().min_by_key(|(_, at)| *at).expect("a sender");
            if now >= at(from + ms) {
                break;
            }
            let late = Duration::from_micros(if late_ms == 0 { 0 } else { round * 7919 % (late_ms * 1000) });
            next[who] = senders[who].send(now + late);
        }
        senders.iter_mut().for_each(|sender| sender.turn.rest());
    }

    #[test]
    fn senders_keep_to_the_rate_together_share_it_equally_and_save_nothing_up() {
        for (count, bytes) in [(1, 100), (1, 1400), (1, 64_000), (3, 1400), (40, 1400)] {
            let meter = Arc::new(Meter::sender(RATE));
            let mut senders: Vec<Sender> = (0..count).map(|_| Sender::new(&meter, bytes)).collect();
            let mut before = 0;
            for from in [0, 2000, 60_000] {
                run(&mut senders, from, 1000, 0);
                let sent = senders.iter().map(|sender| sender.sent).sum::<u64>() - before;
                before += sent;
                // Each sends a packet more than it has reserved, at the beginning and at the end.
                let slack = count as u64 * (2 * bytes as u64 + 5000);
                assert!(sent.abs_diff(1_250_000) <= slack, "{sent} by {count} senders of {bytes} from {from}");
            }
            let (least, most) =
                (senders.iter().map(|sender| sender.sent).min(), senders.iter().map(|sender| sender.sent).max());
            assert!(
                least.zip(most).is_some_and(|(least, most)| 5 * least >= 4 * most),
                "{count} of {bytes}: {least:?} {most:?}"
            );
        }
    }

    #[test]
    fn a_sender_that_comes_back_late_gets_its_rate_all_the_same() {
        for late in [1, 10, 40] {
            let mut senders = [Sender::new(&Arc::new(Meter::sender(RATE)), 1400)];
            run(&mut senders, 0, 5000, late);
            let sent = senders[0].sent;
            assert!(sent.abs_diff(5 * 1_250_000) < 60_000, "{sent} bytes in 5 s, up to {late} ms late");
        }
    }

    #[test]
    fn what_passes_others_counts() {
        let mut sender = Sender::new(&Arc::new(Meter::sender(RATE)), 1400);
        // They may take all of the rate and no more.
        let passed = (0..10_000).filter(|round| {
            let now = at(round / 10);
            let _waits = sender.turn.available(now);
            let may = sender.turn.may_overdraw();
            if may {
                sender.turn.spend(1000);
            }
            may
        });
        let bytes = passed.count() * 1000;
        assert!(bytes.abs_diff(1_250_000) < 20_000, "{bytes} in a second");
    }

    #[test]
    fn a_receiver_admits_what_such_a_sender_sends_also_after_a_second_on_the_way_and_no_more() {
        for bytes in [100, 1400, 64_000] {
            let mut senders = [Sender::new(&Arc::new(Meter::sender(RATE)), bytes)];
            let receiver = Meter::receiver(RATE);
            for second in 0..20 {
                let before = senders[0].sent;
                run(&mut senders, second * 1000, 1000, 40);
                // All of it arrives at the end.
                let count = (senders[0].sent - before) / bytes as u64;
                assert!((0..count).all(|_| receiver.admits(at(second * 1000 + 1000), bytes)), "{bytes}");
            }
        }
        let receiver = Meter::receiver(RATE);
        let admitted = (0..1_000_000).filter(|packet| receiver.admits(at(packet / 100), 1400)).count() as u64 * 1400;
        let most = RATE.bytes_in(Duration::from_millis(11_100)) * 21 / 20;
        assert!((12_500_000..most).contains(&admitted), "{admitted} of {most} in ten seconds");
    }

    #[test]
    fn the_smallest_rate_does_not_panic() {
        let meter = Meter::receiver(Rate::from_bps(0));
        let admitted = (0..100_000).filter(|_| meter.admits(at(0), 65_535)).count();
        assert!((1..=3).contains(&admitted), "{admitted}");
        let mut turn = Turn::new(Arc::new(Meter::sender(Rate::ZERO)));
        assert!(turn.available(at(0)) > 0);
        turn.spend(usize::MAX);
        assert_eq!(turn.available(at(0)), 0);
    }

    #[test]
    fn a_packet_counts_with_its_payload_and_at_least_with_half_of_its_length() {
        assert_eq!(data_bytes(52, 1348, None), 1348);
        assert_eq!(data_bytes(52, 0, None), 26);
        assert_eq!(data_bytes(28, 2, None), 15);
        // Two packets of 100 and one of 10 bytes of payload.
        assert_eq!(data_bytes(40, 210, Some(100)), 225);
        assert_eq!(data_bytes(40, 100, Some(100)), 100);
        assert_eq!(data_bytes(40, 100, Some(0)), 100);
    }
}
