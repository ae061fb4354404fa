use std::sync::{Arc, Mutex};

use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};
use units::{Duration, Instant};

use super::*;
use crate::tests::{any_paths, any_strategy, path};

/// Returns a traced scheduler, and the text written so far.
fn traced(strategy: Strategy) -> (Traced, Arc<Mutex<String>>) {
    let text = Arc::new(Mutex::new(String::new()));
    let written = Arc::clone(&text);
    let sink = move |line: &str| {
        assert!(line.len() <= LINE_BYTES_MAX && !line.contains('\n'), "{} bytes", line.len());
        let mut written = written.lock().expect("the lock is not poisoned");
        written.push_str(line);
        written.push('\n');
    };
    (Traced::new(strategy, Box::new(sink)), text)
}

fn text_of(text: &Arc<Mutex<String>>) -> String {
    text.lock().expect("the lock is not poisoned").clone()
}

const DEMAND: Demand = Demand { ready_bytes: 300_000, is_last: true };

/// Returns two choices and one reinjection answer over two paths.
fn sample() -> String {
    let (mut scheduler, text) = traced(Strategy::EarliestDelivery);
    let mut paths = [path(0, 10, 100), path(1, 60, 50)];
    let now = Instant::from_nanos(1_000_000);
    let _ = scheduler.choose(now, &DEMAND, &paths);
    paths[0].in_flight_bytes = 76_800;
    paths[1].is_backup = true;
    let _ = scheduler.choose(now + Duration::from_micros(10), &DEMAND, &paths);
    let straggler = Straggler { path: 0, sent_at: now, bytes: 1200 };
    let _ = scheduler.reinjects(now + Duration::from_millis(2), &straggler, 1, &paths);
    text_of(&text)
}

/// The example in `docs/spec/scheduler-trace.md`, verbatim.
#[test]
fn a_trace_matches_the_specification() {
    let page = include_str!("../../../../docs/spec/scheduler-trace.md");
    let sample = sample();
    assert!(page.contains(&sample), "not on the page:\n{sample}");
    assert!(page.contains(&format!("{LINE_BYTES_MAX} bytes")));
}

#[test]
fn replaying_an_unmodified_trace_finds_no_difference() {
    let found = replay(sample().as_bytes()).expect("well-formed");
    assert_eq!((found.strategy, found.decisions, found.differences_count), (Strategy::EarliestDelivery, 3, 0));
    assert_eq!(found.differences, []);
}

#[test]
fn replaying_a_modified_trace_reports_the_line_and_both_answers() {
    let tampered = sample().replacen("send 0 76800 0", "send 1 76800 0", 1).replacen("| no", "| yes", 1);
    assert_ne!(tampered, sample());
    let found = replay(tampered.as_bytes()).expect("well-formed");
    assert_eq!((found.decisions, found.differences_count), (3, 2));
    assert_eq!(
        found.differences[0],
        Difference { line: 3, recorded: "send 1 76800 0".into(), replayed: "send 0 76800 0".into() }
    );
    assert_eq!(found.differences[1].to_string(), "line 5: recorded \"yes\", replayed \"no\"");
    // Another strategy makes other decisions.
    let other = sample().replacen("strategy earliest", "strategy round-robin", 1);
    assert!(replay(other.as_bytes()).expect("well-formed").differences_count > 0);
}

#[test]
fn differences_beyond_the_limit_are_counted_but_not_kept() {
    let wrong = "choose 5 100 1 | wait 9\n".repeat(1000);
    let found = replay(format!("{VERSION_LINE}\nstrategy lowest-rtt\n{wrong}").as_bytes()).expect("well-formed");
    assert_eq!((found.decisions, found.differences_count), (1000, 1000));
    assert_eq!(found.differences.len(), DIFFERENCES_KEPT_MAX);
}

#[test]
fn errors_name_the_line_and_the_field() {
    let genuine = sample();
    let cases = [
        (genuine.replacen("trace 1", "trace 2", 1), "line 1: expected \"litz-scheduler-trace 1\""),
        (String::new(), "line 1: expected \"litz-scheduler-trace 1\""),
        (format!("{VERSION_LINE}\n"), "line 2: field strategy is missing"),
        (genuine.replacen("earliest", "best", 1), "line 2: field strategy is invalid"),
        (genuine.replacen("choose", "chose", 1), "line 3: field call is invalid"),
        (genuine.replacen("300000 1 ", "300000 2 ", 1), "line 3: field is_last is invalid"),
        (genuine.replacen("300000 1 ", "0300000 1 ", 1), "line 3: field ready_bytes is invalid"),
        (genuine.replacen(" r ", " rb ", 1), "line 3: field flags is invalid"),
        (genuine.replacen(" 1200 |", " |", 1), "line 3: field datagram_bytes is missing"),
        (genuine.replacen(" 1200 |", " 1200 1 |", 1), "line 3: a section has too many fields"),
        (genuine.replacen("| send", "| sent", 1), "line 3: field choice is invalid"),
        (genuine.replacen("| no", "| maybe", 1), "line 5: field verdict is invalid"),
        (genuine.trim_end().to_owned(), "line 5: truncated before its line feed"),
        (genuine.replacen("300000", &"3".repeat(LINE_BYTES_MAX), 1), "line 3: longer than 8192 bytes"),
        (genuine.replacen(" | ", &" | 1".repeat(40), 1), "line 3: too many paths"),
    ];
    for (text, expected) in cases {
        let error = replay(text.as_bytes()).expect_err(expected);
        assert_eq!(error.to_string(), format!("scheduler trace, {expected}"));
    }
    let error = replay(&b"litz-scheduler-trace 1\nstrategy \xff\n"[..]).expect_err("no text");
    assert_eq!(error.to_string(), "scheduler trace, line 2: not UTF-8");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_trace_replays_without_a_difference(
        strategy in any_strategy(),
        calls in prop::collection::vec(
            (any_paths(), any::<u64>(), any::<bool>(), 0..u64::MAX / 16, any::<bool>()),
            0..12,
        ),
    ) {
        let strategy = match strategy {
            Strategy::Redundant { copies } => Strategy::Redundant { copies: copies.clamp(1, 32) },
            other => other,
        };
        let (mut scheduler, text) = traced(strategy);
        let mut alone = strategy.build();
        let mut now = Instant::ZERO;
        let mut decisions = 0;
        for (paths, ready_bytes, is_last, step, is_verdict) in calls {
            now += Duration::from_nanos(step);
            let demand = Demand { ready_bytes, is_last };
            prop_assert_eq!(scheduler.choose(now, &demand, &paths), alone.choose(now, &demand, &paths));
            decisions += 1;
            if is_verdict {
                let straggler = Straggler { path: paths.len() / 2, sent_at: now, bytes: ready_bytes };
                let verdict = scheduler.reinjects(now, &straggler, 0, &paths);
                prop_assert_eq!(verdict, alone.reinjects(now, &straggler, 0, &paths));
                decisions += 1;
            }
        }
        let found = replay(text_of(&text).as_bytes()).expect("well-formed");
        prop_assert_eq!((found.strategy, found.decisions, found.differences_count), (strategy, decisions, 0));
    }

    #[test]
    fn the_parser_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        line in "[a-z0-9 |\\-]{0,80}",
    ) {
        let _ = replay(bytes.as_slice());
        let _ = Record::parse(&line);
    }
}
