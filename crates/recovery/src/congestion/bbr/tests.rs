//! Each state transition compared with the draft's rule, with hand-made acknowledgements; and
//! invariants under random input.

mod driver;
mod losses;
mod states;

use proptest::prelude::*;
use units::{Duration, Instant, Rate, Rng};

use self::driver::SEGMENT;
use super::*;
use crate::congestion::window::{WINDOW_MAX, minimum_window};
use crate::delivery_rate::{DeliveryRate, SendStamp};

#[test]
fn before_the_first_acknowledgement_it_paces_the_initial_window() {
    let mut bbr = Bbr::new(SEGMENT, Rng::from_seed(1));
    let mut rtt = RttEstimator::default();
    // Section 5.6.2: 277 % of 12 000 bytes per millisecond, or per round trip once it is known.
    assert_eq!(bbr.pacing_rate(&rtt), Rate::from_bps(12_000 * 8 * 2770));
    rtt.update(Duration::from_millis(100), Duration::ZERO);
    assert_eq!(bbr.pacing_rate(&rtt), Rate::from_bps(12_000 * 8 * 277 / 10));
    bbr.set_segment_size(1400);
    assert_eq!(bbr.window(), 14_000);
    assert_eq!(bbr.fresh().snapshot(), bbr.snapshot());
}

#[test]
fn without_samples_it_stays_at_the_initial_window() {
    let mut driver = driver::Driver::new(1);
    let window = driver.bbr.window();
    for _ in 0..20 {
        driver.ack_without_sample(window);
        assert_eq!((driver.bbr.window(), driver.phase()), (window, "startup"));
    }
}

#[test]
fn flows_probe_at_different_times() {
    let mut waits: Vec<_> = (0..20).map(|seed| driver::Driver::new(seed).time_in_cruise()).collect();
    let bounds = Duration::from_millis(1960)..=Duration::from_millis(3040);
    assert!(waits.iter().all(|wait| bounds.contains(wait)), "{waits:?}");
    waits.sort();
    waits.dedup();
    assert!(waits.len() > 5, "{waits:?}");
}

/// Any call that a transport could make, in any order.
#[derive(Debug, Clone)]
enum Action {
    Wait(u64),
    Send(u64),
    Ack { index: usize, rtt: u64, in_flight: u64, app_limited: bool },
    Lose { index: usize, bytes: u64, persistent: bool, ecn: bool },
    Reappear { age: u64, bytes: u64 },
    Rest,
    Resize(u64),
}

/// Mostly ordinary numbers, sometimes extreme ones.
fn number(ordinary: u64) -> impl Strategy<Value = u64> {
    prop_oneof![12 => 0..=ordinary, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(0)]
}

fn action() -> impl Strategy<Value = Action> {
    const SECOND: u64 = 1_000_000_000;
    let index = || 0usize..64;
    prop_oneof![
        6 => number(SECOND / 4).prop_map(Action::Wait),
        8 => number(100_000).prop_map(Action::Send),
        16 => (index(), number(SECOND), number(100_000), any::<bool>())
            .prop_map(|(index, rtt, in_flight, app_limited)| Action::Ack { index, rtt, in_flight, app_limited }),
        3 => (index(), number(100_000), prop::bool::weighted(0.1), prop::bool::weighted(0.2))
            .prop_map(|(index, bytes, persistent, ecn)| Action::Lose { index, bytes, persistent, ecn }),
        1 => (number(SECOND), number(100_000)).prop_map(|(age, bytes)| Action::Reappear { age, bytes }),
        1 => Just(Action::Rest),
        1 => number(9000).prop_map(Action::Resize),
    ]
}

/// A transport that makes random calls, with samples from the real estimator.
struct RandomTransport {
    bbr: Bbr,
    path: DeliveryRate,
    now: Instant,
    sent: Vec<(Instant, SendStamp, u64)>,
}

impl RandomTransport {
    fn pick(&self, index: usize) -> (Instant, SendStamp, u64) {
        let nothing = (self.now, SendStamp::default(), 0);
        self.sent.get(self.sent.len().saturating_sub(index + 1)).copied().unwrap_or(nothing)
    }

    fn apply(&mut self, action: &Action) {
        let now = self.now;
        match *action {
            Action::Wait(nanos) => self.now += Duration::from_nanos(nanos),
            Action::Send(bytes) => {
                let stamp = self.path.on_sent(now, bytes, bytes);
                self.bbr.on_sent(now, bytes, bytes);
                self.sent.push((now, stamp, bytes));
            }
            Action::Ack { index, rtt, in_flight, app_limited } => {
                let (sent_at, stamp, bytes) = self.pick(index);
                let mut estimator = RttEstimator::default();
                estimator.update(Duration::from_nanos(rtt), Duration::ZERO);
                self.path.on_acked(now, &stamp, sent_at, index as u64, bytes);
                let (latest_rtt, rate) = (Duration::from_nanos(rtt), self.path.take_sample(&estimator));
                let event = AckEvent {
                    now,
                    bytes,
                    newest_sent_at: sent_at,
                    in_flight,
                    app_limited,
                    round_ended: false,
                    latest_rtt,
                    rate,
                };
                self.bbr.on_ack(&event, &estimator);
            }
            Action::Lose { index, bytes, persistent, ecn } => {
                let (sent_at, stamp, _) = self.pick(index);
                let event = LossEvent { now, newest_lost_sent_at: sent_at, bytes, in_flight: bytes, persistent, ecn };
                self.bbr.on_loss(&event);
                let number = index as u64;
                let loss = self.path.on_lost(&stamp, number..number + 1, bytes);
                self.bbr.on_run_lost(now, &loss);
            }
            Action::Reappear { age, bytes } => {
                let newest_sent_at = now.saturating_sub(Duration::from_nanos(age));
                self.bbr.on_spurious_loss(&SpuriousLossEvent { now, newest_sent_at, bytes });
            }
            Action::Rest => self.path.on_app_limited(0),
            Action::Resize(bytes) => self.bbr.set_segment_size(bytes),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// An overflow would panic here: tests are built with overflow checks.
    #[test]
    fn window_and_rate_stay_within_their_bounds(
        seed in any::<u64>(), actions in prop::collection::vec(action(), 1..200),
    ) {
        let bbr = Bbr::new(SEGMENT, Rng::from_seed(seed));
        let mut chaos = RandomTransport { bbr, path: DeliveryRate::new(), now: Instant::ZERO, sent: Vec::new() };
        let rtt = RttEstimator::default();
        for action in &actions {
            let before = chaos.bbr.window();
            chaos.apply(action);
            let (bbr, after) = (&chaos.bbr, chaos.bbr.window());
            prop_assert!(after >= minimum_window(bbr.segment) && after <= WINDOW_MAX, "{action:?}: {after}");
            prop_assert!(!bbr.pacing_rate(&rtt).is_zero(), "{action:?}");
            prop_assert_eq!(bbr.snapshot().window, after);
            match action {
                Action::Send(_) | Action::Wait(_) | Action::Rest => {
                    // The first packet after an idle period may end a round-trip probe, which
                    // restores the window.
                    prop_assert!(after >= before, "{action:?}: {before} to {after}");
                }
                Action::Lose { .. } => prop_assert!(after <= before, "{action:?}: {before} to {after}"),
                Action::Reappear { .. } => prop_assert!(after >= before, "{action:?}: {before} to {after}"),
                Action::Ack { .. } | Action::Resize(_) => {}
            }
        }
    }
}
