use super::*;
use proptest::prelude::*;

const SEGMENT: u64 = 1200;
const RTT: Duration = Duration::from_millis(100);

fn at_ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn rtt() -> RttEstimator {
    let mut rtt = RttEstimator::default();
    rtt.update(RTT, Duration::ZERO);
    rtt
}

fn ack(now: Instant, bytes: u64) -> AckEvent {
    AckEvent {
        now,
        bytes,
        newest_sent_at: now.saturating_sub(Duration::from_millis(1)),
        in_flight: bytes,
        app_limited: false,
        round_ended: false,
        latest_rtt: RTT,
        rate: None,
    }
}

fn loss(now: Instant, bytes: u64) -> LossEvent {
    let newest_lost_sent_at = now.saturating_sub(Duration::from_millis(1));
    LossEvent { now, newest_lost_sent_at, bytes, in_flight: 0, persistent: false, ecn: false }
}

/// Returns a controller that lost a packet at `window` one second after time zero and enters
/// congestion avoidance.
fn reduced_from(window: u64) -> Cubic {
    let mut cubic = Cubic::new(SEGMENT);
    cubic.window.set(window);
    cubic.on_loss(&loss(at_ms(1000), SEGMENT));
    cubic
}

/// Acknowledges a full window per round trip from `from_ms` to `to_ms`, in 20 acknowledgements.
fn run(cubic: &mut Cubic, from_ms: u64, to_ms: u64) {
    for now in (from_ms..to_ms).step_by(5) {
        let bytes = cubic.window() / 20;
        cubic.on_ack(&ack(at_ms(now), bytes), &rtt());
    }
}

#[test]
fn the_coefficient_is_two_fifths_of_a_segment_per_cubic_second() {
    let curve = Curve::new(SEGMENT);
    // 10 s is exactly 9,765,625 ticks: 0.4 * 1000 segments.
    assert_eq!(curve.rise(ticks(Duration::from_secs(10))), 400 * SEGMENT - 1, "rounded down");
    // 100 ms: 0.0004 segments.
    assert_eq!(curve.rise(ticks(Duration::from_millis(1000))), 479);
}

proptest! {
    #[test]
    fn the_curve_agrees_with_its_formula(segment in 1_u64..=65_535, nanos in 0_u64..2_000_000_000_000) {
        let seconds = (nanos >> 10 << 10) as f64 / 1e9;
        let expected = 0.4 * segment as f64 * seconds.powi(3);
        let risen = Curve::new(segment).rise(ticks(Duration::from_nanos(nanos))) as f64;
        prop_assert!((risen - expected).abs() <= 2.0 + expected * 1e-9, "{risen} instead of {expected}");
    }

    #[test]
    fn k_is_the_inverse_of_the_curve(segment in 64_u64..=65_535, bytes in 0_u64..=WINDOW_MAX) {
        let curve = Curve::new(segment);
        let k = curve.ticks_to_rise(bytes);
        // Up to one tick short, and so by at most the slope there.
        let slope = curve.rise(k + 1) - curve.rise(k);
        prop_assert!(curve.rise(k) <= bytes + 1);
        prop_assert!(k == TICKS_MAX || curve.rise(k) + slope + 2 >= bytes, "{} of {bytes}", curve.rise(k));
    }

    #[test]
    fn both_division_branches_agree(a: u64, b: u64, c: u64, divisor in 1_u64..) {
        let (a, c) = (a % divisor, c % divisor);
        let wide = u128::from(a) * u128::from(b) + u128::from(c);
        let (quotient, left) = (wide / u128::from(divisor), wide % u128::from(divisor));
        prop_assert_eq!(mul_add_div(a, b, c, divisor), (quotient as u64, left as u64));
    }
}

#[test]
fn a_loss_reduces_the_window_to_seven_tenths() {
    let cubic = reduced_from(1_000_000);
    assert_eq!((cubic.window(), cubic.window.threshold()), (700_000, Some(700_000)));
    assert_eq!((cubic.plateau, cubic.prior), (1_000_000, 1_000_000));
    assert_eq!(cubic.snapshot().phase, "recovery");
}

#[test]
fn a_second_loss_below_the_plateau_lowers_it_further() {
    let mut cubic = reduced_from(1_000_000);
    cubic.on_loss(&loss(at_ms(2000), SEGMENT));
    // Section 4.7: 700,000 * (1 + 0.7) / 2.
    assert_eq!((cubic.plateau, cubic.window()), (595_000, 490_000));

    let mut back = reduced_from(1_000_000);
    back.window.set(1_000_000);
    back.on_loss(&loss(at_ms(2000), SEGMENT));
    assert_eq!((back.plateau, back.window()), (1_000_000, 700_000), "the window had regained its plateau");
}

