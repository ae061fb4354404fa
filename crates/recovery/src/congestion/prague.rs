//! Prague: a scalable controller for networks with low queueing delay (L4S, RFC 9330 and 9331;
//! draft-briscoe-iccrg-prague-congestion-control).
//!
//! Such a network marks early and often. The window is reduced by half the share of marked packets,
//! once per round trip, so that the queue stays short and the link busy. A loss causes the same
//! reduction as in CUBIC (RFC 9331, section 4.3).
//!
//! Packets carry ECT(1), which indicates this reaction of the sender. A router that supports ECN by
//! RFC 3168 alone marks ECT(1) like ECT(0), and a flow of this controller would displace others
//! there (RFC 9331, section 6.2.1). So use this controller only in networks that are known to have
//! L4S queues.

use units::{Duration, Instant, Rate};

use super::algorithm::Algorithm;
use super::controller::{CongestionController, CongestionSnapshot};
use super::event::{AckEvent, LossEvent};
use super::window::Window;
use crate::rtt::RttEstimator;

/// The value one in the fixed-point arithmetic of shares.
const ONE: u64 = 1 << 20;

/// Weight of a new round in the average share of marks, as a shift: 1/16 (RFC 8257, section 3.3,
/// parameter g).
const GAIN_SHIFT: u32 = 4;

/// Round trip below which a flow grows as if it had this one, so that it does not displace others
/// (RFC 9331, section 4.3; section 2.4.4 of the draft).
const REFERENCE_RTT: Duration = Duration::from_millis(25);

/// Round trip below which growth does not slow down further: a flow could not fill its link again.
const RTT_MIN: Duration = Duration::from_millis(1);

/// Share of the window that remains after a loss, in tenths: the same as in CUBIC (RFC 9438,
/// section 4.6).
const LOSS_TENTHS: u64 = 7;

/// Number of packets, and of marked ones among them.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    packets: u64,
    marked: u64,
}

impl Marks {
    fn add(&mut self, packets: u64, marked: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.marked = self.marked.saturating_add(marked);
    }

    /// Returns the share of marked packets; `None` if there were no packets.
    fn share(self) -> Option<u64> {
        let share = u128::from(self.marked.min(self.packets)) * u128::from(ONE);
        share.checked_div(self.packets.into()).map(|share| share as u64)
    }
}

/// Prague: adds one segment per round trip for unmarked packets, and subtracts half the share of
/// marks.
#[derive(Debug, Clone)]
pub struct Prague {
    window: Window,
    /// Bytes acknowledged towards the next segment of growth, times [`ONE`]; less than a window.
    credit: u128,
    /// The average share of marked packets. It starts with all of them, so that the first mark halves
    /// the window (RFC 8257, section 3.3).
    alpha: u64,
    /// Counts of the current round.
    round: Marks,
    /// Counts reported since the last acknowledgement.
    latest: Marks,
    /// Time of the last reduction because of marks.
    reduced_at: Option<Instant>,
}

impl Prague {
    /// Creates a controller with the initial window for packets of at most `segment_size` bytes.
    pub fn new(segment_size: u64) -> Self {
        Self {
            window: Window::new(segment_size),
            credit: 0,
            alpha: ONE,
            round: Marks::default(),
            latest: Marks::default(),
            reduced_at: None,
        }
    }

    fn on_marks(&mut self, event: &LossEvent) {
        // Reduce once per round trip, and not on top of the reduction for a loss.
        let is_old = self.reduced_at.is_some_and(|at| event.newest_lost_sent_at <= at);
        if is_old || self.window.predates_reduction(event.newest_lost_sent_at) {
            return;
        }
        self.reduced_at = Some(event.now);
        let cut = u128::from(self.window.bytes()) * u128::from(self.alpha) / u128::from(2 * ONE);
        self.window.set(self.window.bytes() - cut as u64);
        self.window.set_threshold(Some(self.window.bytes()));
    }

    /// Returns the growth relative to a flow with at least the reference round trip: the square of
    /// their ratio, because the shorter flow has more rounds, and the same window is a higher rate.
    fn pace_of_growth(rtt: Duration) -> u128 {
        let rtt = u128::from(rtt.clamp(RTT_MIN, REFERENCE_RTT).as_micros());
        let reference = u128::from(REFERENCE_RTT.as_micros());
        u128::from(ONE) * rtt * rtt / (reference * reference)
    }
}

