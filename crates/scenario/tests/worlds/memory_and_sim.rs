//! The worlds `sim` and `memory` give equal outcomes, packet for packet: every shipped scenario, on
//! all of its paths, with one seed. Outcomes include the counters of every link and path, the times
//! of deliveries, and a digest of all datagrams.

use scenario::memory::Memory;
use scenario::model::Scenario;
use scenario::parse::parse;
use scenario::simulated::Sim;
use scenario::world::{RunPlan, World};
use units::Duration;

use super::shipped_files::{names, read};

/// Maximum virtual time of each run. The longest scenarios add no new behaviour after it.
const DURATION_MAX: Duration = Duration::from_secs(6);

fn compare(scenario: &Scenario, seed: u64) {
    let plan = RunPlan { paths: (0..scenario.paths.len()).collect(), seed };
    let in_memory = Memory.run(scenario, &plan, &mut |_| true).expect("the run completes");
    let mut simulated = Sim::default().run(scenario, &plan, &mut |_| true).expect("the run completes");
    assert_eq!(simulated.world, "sim");
    simulated.world = in_memory.world;
    assert!(in_memory.path_outcomes.iter().any(|path| path.datagrams[0] > 20), "{}: nothing was sent", scenario.name);
    assert_eq!(in_memory, simulated, "{}, seed {seed}", scenario.name);
}

#[test]
fn every_shipped_scenario_has_the_same_packets_in_both_worlds() {
    let names = names();
    assert!(names.len() > 10);
    for name in names {
        let mut scenario = read(&name);
        scenario.duration = scenario.duration.min(DURATION_MAX);
        compare(&scenario, 1);
    }
}

#[test]
fn a_link_that_corrupts_duplicates_and_reorders_gives_the_same_packets() {
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

/// One read ends at a batch boundary with payload bytes, and at the sender's chunk boundary
/// without. Credit is granted by reads, so times differ slightly.
#[test]
fn coalescing_hosts_differ_only_slightly_between_the_worlds() {
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
        let plan = RunPlan { paths: vec![0, 1], seed: 2 };
        let in_memory = Memory.run(&scenario, &plan, &mut |_| true).expect("the run completes");
        let simulated = Sim::default().run(&scenario, &plan, &mut |_| true).expect("the run completes");
        assert!(in_memory.is_complete() && simulated.is_complete(), "{coalesce}");
        let [one, other] = [&in_memory, &simulated].map(|outcome| outcome.ended_at.since_start().as_secs_f64());
        assert!((one / other - 1.0).abs() < 0.05, "{coalesce}: {one} s and {other} s");
    }
    let error = read(&text("1s")).expect_err("too long");
    assert!(error.to_string().contains("coalesce"), "{error}");
}
