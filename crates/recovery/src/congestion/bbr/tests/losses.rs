//! The effect of losses, marks and spurious losses.

use units::Duration;

use super::driver::{BDP, Driver, SEGMENT, STEADY, Step};
use crate::congestion::bbr::bounds::UNBOUNDED;
use crate::congestion::{CongestionController, LossEvent, SpuriousLossEvent};

/// A round that ends with a visible queue.
const QUEUED: Step = Step { rtt_ms: 60, ..STEADY };

/// More than 2 % of one and a half bandwidth-delay products.
const TOO_MUCH: u64 = BDP * 4 / 100;

fn limit(driver: &Driver) -> u64 {
    driver.bbr.bounds.inflight_longterm
}

#[test]
fn six_gaps_and_two_percent_in_one_round_end_startup() {
    for (gaps, lost, ends) in [(6, TOO_MUCH, true), (5, TOO_MUCH, false), (6, BDP / 50, false)] {
        let mut driver = Driver::new(1);
        driver.acks(2, STEADY);
        driver.lose(gaps, BDP, lost);
        driver.ack(Step { lost, within_round: true, ..STEADY });
        assert_eq!(driver.phase(), "startup", "the round of the losses is not over");
        driver.ack(Step { lost, in_flight: 2 * BDP, ..STEADY });
        assert_eq!(driver.phase() == "drain", ends, "{gaps} gaps, {lost} bytes");
        assert_eq!(limit(&driver) == UNBOUNDED, !ends);
        if ends {
            // At least the bytes delivered within the round.
            assert!(limit(&driver) >= BDP * 99 / 100 && limit(&driver) <= BDP, "{} bytes", limit(&driver));
        }
    }
}

#[test]
fn gaps_of_different_rounds_do_not_add_up() {
    let mut driver = Driver::new(1);
    driver.acks(2, STEADY);
    for mbps in [130, 170, 220] {
        driver.lose(3, BDP, TOO_MUCH);
        driver.ack(Step { mbps, lost: TOO_MUCH, ..STEADY });
    }
    assert_eq!(driver.phase(), "startup");
}

#[test]
fn losses_end_an_application_limited_startup() {
    let mut driver = Driver::new(1);
    let limited = Step { app_limited: true, ..STEADY };
    driver.acks(2, limited);
    driver.lose(6, BDP, TOO_MUCH);
    driver.ack(Step { lost: TOO_MUCH, in_flight: 2 * BDP, ..limited });
    assert_eq!(driver.phase(), "drain");
}

#[test]
fn an_ecn_mark_ends_startup_and_a_probe() {
    let mark = |driver: &Driver| LossEvent { ecn: true, ..driver.loss_event(0) };
    let mut driver = Driver::new(1);
    driver.acks(2, STEADY);
    driver.bbr.on_loss(&mark(&driver));
    driver.ack(Step { in_flight: 2 * BDP, ..STEADY });
    assert_eq!(driver.phase(), "drain");

    let mut driver = Driver::new(1);
    driver.until_up();
    driver.bbr.on_loss(&mark(&driver));
    assert_eq!((driver.phase(), limit(&driver)), ("probe_bw_down", BDP));
}

#[test]
fn excess_losses_end_a_probe_and_set_the_limit_at_the_crossing() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(1, 2 * BDP, 2 * BDP / 50);
    assert_eq!((driver.phase(), limit(&driver)), ("probe_bw_up", UNBOUNDED), "2 % are tolerated");
    driver.lose(1, 2 * BDP, 2 * BDP / 50 + 600);
    assert_eq!(driver.phase(), "probe_bw_down");
    // Half of the lost segment would still have been tolerated.
    let limit = limit(&driver);
    assert!((2 * BDP - SEGMENT..2 * BDP).contains(&limit), "{limit} bytes");
    driver.lose(1, BDP, BDP);
    assert_eq!(driver.bbr.bounds.inflight_longterm, limit, "at most once per probe");
}

