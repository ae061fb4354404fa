//! State transitions without losses.

use units::Duration;

use super::driver::{BDP, Driver, SEGMENT, STEADY, Step};
use crate::congestion::CongestionController;

fn within_percent(value: u64, wanted: u64, percent: u64) -> bool {
    value.abs_diff(wanted) * 100 <= wanted * percent
}

#[test]
fn startup_paces_at_277_percent_and_ends_after_three_flat_rounds() {
    let mut driver = Driver::new(1);
    driver.ack(Step { mbps: 10, ..STEADY });
    // 277 % of the bandwidth, minus the margin.
    assert_eq!(driver.pacing_mbps(), 27);
    assert!(driver.bbr.in_slow_start());
    let mut driver = Driver::new(1);
    driver.until_drain();
    assert!(!driver.bbr.in_slow_start());
    assert_eq!(driver.pacing_mbps(), 50);
}

#[test]
fn application_limited_rounds_neither_end_startup_nor_lower_the_rate() {
    let mut driver = Driver::new(1);
    driver.ack(Step { mbps: 10, ..STEADY });
    driver.acks(100, Step { mbps: 3, app_limited: true, ..STEADY });
    assert_eq!((driver.phase(), driver.pacing_mbps()), ("startup", 27));
}

#[test]
fn the_window_does_not_grow_with_the_number_of_bursts() {
    let mut driver = Driver::new(1);
    driver.ack(STEADY);
    // Each is acknowledged 1 ms later, faster than the path delivers.
    let burst = Step { mbps: 10, in_flight: 0, app_limited: true, bytes: 50_000, within_round: true, ..STEADY };
    for _ in 0..500 {
        driver.bbr.on_sent(driver.now, burst.bytes, burst.bytes);
        driver.ack(burst);
    }
    assert_eq!(driver.phase(), "startup");
    // Two bandwidth-delay products, what was acknowledged at once, and one step beyond.
    assert!(driver.bbr.window() <= 2 * BDP + 4 * burst.bytes, "{}", driver.bbr.window());
}

#[test]
fn acknowledgements_within_a_round_do_not_count_as_rounds() {
    let mut driver = Driver::new(1);
    driver.ack(STEADY);
    driver.acks(20, Step { within_round: true, ..STEADY });
    assert_eq!(driver.phase(), "startup");
}