#[test]
fn growth_from_tiny_acknowledgements_adds_up() {
    let mut cubic = reduced_from(1_600_000);
    cubic.on_ack(&ack(at_ms(1100), SEGMENT), &rtt());
    let before = cubic.window();
    // After one second the curve is some 144,000 bytes up. Three bytes earn 3 * 144,000 / 1,120,000
    // bytes, less than one.
    for _ in 0..100_000 {
        cubic.on_ack(&ack(at_ms(2100), 3), &rtt());
    }
    // 300,000 bytes are 0.268 windows: 1 - e^-0.268 of the distance, slightly less as the window
    // grows.
    let grown = cubic.window() - before;
    assert!((31_000..34_500).contains(&grown), "{grown} bytes");
}

#[test]
fn the_window_returns_to_the_plateau_after_k_and_leaves_it_slowly_then_fast() {
    // 0.3 * W_max / (0.4 * segment) = 1000 s^3, so K is 10 s.
    let window = 1000 * SEGMENT * 4 / 3;
    let mut cubic = reduced_from(window);
    run(&mut cubic, 1100, 11_100);
    let at_plateau = cubic.window();
    assert!(at_plateau.abs_diff(window) < window / 1000, "{at_plateau} of {window} after K");
    let risen_in = |cubic: &mut Cubic, from: u64, to: u64| {
        let before = cubic.window();
        run(cubic, from, to);
        cubic.window() - before
    };
    let first = risen_in(&mut cubic, 11_100, 13_100);
    let later = risen_in(&mut cubic, 13_100, 15_100);
    // 0.4 * 2^3 and 0.4 * (4^3 - 2^3) segments: looking ahead by a round trip and taking one round
    // trip to get there cancel out. W_est is at 933 + 140 * 9/17 segments by then, far below.
    assert!(first.abs_diff(3840) < 100, "{first} bytes in the first two seconds");
    assert!(later.abs_diff(26_880) < 100, "{later} bytes in the next two");
}

#[test]
fn a_short_path_grows_like_reno() {
    // At 1 ms and 20 segments the cubic function is flat; W_est must lead.
    let (mut cubic, mut rtt) = (reduced_from(20 * SEGMENT), RttEstimator::default());
    rtt.update(Duration::from_millis(1), Duration::ZERO);
    let start = cubic.window();
    for round in 0..17 {
        let bytes = cubic.window();
        cubic.on_ack(&ack(at_ms(1010 + round), bytes), &rtt);
    }
    // 17 windows of 9/17 segments are nine segments, which is past the former window of 20. Up to
    // there alpha is 9/17: growing from 14 to 20 segments takes 12 rounds (11.3), and the other 5
    // add one segment each.
    let segments = (cubic.window() - start) / SEGMENT;
    assert!((10..=11).contains(&segments), "{segments} segments");
}

#[test]
fn time_without_a_full_window_does_not_advance_the_curve() {
    let mut steady = reduced_from(1_600_000);
    let mut limited = steady.clone();
    let mut quiet = steady.clone();
    for cubic in [&mut steady, &mut limited, &mut quiet] {
        run(cubic, 1100, 3100);
    }
    // One minute in which the application sends occasionally.
    for now in (3100..63_100).step_by(100) {
        limited.on_sent(at_ms(now), SEGMENT, SEGMENT);
        limited.on_ack(&AckEvent { app_limited: true, in_flight: 0, ..ack(at_ms(now + 50), SEGMENT) }, &rtt());
    }
    // One minute in which the application sends nothing.
    quiet.on_ack(&AckEvent { in_flight: 0, ..ack(at_ms(3100), SEGMENT) }, &rtt());
    quiet.on_sent(at_ms(63_100), SEGMENT, SEGMENT);
    run(&mut steady, 3100, 6100);
    run(&mut limited, 63_100, 66_100);
    run(&mut quiet, 63_100, 66_100);
    for (name, cubic) in [("limited", &limited), ("quiet", &quiet)] {
        let gap = cubic.window().abs_diff(steady.window());
        assert!(gap < steady.window() / 100, "{name}: {} instead of {}", cubic.window(), steady.window());
    }
}

#[test]
fn epoch_time_continues_when_each_acknowledgement_covers_all_packets() {
    let mut cubic = reduced_from(1_600_000);
    let (window, millis) = (cubic.window(), 8000);
    for now in (1100..1100 + millis).step_by(100) {
        let bytes = cubic.window();
        cubic.on_sent(at_ms(now), bytes, bytes);
        cubic.on_ack(&AckEvent { in_flight: 0, ..ack(at_ms(now + 100), bytes) }, &rtt());
    }
    let epoch = cubic.epoch.as_ref().expect("in congestion avoidance");
    assert_eq!(epoch.started, at_ms(1200));
    assert!(cubic.window() > window * 4 / 3, "{} from {window}", cubic.window());
}

