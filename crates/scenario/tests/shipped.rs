//! The scenarios in `scenarios/`: each is read, run in memory and must pass, whatever the seed.

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

#[test]
#[ignore = "minutes: every scenario with all its seeds"]
fn all_pass_with_all_their_seeds() {
    let only = std::env::var("SCENARIO").ok();
    let seeds: u64 = std::env::var("SEEDS").ok().map_or(10, |seeds| seeds.parse().expect("a number"));
    let mut failed = Vec::new();
    for name in names().into_iter().filter(|name| only.as_ref().is_none_or(|only| only == name)) {
        let started = std::time::SystemTime::now();
        let scenario = read(&name);
        let (table, passes) = judge(&scenario, 1..=seeds);
        println!("{name} {:.1} s\n{table}", started.elapsed().unwrap().as_secs_f64());
        if !passes {
            failed.push(name);
        }
    }
    assert_eq!(failed, [""; 0]);
}
