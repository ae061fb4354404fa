//! Scheduled faults.

use super::*;
use crate::schedule::{Change, LineState, Schedule};

fn after(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns settings under which a packet of 1000 bytes takes one millisecond, and arrives 10 ms
/// later.
fn scheduled(changes: impl IntoIterator<Item = (Duration, Change)>) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_mbps(8)),
        delay: after(10),
        schedule: Some(Schedule::once(changes).unwrap()),
        ..LinkConfig::default()
    }
}

fn burst(config: LinkConfig, count: u32) -> Link<Vec<u8>> {
    let mut link = Link::new(config, Rng::from_seed(0));
    for index in 0..count {
        link.send(Instant::ZERO, numbered(index, 1000));
    }
    link
}

/// (milliseconds, number) of each arrival.
fn arrivals(link: &mut Link<Vec<u8>>) -> Vec<(f64, u32)> {
    let arrivals = drain(link, Instant::FAR_FUTURE);
    arrivals.iter().map(|(time, packet)| (time.as_nanos() as f64 / 1e6, number(packet))).collect()
}

fn state(state: LineState) -> Change {
    Change::State(state)
}

#[test]
fn a_silent_outage_drops_sent_packets_and_the_one_in_transmission() {
    let half = Duration::from_micros(500);
    let cut = [(after(2) + half, state(LineState::Silent)), (after(4) + half, state(LineState::Up))];
    let mut link = burst(scheduled(cut), 7);
    assert!(drain(&mut link, ms(3)).is_empty());
    link.send(ms(3), numbered(99, 1000));
    assert_eq!(link.stats().vanished, 2, "one in transmission, and one sent during the outage");
    // Packets that departed at 1 and 2 arrive in spite of the outage; the line drops those of 2 to
    // 5, and then continues.
    assert_eq!(arrivals(&mut link), [(11.0, 0), (12.0, 1), (16.0, 5), (17.0, 6)]);
    assert_eq!(link.stats().vanished, 4);
    assert_conserved(&link);
}

#[test]
fn a_held_line_stops_and_resumes() {
    let half = Duration::from_micros(500);
    let hold = [(after(1) + half, state(LineState::Held)), (after(7), state(LineState::Up))];
    let config = LinkConfig { queue_bytes: 3000, ..scheduled(hold) };
    let mut link = burst(config, 4);
    assert!(drain(&mut link, ms(6)).is_empty());
    link.send(ms(6), numbered(8, 1000));
    link.send(ms(6), numbered(9, 1000));
    assert_eq!((link.stats().overflowed, link.queue_bytes()), (1, 3000), "the queue fills");
    // The second packet had half of its bits left.
    assert_eq!(arrivals(&mut link), [(11.0, 0), (17.5, 1), (18.5, 2), (19.5, 3), (20.5, 8)]);
    assert_eq!((link.stats().vanished, link.stats().queue_delay_max), (0, after(8) + half));
    assert_conserved(&link);
}

#[test]
fn a_line_held_forever_needs_no_timeout_and_set_config_resumes_it() {
    let config = scheduled([(after(2), state(LineState::Held)), (after(5), Change::Loss(Ratio::ZERO))]);
    let mut link = burst(config.clone(), 3);
    assert_eq!(arrivals(&mut link), [(11.0, 0), (12.0, 1)]);
    assert_eq!((link.held(), link.poll_timeout()), (1, None));
    link.set_config(ms(30), config);
    assert_eq!(arrivals(&mut link), [(41.0, 2)], "the given state applies, and the past outage is not applied again");
}

#[test]
fn a_link_may_start_held_or_be_held_by_set_config() {
    let held = LinkConfig { state: LineState::Held, ..scheduled([(after(6), state(LineState::Up))]) };
    let mut link = burst(held.clone(), 2);
    assert_eq!(link.poll_timeout(), Some(ms(6)));
    assert_eq!(arrivals(&mut link), [(17.0, 0), (18.0, 1)]);

    let mut link = burst(LinkConfig { schedule: None, ..held.clone() }, 1);
    assert_eq!((link.poll_timeout(), link.held()), (None, 1));
    link.set_config(ms(4), LinkConfig { state: LineState::Up, schedule: None, ..held });
    assert_eq!(arrivals(&mut link), [(15.0, 0)]);
}