#[test]
fn the_limit_is_no_less_than_seven_tenths_of_the_target() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(1, BDP / 10, BDP / 100);
    let limit = limit(&driver);
    assert!(limit.abs_diff(BDP * 7 / 10) < BDP / 1000, "{limit} bytes");
}

#[test]
fn losses_end_an_application_limited_probe_without_setting_a_limit() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.bbr.on_loss(&driver.loss_event(SEGMENT));
    let loss = crate::delivery_rate::LossSample {
        bytes: SEGMENT,
        in_flight_when_sent: BDP,
        lost: TOO_MUCH,
        delivered_total: 0,
        app_limited: true,
        new_gap: true,
    };
    driver.bbr.on_run_lost(driver.now, &loss);
    assert_eq!((driver.phase(), limit(&driver)), ("probe_bw_down", UNBOUNDED));
}

/// Returns a driver with a limit of one and a half bandwidth-delay products, in the next probe.
fn with_a_limit() -> Driver {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(1, BDP * 3 / 2, TOO_MUCH);
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.until("probe_bw_cruise");
    driver.until("probe_bw_up");
    driver
}

#[test]
fn cruise_leaves_fifteen_percent_headroom() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(1, BDP * 3 / 2, TOO_MUCH);
    driver.until("probe_bw_cruise");
    driver.acks(20, STEADY);
    let limit = limit(&driver);
    assert_eq!(driver.bbr.window(), limit - limit * 15 / 100);
}

