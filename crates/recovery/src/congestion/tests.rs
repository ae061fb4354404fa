//! Properties of every controller, and of every loss-based controller.

use proptest::prelude::*;
use units::{Duration, Instant, Rate};

use super::*;
use crate::rtt::RttEstimator;

const SEGMENT: u64 = 1200;

const LOSS_BASED: [Algorithm; 2] = [Algorithm::NewReno, Algorithm::Cubic];

fn at_ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn rtt_of(span: Duration) -> RttEstimator {
    let mut rtt = RttEstimator::default();
    rtt.update(span, Duration::ZERO);
    rtt
}

fn ack(now: Instant, bytes: u64) -> AckEvent {
    AckEvent {
        now,
        bytes,
        newest_sent_at: now.saturating_sub(Duration::from_nanos(1)),
        in_flight: bytes,
        app_limited: false,
        round_ended: false,
        latest_rtt: Duration::from_millis(50),
        rate: None,
    }
}

fn loss(now: Instant, newest_lost_sent_at: Instant) -> LossEvent {
    LossEvent { now, newest_lost_sent_at, bytes: SEGMENT, in_flight: 0, persistent: false, ecn: false }
}

fn each(test: impl Fn(Box<dyn CongestionController>)) {
    LOSS_BASED.into_iter().for_each(|algorithm| test(algorithm.build(SEGMENT)));
}

#[test]
fn the_initial_window_is_ten_segments_within_its_bounds() {
    // RFC 9002, section 7.2.
    for (segment, window) in [(1200, 12_000), (1472, 14_720), (1500, 14_720), (8972, 17_944), (65_535, 131_070)] {
        assert_eq!(initial_window(segment), window, "segments of {segment} bytes");
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.build(segment).window(), window);
        }
    }
    assert_eq!(minimum_window(1200), 2400);
}

#[test]
fn slow_start_doubles_the_window_each_round() {
    each(|mut controller| {
        for round in 1..5 {
            let window = controller.window();
            controller.on_ack(&ack(at_ms(round), window), &RttEstimator::default());
            assert_eq!(controller.window(), 2 * window, "{controller:?}");
            assert!(controller.in_slow_start());
        }
    });
}

#[test]
fn packets_of_one_round_reduce_the_window_once() {
    each(|mut controller| {
        controller.on_ack(&ack(at_ms(1), 12_000), &RttEstimator::default());
        controller.on_loss(&loss(at_ms(100), at_ms(50)));
        let reduced = controller.window();
        assert!(reduced < 24_000 && !controller.in_slow_start());
        controller.on_loss(&loss(at_ms(110), at_ms(100)));
        assert_eq!(controller.window(), reduced, "sent before the reduction: {controller:?}");
        // Packets sent before the reduction do not grow the window either (RFC 9002, section
        // 7.3.2).
        controller
            .on_ack(&AckEvent { newest_sent_at: at_ms(100), ..ack(at_ms(120), reduced) }, &RttEstimator::default());
        assert_eq!((controller.window(), controller.snapshot().phase), (reduced, "recovery"));
        controller.on_loss(&loss(at_ms(130), at_ms(101)));
        assert!(controller.window() < reduced, "sent after it: {controller:?}");
    });
}

#[test]
fn an_ecn_mark_counts_like_a_loss() {
    each(|mut controller| {
        let mut marked = controller.fresh();
        controller.on_loss(&loss(at_ms(100), at_ms(50)));
        marked.on_loss(&LossEvent { ecn: true, bytes: 0, ..loss(at_ms(100), at_ms(50)) });
        assert_eq!(controller.snapshot(), marked.snapshot());
    });
}

#[test]
fn newreno_halves_and_then_adds_a_segment_each_round() {
    let mut controller = Algorithm::NewReno.build(SEGMENT);
    controller.on_ack(&ack(at_ms(1), 12_000), &RttEstimator::default());
    controller.on_loss(&loss(at_ms(100), at_ms(50)));
    assert_eq!((controller.window(), controller.snapshot().slow_start_threshold), (12_000, Some(12_000)));
    for round in 0..5 {
        assert_eq!(controller.window(), 12_000 + round * SEGMENT);
        let quarter = controller.window() / 4;
        for _ in 0..4 {
            controller.on_ack(&ack(at_ms(200 + round), quarter), &RttEstimator::default());
        }
    }
}

#[test]
fn persistent_congestion_collapses_the_window_and_keeps_the_threshold() {
    each(|mut controller| {
        for round in 1..6 {
            let bytes = controller.window();
            controller.on_ack(&ack(at_ms(round), bytes), &RttEstimator::default());
        }
        controller.on_loss(&loss(at_ms(100), at_ms(50)));
        let threshold = controller.snapshot().slow_start_threshold;
        controller.on_loss(&LossEvent { persistent: true, ..loss(at_ms(5000), at_ms(90)) });
        assert_eq!(controller.window(), minimum_window(SEGMENT));
        assert_eq!(controller.snapshot().slow_start_threshold, threshold, "the same event: {controller:?}");
        // RFC 9002, appendix B.8: slow start begins at once, without a recovery period.
        controller.on_ack(&AckEvent { newest_sent_at: at_ms(95), ..ack(at_ms(5001), 2400) }, &RttEstimator::default());
        assert_eq!((controller.window(), controller.in_slow_start()), (4800, true));
    });
}

#[test]
fn a_new_segment_size_sets_the_initial_window_only_at_the_start() {
    each(|mut controller| {
        controller.set_segment_size(1400);
        assert_eq!(controller.window(), 14_000);
        controller.on_ack(&ack(at_ms(1), 1000), &RttEstimator::default());
        controller.set_segment_size(9000);
        assert_eq!(controller.window(), 18_000, "two of the new segments");
        controller.set_segment_size(1200);
        assert_eq!(controller.window(), 18_000);
        assert_eq!(controller.fresh().window(), 12_000);
    });
}