#[test]
fn hystart_ends_the_first_slow_start_without_a_loss() {
    let mut cubic = Cubic::new(SEGMENT);
    let mut now_ms = 100;
    for round in 0..12 {
        let latest_rtt = Duration::from_millis(if round < 4 { 100 } else { 120 + round });
        let bytes = cubic.window() / 10;
        for index in 0..10 {
            let event = AckEvent { latest_rtt, round_ended: index == 0, ..ack(at_ms(now_ms), bytes) };
            cubic.on_ack(&event, &rtt());
            now_ms += 10;
        }
    }
    assert!(!cubic.in_slow_start());
    assert_eq!(cubic.snapshot().phase, "congestion_avoidance");
    let epoch = cubic.epoch.as_ref().expect("in congestion avoidance");
    assert_eq!((epoch.plateau_ticks, Some(epoch.plateau)), (0, cubic.window.threshold()));
    // 2^4.8 by slow start, then 1.25 per round.
    assert!((20..120).contains(&(cubic.window() / initial(SEGMENT))), "{} bytes", cubic.window());
}

fn initial(segment: u64) -> u64 {
    super::super::initial_window(segment)
}

#[test]
fn a_collapse_goes_to_the_minimum_and_slow_starts_to_the_threshold() {
    let mut cubic = Cubic::new(SEGMENT);
    cubic.window.set(1_000_000);
    cubic.on_loss(&LossEvent { persistent: true, ..loss(at_ms(1000), SEGMENT) });
    assert_eq!((cubic.window(), cubic.window.threshold()), (2 * SEGMENT, Some(700_000)));
    let mut now = 1001;
    while cubic.in_slow_start() {
        let bytes = cubic.window();
        cubic.on_ack(&ack(at_ms(now), bytes), &rtt());
        now += 100;
    }
    assert_eq!(cubic.window(), 700_000);
    cubic.on_ack(&ack(at_ms(now), 1000), &rtt());
    let epoch = cubic.epoch.as_ref().expect("in congestion avoidance");
    assert_eq!((epoch.plateau, epoch.plateau_ticks), (700_000, 0), "section 4.8");
}

#[test]
fn a_reduction_is_undone_once_all_lost_packets_were_acknowledged() {
    let mut cubic = reduced_from(1_000_000);
    cubic.on_loss(&LossEvent { newest_lost_sent_at: at_ms(990), ..loss(at_ms(1005), 3 * SEGMENT) });
    assert_eq!(cubic.window(), 700_000, "one reduction");
    let spurious = |now, bytes| SpuriousLossEvent { now: at_ms(now), newest_sent_at: at_ms(999), bytes };
    cubic.on_spurious_loss(&spurious(1010, 3 * SEGMENT));
    assert_eq!(cubic.window(), 700_000, "one packet is still missing");
    cubic.on_spurious_loss(&spurious(1020, SEGMENT));
    assert_eq!((cubic.window(), cubic.in_slow_start()), (1_000_000, true));
    assert_eq!((cubic.plateau, cubic.window.threshold()), (0, None));
}

#[test]
fn ecn_marks_outages_and_older_events_are_not_undone() {
    let spurious = SpuriousLossEvent { now: at_ms(1020), newest_sent_at: at_ms(999), bytes: SEGMENT };
    let mut marked = reduced_from(1_000_000);
    marked.on_loss(&LossEvent { ecn: true, newest_lost_sent_at: at_ms(999), ..loss(at_ms(1005), 0) });
    marked.on_spurious_loss(&spurious);
    assert_eq!(marked.window(), 700_000);

    let mut down = reduced_from(1_000_000);
    down.on_loss(&LossEvent { persistent: true, newest_lost_sent_at: at_ms(999), ..loss(at_ms(1005), 0) });
    down.on_spurious_loss(&spurious);
    assert_eq!(down.window(), 2 * SEGMENT);

    let mut twice = reduced_from(1_000_000);
    twice.on_loss(&loss(at_ms(2000), SEGMENT));
    twice.on_spurious_loss(&SpuriousLossEvent { now: at_ms(2010), ..spurious });
    assert_eq!(twice.window(), 490_000, "a packet of the first event does not undo the second");
    twice.on_spurious_loss(&SpuriousLossEvent { now: at_ms(2010), newest_sent_at: at_ms(1999), bytes: SEGMENT });
    assert_eq!(twice.window(), 700_000);
}
