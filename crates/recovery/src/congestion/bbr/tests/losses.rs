//! What losses, marks and mistakes about them do.

use units::Duration;

use super::driver::{BDP, Driver, QUIET, SEGMENT, Step};
use crate::congestion::bbr::bounds::UNBOUNDED;
use crate::congestion::{CongestionController, LossEvent, SpuriousLossEvent};

/// A round at whose end a queue is seen.
const QUEUED: Step = Step { rtt_ms: 60, ..QUIET };

/// More than 2 % of one and a half products.
const TOO_MUCH: u64 = BDP * 4 / 100;

fn limit(driver: &Driver) -> u64 {
    driver.bbr.bounds.inflight_longterm
}

#[test]
fn six_gaps_and_two_percent_in_one_round_end_startup() {
    for (gaps, lost, ends) in [(6, TOO_MUCH, true), (5, TOO_MUCH, false), (6, BDP / 50, false)] {
        let mut driver = Driver::new(1);
        driver.acks(2, QUIET);
        driver.lose(gaps, BDP, lost);
        driver.ack(Step { lost, within_round: true, ..QUIET });
        assert_eq!(driver.phase(), "startup", "the round of the losses is not over");
        driver.ack(Step { lost, in_flight: 2 * BDP, ..QUIET });
        assert_eq!(driver.phase() == "drain", ends, "{gaps} gaps, {lost} bytes");
        assert_eq!(limit(&driver) == UNBOUNDED, !ends);
        if ends {
            // At least what was delivered within the round.
            assert!(limit(&driver) >= BDP * 99 / 100 && limit(&driver) <= BDP, "{} bytes", limit(&driver));
        }
    }
}

#[test]
fn gaps_of_different_rounds_do_not_add_up() {
    let mut driver = Driver::new(1);
    driver.acks(2, QUIET);
    for mbps in [130, 170, 220] {
        driver.lose(3, BDP, TOO_MUCH);
        driver.ack(Step { mbps, lost: TOO_MUCH, ..QUIET });
    }
    assert_eq!(driver.phase(), "startup");
}

#[test]
fn losses_end_startup_although_the_application_limits_it() {
    let mut driver = Driver::new(1);
    let limited = Step { app_limited: true, ..QUIET };
    driver.acks(2, limited);
    driver.lose(6, BDP, TOO_MUCH);
    driver.ack(Step { lost: TOO_MUCH, in_flight: 2 * BDP, ..limited });
    assert_eq!(driver.phase(), "drain");
}

#[test]
fn a_mark_ends_startup_and_a_probe() {
    let mark = |driver: &Driver| LossEvent { ecn: true, ..driver.loss_event(0) };
    let mut driver = Driver::new(1);
    driver.acks(2, QUIET);
    driver.bbr.on_loss(&mark(&driver));
    driver.ack(Step { in_flight: 2 * BDP, ..QUIET });
    assert_eq!(driver.phase(), "drain");

    let mut driver = Driver::new(1);
    driver.until_up();
    driver.bbr.on_loss(&mark(&driver));
    assert_eq!((driver.phase(), limit(&driver)), ("probe_bw_down", BDP));
}

#[test]
fn too_many_losses_end_a_probe_and_set_the_limit_where_they_began() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(1, 2 * BDP, 2 * BDP / 50);
    assert_eq!((driver.phase(), limit(&driver)), ("probe_bw_up", UNBOUNDED), "2 % are borne");
    driver.lose(1, 2 * BDP, 2 * BDP / 50 + 600);
    assert_eq!(driver.phase(), "probe_bw_down");
    // Half of the lost segment would still have been borne.
    let limit = limit(&driver);
    assert!((2 * BDP - SEGMENT..2 * BDP).contains(&limit), "{limit} bytes");
    driver.lose(1, BDP, BDP);
    assert_eq!(driver.bbr.bounds.inflight_longterm, limit, "once for each probe");
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
fn a_probe_that_the_application_limits_ends_with_losses_but_sets_no_limit() {
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
    driver.bbr.on_row_lost(driver.now, &loss);
    assert_eq!((driver.phase(), limit(&driver)), ("probe_bw_down", UNBOUNDED));
}