#[test]
fn drain_ends_when_the_queue_is_empty_or_after_three_rounds() {
    let mut driver = Driver::new(1);
    driver.until_drain();
    driver.ack(Step { in_flight: BDP * 11 / 10, ..STEADY });
    assert_eq!(driver.phase(), "drain");
    driver.ack(Step { in_flight: BDP * 99 / 100, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_cruise", "Down ends at once, because the queue is empty");

    let mut driver = Driver::new(1);
    driver.until_drain();
    driver.acks(3, Step { in_flight: 2 * BDP, ..STEADY });
    assert_eq!(driver.phase(), "drain");
    driver.ack(Step { in_flight: 2 * BDP, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_down");
}

#[test]
fn cruise_sends_at_the_path_rate_with_a_window_of_two_bdp() {
    let mut driver = Driver::new(1);
    driver.until_cruise();
    // Long enough for the ACK aggregation seen in Startup to expire.
    driver.acks(15, Step { bytes: SEGMENT, ..STEADY });
    assert_eq!(driver.pacing_mbps(), 99);
    let wanted = 2 * BDP + driver.bbr.aggregation.extra();
    assert!(driver.bbr.window() <= wanted, "{} bytes", driver.bbr.window());
    driver.acks(10, STEADY);
    let wanted = 2 * BDP + driver.bbr.aggregation.extra();
    assert!(within_percent(driver.bbr.window(), wanted, 1), "{} bytes, not {wanted}", driver.bbr.window());
}

/// On a path of 20 segments a Reno flow would lose a packet every 20 rounds, so a probe is due
/// after as many rounds.
#[test]
fn short_paths_are_probed_after_as_many_rounds_as_they_hold_segments() {
    let mut driver = Driver::new(1);
    let step = Step { mbps: 5, in_flight: 10_000, ..STEADY };
    driver.acks(5, step);
    assert_eq!(driver.phase(), "probe_bw_cruise");
    let mut rounds = 0;
    while driver.phase() == "probe_bw_cruise" {
        driver.ack(step);
        rounds += 1;
    }
    // 5 Mb/s times 40 ms is 25 000 bytes, 20 segments; the count begins with 0 or 1.
    assert_eq!(driver.phase(), "probe_bw_refill");
    assert!((18..=20).contains(&rounds), "{rounds} rounds");
}

#[test]
fn refill_lasts_one_round_and_up_paces_at_125_percent() {
    let mut driver = Driver::new(1);
    driver.until_cruise();
    driver.until("probe_bw_refill");
    assert_eq!(driver.pacing_mbps(), 99);
    driver.acks(5, Step { within_round: true, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_refill");
    driver.ack(STEADY);
    assert_eq!((driver.phase(), driver.pacing_mbps()), ("probe_bw_up", 124));
}

#[test]
fn up_ends_after_three_flat_rounds_and_continues_while_the_rate_grows() {
    let mut driver = Driver::new(1);
    driver.until_up();
    for mbps in [125, 157, 197] {
        driver.ack(Step { mbps, ..STEADY });
        assert_eq!(driver.phase(), "probe_bw_up", "at {mbps} Mb/s");
    }
    driver.acks(2, Step { mbps: 200, in_flight: 2 * BDP, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_up");
    driver.ack(Step { mbps: 200, in_flight: 3 * BDP, ..STEADY });
    // 90 % of 200 Mb/s, minus the margin.
    assert_eq!((driver.phase(), driver.pacing_mbps()), ("probe_bw_down", 178));
}

#[test]
fn up_continues_while_application_limited() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.acks(50, Step { mbps: 20, app_limited: true, ..STEADY });
    assert_eq!((driver.phase(), driver.pacing_mbps()), ("probe_bw_up", 124));
}

#[test]
fn down_lasts_until_at_most_one_bdp_is_in_flight_or_the_next_probe_is_due() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.acks(3, Step { in_flight: 2 * BDP, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.ack(Step { in_flight: BDP * 11 / 10, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.ack(STEADY);
    assert_eq!(driver.phase(), "probe_bw_cruise");

    let mut driver = Driver::new(1);
    driver.until_up();
    driver.acks(3, Step { in_flight: 2 * BDP, ..STEADY });
    let from = driver.now;
    while driver.phase() == "probe_bw_down" {
        driver.ack(Step { in_flight: 2 * BDP, ..STEADY });
        assert!(driver.now - from < Duration::from_secs(4));
    }
    assert_eq!(driver.phase(), "probe_bw_refill", "Down was left without Cruise");
}

#[test]
fn a_slower_path_is_detected_with_the_second_probe() {
    let mut driver = Driver::new(1);
    driver.until_up();
    let slower = Step { mbps: 60, in_flight: BDP / 2, ..STEADY };
    driver.acks(5, slower);
    assert_eq!(driver.pacing_mbps(), 99, "{}", driver.phase());
    while driver.phase() != "probe_bw_up" {
        driver.ack(slower);
    }
    driver.acks(5, slower);
    assert_eq!(driver.pacing_mbps(), 59, "{}", driver.phase());
}

#[test]
fn after_five_seconds_without_a_shorter_round_trip_the_path_is_half_emptied_for_200_ms() {
    let mut driver = Driver::new(1);
    driver.steady_rtt = true;
    driver.until_cruise();
    let from = driver.now;
    while driver.phase() != "probe_rtt" {
        driver.ack(STEADY);
        assert!(driver.now - from < Duration::from_secs(6));
    }
    assert_eq!((driver.bbr.window(), driver.pacing_mbps()), (BDP / 2, 99));
    driver.acks(3, STEADY);
    assert_eq!(driver.phase(), "probe_rtt");
    // Only now is the inflight low enough for the 200 ms to begin.
    let half = Step { mbps: 50, in_flight: BDP / 2, ..STEADY };
    driver.ack(half);
    let from = driver.now;
    while driver.phase() == "probe_rtt" {
        driver.ack(half);
        assert!(driver.now - from <= Duration::from_millis(240));
    }
    assert!(driver.now - from > Duration::from_millis(200));
    assert_eq!((driver.phase(), driver.pacing_mbps()), ("probe_bw_cruise", 99));
    assert!(driver.bbr.window() > BDP, "{} bytes: the window was not restored", driver.bbr.window());
}

/// The probe itself halves the rate. Packets sent during the probe stay marked until they are
/// acknowledged.
#[test]
fn samples_of_a_round_trip_probe_are_application_limited() {
    let mut driver = Driver::new(1);
    driver.steady_rtt = true;
    driver.until_cruise();
    driver.until("probe_rtt");
    let half = Step { mbps: 50, in_flight: BDP / 2, ..STEADY };
    for _ in 0..8 {
        driver.ack(half);
    }
    assert_eq!(driver.phase(), "probe_bw_cruise");
    driver.bbr.max_bandwidth.advance();
    driver.bbr.max_bandwidth.advance();
    assert_eq!(driver.bbr.max_bandwidth.get(), units::Rate::from_mbps(100));
}

#[test]
fn a_round_trip_probe_in_startup_returns_to_startup() {
    let mut driver = Driver::new(1);
    driver.steady_rtt = true;
    let step = Step { mbps: 10, app_limited: true, in_flight: 20_000, ..STEADY };
    for _ in 0..130 {
        driver.ack(step);
        if driver.phase() == "probe_rtt" {
            break;
        }
    }
    assert_eq!(driver.phase(), "probe_rtt");
    driver.acks(8, step);
    assert_eq!(driver.phase(), "startup");
}

#[test]
fn an_idle_period_replaces_a_round_trip_probe_and_sending_resumes_at_the_path_rate() {
    let mut driver = Driver::new(1);
    driver.steady_rtt = true;
    driver.until_cruise();
    driver.until("probe_bw_up");
    assert_eq!(driver.pacing_mbps(), 124);
    let last = Step { in_flight: 0, app_limited: true, within_round: true, ..STEADY };
    driver.ack(last);
    driver.now += Duration::from_secs(20);
    driver.bbr.on_sent(driver.now, SEGMENT, SEGMENT);
    assert_eq!((driver.phase(), driver.pacing_mbps()), ("probe_bw_up", 99));
    driver.ack(Step { app_limited: true, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_up", "no probe, although one was due");
    // The inflight was zero because of losses, which is not an idle period.
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.ack(Step { in_flight: 0, within_round: true, ..STEADY });
    driver.bbr.on_sent(driver.now, SEGMENT, SEGMENT);
    assert_eq!(driver.pacing_mbps(), 124);
}
