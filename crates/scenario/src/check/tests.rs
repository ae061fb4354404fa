use units::{Duration, Instant};

use super::*;
use crate::model::Scenario;
use crate::outcome::{Deliveries, FaultOutcome, Gap, LinkOutcome, Outcome, PartOutcome, PathOutcome};
use crate::testing::scenario;
use crate::timeline::Timeline;

const LINKS: &str = "
    [[link]]
    name = 'a'
    rate = '80Mb/s'
    loss = '1%'
    [[link]]
    name = 'b'
    rate = '80Mb/s'
";

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn deliveries_with_gaps(scenario: &Scenario, part: usize) -> Deliveries {
    let mut delivered = Deliveries::new(scenario, part);
    for (from, millis) in [(500, 80), (100, 20)] {
        delivered.note_gap(Gap { from: at(from), length: Duration::from_millis(millis) });
    }
    delivered
}

/// Returns a run over both paths whose first part began at 100 ms and received `bytes` evenly until
/// `millis`.
fn outcome(scenario: &Scenario, bytes: u64, millis: u64) -> Outcome {
    let bins = millis / 10;
    let part = |index| PartOutcome {
        started_at: Some(at(100)),
        finished_at: Some(at(millis)),
        sent_bytes: bytes,
        due_bytes: bytes,
        delivered: Deliveries {
            timeline: Timeline {
                bytes,
                cumulative_bytes: (1..=bins).map(|bin| bytes * bin.saturating_sub(10) / (bins - 10)).collect(),
            },
            last_at: Some(at(millis)),
            ..deliveries_with_gaps(scenario, index)
        },
        latencies: (1..=100).map(Duration::from_millis).collect(),
        ..PartOutcome::default()
    };
    Outcome {
        scenario: scenario.name.clone(),
        world: "test",
        seed: 1,
        paths: vec![0, 1],
        connected_at: Some(at(100)),
        ended_at: at(millis),
        failure: None,
        parts: (0..scenario.parts.len()).map(part).collect(),
        path_outcomes: vec![
            PathOutcome { path: 0, bytes: [300, 9], ..PathOutcome::default() },
            PathOutcome { path: 1, bytes: [100, 9], ..PathOutcome::default() },
        ],
        link_outcomes: vec![LinkOutcome { link: 0, stats: Default::default(), delivered: Timeline::default() }],
        fault_outcomes: Vec::new(),
        foreign_streams: 0,
        components: Vec::new(),
        events_digest: None,
        notes: Vec::new(),
    }
}

/// Returns the verdicts of the checks in `body` on that run, without those that apply to every run.
fn file_verdicts(body: &str, change: impl Fn(&mut Outcome)) -> Vec<Verdict> {
    let scenario = scenario(&format!("{LINKS}{body}"));
    let mut outcome = outcome(&scenario, 20_000_000, 1100);
    change(&mut outcome);
    verdicts(&scenario, &outcome).into_iter().filter(|verdict| verdict.line.is_some()).collect()
}

fn value(body: &str) -> f64 {
    let verdicts = file_verdicts(body, |_| {});
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    verdicts[0].value.expect("a value").number()
}

#[test]
fn shares_goodputs_and_gaps_are_measured_in_their_window() {
    let share = |window: &str| value(&format!("[[check]]\nkind = 'share-of-capacity'\nat-least = 0.5\n{window}"));
    // 20 MB in a second, divided by the application bytes that 160 Mb/s carry.
    let whole = 20_000_000.0 / (20_000_000.0 * 1448.0 / 1514.0);
    assert!((share("") - whole).abs() < 1e-6, "{}", share(""));
    assert!((share("from = '500ms'\nuntil = '700ms'") - whole).abs() < 1e-3);
    assert!((value("[[check]]\nkind = 'goodput'\nat-least = '1Mb/s'") - 160e6).abs() < 1.0);
    assert_eq!(value("[[check]]\nkind = 'gap'\nat-most = '1s'"), 0.08);
    assert_eq!(value("[[check]]\nkind = 'gap'\nat-most = '1s'\nuntil = '500ms'"), 0.02);
    assert_eq!(value("[[check]]\nkind = 'gap'\nat-most = '1s'\nfrom = '580ms'"), 0.0);
}

#[test]
fn checks_of_an_empty_window_fail() {
    for check in ["gap'\nat-most = '1s'", "goodput'\nat-least = '0.001Mb/s'", "share-of-capacity'\nat-least = 0"] {
        // The part lasts from 100 ms to 1100 ms.
        for (window, passes) in [("from = '1099ms'", true), ("from = '1100ms'", false), ("until = '100ms'", false)] {
            let verdicts = file_verdicts(&format!("[[check]]\nkind = '{check}\n{window}"), |_| {});
            let found = (verdicts.len(), verdicts[0].passes, verdicts[0].value.is_some());
            assert_eq!(found, (1, passes, passes), "{check} {window}");
        }
    }
}

#[test]
fn completion_checks_skip_work_without_end() {
    let body = "[[workload]]\nname = 'goes-on'\nkind = 'stream'\n[[workload]]\nkind = 'file'\nsize = '20MB'\n\
                [[check]]\nkind = 'nothing-lost'\n[[check]]\nkind = 'complete'\nwithin = '1s'";
    let found: Vec<_> = file_verdicts(body, |_| {}).into_iter().map(|verdict| (verdict.kind, verdict.of)).collect();
    assert_eq!(found, ["nothing-lost", "complete"].map(|kind| (kind, "file".to_owned())));
}