/// A limit of one and a half products, and the next probe begun.
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
fn cruise_leaves_fifteen_percent_of_the_limit_to_others() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(1, BDP * 3 / 2, TOO_MUCH);
    driver.until("probe_bw_cruise");
    driver.acks(20, QUIET);
    let limit = limit(&driver);
    assert_eq!(driver.bbr.window(), limit - limit * 15 / 100);
}

#[test]
fn after_a_probe_that_went_too_high_the_next_stops_at_the_limit_and_another_follows_at_once() {
    let mut driver = with_a_limit();
    driver.ack(Step { in_flight: limit(&driver) - 1, ..QUIET });
    assert_eq!(driver.phase(), "probe_bw_up");
    driver.ack(Step { in_flight: limit(&driver), ..QUIET });
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.ack(QUIET);
    assert_eq!(driver.phase(), "probe_bw_refill", "it did no harm");
    driver.ack(QUIET);
    driver.ack(Step { in_flight: limit(&driver), ..QUIET });
    assert_eq!(driver.phase(), "probe_bw_up", "the limit was found safe");
}

#[test]
fn a_careful_probe_that_does_harm_is_not_repeated() {
    let mut driver = with_a_limit();
    driver.ack(Step { in_flight: limit(&driver), ..QUIET });
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.lose(1, BDP, TOO_MUCH);
    driver.ack(Step { in_flight: BDP / 2, ..QUIET });
    assert_eq!(driver.phase(), "probe_bw_cruise");
}

#[test]
fn a_limit_that_holds_the_flow_back_rises_by_1_2_4_segments_a_round() {
    let mut driver = with_a_limit();
    driver.ack(Step { in_flight: limit(&driver), ..QUIET });
    driver.until("probe_bw_up");
    let mut risen = Vec::new();
    for _ in 0..6 {
        let before = limit(&driver);
        // A window's worth of acknowledgements, with all of the window in use.
        for part in 0..10 {
            driver.fill_window();
            let bytes = driver.bbr.window().div_ceil(10);
            driver.ack(Step { bytes, within_round: part > 0, ..QUIET });
        }
        risen.push((limit(&driver) - before) / SEGMENT);
        assert_eq!(driver.phase(), "probe_bw_up", "the limit, not the path, keeps the rate from growing");
    }
    assert!(risen.windows(2).all(|pair| pair[1] >= 2 * pair[0] - 1 && pair[1] <= 2 * pair[0] + 1), "{risen:?}");
    assert!(risen[0] <= 2 && risen[5] >= 16, "{risen:?}");
}

#[test]
fn a_volume_that_passed_without_harm_raises_the_limit() {
    let mut driver = with_a_limit();
    driver.ack(Step { in_flight_when_sent: 2 * BDP, ..QUIET });
    assert_eq!(limit(&driver), 2 * BDP);
    driver.ack(Step { in_flight_when_sent: 3 * BDP, lost: BDP / 10, ..QUIET });
    assert_eq!(limit(&driver), 2 * BDP, "not with more than 2 % lost");
}

/// The short-term bound on the rate, in Mb/s, after one lossy round in Cruise; the one on the volume must go with it.
fn bound_after(step: Step, mark: bool) -> Option<u64> {
    let mut driver = Driver::new(1);
    driver.until_cruise();
    driver.acks(12, QUIET);
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
    // Section 5.5.10.3: seven tenths, or what was delivered within the round if that is more.
    let delivered = driver.bbr.latest.delivered();
    assert_eq!(bounds.inflight_shortterm, delivered.max(window * 7 / 10));
    assert_eq!(driver.bbr.window(), bounds.inflight_shortterm);
    Some(bounds.rate_shortterm.as_bps() / 1_000_000)
}

#[test]
fn a_lossy_round_with_a_queue_lowers_the_bounds_to_what_was_delivered_but_by_three_tenths_at_most() {
    // The round of `latest` holds quiet samples of 100 Mb/s from before the loss only if the loss came late: here it began
    // with the last acknowledgement, whose sample counts.
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
    // One more round is needed for 80 to leave the maximum; then 70 % of 80.
    assert_eq!(driver.pacing_mbps(), 55);
    driver.until("probe_bw_refill");
    assert_eq!(driver.pacing_mbps(), 99, "the bounds end with the next probe");
}

