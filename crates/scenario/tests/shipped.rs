//! The scenarios in `scenarios/`: each is read, run in memory and must pass with the first three seeds. Of those with the
//! most bytes, whose links leave nothing to chance, only the first is run: theirs would take as long as all others together.
//! All seeds that the files ask for take minutes and are run on demand: see the last test.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use scenario::memory::Memory;
use scenario::model::Scenario;
use scenario::parse::parse;
use scenario::report::table;
use scenario::suite::Suite;
use scenario::world::World;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(name: &str) -> Scenario {
    let path = folder().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let trace = |name: &str| {
        let text = std::fs::read_to_string(folder().join(name)).map_err(|error| error.to_string())?;
        text.parse().map_err(|error: netem::TraceError| error.to_string())
    };
    parse(&format!("{name}.toml"), &text, &trace).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs everything that the file asks for with these seeds; the table, and whether all is well.
fn judge(scenario: &Scenario, seeds: std::ops::RangeInclusive<u64>) -> (String, bool) {
    let suite = Suite::new(scenario, seeds);
    let outcomes: BTreeMap<_, _> = suite
        .orders()
        .into_iter()
        .map(|order| {
            let outcome =
                Memory.run(scenario, &order, &mut |_| true).unwrap_or_else(|error| panic!("{order:?}: {error}"));
            (order, outcome)
        })
        .collect();
    let judgements = suite.judge(&outcomes);
    let passes = judgements.iter().all(|judgement| judgement.verdicts.iter().all(|verdict| verdict.passes));
    (table(scenario, &judgements), passes)
}

fn names() -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder())
        .expect("the folder is there")
        .filter_map(|entry| {
            let path = entry.expect("readable").path();
            let is_scenario = path.extension().is_some_and(|extension| extension == "toml");
            is_scenario.then(|| path.file_stem().expect("a name").to_string_lossy().into_owned())
        })
        .collect();
    names.sort();
    names
}

macro_rules! shipped {
    ($($test:ident: $name:literal, $seeds:expr;)*) => {
        /// The scenarios that have a test below.
        const TESTED: &[&str] = &[$($name),*];

        $(#[test]
        fn $test() {
            let (table, passes) = judge(&read($name), 1..=$seeds);
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
fn every_file_has_a_test_and_is_named_after_its_scenario() {
    assert_eq!(names(), TESTED);
    for name in names() {
        assert_eq!(read(&name).name, name);
    }
}

#[test]
fn the_trace_follows_its_rule() {
    // docs/spec/scenario.md, "The shipped trace".
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
    let found = std::fs::read_to_string(folder().join("traces/lte.mahi")).expect("it is there");
    assert!(found == expected, "run the rule again: {} lines, not {}", found.lines().count(), expected.lines().count());
}

#[test]
#[ignore = "minutes: every scenario with every seed that it asks for; `litz scenario run scenarios` does the same"]
fn all_pass_with_all_their_seeds() {
    let mut failed = String::new();
    for name in names() {
        let scenario = read(&name);
        let (table, passes) = judge(&scenario, 1..=u64::from(scenario.seeds));
        if !passes {
            failed += &format!("{name}\n{table}\n");
        }
    }
    assert!(failed.is_empty(), "{failed}");
}
