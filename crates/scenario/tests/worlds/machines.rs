//! Hosts with simulated processors: their bottlenecks, and the effect of placements.

use scenario::memory::Memory;
use scenario::model::Scenario;
use scenario::parse::parse;
use scenario::simulated::{Costs, Machine, Placement, SimulatedRun, simulate, simulate_several};
use scenario::world::{RunPlan, World, WorldError};
use units::Duration;

/// The approximate payload of a datagram of 1472 bytes: without the packet header (about 1 + 8 + 2
/// bytes), the frame header and the tag.
const PAYLOAD: f64 = 1440.0;

/// A bulk transfer over one link for a second.
fn bulk(link: &str) -> Scenario {
    let text = format!(
        "version = 1\n[scenario]\nname = 'bulk'\nabout = 'x'\nduration = '1s'\n[hosts.b]\nreceive-window = '4MiB'\n\
         [[link]]\nname = 'a'\n{link}\n[transport]\ndatagram-size = '1472B'\n[[workload]]\nkind = 'stream'\n"
    );
    parse("bulk.toml", &text, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"))
}

/// A profile with these nanoseconds per packet, independent of the size.
fn costs(sending: &str, receiving: &str) -> Costs {
    let point = |rows: &str| format!("{{\"points\":[{{\"datagram_bytes\":1472,\"ns\":{{{rows}}}}}]}}");
    let text = format!(
        "{{\"format\":\"litz-profile\",\"version\":1,\"memory\":{{\"sending\":{},\"receiving\":{}}}}}",
        point(sending),
        point(receiving)
    );
    Costs::from_profile(&text).expect("a valid profile")
}

fn run(scenario: &Scenario, costs: &Costs, placement: Placement, processors: usize) -> SimulatedRun {
    let machine =
        Machine { costs: costs.clone(), placements: [placement; 2], processors: [processors; 2], is_shared: false };
    let plan = RunPlan { paths: (0..scenario.paths.len()).collect(), seed: 1 };
    simulate(scenario, &plan, &machine, &mut |_| true).expect("the run completes")
}

/// Bits per second over the second half of the run.
fn goodput(simulated: &SimulatedRun) -> f64 {
    let bytes = &simulated.outcome.parts[0].delivered.timeline.cumulative_bytes;
    let half = bytes.len() / 2;
    (bytes[bytes.len() - 1] - bytes[half - 1]) as f64 * 8.0 / ((bytes.len() - half) as f64 * 0.01)
}

fn assert_near(got: f64, expected: f64, share: f64, what: &str) {
    assert!((got / expected - 1.0).abs() < share, "{what}: {got:.4e}, expected {expected:.4e}");
}

#[test]
fn processors_without_cost_hardly_change_a_run() {
    let scenario = bulk("rate = '200Mb/s'\ndelay = '5ms'\nqueue = '20ms'");
    let free = run(&scenario, &Costs::default(), Placement::Thread, 1);
    let plan = RunPlan { paths: vec![0], seed: 1 };
    let in_memory = Memory.run(&scenario, &plan, &mut |_| true).expect("the run completes");
    let [free, in_memory] = [&free.outcome, &in_memory].map(|outcome| outcome.parts[0].delivered.timeline.bytes as f64);
    assert_near(free, in_memory, 0.02, "bytes");
}

#[test]
fn link_counters_end_with_the_run() {
    let text = "version = 1\n[scenario]\nname = 'end'\nabout = 'x'\nduration = '1200ms'\n\
                [[link]]\nname = 'a'\nrate = '5Mb/s'\ndelay = '20ms'\n\
                [[link]]\nname = 'b'\nrate = '100kb/s'\ndelay = '400ms'\nloss = '30%'\n[[workload]]\nkind = 'stream'\n";
    let scenario = parse("end.toml", text, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"));
    let simulated = run(&scenario, &costs("\"plan\":1", "\"recv_call\":1"), Placement::Thread, 1);
    let plan = RunPlan { paths: vec![0, 1], seed: 1 };
    let in_memory = Memory.run(&scenario, &plan, &mut |_| true).expect("the run completes");
    // A packet in flight has used the line, and its loss is decided long before it would arrive.
    let counts = |outcome: &scenario::outcome::Outcome| {
        outcome.link_outcomes.iter().map(|link| link.stats.map(|stats| (stats.carried, stats.lost))).collect::<Vec<_>>()
    };
    assert_eq!(counts(&simulated.outcome), counts(&in_memory));
}

#[test]
fn a_datagram_without_cost_over_a_link_without_delay_is_refused() {
    let points = "{\"points\":[{\"datagram_bytes\":1000,\"ns\":{\"plan\":900}},{\"datagram_bytes\":1400,\"ns\":{\"plan\":100}}]}";
    let text = format!(
        "{{\"format\":\"litz-profile\",\"version\":1,\"wake_ns\":0,\"memory\":{{\"sending\":{points},\"receiving\":{points}}}}}"
    );
    let costs = Costs::from_profile(&text).expect("a valid profile");
    let machine = Machine { costs, placements: [Placement::Thread; 2], processors: [2; 2], is_shared: false };
    let plan = RunPlan { paths: vec![0], seed: 1 };
    let refused = simulate(&bulk(""), &plan, &machine, &mut |_| true).map(|simulated| simulated.events);
    let Err(WorldError::Unsuitable(message)) = refused else { panic!("{refused:?}") };
    assert!(message.starts_with("transport.datagram-size: ") && message.contains(" 1472 bytes "), "{message}");
    assert!(simulate(&bulk("delay = '1ms'\nrate = '10Mb/s'"), &plan, &machine, &mut |_| true).is_ok());
}

#[test]
fn interrupt_coalescing_wakes_threads_less_often() {
    let mut scenario = bulk("rate = '200Mb/s'\ndelay = '5ms'\nqueue = '20ms'");
    let mut costs = costs("\"plan\":100", "\"recv_call\":100,\"application.copy\":100");
    costs.wake_ns = 5000.0;
    let reading = |scenario: &Scenario| {
        let simulated = run(scenario, &costs, Placement::Thread, 2);
        (simulated.busy[1][0].as_secs_f64(), goodput(&simulated))
    };
    let (each, rate) = reading(&scenario);
    scenario.hosts[1].coalesce = Duration::from_micros(500);
    let (together, coalesced_rate) = reading(&scenario);
    // A packet takes 60 us on the line: eight arrive within 500 us and wake the reader once.
    assert!(together < each / 4.0, "{each} s awake, and {together} s");
    assert_near(coalesced_rate, rate, 0.02, "goodput");
}

#[test]
fn a_busy_thread_has_no_wake_up_costs() {
    let scenario = bulk("delay = '1ms'");
    let costs = costs("\"plan\":1000", "\"recv_call\":100,\"application.copy\":20000");
    let mut waking = costs.clone();
    waking.wake_ns = 5000.0;
    let [without, with] = [&costs, &waking].map(|costs| goodput(&run(&scenario, costs, Placement::Thread, 2)));
    assert_near(with, without, 0.02, "the reader is the bottleneck, and always awake");
}

#[test]
fn a_sender_is_limited_by_its_processor() {
    let costs =
        costs("\"plan\":1000,\"seal.cipher\":5000,\"send_call\":3000,\"application\":1000", "\"recv_call\":1000");
    let simulated = run(&bulk(""), &costs, Placement::Inline, 1);
    assert_near(goodput(&simulated), PAYLOAD * 8.0 / 10e-6, 0.03, "10 us a packet");
    let [sending, receiving] = &simulated.busy;
    assert_eq!((sending.len(), receiving.len()), (1, 1));
    assert_near(sending[0].as_secs_f64(), 1.0, 0.03, "the sender's processor time");
    assert_near(receiving[0].as_secs_f64(), 0.1, 0.05, "the receiver's");
}

#[test]
fn a_slower_receiver_limits_the_sender() {
    let costs = costs(
        "\"plan\":100",
        "\"recv_call\":2000,\"open_absorb.cipher\":5000,\"open_absorb.absorb\":500,\"application\":500",
    );
    let simulated = run(&bulk(""), &costs, Placement::Inline, 1);
    assert_near(goodput(&simulated), PAYLOAD * 8.0 / 8e-6, 0.03, "8 us a packet");
    assert_eq!(simulated.overflowed, [0, 0]);
}

#[test]
fn a_separate_application_thread_relieves_the_driver() {
    let costs = costs("\"plan\":2000,\"application\":6000,\"seal.cipher\":2000", "\"recv_call\":1000");
    let at = |placement, processors| goodput(&run(&bulk(""), &costs, placement, processors));
    assert_near(at(Placement::Inline, 4), PAYLOAD * 8.0 / 10e-6, 0.03, "inline");
    assert_near(at(Placement::Thread, 4), PAYLOAD * 8.0 / 6e-6, 0.03, "thread");
    // More threads than processors gain nothing.
    assert_near(at(Placement::Thread, 1), PAYLOAD * 8.0 / 10e-6, 0.03, "thread, one processor");
}

#[test]
fn split_relieves_the_sender_of_processing_acknowledgements() {
    let costs = costs("\"plan\":4000,\"open_absorb\":4000", "\"recv_call\":1000");
    let at = |placement| goodput(&run(&bulk(""), &costs, placement, 4));
    assert_near(at(Placement::Thread), PAYLOAD * 8.0 / 8e-6, 0.03, "thread");
    assert_near(at(Placement::Split), PAYLOAD * 8.0 / 4e-6, 0.03, "split");
}

#[test]
fn a_thread_that_only_processes_acknowledgements_can_limit_the_sender() {
    let costs = costs("\"plan\":1000,\"open_absorb\":9000", "\"recv_call\":1000");
    let simulated = run(&bulk(""), &costs, Placement::Split, 4);
    assert_near(goodput(&simulated), PAYLOAD * 8.0 / 9e-6, 0.03, "9 us per acknowledged packet");
    assert_near(simulated.busy[0][2].as_secs_f64(), 1.0, 0.03, "the thread that processes acknowledgements");
    assert_near(simulated.busy[0][1].as_secs_f64(), 1.0 / 9.0, 0.05, "the thread that plans");
}

#[test]
fn a_thread_that_only_sends_acknowledgements_can_limit_the_receiver() {
    let costs = costs("\"plan\":1000", "\"recv_call\":1000,\"plan\":9000");
    let simulated = run(&bulk(""), &costs, Placement::Split, 4);
    assert_near(goodput(&simulated), PAYLOAD * 8.0 / 9e-6, 0.03, "9 us per acknowledged packet");
    assert_near(simulated.busy[1][1].as_secs_f64(), 1.0, 0.03, "the thread that sends acknowledgements");
    assert_eq!(simulated.overflowed, [0, 0]);
}

#[test]
fn a_slow_reading_application_limits_the_goodput() {
    let costs = costs("\"plan\":1000", "\"recv_call\":1000,\"application\":9000");
    let simulated = run(&bulk(""), &costs, Placement::Thread, 4);
    assert_near(goodput(&simulated), PAYLOAD * 8.0 / 9e-6, 0.03, "9 us a packet read");
    assert_near(simulated.busy[1][0].as_secs_f64(), 1.0, 0.03, "the application");
    assert_eq!(simulated.overflowed, [0, 0]);
}

#[test]
fn a_slow_reading_application_limits_the_sender_by_its_window_without_socket_overflow() {
    let costs = costs("\"plan\":1000", "\"recv_call\":1000,\"application\":9000");
    let text = "version = 1\n[scenario]\nname = 'slow'\nabout = 'x'\nduration = '2s'\n[hosts.b]\nreceive-window = '32MiB'\n\
                [[link]]\nname = 'a'\ndelay = '1ms'\n[transport]\ndatagram-size = '1472B'\n[[workload]]\nkind = 'stream'\n";
    let scenario = parse("slow.toml", text, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"));
    let simulated = run(&scenario, &costs, Placement::Thread, 4);
    assert_near(goodput(&simulated), PAYLOAD * 8.0 / 9e-6, 0.03, "9 us a packet read");
    assert_eq!(simulated.overflowed, [0, 0]);
    let part = &simulated.outcome.parts[0];
    let waiting = simulated.outcome.path_outcomes[0].bytes[0] - part.delivered.timeline.bytes;
    // More than the capacity of a socket, and at most the window.
    assert!((10 << 20..32 << 20).contains(&waiting), "{waiting} bytes wait");
}

#[test]
fn stages_scale_with_processors_until_the_serial_part_is_the_bottleneck() {
    let costs = costs("\"plan\":1000,\"seal.cipher\":9000", "\"recv_call\":500");
    let at = |count| goodput(&run(&bulk(""), &costs, Placement::Packet(count), 16));
    let one = PAYLOAD * 8.0 / 10e-6;
    assert_near(at(1), one, 0.03, "one");
    assert_near(at(2), 2.0 * one, 0.15, "two");
    let four = at(4);
    assert!(four > 3.0 * one && four < 4.05 * one, "{four:.3e}");
    // Eight threads scale until the planning thread is busy: it plans for 100 ns per packet and
    // also seals.
    let light = self::costs("\"plan\":100,\"seal.cipher\":9000", "\"recv_call\":100");
    let eight = goodput(&run(&bulk(""), &light, Placement::Packet(8), 16));
    assert!(eight > 6.0 * PAYLOAD * 8.0 / 9.1e-6, "{eight:.3e}");
}

#[test]
fn connections_with_their_own_threads_scale_up_to_the_number_of_processors() {
    // A packet takes ten microseconds on the driver's thread of the slower end.
    let costs = costs("\"plan\":4000,\"seal.cipher\":6000", "\"recv_call\":9000");
    let scenario = bulk("");
    let plan = RunPlan { paths: vec![0], seed: 1 };
    let carried = |count: usize, processors: usize| {
        let placements = [Placement::Connection(count); 2];
        let machine = Machine { costs: costs.clone(), placements, processors: [processors; 2], is_shared: false };
        let several = simulate_several(&scenario, &plan, &machine, count, &mut |_| true).expect("the run completes");
        assert_eq!(several.len(), count);
        let busy = several.iter().flat_map(|one| &one.busy[0]).map(|busy| busy.as_secs_f64()).sum::<f64>();
        assert_eq!(several[0].outcome.components.iter().filter(|part| part.kind == "processors").count(), 2);
        (several.iter().map(goodput).sum::<f64>(), busy)
    };
    let one = PAYLOAD * 8.0 / 10e-6;
    for (count, processors, expected) in [(1, 8, 1.0), (2, 8, 2.0), (4, 8, 4.0), (4, 2, 2.0), (3, 1, 1.0)] {
        let (goodput, busy) = carried(count, processors);
        assert_near(goodput, expected * one, 0.05, &format!("{count} connections, {processors} processors"));
        assert_near(busy, expected, 0.05, "busy processors");
    }
    // With one connection, the result equals that of `simulate`.
    let machine = Machine { costs, placements: [Placement::Thread; 2], processors: [2; 2], is_shared: false };
    let several = simulate_several(&scenario, &plan, &machine, 1, &mut |_| true).expect("the run completes");
    let alone = simulate(&scenario, &plan, &machine, &mut |_| true).expect("the run completes");
    assert_eq!((&several[0].outcome, several[0].events), (&alone.outcome, alone.events));
    assert!(simulate_several(&scenario, &plan, &machine, 0, &mut |_| true).is_err());
}

#[test]
fn every_component_of_a_host_reports_statistics() {
    let costs = costs("\"plan\":1000,\"seal.cipher\":2000", "\"recv_call\":4000");
    let simulated = run(&bulk("rate = '1Gb/s'\ndelay = '1ms'"), &costs, Placement::Thread, 4);
    let components = &simulated.outcome.components;
    let report = |name: &str| components.iter().find(|component| component.name == name).expect(name);
    let processors = report("processors of b");
    // The receiver's driver does all its work, on one of four processors.
    assert_near(processors.utilisation.expect("four"), simulated.busy[1][1].as_secs_f64() / 4.0, 0.01, "use");
    assert!(processors.served > 10_000 && report("host a, thread 1 (driver)").served > 1_000);
}

#[test]
fn equal_runs_have_equal_results() {
    let costs = costs("\"plan\":900,\"seal.cipher\":700", "\"recv_call\":800");
    let scenario = bulk("rate = '300Mb/s'\ndelay = '3ms'\nloss = '0.2%'");
    let [one, other] = [1, 2].map(|_| run(&scenario, &costs, Placement::Packet(3), 2));
    assert_eq!((one.outcome, one.busy), (other.outcome, other.busy));
}

#[test]
fn invalid_run_plans_are_refused() {
    let scenario = bulk("rate = '1Mb/s'");
    let machine = Machine {
        costs: costs("\"plan\":1", ""),
        placements: [Placement::Inline; 2],
        processors: [1; 2],
        is_shared: true,
    };
    for paths in [vec![], vec![1], vec![0, 0]] {
        let plan = RunPlan { paths, seed: 1 };
        let refusals = [
            Memory.run(&scenario, &plan, &mut |_| true).expect_err("memory"),
            simulate(&scenario, &plan, &machine, &mut |_| true).expect_err("sim"),
        ];
        assert!(refusals.iter().all(|refusal| refusal.to_string().contains("paths")), "{refusals:?}");
    }
}

#[test]
fn extreme_links_are_simulated_to_the_end() {
    let costs = costs("\"plan\":100000,\"application\":5", "\"recv_call\":100000");
    for link in
        ["rate = '1b/s'", "rate = '1kb/s'\ndelay = '2h'", "delay = '0'", "queue = '0'\nrate = '9Gb/s'", "loss = '100%'"]
    {
        let scenario = bulk(link);
        for placement in [Placement::Inline, Placement::Split, Placement::Packet(64)] {
            let simulated = run(&scenario, &costs, placement, 1);
            assert!(simulated.outcome.ended_at.since_start() <= scenario.duration, "{link}, {placement}");
        }
    }
}

#[test]
fn invalid_machines_are_refused_with_the_parameter() {
    let machine =
        Machine { costs: Costs::default(), placements: [Placement::Inline; 2], processors: [2, 0], is_shared: false };
    assert!(machine.validate().expect_err("no processors").contains("processors"));
    for count in [0, 65] {
        let machine =
            Machine { placements: [Placement::Inline, Placement::Path(count)], processors: [1; 2], ..machine.clone() };
        assert!(machine.validate().expect_err("no such placement").contains(&format!("path({count})")));
    }
    for hand_over_ns in [f64::NAN, f64::INFINITY] {
        let mut costs = Costs::default();
        costs.wake_ns = hand_over_ns;
        assert!(Machine { costs, processors: [1; 2], ..machine.clone() }.validate().is_err(), "{hand_over_ns}");
    }
    let mut costs = Costs::default();
    costs.wake_ns = -1.0;
    assert!(
        Machine { costs, processors: [1; 2], ..machine }.validate().expect_err("negative").contains("hand_over_ns")
    );
}

#[test]
fn a_slow_application_reads_all_streams_in_turn() {
    let text = "version = 1\n[scenario]\nname = 'slow'\nabout = 'x'\nduration = '4s'\n[[link]]\nname = 'a'\nrate = '1Gb/s'\n\
        delay = '1ms'\n[[workload]]\nkind = 'stream'\n[[workload]]\nkind = 'messages'\nsize = '500B'\nevery = '5ms'\ncount = 100\n";
    let scenario = parse("slow.toml", text, &|_| Err(String::new())).expect("it is right");
    let costs = costs("\"plan\":1000", "\"recv_call\":100,\"application.copy\":20000");
    let simulated = run(&scenario, &costs, Placement::Thread, 4);
    let [bulk, messages] = &simulated.outcome.parts[..] else { panic!("two workloads") };
    assert_eq!(messages.delivered.timeline.bytes, 100 * 500, "bulk data does not starve messages");
    assert!(bulk.delivered.timeline.bytes > 100 << 20, "{} bytes", bulk.delivered.timeline.bytes);
}
