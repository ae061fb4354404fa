//! Comparison of the log with a vector of one entry per position.

use proptest::prelude::*;

use super::*;

/// A call to the log.
#[derive(Debug, Clone)]
enum Call {
    Push(u64),
    Acknowledge(u64),
    Sack(u64, u64),
    Lose(u64, u64),
    Resend(u64),
    ForgetSacks,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => (1u64..20).prop_map(Call::Push),
        1 => (0u64..30).prop_map(Call::Acknowledge),
        3 => (0u64..60, 1u64..20).prop_map(|(at, len)| Call::Sack(at, len)),
        2 => (0u64..60, 1u64..20).prop_map(|(at, len)| Call::Lose(at, len)),
        2 => (1u64..20).prop_map(Call::Resend),
        1 => Just(Call::ForgetSacks),
    ]
}

/// Model with one state for each position from `una` on.
#[derive(Default)]
struct Model {
    una: u64,
    states: VecDeque<RunState>,
}

impl Model {
    fn count(&self, state: RunState) -> u64 {
        self.states.iter().filter(|other| **other == state).count() as u64
    }

    /// Changes the positions of `range` that are in one of the states `from`; returns how many.
    fn change(&mut self, range: Range<u64>, from: &[RunState], to: RunState) -> u64 {
        let mut count = 0;
        for position in range {
            let Some(state) = position.checked_sub(self.una).and_then(|at| self.states.get_mut(at as usize)) else {
                continue;
            };
            if from.contains(state) {
                (*state, count) = (to, count + 1);
            }
        }
        count
    }
}

fn run(start: u64, end: u64, transmission: u64) -> Run {
    Run {
        start,
        end,
        state: RunState::Outstanding,
        sent_at: Instant::ZERO,
        transmission,
        is_retransmitted: false,
        is_limited: false,
        stamp: SendStamp::default(),
    }
}

fn step(log: &mut SentLog, model: &mut Model, transmission: u64, call: Call) {
    use RunState::{Lost, Outstanding, Sacked};
    let nxt = model.una + model.states.len() as u64;
    let mut reported = 0;
    match call {
        Call::Push(len) => {
            log.push(run(nxt, nxt + len, transmission));
            model.states.extend((0..len).map(|_| Outstanding));
        }
        Call::Acknowledge(len) => {
            let position = (model.una + len).min(nxt);
            log.acknowledge(position, |run| reported += run.len());
            assert_eq!(reported, position - model.una);
            model.states.drain(..(position - model.una) as usize);
            model.una = position;
        }
        Call::Sack(at, len) => {
            let range = model.una + at..(model.una + at + len).min(nxt);
            if !range.is_empty() {
                log.sack(range.clone(), 1, u64::MAX, |run| reported += run.len());
                assert_eq!(reported, model.change(range, &[Outstanding, Lost], Sacked));
            }
        }
        Call::Lose(at, len) => {
            let range = model.una + at..(model.una + at + len).min(nxt);
            if !range.is_empty() {
                log.lose_range(range.clone(), |run| reported += run.len());
                assert_eq!(reported, model.change(range, &[Outstanding], Lost));
            }
        }
        Call::Resend(len) => {
            if let Some(lost) = log.first_lost().copied() {
                let range = lost.start..lost.end.min(lost.start + len);
                log.resend(&range, |run| run.transmission = transmission);
                let count = range.end - range.start;
                assert_eq!(model.change(range, &[Lost], Outstanding), count);
            }
        }
        Call::ForgetSacks => {
            log.forget_sacks();
            model.change(model.una..nxt, &[Sacked], Lost);
        }
    }
}

proptest! {
    #[test]
    fn the_log_agrees_with_one_entry_for_each_position(calls in prop::collection::vec(call(), 1..80)) {
        let (mut log, mut model) = (SentLog::default(), Model::default());
        for (transmission, call) in calls.into_iter().enumerate() {
            step(&mut log, &mut model, transmission as u64, call);
            let counts = [RunState::Outstanding, RunState::Sacked, RunState::Lost].map(|state| model.count(state));
            prop_assert_eq!([log.in_flight(), log.sacked(), log.lost()], counts);
            let mut position = model.una;
            for run in log.runs() {
                prop_assert!(run.start == position && run.start < run.end);
                for at in run.start..run.end {
                    prop_assert_eq!(model.states[(at - model.una) as usize], run.state);
                }
                position = run.end;
            }
            prop_assert_eq!(position, model.una + model.states.len() as u64);
            let first_lost = model.states.iter().position(|state| *state == RunState::Lost);
            prop_assert_eq!(log.first_lost().map(|run| run.start), first_lost.map(|at| model.una + at as u64));
            let is_merged = |pair: (&Run, &Run)| [pair.0, pair.1].iter().any(|run| run.state != RunState::Sacked);
            prop_assert!(log.runs().zip(log.runs().skip(1)).all(is_merged), "neighbours that the peer has are one run");
        }
    }
}

#[test]
fn only_whole_segments_are_held() {
    let mut log = SentLog::default();
    log.push(run(0, 950, 0));
    log.sack(50..250, 100, u64::MAX, |run| assert_eq!((run.start, run.end), (100, 200)));
    log.sack(310..390, 100, u64::MAX, |_| unreachable!());
    log.sack(850..950, 100, u64::MAX, |run| assert_eq!((run.start, run.end), (900, 950)));
    assert_eq!((log.sacked(), log.runs().len()), (150, 4));
    // The position 950 is the FIN.
    log.push(run(950, 1051, 0));
    log.sack(950..1050, 100, 1050, |run| assert_eq!((run.start, run.end), (950, 1051)));
}

#[test]
fn what_does_not_leave_is_lost_and_nothing_else() {
    let mut log = SentLog::default();
    (0..400).for_each(|number| log.push(run(number * 10, number * 10 + 10, number)));
    let lost = |log: &SentLog| -> Vec<u64> {
        log.runs().filter(|run| run.state == RunState::Lost).map(|run| run.start).collect()
    };
    log.lose_plan(399);
    log.lose_plan(350);
    // Its positions are no longer kept, and it is found all the same.
    log.lose_plan(2);
    log.lose_plan(2);
    assert_eq!((lost(&log), log.lost(), log.in_flight()), (vec![20, 3500, 3990], 30, 3970));
    // Part of it was resent since, and part has arrived.
    log.resend(&(3500..3505), |run| run.transmission = 400);
    log.lose_plan(350);
    assert_eq!(lost(&log), [20, 3505, 3990]);
    log.sack(2000..2010, 10, 4000, |_| {});
    log.lose_plan(200);
    assert_eq!((lost(&log), log.sacked()), (vec![20, 3505, 3990], 10));
    log.lose_plan(400);
    assert_eq!(lost(&log), [20, 3500, 3505, 3990]);
}
