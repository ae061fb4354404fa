use super::*;
use proptest::prelude::*;

const SEGMENT: u64 = 1500;

fn at_us(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

/// Returns a pacer whose congestion bucket was emptied at time zero.
fn emptied(rate: Rate) -> Pacer {
    let mut pacer = Pacer::new(None);
    let all = pacer.budget(Instant::ZERO, rate);
    pacer.on_sent(Instant::ZERO, all);
    pacer
}

/// Sends all permitted bytes, in segments, at each wake-up, and returns the bytes and the number of
/// wake-ups.
fn drive(pacer: &mut Pacer, rate: Rate, until: Instant, late: Duration) -> (u64, u64) {
    let (mut now, mut sent, mut wakes) = (Instant::ZERO, 0, 0);
    while now < until {
        let segments = pacer.budget(now, rate) / SEGMENT;
        pacer.on_sent(now, segments * SEGMENT);
        sent += segments * SEGMENT;
        wakes += 1;
        let next = pacer.next_release(now, rate, SEGMENT);
        assert!(next > now, "all permitted bytes were just sent");
        now = next + late;
    }
    (sent, wakes)
}

#[test]
fn a_slow_path_starts_with_ten_segments_and_then_sends_one_at_a_time() {
    let rate = Rate::from_mbps(1);
    let mut pacer = Pacer::new(None);
    assert_eq!(pacer.budget(Instant::ZERO, rate), 15_000);
    pacer.on_sent(Instant::ZERO, 15_000);
    assert_eq!(pacer.budget(Instant::ZERO, rate), 0);
    // 1500 bytes last 12 ms at 1 Mb/s.
    assert_eq!(pacer.next_release(Instant::ZERO, rate, SEGMENT), at_us(12_000));
    assert_eq!(pacer.budget(at_us(11_999), rate), 1499);
    assert_eq!(pacer.budget(at_us(12_000), rate), 1500);
}

#[test]
fn a_fast_path_sends_batches_of_a_millisecond() {
    let rate = Rate::from_mbps(10_000);
    let pacer = emptied(rate);
    assert_eq!(pacer.next_release(Instant::ZERO, rate, SEGMENT), at_us(1000), "a batch, not a packet of 1.2 us");
    let (sent, wakes) = drive(&mut emptied(rate), rate, at_us(1_000_000), Duration::ZERO);
    assert!(wakes <= 1002, "{wakes} wake-ups in a second");
    assert!((1_245_000_000..=1_250_000_000).contains(&sent), "{sent} bytes in a second at 10 Gb/s");
}

#[test]
fn a_timer_late_by_less_than_a_batch_costs_no_throughput() {
    for megabits in [20, 1000, 40_000] {
        let rate = Rate::from_mbps(megabits);
        let (sent, _) = drive(&mut emptied(rate), rate, at_us(1_000_000), Duration::from_micros(900));
        let expected = rate.bytes_in(Duration::from_secs(1));
        assert!(sent >= expected * 99 / 100, "{sent} of {expected} bytes at {rate}");
    }
}

#[test]
fn after_an_idle_period_two_batches_may_be_sent() {
    let rate = Rate::from_mbps(1000);
    let mut pacer = emptied(rate);
    assert_eq!(pacer.budget(at_us(10_000_000), rate), 250_000);
    assert_eq!(pacer.next_release(at_us(10_000_000), rate, SEGMENT), at_us(10_000_000), "it may be sent at once");
}

#[test]
fn bytes_sent_beyond_the_budget_are_paid_back() {
    let rate = Rate::from_mbps(12);
    let mut pacer = emptied(rate);
    // A probe, which does not wait for the pacer.
    pacer.on_sent(Instant::ZERO, 3000);
    assert_eq!(pacer.budget(at_us(2000), rate), 0);
    assert_eq!(pacer.next_release(at_us(2000), rate, SEGMENT), at_us(3000));
    assert_eq!(pacer.budget(at_us(3000), rate), 1500);
}

#[test]
fn bytes_sent_without_asking_after_idle_are_subtracted_from_a_full_bucket() {
    let (rate, later) = (Rate::from_mbps(1000), at_us(10_000_000));
    let mut pacer = Pacer::new(Some(RateCap { rate, burst: 50_000 }));
    assert_eq!(pacer.budget(Instant::ZERO, rate), 50_000);
    pacer.on_sent(later, 1000);
    assert_eq!(pacer.budget(later, rate), 49_000);
}

#[test]
fn fractional_credit_shortens_the_wait_and_does_not_overfill() {
    let (rate, at_ns) = (Rate::from_mbps(1000), Instant::from_nanos);
    let mut pacer = emptied(rate);
    assert_eq!(pacer.budget(at_ns(7), rate), 0);
    // 125,000 bytes, one batch, since the start, not since the seventh nanosecond, when 7/8 of a
    // byte were already there.
    assert_eq!(pacer.next_release(at_ns(7), rate, SEGMENT), at_ns(1_000_000));
    // Full after 2 ms. Another 7 ns are 7/8 of a byte that does not fit.
    let full = at_ns(2_000_007);
    let all = pacer.budget(full, rate);
    pacer.on_sent(full, all);
    assert_eq!((all, pacer.budget(at_ns(2_000_014), rate), pacer.budget(at_ns(2_000_015), rate)), (250_000, 0, 1));
}

#[test]
fn a_cap_of_zero_releases_one_burst() {
    let mut pacer = Pacer::new(Some(RateCap { rate: Rate::ZERO, burst: 4000 }));
    assert_eq!(pacer.budget(at_us(5), Rate::MAX), 4000);
    pacer.on_sent(at_us(5), 4000);
    assert_eq!(pacer.budget(at_us(1_000_000_000), Rate::MAX), 0);
    assert_eq!(pacer.next_release(at_us(5), Rate::MAX, 1), Instant::FAR_FUTURE);
}

#[test]
fn a_burst_below_a_packet_still_releases_packets() {
    let rate = Rate::from_mbps(12);
    let mut pacer = Pacer::new(Some(RateCap { rate, burst: 10 }));
    let (sent, _) = drive(&mut pacer, Rate::MAX, at_us(1_000_000), Duration::ZERO);
    assert!((1_490_000..=1_501_500).contains(&sent), "{sent} bytes in a second at 12 Mb/s");
}

#[test]
fn the_lower_of_cap_and_congestion_rate_applies() {
    let cap = RateCap { rate: Rate::from_mbps(100), burst: 100_000 };
    for (congestion, expected) in [(50, 50), (100, 100), (800, 100)] {
        let mut pacer = Pacer::new(Some(cap));
        let rate = Rate::from_mbps(congestion);
        let (sent, wakes) = drive(&mut pacer, rate, at_us(1_000_000), Duration::ZERO);
        let megabits = sent * 8 / 1_000_000;
        assert!(megabits.abs_diff(expected) <= 1, "{megabits} Mb/s of {expected}");
        assert!(wakes < 1100, "{wakes} wake-ups");
    }
}

#[test]
fn setting_and_removing_the_cap_takes_effect_at_once() {
    let cap = RateCap { rate: Rate::from_mbps(8), burst: 3000 };
    let mut pacer = Pacer::new(Some(cap));
    assert_eq!((pacer.cap(), pacer.budget(at_us(0), Rate::from_mbps(8000))), (Some(cap), 3000));
    pacer.set_cap(None);
    assert_eq!((pacer.cap(), pacer.budget(at_us(0), Rate::from_mbps(8000))), (None, 2_000_000));
    pacer.set_cap(Some(cap));
    assert_eq!(pacer.budget(at_us(0), Rate::from_mbps(8000)), 3000);
}

#[test]
fn no_credit_is_lost_to_rounding_with_frequent_refills() {
    // 1 Gb/s gives an eighth of a byte per nanosecond; refill at irregular times for one
    // millisecond.
    let rate = Rate::from_mbps(1000);
    let (mut pacer, mut now) = (emptied(rate), Instant::ZERO);
    while now < at_us(1000) {
        now += Duration::from_nanos(7);
        let _ = pacer.budget(now, rate);
    }
    assert_eq!(pacer.budget(now, rate), rate.bytes_in(now - Instant::ZERO));
}

#[test]
fn extreme_values_do_not_overflow() {
    for rate in [Rate::ZERO, Rate::from_bps(1), Rate::MAX] {
        for burst in [0, 1, u64::MAX] {
            let mut pacer = Pacer::new(Some(RateCap { rate, burst }));
            pacer.set_segment_size(u64::MAX);
            for now in [Instant::ZERO, Instant::FAR_FUTURE, Instant::ZERO] {
                let _ = pacer.budget(now, rate);
                pacer.on_sent(now, u64::MAX);
                pacer.on_sent(now, u64::MAX);
                assert!(pacer.next_release(now, rate, u64::MAX) >= now);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Action {
    Wait(u64),
    /// Send this share, in 256ths, of the permitted bytes.
    Send(u64),
    /// Wait for a packet of this size.
    Sleep(u64),
    /// The congestion controller's rate changes.
    Pace(u64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        prop_oneof![0_u64..2000, 0_u64..5_000_000, 0_u64..4_000_000_000].prop_map(Action::Wait),
        (1_u64..=256).prop_map(Action::Send),
        (1_u64..3000).prop_map(Action::Sleep),
        (100_000_u64..100_000_000_000).prop_map(Action::Pace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The guarantee of [`RateCap`], over every pair of sends.
    #[test]
    fn the_cap_holds_over_every_interval(
        bps in prop_oneof![Just(0_u64), 1_u64..100_000, 1_u64..100_000_000_000],
        burst in 1500_u64..2_000_000,
        actions in prop::collection::vec(action(), 1..120),
    ) {
        let cap = RateCap { rate: Rate::from_bps(bps), burst };
        let (mut pacer, mut now, mut rate) = (Pacer::new(Some(cap)), Instant::ZERO, Rate::from_mbps(1000));
        let mut sends: Vec<(Instant, u64)> = Vec::new();
        for action in actions {
            match action {
                Action::Wait(nanos) => now += Duration::from_nanos(nanos),
                Action::Send(share) => {
                    let bytes = (u128::from(pacer.budget(now, rate)) * u128::from(share) / 256) as u64;
                    pacer.on_sent(now, bytes);
                    sends.push((now, bytes));
                }
                Action::Sleep(bytes) => {
                    let bytes = bytes.min(burst);
                    let next = pacer.next_release(now, rate, bytes);
                    prop_assert!(next >= now);
                    if next < at_us(1_000_000_000) {
                        now = next;
                        let budget = pacer.budget(now, rate);
                        prop_assert!(budget >= bytes, "promised {bytes}, got {budget}");
                    }
                }
                Action::Pace(bps) => rate = Rate::from_bps(bps),
            }
        }
        for (first, &(from, _)) in sends.iter().enumerate() {
            let mut sum = 0;
            for &(to, bytes) in &sends[first..] {
                sum += bytes;
                let allowed = cap.rate.bytes_in(to - from) + burst;
                prop_assert!(sum <= allowed, "{sum} bytes in {}, of {allowed}", to - from);
            }
        }
    }

    /// A change of the cap that is noticed late never releases more than the larger of both limits.
    #[test]
    fn the_cap_holds_across_a_change(
        old in 1_u64..1_000_000_000, new in 1_u64..1_000_000_000, change_at in 0_u64..1_000_000, look_after in 0_u64..1_000_000,
    ) {
        let cap = |bps| RateCap { rate: Rate::from_bps(bps), burst: 10_000_000 };
        let mut pacer = Pacer::new(Some(cap(old)));
        let all = pacer.budget(Instant::ZERO, Rate::MAX);
        pacer.on_sent(Instant::ZERO, all);
        pacer.set_cap(Some(cap(new)));
        let looked_at = at_us(change_at + look_after);
        let allowed = Rate::from_bps(old).bytes_in(Duration::from_micros(change_at))
            + Rate::from_bps(new).bytes_in(Duration::from_micros(look_after)) + 1;
        prop_assert!(pacer.budget(looked_at, Rate::MAX) <= allowed);
    }
}

#[test]
fn fine_pacing_sends_in_bursts_of_a_quarter() {
    let rate = Rate::from_mbps(100);
    for (is_fine, burst, batch) in [(false, 25_000, 12_500), (true, 6250, 3125)] {
        let mut pacer = Pacer::new(None);
        pacer.set_segment_size(1200);
        pacer.set_fine(is_fine);
        let now = Instant::ZERO + Duration::from_secs(1);
        assert_eq!((pacer.budget(now, rate), pacer.batch(rate)), (burst, batch));
        pacer.on_sent(now, burst);
        let next = pacer.next_release(now, rate, 1200);
        assert_eq!(pacer.budget(next, rate), batch);
    }
    let mut slow = Pacer::new(None);
    slow.set_segment_size(1200);
    slow.set_fine(true);
    assert_eq!(slow.budget(Instant::ZERO, Rate::from_bps(100_000)), 2400);
}