#[test]
fn the_pacing_rate_is_twice_the_window_in_slow_start_and_five_quarters_after() {
    each(|mut controller| {
        let rtt = rtt_of(Duration::from_millis(96));
        assert_eq!(controller.pacing_rate(&rtt), Rate::from_bps(12_000 * 8 * 2 * 1000 / 96));
        controller.on_loss(&loss(at_ms(100), at_ms(50)));
        let window = controller.window();
        assert_eq!(controller.pacing_rate(&rtt), Rate::from_bps(window * 8 * 5 * 1000 / 96 / 4));
        assert_eq!(controller.pacing_rate(&rtt_of(Duration::ZERO)), Rate::MAX);
    });
}

#[test]
fn names_round_trip_through_display_and_parse() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        assert_eq!(algorithm.build(SEGMENT).snapshot().name, algorithm.name());
    }
    assert_eq!("NewReno".parse(), Ok(Algorithm::NewReno));
    assert_eq!(Algorithm::default(), Algorithm::Cubic);
    let error = "vegas".parse::<Algorithm>().expect_err("not a known algorithm").to_string();
    assert!(error.contains("vegas") && error.contains("cubic"), "{error}");
}

/// Any call that a transport could make, in any order.
#[derive(Debug, Clone)]
enum Action {
    Wait(u64),
    Send(u64),
    Ack { bytes: u64, age: u64, in_flight: u64, app_limited: bool, round_ended: bool, rtt: u64 },
    Lose { bytes: u64, age: u64, persistent: bool, ecn: bool },
    Reappear { bytes: u64, age: u64 },
    Resize(u64),
}

/// Mostly ordinary numbers, sometimes extreme ones.
fn number(ordinary: u64) -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..=ordinary, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(0)]
}

fn action() -> impl Strategy<Value = Action> {
    const SECOND: u64 = 1_000_000_000;
    let ack = (number(100_000), number(SECOND), number(100_000), any::<(bool, bool)>(), number(SECOND)).prop_map(
        |(bytes, age, in_flight, (app_limited, round_ended), rtt)| Action::Ack {
            bytes,
            age,
            in_flight,
            app_limited,
            round_ended,
            rtt,
        },
    );
    let lose = (number(100_000), number(SECOND), prop::bool::weighted(0.1), prop::bool::weighted(0.2))
        .prop_map(|(bytes, age, persistent, ecn)| Action::Lose { bytes, age, persistent, ecn });
    prop_oneof![
        4 => number(SECOND).prop_map(Action::Wait),
        4 => number(100_000).prop_map(Action::Send),
        12 => ack,
        3 => lose,
        1 => (number(100_000), number(SECOND)).prop_map(|(bytes, age)| Action::Reappear { bytes, age }),
        1 => number(9000).prop_map(Action::Resize),
    ]
}

fn apply(controller: &mut dyn CongestionController, now: &mut Instant, action: &Action) {
    let sent = |age: u64| now.saturating_sub(Duration::from_nanos(age));
    match *action {
        Action::Wait(nanos) => *now += Duration::from_nanos(nanos),
        Action::Send(bytes) => controller.on_sent(*now, bytes, bytes),
        Action::Ack { bytes, age, in_flight, app_limited, round_ended, rtt } => {
            let latest_rtt = Duration::from_nanos(rtt);
            let newest_sent_at = sent(age);
            let event = AckEvent {
                now: *now,
                bytes,
                newest_sent_at,
                in_flight,
                app_limited,
                round_ended,
                latest_rtt,
                rate: None,
            };
            controller.on_ack(&event, &rtt_of(latest_rtt));
        }
        Action::Lose { bytes, age, persistent, ecn } => {
            let newest_lost_sent_at = sent(age);
            controller.on_loss(&LossEvent { now: *now, newest_lost_sent_at, bytes, in_flight: 0, persistent, ecn });
        }
        Action::Reappear { bytes, age } => {
            controller.on_spurious_loss(&SpuriousLossEvent { now: *now, newest_sent_at: sent(age), bytes });
        }
        Action::Resize(bytes) => controller.set_segment_size(bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// An overflow would panic here: tests are built with overflow checks.
    #[test]
    fn the_window_of_a_loss_based_controller_stays_within_its_bounds(
        algorithm in prop::sample::select(LOSS_BASED.to_vec()), actions in prop::collection::vec(action(), 1..200),
    ) {
        let (mut controller, mut now, mut segment) = (algorithm.build(SEGMENT), Instant::ZERO, SEGMENT);
        for action in &actions {
            let before = controller.window();
            apply(&mut *controller, &mut now, action);
            let after = controller.window();
            if let Action::Resize(bytes) = action {
                segment = *bytes;
            }
            prop_assert!(after >= minimum_window(segment) && after <= WINDOW_MAX, "{action:?}: {after}");
            let snapshot = controller.snapshot();
            prop_assert!(snapshot.slow_start_threshold.is_none_or(|threshold| threshold > 0));
            prop_assert_eq!(snapshot.window, after);
            match action {
                Action::Ack { app_limited: true, .. } | Action::Send(_) | Action::Wait(_) => {
                    prop_assert_eq!(after, before, "{:?} changed the window", action);
                }
                Action::Ack { .. } => prop_assert!(after >= before && after <= before.saturating_mul(2)),
                Action::Lose { .. } => prop_assert!(after <= before || before < minimum_window(segment)),
                Action::Reappear { .. } => prop_assert!(after >= before),
                Action::Resize(_) => {}
            }
            let _ = controller.pacing_rate(&rtt_of(Duration::from_nanos(1)));
        }
    }
}