#[test]
fn verdicts_follow_the_bounds() {
    for (check, passes) in [
        ("kind = 'gap'\nat-most = '80ms'", true),
        ("kind = 'gap'\nat-most = '79ms'", false),
        ("kind = 'goodput'\nat-least = '160Mb/s'", true),
        ("kind = 'goodput'\nat-least = '161Mb/s'", false),
        ("kind = 'path-share'\npath = 'b'\nat-most = '25%'", true),
        ("kind = 'path-share'\npath = 'b'\nat-least = '26%'", false),
        ("kind = 'complete'\nwithin = '1s'", true),
        ("kind = 'complete'\nwithin = '999ms'", false),
        ("kind = 'nothing-lost'", true),
        ("kind = 'happened'\nlink = 'a'\ncounter = 'lost'", false),
    ] {
        let verdicts = file_verdicts(&format!("[[check]]\n{check}"), |_| {});
        assert_eq!((verdicts.len(), verdicts[0].passes), (1, passes), "{check}: {verdicts:?}");
    }
}

#[test]
fn latency_fails_when_a_message_did_not_arrive() {
    let body = "[[workload]]\nkind = 'messages'\nsize = '20B'\ncount = 100\nevery = '1ms'\n\
                [[check]]\nkind = 'latency'\npercentile = 95\nat-most = '95ms'";
    let verdicts = file_verdicts(body, |_| {});
    assert!(verdicts[0].passes, "{verdicts:?}");
    let verdicts = file_verdicts(body, |outcome| outcome.parts[0].delivered.timeline.bytes -= 1);
    assert!(!verdicts[0].passes && verdicts[0].value.is_none(), "{verdicts:?}");
}

#[test]
fn every_run_must_complete_correctly_and_show_its_faults() {
    let scenario = scenario(&format!("{LINKS}[[fault]]\nlink = 'a'\nat = '1s'\nstate = 'silent'\n"));
    let fine = {
        let mut outcome = outcome(&scenario, 1000, 1100);
        outcome.fault_outcomes = vec![FaultOutcome { fault: 0, occurrences: 1, effective: 1, packets: 9 }];
        outcome
    };
    let fails = |change: fn(&mut Outcome)| {
        let mut outcome = fine.clone();
        change(&mut outcome);
        let verdicts = verdicts(&scenario, &outcome).into_iter().filter(|verdict| !verdict.passes);
        verdicts.map(|verdict| verdict.kind).collect::<Vec<_>>()
    };
    assert_eq!(fails(|_| {}), [""; 0]);
    assert_eq!(fails(|outcome| outcome.failure = Some("idle".to_owned())), ["connection"]);
    assert_eq!(fails(|outcome| outcome.parts[0].finished_at = None), ["complete"]);
    assert_eq!(fails(|outcome| outcome.parts[0].misplaced_bytes = 1), ["content"]);
    assert_eq!(fails(|outcome| outcome.parts[0].surplus_bytes = 1), ["content"]);
    assert_eq!(fails(|outcome| outcome.foreign_streams = 1), ["content"]);
    assert_eq!(fails(|outcome| outcome.fault_outcomes[0].packets = 0), ["fault"]);
}

#[test]
fn order_applies_to_streams_and_missing_bytes_are_counted() {
    let body = "[[workload]]\nkind = 'stream'\nsize = '20MB'\n[[workload]]\nkind = 'file'\nsize = '20MB'\n\
                [[check]]\nkind = 'order-kept'\n[[check]]\nkind = 'nothing-lost'\nof = 'file'";
    let change = |outcome: &mut Outcome| {
        outcome.parts[0].misplaced_bytes = 3;
        outcome.parts[1].delivered.timeline.bytes -= 5;
    };
    let found: Vec<_> =
        file_verdicts(body, change).into_iter().map(|verdict| (verdict.kind, verdict.of, verdict.value)).collect();
    let expected = [("order-kept", "stream", 3), ("nothing-lost", "file", 5)];
    assert_eq!(found, expected.map(|(kind, of, count)| (kind, of.to_owned(), Some(Value::Count(count)))));
}

#[test]
fn several_paths_are_compared_with_the_best_single_path() {
    let body = format!(
        "{LINKS}[[workload]]\nkind = 'file'\nsize = '20MB'\n\
         [[workload]]\nkind = 'messages'\nsize = '20B'\ncount = 100\nevery = '1ms'\n[[check]]\nkind = 'against-best-path'"
    );
    let scenario = scenario(&body);
    let run = |bytes, latency_factor: u64| {
        let mut outcome = outcome(&scenario, bytes, 1100);
        for latency in &mut outcome.parts[1].latencies {
            *latency = *latency * latency_factor;
        }
        outcome
    };
    let together = run(20_000_000, 2);
    let mut broken = run(100, 1);
    broken.parts[1].due_bytes += 1;
    let alone = [&run(10_000_000, 4), &run(16_000_000, 1), &broken];
    let ratios: Vec<_> = against_best(&scenario, &together, &alone)
        .into_iter()
        .filter(|verdict| verdict.kind == "against-best-path")
        .map(|verdict| (verdict.of, verdict.value.unwrap().number(), verdict.passes))
        .collect();
    assert_eq!(ratios, [("file".to_owned(), 1.25, true), ("messages".to_owned(), 0.5, false)]);
    let dead = Outcome { failure: Some("idle".to_owned()), ..together };
    let verdicts = against_best(&scenario, &dead, &alone);
    assert!(verdicts.iter().any(|verdict| verdict.kind == "connection" && !verdict.passes), "{verdicts:?}");
}
