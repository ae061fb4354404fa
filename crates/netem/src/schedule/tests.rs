use proptest::prelude::*;

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn state(state: LineState) -> Change {
    Change::State(state)
}

#[test]
fn errors_name_the_change_and_the_permitted_values() {
    let up = || state(LineState::Up);
    let cases = [
        (Schedule::once([(ms(2), up()), (ms(1), up())]), ScheduleError::OutOfOrder { index: 1 }, "change 1"),
        (Schedule::repeating(ms(5), [(ms(1), up()), (ms(5), up())]), ScheduleError::AfterPeriod { index: 1 }, "before"),
        (Schedule::repeating(ms(0), []), ScheduleError::ZeroPeriod, "must exceed zero"),
        (Schedule::flapping(ms(0), ms(1), LineState::Held), ScheduleError::ZeroPeriod, "each part of it"),
        (Schedule::flapping(ms(1), ms(0), LineState::Held), ScheduleError::ZeroPeriod, "each part of it"),
        (Schedule::once((0..).map(|millis| (ms(millis), up()))), ScheduleError::TooMany, "at most 65536 changes"),
    ];
    for (schedule, error, words) in cases {
        assert_eq!(schedule, Err(error));
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn the_state_of_the_line_is_a_function_of_time() {
    let flapping = Schedule::flapping(ms(3), ms(2), LineState::Silent).unwrap();
    let states: Vec<_> = (0..11).map(|millis| flapping.state_at(at(millis)).unwrap()).collect();
    use LineState::{Silent, Up};
    assert_eq!(states, [Up, Up, Up, Silent, Silent, Up, Up, Up, Silent, Silent, Up]);
    assert_eq!(flapping.state_at(Instant::from_nanos(2_999_999)), Some(Up));

    let once = Schedule::once([(ms(4), state(LineState::Held)), (ms(4), Change::Delay(ms(1)))]).unwrap();
    assert_eq!(once.state_at(Instant::from_nanos(3_999_999)), None);
    assert_eq!(once.state_at(at(4)), Some(LineState::Held));
    assert_eq!(once.state_at(Instant::FAR_FUTURE), Some(LineState::Held));

    let late = Schedule::repeating(ms(10), [(ms(7), state(LineState::Held))]).unwrap();
    assert_eq!((late.state_at(at(6)), late.state_at(at(11))), (None, Some(LineState::Held)));
}

#[test]
fn each_change_sets_the_field_of_its_name() {
    let jitter = Jitter { distribution: crate::Distribution::Uniform { max: ms(1) }, reorders: true };
    let bursts =
        BurstLoss { good_to_bad: Ratio::ONE, bad_to_good: Ratio::ONE, loss_good: Ratio::ZERO, loss_bad: Ratio::ONE };
    let changes = [
        state(LineState::Held),
        Change::Rate(Some(Rate::from_mbps(3))),
        Change::Delay(ms(5)),
        Change::Jitter(Some(jitter)),
        Change::Loss(Ratio::new(1, 2)),
        Change::BurstLoss(Some(bursts)),
        Change::Duplicate(Ratio::new(1, 3)),
        Change::Corrupt(Ratio::new(1, 4)),
        Change::Reorder(Ratio::new(1, 5), ms(6)),
    ];
    let schedule = Schedule::once(changes.into_iter().map(|change| (ms(1), change))).unwrap();
    let config = LinkConfig { schedule: Some(schedule), ..LinkConfig::default() };
    assert_eq!(config.effective_at(Instant::ZERO), config);
    let expected = LinkConfig {
        state: LineState::Held,
        rate: Some(Rate::from_mbps(3)),
        delay: ms(5),
        jitter: Some(jitter),
        loss: Ratio::new(1, 2),
        burst_loss: Some(bursts),
        duplicate: Ratio::new(1, 3),
        corrupt: Ratio::new(1, 4),
        reorder: Ratio::new(1, 5),
        reorder_by: ms(6),
        ..config.clone()
    };
    assert_eq!(config.effective_at(at(1)), expected);
}

#[test]
fn only_a_change_to_an_operating_state_resumes_the_line() {
    let held_last = Schedule::once([(ms(1), state(LineState::Silent)), (ms(2), state(LineState::Held))]).unwrap();
    let mut cursor = Cursor::start();
    assert!(cursor.resumes(&held_last));
    cursor.advance(&held_last);
    assert!(!cursor.resumes(&held_last));
    let held_for_ever = Schedule::repeating(ms(3), [(ms(1), state(LineState::Held))]).unwrap();
    assert!(!Cursor::start().resumes(&held_for_ever));
    assert!(Cursor::start().resumes(&Schedule::flapping(ms(1), ms(1), LineState::Held).unwrap()));
}

fn delays(offsets: &[u64]) -> Vec<(Duration, Change)> {
    offsets.iter().zip(1..).map(|(&offset, delay)| (ms(offset), Change::Delay(ms(delay)))).collect()
}

proptest! {
    /// Compares the pure function with applying the changes one by one, and skipping with not
    /// skipping.
    #[test]
    fn applying_changes_one_by_one_matches_the_function_of_time(
        mut offsets in prop::collection::vec(0..20_u64, 0..6),
        period in prop::option::of(20..40_u64),
        stops in prop::collection::vec(0..90_u64, 1..10),
    ) {
        offsets.sort_unstable();
        let schedule = match period {
            Some(period) => Schedule::repeating(ms(period), delays(&offsets)).unwrap(),
            None => Schedule::once(delays(&offsets)).unwrap(),
        };
        let config = LinkConfig { schedule: Some(schedule.clone()), ..LinkConfig::default() };
        let (mut walked, mut skipped) = (config.clone(), config.clone());
        let (mut walk, mut skip) = (Cursor::start(), Cursor::start());
        let mut now = Instant::ZERO;
        for wait in stops {
            now += ms(wait);
            skip.skip_rounds(now, &schedule);
            for (cursor, config) in [(&mut walk, &mut walked), (&mut skip, &mut skipped)] {
                let mut last = Instant::ZERO;
                while let Some((at, change)) = cursor.next_change(&schedule).filter(|(at, _)| *at <= now) {
                    prop_assert!(at >= last);
                    last = at;
                    change.apply(config);
                    cursor.advance(&schedule);
                }
            }
            let mut jumped = config.clone();
            let jump = schedule.apply_until(now, &mut jumped);
            prop_assert_eq!((&walked, &skipped), (&jumped, &jumped));
            let next = |cursor: &Cursor| cursor.next_change(&schedule).map(|(at, _)| at);
            prop_assert_eq!((next(&walk), next(&skip)), (next(&jump), next(&jump)));
        }
    }
}

#[test]
fn there_is_no_change_at_the_end_of_time() {
    let schedule = Schedule::repeating(ms(1), delays(&[0])).unwrap();
    let mut cursor = Cursor::start();
    cursor.skip_rounds(Instant::FAR_FUTURE, &schedule);
    let mut steps = 0;
    while cursor.next_change(&schedule).is_some() {
        cursor.advance(&schedule);
        steps += 1;
    }
    assert!(steps <= 3, "{steps}");
}

#[test]
fn undoing_a_change_restores_every_field() {
    let plain = LinkConfig {
        rate: Some(Rate::from_mbps(8)),
        delay: ms(3),
        reorder: Ratio::new(1, 7),
        reorder_by: ms(2),
        ..LinkConfig::default()
    };
    let some = Ratio::new(1, 3);
    let jitter = Jitter { distribution: crate::Distribution::Uniform { max: ms(1) }, reorders: true };
    let bursts = BurstLoss { good_to_bad: some, bad_to_good: some, loss_good: Ratio::ZERO, loss_bad: Ratio::ONE };
    for change in [
        state(LineState::Silent),
        Change::Rate(None),
        Change::Delay(ms(9)),
        Change::Jitter(Some(jitter)),
        Change::Loss(some),
        Change::BurstLoss(Some(bursts)),
        Change::Duplicate(some),
        Change::Corrupt(some),
        Change::Reorder(some, ms(5)),
    ] {
        let undo = change.undo(&plain);
        let mut config = plain.clone();
        change.apply(&mut config);
        assert_ne!(config, plain, "{change:?}");
        undo.apply(&mut config);
        assert_eq!(config, plain, "{change:?}");
    }
}