impl CongestionController for Prague {
    fn on_sent(&mut self, _now: Instant, _bytes: u64, _in_flight: u64) {}

    fn on_ecn_report(&mut self, packets: u64, marked: u64) {
        self.round.add(packets, marked);
        self.latest.add(packets, marked);
    }

    fn on_ack(&mut self, event: &AckEvent, rtt: &RttEstimator) {
        let latest = std::mem::take(&mut self.latest);
        if event.round_ended
            && let Some(share) = std::mem::take(&mut self.round).share()
        {
            self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (share >> GAIN_SHIFT);
        }
        // Marked bytes give no credit (section 2.4.3 of the draft); without the rounds of reductions
        // the window would hardly grow, since each round has marks.
        let unmarked = ONE - latest.share().unwrap_or(0);
        let bytes = u128::from(self.window.creditable(event)) * u128::from(unmarked) / u128::from(ONE);
        if bytes == 0 {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(bytes as u64);
            return;
        }
        self.credit += bytes * Self::pace_of_growth(rtt.smoothed());
        while self.credit >= u128::from(self.window.bytes()) * u128::from(ONE) {
            self.credit -= u128::from(self.window.bytes()) * u128::from(ONE);
            self.window.grow_by(self.window.segment());
        }
    }

    fn on_loss(&mut self, event: &LossEvent) {
        if event.ecn {
            return self.on_marks(event);
        }
        let reduction = self.window.on_loss(event);
        if reduction.multiply {
            self.credit = 0;
            let reduced = self.window.bytes() * LOSS_TENTHS / 10;
            self.window.set_threshold(Some(reduced));
            self.window.set(reduced);
        }
        if reduction.collapse {
            self.credit = 0;
            self.window.set(0);
        }
    }

    fn window(&self) -> u64 {
        self.window.bytes()
    }

    fn in_slow_start(&self) -> bool {
        self.window.in_slow_start()
    }

    /// Returns a rate hardly above the rate of the window itself, because bursts would be marked.
    fn pacing_rate(&self, rtt: &RttEstimator) -> Rate {
        let window = self.window.bytes();
        let paced = if self.in_slow_start() { window.saturating_mul(2) } else { window.saturating_add(window / 32) };
        Rate::from_transfer(paced, rtt.smoothed()).unwrap_or(Rate::MAX)
    }

    fn is_scalable(&self) -> bool {
        true
    }

    fn set_segment_size(&mut self, bytes: u64) {
        self.window.set_segment(bytes);
    }

    fn snapshot(&self) -> CongestionSnapshot {
        CongestionSnapshot {
            window: self.window.bytes(),
            slow_start_threshold: self.window.threshold(),
            phase: self.window.phase(),
            name: Algorithm::Prague.name(),
        }
    }