#[test]
fn after_a_probe_with_losses_the_next_stops_at_the_limit_and_a_full_probe_follows() {
    let mut driver = with_a_limit();
    driver.ack(Step { in_flight: limit(&driver) - 1, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_up");
    driver.ack(Step { in_flight: limit(&driver), ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.ack(STEADY);
    assert_eq!(driver.phase(), "probe_bw_refill", "no excess loss");
    driver.ack(STEADY);
    driver.ack(Step { in_flight: limit(&driver), ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_up", "the precautionary probe had no excess loss");
}

#[test]
fn a_precautionary_probe_with_losses_is_not_followed_by_a_full_probe() {
    let mut driver = with_a_limit();
    driver.ack(Step { in_flight: limit(&driver), ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.lose(1, BDP, TOO_MUCH);
    driver.ack(Step { in_flight: BDP / 2, ..STEADY });
    assert_eq!(driver.phase(), "probe_bw_cruise");
}

#[test]
fn a_limit_in_use_rises_by_1_2_4_segments_per_round() {
    let mut driver = with_a_limit();
    driver.ack(Step { in_flight: limit(&driver), ..STEADY });
    driver.until("probe_bw_up");
    let mut risen = Vec::new();
    for _ in 0..6 {
        let before = limit(&driver);
        // A window's worth of acknowledgements, with the window fully used.
        for part in 0..10 {
            driver.fill_window();
            let bytes = driver.bbr.window().div_ceil(10);
            driver.ack(Step { bytes, within_round: part > 0, ..STEADY });
        }
        risen.push((limit(&driver) - before) / SEGMENT);
        assert_eq!(driver.phase(), "probe_bw_up", "the limit, not the path, keeps the rate from growing");
    }
    assert!(risen.windows(2).all(|pair| pair[1] >= 2 * pair[0] - 1 && pair[1] <= 2 * pair[0] + 1), "{risen:?}");
    assert!(risen[0] <= 2 && risen[5] >= 16, "{risen:?}");
}

#[test]
fn an_inflight_without_excess_losses_raises_the_limit() {
    let mut driver = with_a_limit();
    driver.ack(Step { in_flight_when_sent: 2 * BDP, ..STEADY });
    assert_eq!(limit(&driver), 2 * BDP);
    driver.ack(Step { in_flight_when_sent: 3 * BDP, lost: BDP / 10, ..STEADY });
    assert_eq!(limit(&driver), 2 * BDP, "not with more than 2 % lost");
}

/// Returns the short-term rate bound, in Mb/s, after one lossy round in Cruise. The inflight bound
/// must be set if and only if the rate bound is.
fn bound_after(step: Step, mark: bool) -> Option<u64> {
    let mut driver = Driver::new(1);
    driver.until_cruise();
    driver.acks(12, STEADY);
    driver.lose(1, BDP, SEGMENT);
    if mark {
        driver.bbr.on_loss(&LossEvent { ecn: true, ..driver.loss_event(0) });
    }
    driver.ack(Step { within_round: true, ..step });
    let window = driver.bbr.window();
    assert_eq!(driver.bbr.bounds.inflight_shortterm, UNBOUNDED, "the round is not over");
    driver.ack(step);
    let bounds = &driver.bbr.bounds;
    if bounds.inflight_shortterm == UNBOUNDED {
        return None;
    }
    // Section 5.5.10.3: seven tenths, or the delivery within the round if that is more.
    let delivered = driver.bbr.latest.delivered();
    assert_eq!(bounds.inflight_shortterm, delivered.max(window * 7 / 10));
    assert_eq!(driver.bbr.window(), bounds.inflight_shortterm);
    Some(bounds.rate_shortterm.as_bps() / 1_000_000)
}

#[test]
fn a_lossy_round_with_a_queue_lowers_the_bounds_to_the_delivery_but_at_most_by_three_tenths() {
    // The round of `latest` would contain samples of 100 Mb/s from before the loss only if the loss
    // came late. Here it began with the last acknowledgement, and only that sample counts.
    assert_eq!(bound_after(Step { mbps: 80, ..QUEUED }, false), Some(100));
    let mut driver = Driver::new(1);
    driver.until_cruise();
    driver.lose(1, BDP, SEGMENT);
    driver.ack(Step { mbps: 80, ..QUEUED });
    driver.lose(1, BDP, SEGMENT);
    driver.ack(Step { mbps: 80, ..QUEUED });
    assert_eq!(driver.pacing_mbps(), 79);
    for _ in 0..2 {
        driver.lose(1, BDP, SEGMENT);
        driver.ack(Step { mbps: 10, ..QUEUED });
    }
    // It takes one more round for 80 to leave the maximum; then 70 % of 80.
    assert_eq!(driver.pacing_mbps(), 55);
    driver.until("probe_bw_refill");
    assert_eq!(driver.pacing_mbps(), 99, "the next probe drops the bounds");
}

#[test]
fn losses_without_a_queue_count_only_above_the_threshold_or_with_marks() {
    assert_eq!(bound_after(STEADY, false), None);
    assert_eq!(bound_after(Step { rtt_ms: 44, ..STEADY }, false), None);
    assert!(bound_after(Step { rtt_ms: 46, ..STEADY }, false).is_some(), "more than an eighth longer is a queue");
    assert!(bound_after(Step { lost: TOO_MUCH, ..STEADY }, false).is_some());
    assert!(bound_after(STEADY, true).is_some());
}

#[test]
fn losses_while_accelerating_do_not_lower_the_short_term_bounds() {
    let mut driver = Driver::new(1);
    driver.until_up();
    for _ in 0..2 {
        driver.lose(1, BDP, SEGMENT);
        driver.ack(QUEUED);
    }
    assert_eq!(driver.phase(), "probe_bw_up");
    assert_eq!(driver.bbr.bounds.inflight_shortterm, UNBOUNDED);
}

/// The lower rate of Down is not a sign of a slower path.
#[test]
fn a_loss_in_down_does_not_bound_the_rate_at_that_of_down() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.acks(3, Step { in_flight: 2 * BDP, ..QUEUED });
    assert_eq!(driver.phase(), "probe_bw_down");
    let slow = Step { mbps: 89, in_flight: 2 * BDP, ..QUEUED };
    for _ in 0..3 {
        driver.lose(1, BDP, SEGMENT);
        driver.ack(slow);
    }
    let mbps = driver.bbr.bandwidth.as_bps() / 1_000_000;
    assert_eq!((driver.phase(), mbps), ("probe_bw_down", 98));
}

#[test]
fn an_outage_sets_the_window_to_the_inflight_and_a_segment() {
    let mut driver = Driver::new(1);
    driver.until_cruise();
    let event = LossEvent { persistent: true, in_flight: 3600, ..driver.loss_event(BDP) };
    driver.bbr.on_loss(&event);
    assert_eq!(driver.bbr.window(), 4800);
    driver.ack(Step { bytes: 5000, ..STEADY });
    assert_eq!(driver.bbr.window(), 9800, "the window grows by the acknowledged bytes");
}

fn spurious_loss(driver: &Driver, bytes: u64, age_ms: u64) -> SpuriousLossEvent {
    let newest_sent_at = driver.now.saturating_sub(Duration::from_millis(age_ms));
    SpuriousLossEvent { now: driver.now, newest_sent_at, bytes }
}

#[test]
fn spurious_losses_restart_the_probe() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(2, BDP * 3 / 2, TOO_MUCH);
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.bbr.on_spurious_loss(&spurious_loss(&driver, SEGMENT, 1));
    assert_eq!(driver.phase(), "probe_bw_down", "one of two");
    driver.bbr.on_spurious_loss(&spurious_loss(&driver, SEGMENT, 100));
    assert_eq!((driver.phase(), limit(&driver)), ("probe_bw_refill", UNBOUNDED));
}

#[test]
fn spurious_losses_return_to_startup() {
    let mut driver = Driver::new(1);
    driver.acks(2, STEADY);
    driver.lose(6, BDP, TOO_MUCH);
    driver.ack(Step { lost: TOO_MUCH, in_flight: 2 * BDP, ..STEADY });
    assert_eq!(driver.phase(), "drain");
    driver.bbr.on_spurious_loss(&spurious_loss(&driver, 6 * SEGMENT, 41));
    assert_eq!((driver.phase(), limit(&driver)), ("startup", UNBOUNDED));
    driver.ack(STEADY);
    assert_eq!(driver.phase(), "startup");
}

#[test]
fn spurious_losses_restore_bounds_and_window() {
    let mut driver = Driver::new(1);
    driver.until_cruise();
    driver.acks(12, STEADY);
    let window = driver.bbr.window();
    driver.lose(1, BDP, SEGMENT);
    driver.acks(2, Step { mbps: 60, ..QUEUED });
    assert!(driver.bbr.window() < window);
    driver.bbr.on_spurious_loss(&spurious_loss(&driver, SEGMENT, 90));
    assert_eq!((driver.bbr.window(), driver.bbr.bounds.inflight_shortterm), (window, UNBOUNDED));
}

#[test]
fn an_ecn_mark_is_never_undone() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(1, BDP, TOO_MUCH);
    driver.bbr.on_loss(&LossEvent { ecn: true, ..driver.loss_event(0) });
    driver.bbr.on_spurious_loss(&spurious_loss(&driver, SEGMENT, 1));
    assert_eq!(driver.phase(), "probe_bw_down");
}

#[test]
fn the_short_term_bounds_end_with_a_round_trip_probe() {
    let mut driver = Driver::new(1);
    driver.steady_rtt = true;
    driver.until_up();
    driver.until("probe_bw_cruise");
    driver.lose(1, BDP, SEGMENT);
    driver.acks(2, Step { mbps: 60, ..QUEUED });
    driver.until("probe_rtt");
    assert_ne!(driver.bbr.bounds.inflight_shortterm, UNBOUNDED, "the bounds last until the probe");
    driver.acks(8, Step { mbps: 40, in_flight: BDP / 4, ..STEADY });
    assert_eq!((driver.phase(), driver.bbr.bounds.inflight_shortterm), ("probe_bw_cruise", UNBOUNDED));
    assert_eq!(driver.pacing_mbps(), 99);
}
