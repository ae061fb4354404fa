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

/// What is read at a time ends with the batch where there are bytes, and with the sender's chunk where there are none, and credit is granted
/// as it is read. So times differ a little, and no more.
#[test]
fn hosts_that_let_datagrams_wait_for_each_other_differ_by_little() {
    let text = |coalesce| {
        format!(
            "version = 1\n[scenario]\nname = 'waits'\nabout = 'x'\nduration = '9s'\n[hosts.b]\ncoalesce = '{coalesce}'\n\
             [[link]]\nname = 'a'\nrate = '200Mb/s'\ndelay = '5ms'\nloss = '0.1%'\nqueue = '20ms'\n\
             [[link]]\nname = 'b'\nrate = '100Mb/s'\ndelay = '9ms'\ncorrupt = '0.1%'\nqueue = '20ms'\n\
             [[workload]]\nkind = 'file'\nsize = '20MB'\n"
        )
    };
    let read = |text: &str| parse("waits.toml", text, &|_| Err(String::new()));
    for coalesce in ["30us", "300us"] {
        let scenario = read(&text(coalesce)).unwrap_or_else(|error| panic!("{error}"));
        let order = Order { paths: vec![0, 1], seed: 2 };
        let in_memory = Memory.run(&scenario, &order, &mut |_| true).expect("it runs");
        let simulated = Sim::default().run(&scenario, &order, &mut |_| true).expect("it runs");
        assert!(in_memory.is_complete() && simulated.is_complete(), "{coalesce}");
        let [one, other] = [&in_memory, &simulated].map(|outcome| outcome.ended_at.since_start().as_secs_f64());
        assert!((one / other - 1.0).abs() < 0.05, "{coalesce}: {one} s and {other} s");
    }
    let error = read(&text("1s")).expect_err("too long");
    assert!(error.to_string().contains("coalesce"), "{error}");
}
