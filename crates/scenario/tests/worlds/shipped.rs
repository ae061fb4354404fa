//! The scenarios in `scenarios/`: each is parsed, runs in the world `memory`, and must pass with
//! the first three seeds. The scenarios with the most bytes, whose links are deterministic, run
//! with the first seed only, because they would take as long as all others together. The full
//! number of seeds takes minutes and runs on demand: see the last test.

use std::collections::BTreeMap;

use scenario::memory::Memory;
use scenario::model::Scenario;
use scenario::report::table;
use scenario::suite::Suite;
use scenario::world::World;

use super::shipped_files::{folder, names, read};

/// Runs the whole suite with these seeds. Returns the table, and whether all checks pass.
fn evaluate(scenario: &Scenario, seeds: std::ops::RangeInclusive<u64>) -> (String, bool) {
    let suite = Suite::new(scenario, seeds);
    let outcomes: BTreeMap<_, _> = suite
        .plans()
        .into_iter()
        .map(|plan| {
            let outcome =
                Memory.run(scenario, &plan, &mut |_| true).unwrap_or_else(|error| panic!("{plan:?}: {error}"));
            (plan, outcome)
        })
        .collect();
    let run_verdicts = suite.evaluate(&outcomes);
    let passes = run_verdicts.iter().all(|of_run| of_run.verdicts.iter().all(|verdict| verdict.passes));
    (table(scenario, &run_verdicts), passes)
}

macro_rules! shipped {
    ($($test:ident: $name:literal, $seeds:expr;)*) => {
        /// The scenarios that have a test below.
        const TESTED: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() {
            let (table, passes) = evaluate(&read($name), 1..=$seeds);
            assert!(passes, "{}: run `litz scenario run` for more\n{table}", $name);
        })*
    };
}

shipped! {
    backup: "backup", 3;
    bufferbloat: "bufferbloat", 3;
    bursty_wifi: "bursty-wifi", 3;
    codel: "codel", 3;
    dropped_link: "dropped-link", 3;
    emulator: "emulator", 3;
    flapping: "flapping", 3;
    four_equal: "four-equal", 3;
    four_unlike: "four-unlike", 1;
    four_unlike_ordered: "four-unlike-ordered", 1;
    gigabit: "gigabit", 1;
    leaving_wifi: "leaving-wifi", 3;
    lte_trace: "lte-trace", 3;
    messages_and_bulk: "messages-and-bulk", 3;
    reordering: "reordering", 3;
    requests: "requests", 3;
    satellite_dsl: "satellite-dsl", 3;
    two_equal: "two-equal", 3;
}

#[test]
fn every_scenario_file_has_a_test_and_the_name_of_its_scenario() {
    assert_eq!(names(), TESTED);
    for name in names() {
        assert_eq!(read(&name).name, name);
    }
}

#[test]
fn the_trace_follows_its_rule() {
    // Defined in docs/spec/scenario.md, "The shipped trace".
    let mut expected = String::new();
    let mut bits = 0;
    for ms in 1..=4000_u64 {
        let up = ms.min(4000 - ms);
        let rate_bps = 6_000_000 + 30_000_000 * up / 2000;
        bits += rate_bps / 1000;
        while bits >= 12_000 {
            bits -= 12_000;
            expected += &format!("{ms}\n");
        }
    }
    let found = std::fs::read_to_string(folder().join("traces/lte.mahi")).expect("the trace exists");
    assert!(
        found == expected,
        "regenerate the trace by the rule: {} lines, not {}",
        found.lines().count(),
        expected.lines().count()
    );
}

#[test]
#[ignore = "takes minutes: every scenario with all its seeds, as `litz scenario run scenarios`"]
fn all_scenarios_pass_with_all_seeds() {
    let mut failed = String::new();
    for name in names() {
        let scenario = read(&name);
        let (table, passes) = evaluate(&scenario, 1..=u64::from(scenario.seeds));
        if !passes {
            failed += &format!("{name}\n{table}\n");
        }
    }
    assert!(failed.is_empty(), "{failed}");
}
