//! The simulated world does, packet for packet, what the world in memory does: every shipped scenario, on all of its paths, with one
//! seed. Outcomes hold the counters of every link and path, and the times of every delivery.

use std::path::{Path, PathBuf};

use scenario::memory::Memory;
use scenario::model::Scenario;
use scenario::parse::parse;
use scenario::simulated::Sim;
use scenario::world::{Order, World};
use units::Duration;

/// Virtual time of each run, at most: the longest scenarios say nothing new after it.
const DURATION_MAX: Duration = Duration::from_secs(6);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(path: &Path) -> Scenario {
    let text = std::fs::read_to_string(path).expect("readable");
    let trace = |name: &str| {
        let text = std::fs::read_to_string(folder().join(name)).map_err(|error| error.to_string())?;
        text.parse().map_err(|error: netem::TraceError| error.to_string())
    };
    parse(&path.display().to_string(), &text, &trace).unwrap_or_else(|error| panic!("{error}"))
}

fn compare(scenario: &Scenario, seed: u64) {
    let order = Order { paths: (0..scenario.paths.len()).collect(), seed };
    let in_memory = Memory.run(scenario, &order, &mut |_| true).expect("it runs");
    let mut simulated = Sim::default().run(scenario, &order, &mut |_| true).expect("it runs");
    assert_eq!(simulated.world, "sim");
    simulated.world = in_memory.world;
    assert!(in_memory.path_outcomes.iter().any(|path| path.datagrams[0] > 20), "{}: nothing was sent", scenario.name);
    assert_eq!(in_memory, simulated, "{}, seed {seed}", scenario.name);
}

#[test]
fn every_shipped_scenario_goes_as_in_memory_packet_for_packet() {
    let mut paths: Vec<_> = std::fs::read_dir(folder())
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    assert!(paths.len() > 10);
    for path in paths {
        let mut scenario = read(&path);
        scenario.duration = scenario.duration.min(DURATION_MAX);
        compare(&scenario, 1);
    }
}

#[test]
fn so_does_a_link_that_damages_doubles_and_reorders() {
    let text = "version = 1\n[scenario]\nname = 'bad'\nabout = 'x'\nduration = '4s'\n\
                [[link]]\nname = 'a'\nrate = '40Mb/s'\ndelay = '10ms'\ncorrupt = '2%'\nduplicate = '2%'\n\
                reorder = { share = '2%', by = '3ms' }\nloss = '1%'\n\
                [[workload]]\nkind = 'file'\nsize = '8MB'\n\
                [[workload]]\nkind = 'request-response'\nrequest = '3kB'\nresponse = '30kB'\nevery = '50ms'\ncount = 40\n";
    let scenario = parse("bad.toml", text, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"));
    for seed in 1..=4 {
        compare(&scenario, seed);
    }
}
