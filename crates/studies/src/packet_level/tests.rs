//! Properties of the packet-level model, in quick runs.

use super::model::{Counts, Direction, Lock, Setup, Share, Step, run};
use crate::study::{Effort, Options};
use units::Duration;

const OPTIONS: Options =
    Options { seed: 1, replications: 2, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };

/// Returns a setup with 30 us under the lock between 40 us before and 30 us after.
fn example(processors: usize) -> Setup {
    let step = |mean_us, lock| Step { mean_us, lock };
    Setup {
        steps: vec![step(40.0, Lock::None), step(30.0, Lock::Connection), step(30.0, Lock::None)],
        direction: Direction::Out,
        processors,
        connections: 1,
        share: Share::AtRandom,
        spread: 0.1,
        handoff_us: 0.0,
        warm_up: Duration::from_millis(10),
        measured: Duration::from_millis(100),
    }
}

fn packets(setup: &Setup) -> Counts {
    run(setup, 3, 0)
}

#[test]
fn speedup_equals_the_number_of_processors_until_the_lock_saturates() {
    let one = packets(&example(1)).packets as f64;
    assert!((one - 1000.0).abs() < 15.0, "{one}");
    let three = packets(&example(3));
    assert!(three.packets as f64 > 2.6 * one && three.packets as f64 <= 3.02 * one, "{three:?}");
    let many = packets(&example(8));
    assert!((many.packets as f64 * 30.0 / 100_000.0 - 1.0).abs() < 0.01, "{many:?}");
    assert!(many.lock_utilisation > 0.99);
}

#[test]
fn connections_with_assigned_processors_never_wait() {
    let setup = Setup { connections: 8, share: Share::Bound, ..example(8) };
    let (eight, one) = (packets(&setup).packets as f64, packets(&example(1)).packets as f64);
    assert!((eight / one / 8.0 - 1.0).abs() < 0.02, "{eight} {one}");
}

#[test]
fn one_processor_and_equal_times_preserve_order() {
    assert_eq!(packets(&example(1)).overtaken, 0);
    assert_eq!(packets(&Setup { spread: 0.0, ..example(4) }).overtaken, 0);
    assert!(packets(&Setup { spread: 0.9, ..example(4) }).overtaken > 0);
    let inwards = Setup { direction: Direction::In, spread: 0.9, ..example(4) };
    assert!(packets(&inwards).overtaken > 0);
}

#[test]
fn every_check_holds_in_a_quick_run() {
    for study in super::studies() {
        let outcome = study.run(&OPTIONS);
        for check in &outcome.checks {
            assert!(check.holds, "{}: {} ({})", study.id(), check.statement, check.detail);
        }
    }
}

#[test]
fn the_number_of_threads_has_no_effect() {
    use super::model::replicate;
    let [one, many] = [1, 3].map(|threads| replicate(&example(4), &Options { threads, replications: 4, ..OPTIONS }));
    assert_eq!((one.rate, one.overtaken), (many.rate, many.overtaken));
}

#[test]
fn our_costs_match_the_stored_results() {
    for side in super::paper::our_sides() {
        let path = format!("{}/../../bench/results/{}", env!("CARGO_MANIFEST_DIR"), side.result);
        let kept = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let at = kept.find(&format!(r#""side":"{}""#, side.side)).expect("the result has this side");
        let costs =
            [("serial_ns", side.serial_ns), ("parallel_ns", side.parallel_ns), ("application_ns", side.application_ns)];
        for (name, ours) in costs {
            let name = format!(r#""{name}":"#);
            let begin = at + kept[at..].find(&name).expect("every side has its costs") + name.len();
            let end = begin + kept[begin..].find(',').expect("more follows");
            let measured: f64 = kept[begin..end].parse().unwrap();
            // The data file is rounded to two digits.
            assert!((measured - ours).abs() < 0.0051, "{} {name} {measured} {ours}", side.result);
        }
    }
}