    fn fresh(&self) -> Box<dyn CongestionController> {
        Box::new(Self::new(self.window.segment()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::initial_window;
    use super::*;

    const SEGMENT: u64 = 1200;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn rtt(ms: u64) -> RttEstimator {
        let mut rtt = RttEstimator::default();
        rtt.update(Duration::from_millis(ms), Duration::ZERO);
        rtt
    }

    /// Runs a round of `packets`, sent at `sent` and acknowledged at `acked`, of which `marked`
    /// were marked.
    fn round(prague: &mut Prague, [sent, acked]: [u64; 2], packets: u64, marked: u64) {
        prague.on_ecn_report(packets, marked);
        if marked > 0 {
            prague.on_loss(&LossEvent {
                now: at(acked),
                newest_lost_sent_at: at(sent),
                bytes: 0,
                in_flight: 0,
                persistent: false,
                ecn: true,
            });
        }
        let event = AckEvent {
            now: at(acked),
            bytes: packets * SEGMENT,
            newest_sent_at: at(sent),
            in_flight: 0,
            app_limited: false,
            round_ended: true,
            latest_rtt: Duration::from_millis(acked - sent),
            rate: None,
        };
        prague.on_ack(&event, &rtt(acked - sent));
    }

    #[test]
    fn the_first_mark_halves_the_window_and_ends_slow_start() {
        let mut prague = Prague::new(SEGMENT);
        let before = initial_window(SEGMENT);
        round(&mut prague, [1, 101], 10, 10);
        assert_eq!((prague.window(), prague.in_slow_start()), (before / 2, false));
    }

    #[test]
    fn a_reduction_is_half_the_average_share_of_marks_and_once_per_round() {
        let mut prague = Prague::new(SEGMENT);
        round(&mut prague, [1, 101], 10, 1);
        // 100 rounds without marks: the share falls to (15/16)^100 of its old value, 0.2 %.
        for index in 1..=100 {
            round(&mut prague, [100 * index + 2, 100 * index + 101], 10, 0);
        }
        let before = prague.window();
        prague.on_ecn_report(1, 1);
        let mark = |newest: u64, now: u64| LossEvent {
            now: at(now),
            newest_lost_sent_at: at(newest),
            bytes: 0,
            in_flight: 0,
            persistent: false,
            ecn: true,
        };
        prague.on_loss(&mark(10_150, 10_250));
        let cut = before - prague.window();
        assert!(cut > before / 2000 && cut < before / 500, "{before} {cut}");
        let once = prague.window();
        prague.on_loss(&mark(10_200, 10_260));
        assert_eq!(prague.window(), once, "sent before the reduction");
        prague.on_loss(&mark(10_251, 10_360));
        assert!(prague.window() < once);
    }

    #[test]
    fn the_window_stays_where_additions_and_marks_balance() {
        // A mark for every packet beyond 100 segments, as a queue with a step threshold makes them.
        let mut prague = Prague::new(SEGMENT);
        let mut windows = Vec::new();
        for index in 0..2000_u64 {
            let packets = prague.window() / SEGMENT;
            let marked = packets.saturating_sub(100).min(packets);
            round(&mut prague, [30 * index + 1, 30 * index + 30], packets, marked);
            windows.push(prague.window() / SEGMENT);
        }
        let late = &windows[1000..];
        let (least, most) = (late.iter().min().unwrap(), late.iter().max().unwrap());
        assert!(*least >= 95 && *most <= 103, "{least} to {most} segments");
    }

    #[test]
    fn a_loss_is_answered_once_per_round_as_by_cubic() {
        let mut prague = Prague::new(SEGMENT);
        for index in 0..5 {
            round(&mut prague, [100 * index + 1, 100 * index + 100], 100, 0);
        }
        let before = prague.window();
        let loss = |persistent| LossEvent {
            now: at(600),
            newest_lost_sent_at: at(550),
            bytes: SEGMENT,
            in_flight: 0,
            persistent,
            ecn: false,
        };
        prague.on_loss(&loss(false));
        prague.on_loss(&loss(false));
        assert_eq!(prague.window(), before * 7 / 10);
        round(&mut prague, [560, 610], 1, 1);
        assert_eq!(prague.window(), before * 7 / 10, "a mark of the same round adds nothing");
        prague.on_loss(&loss(true));
        assert_eq!(prague.window(), 2 * SEGMENT);
    }

    #[test]
    fn short_round_trips_grow_more_slowly_and_not_without_bound() {
        let grown = |rtt_ms: u64, rounds: u64| {
            let mut prague = Prague::new(SEGMENT);
            round(&mut prague, [0, 1], 10, 10);
            let before = prague.window();
            for index in 1..=rounds {
                let sent = index * 1000;
                let packets = prague.window() / SEGMENT;
                round(&mut prague, [sent, sent + rtt_ms], packets, 0);
            }
            (prague.window() - before) / SEGMENT
        };
        // In the same time: 40 rounds of 25 ms, 200 of 5 ms, that is (5/25)^2 of the growth each.
        let (long, short) = (grown(25, 40), grown(5, 200));
        assert!((35..=40).contains(&long) && (6..=8).contains(&short), "{long} {short}");
        assert_eq!(Prague::pace_of_growth(Duration::ZERO), Prague::pace_of_growth(RTT_MIN));
        assert!(Prague::pace_of_growth(RTT_MIN) > 0);
    }

    #[test]
    fn absurd_reports_do_no_harm() {
        let mut prague = Prague::new(SEGMENT);
        prague.on_ecn_report(u64::MAX, u64::MAX);
        prague.on_ecn_report(0, u64::MAX);
        round(&mut prague, [1, 2], 1, 9);
        assert!(prague.window() >= 2 * SEGMENT && prague.alpha <= ONE);
    }
}