#[test]
fn rate_delay_and_loss_change_at_their_times() {
    let config = scheduled([
        (after(2), Change::Rate(Some(Rate::from_mbps(16)))),
        (after(3), Change::Delay(after(1))),
        (after(4), Change::Loss(Ratio::ONE)),
        (after(5), Change::Loss(Ratio::ZERO)),
    ]);
    let mut link = burst(config, 9);
    // Departures at 1, 2, 2.5, 3, 3.5, 4, (4.5, 5), 5.5: a departure at the time of a change
    // precedes the change.
    let expected = [(4.5, 4), (5.0, 5), (6.5, 8), (11.0, 0), (12.0, 1), (12.5, 2), (13.0, 3)];
    assert_eq!(arrivals(&mut link), expected);
    assert_eq!(link.stats().lost, 2);
    assert_eq!(link.config().rate, Some(Rate::from_mbps(16)));
}

#[test]
fn current_settings_are_a_function_of_time() {
    let schedule = Schedule::repeating(
        after(10),
        [(after(0), Change::Delay(after(3))), (after(4), state(LineState::Held)), (after(6), state(LineState::Up))],
    );
    let config = LinkConfig { schedule: schedule.ok(), ..scheduled([]) };
    let mut link: Link<LengthOnly> = Link::new(config.clone(), Rng::from_seed(0));
    for millis in [0, 3, 4, 5, 6, 9, 10, 14, 44, 45, 1_000_006, 1_000_014] {
        assert!(link.poll_deliver(ms(millis)).is_none());
        assert_eq!(link.config(), &config.effective_at(ms(millis)), "{millis} ms");
    }
}

#[test]
fn a_new_schedule_applies_past_changes_and_an_equal_one_continues() {
    let first = scheduled([(after(1), Change::Delay(after(7))), (after(50), Change::Delay(after(9)))]);
    let mut link: Link<LengthOnly> = Link::new(first, Rng::from_seed(0));
    let _ = link.poll_deliver(ms(20));
    let changed = LinkConfig { delay: after(2), ..link.config().clone() };
    link.set_config(ms(20), changed);
    assert_eq!(link.config().delay, after(2), "past changes are not applied again");
    let _ = link.poll_deliver(ms(50));
    assert_eq!(link.config().delay, after(9));

    link.set_config(ms(60), scheduled([(after(55), Change::Delay(after(4))), (after(70), Change::Delay(after(5)))]));
    assert_eq!(link.config().delay, after(4));
    let _ = link.poll_deliver(ms(70));
    assert_eq!(link.config().delay, after(5));
    link.set_config(ms(70), LinkConfig { schedule: None, ..scheduled([]) });
    let _ = link.poll_deliver(ms(100));
    assert_eq!(link.config().delay, after(10));
}

#[test]
fn a_long_time_without_calls_costs_no_time() {
    let flapping = Schedule::flapping(Duration::from_micros(1), Duration::from_micros(1), LineState::Silent);
    let config = LinkConfig { schedule: flapping.ok(), ..LinkConfig::default() };
    let mut link = Link::new(config.clone(), Rng::from_seed(0));
    let hour = 3_600_000;
    let mut silent = 0;
    // Applied one by one, these would be 3.6e11 changes.
    for hours in 1..100 {
        let now = ms(hours * hour) + Duration::from_nanos(hours % 3 * 700);
        link.send(now, LengthOnly::new(100));
        let expected = config.effective_at(now);
        assert_eq!(link.config(), &expected);
        silent += u64::from(expected.state == LineState::Silent);
        assert_eq!(link.stats().vanished, silent);
        assert_eq!(link.poll_deliver(now).is_some(), expected.state == LineState::Up);
    }
    assert_eq!(silent, 33, "1400 ns into a period of 2000");
    // The same while packets wait indefinitely.
    let held = Schedule::repeating(Duration::from_micros(1), [(Duration::ZERO, state(LineState::Held))]);
    let mut link = Link::new(LinkConfig { schedule: held.ok(), ..LinkConfig::default() }, Rng::from_seed(0));
    link.send(ms(1), LengthOnly::new(100));
    assert_eq!(link.poll_timeout(), None);
    assert!(link.poll_deliver(ms(1000 * hour)).is_none());
    assert_eq!(link.held(), 1);
}

#[test]
#[should_panic(expected = "change 0 of the schedule: the rate of a link must exceed zero")]
fn a_schedule_that_sets_a_zero_rate_is_rejected() {
    let _ = burst(scheduled([(after(1), Change::Rate(Some(Rate::ZERO)))]), 0);
}