#[test]
fn losses_without_a_queue_count_only_beyond_the_threshold_or_with_marks() {
    assert_eq!(bound_after(QUIET, false), None);
    assert_eq!(bound_after(Step { rtt_ms: 44, ..QUIET }, false), None);
    assert!(bound_after(Step { rtt_ms: 46, ..QUIET }, false).is_some(), "an eighth longer is a queue");
    assert!(bound_after(Step { lost: TOO_MUCH, ..QUIET }, false).is_some());
    assert!(bound_after(QUIET, true).is_some());
}

#[test]
fn losses_while_accelerating_do_not_touch_the_short_term_bounds() {
    let mut driver = Driver::new(1);
    driver.until_up();
    for _ in 0..2 {
        driver.lose(1, BDP, SEGMENT);
        driver.ack(QUEUED);
    }
    assert_eq!(driver.phase(), "probe_bw_up");
    assert_eq!(driver.bbr.bounds.inflight_shortterm, UNBOUNDED);
}

/// What Down holds back is no sign of a slower path.
#[test]
fn a_loss_in_down_does_not_keep_its_rate() {
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
fn an_outage_leaves_what_is_in_flight_and_a_segment() {
    let mut driver = Driver::new(1);
    driver.until_cruise();
    let event = LossEvent { persistent: true, in_flight: 3600, ..driver.loss_event(BDP) };
    driver.bbr.on_loss(&event);
    assert_eq!(driver.bbr.window(), 4800);
    driver.ack(Step { bytes: 5000, ..QUIET });
    assert_eq!(driver.bbr.window(), 9800, "it grows by what is acknowledged");
}

fn found_again(driver: &Driver, bytes: u64, age_ms: u64) -> SpuriousLossEvent {
    let newest_sent_at = driver.now.saturating_sub(Duration::from_millis(age_ms));
    SpuriousLossEvent { now: driver.now, newest_sent_at, bytes }
}

#[test]
fn losses_that_were_none_bring_the_probe_back() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(2, BDP * 3 / 2, TOO_MUCH);
    assert_eq!(driver.phase(), "probe_bw_down");
    driver.bbr.on_spurious_loss(&found_again(&driver, SEGMENT, 1));
    assert_eq!(driver.phase(), "probe_bw_down", "one of two");
    driver.bbr.on_spurious_loss(&found_again(&driver, SEGMENT, 100));
    assert_eq!((driver.phase(), limit(&driver)), ("probe_bw_refill", UNBOUNDED));
}

#[test]
fn losses_that_were_none_bring_startup_back() {
    let mut driver = Driver::new(1);
    driver.acks(2, QUIET);
    driver.lose(6, BDP, TOO_MUCH);
    driver.ack(Step { lost: TOO_MUCH, in_flight: 2 * BDP, ..QUIET });
    assert_eq!(driver.phase(), "drain");
    driver.bbr.on_spurious_loss(&found_again(&driver, 6 * SEGMENT, 41));
    assert_eq!((driver.phase(), limit(&driver)), ("startup", UNBOUNDED));
    driver.ack(QUIET);
    assert_eq!(driver.phase(), "startup");
}

#[test]
fn losses_that_were_none_give_bounds_and_window_back() {
    let mut driver = Driver::new(1);
    driver.until_cruise();
    driver.acks(12, QUIET);
    let window = driver.bbr.window();
    driver.lose(1, BDP, SEGMENT);
    driver.acks(2, Step { mbps: 60, ..QUEUED });
    assert!(driver.bbr.window() < window);
    driver.bbr.on_spurious_loss(&found_again(&driver, SEGMENT, 90));
    assert_eq!((driver.bbr.window(), driver.bbr.bounds.inflight_shortterm), (window, UNBOUNDED));
}

#[test]
fn a_mark_is_never_taken_back() {
    let mut driver = Driver::new(1);
    driver.until_up();
    driver.lose(1, BDP, TOO_MUCH);
    driver.bbr.on_loss(&LossEvent { ecn: true, ..driver.loss_event(0) });
    driver.bbr.on_spurious_loss(&found_again(&driver, SEGMENT, 1));
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
    assert_ne!(driver.bbr.bounds.inflight_shortterm, UNBOUNDED, "they last until then");
    driver.acks(8, Step { mbps: 40, in_flight: BDP / 4, ..QUIET });
    assert_eq!((driver.phase(), driver.bbr.bounds.inflight_shortterm), ("probe_bw_cruise", UNBOUNDED));
    assert_eq!(driver.pacing_mbps(), 99);
}
