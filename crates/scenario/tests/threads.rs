//! What is written down of a run is a function of scenario, seed and machine: the same bytes on any number of threads, and whatever
//! was run before on them.

use std::cell::RefCell;
use std::rc::Rc;

use scenario::model::Scenario;
use scenario::packets::{Sent, Sink, listen};
use scenario::parse::parse;
use scenario::simulated::{Costs, Machine, Placement, Recording, simulate, simulate_recorded};
use scenario::world::{Order, Stages};
use sim::Replications;
use sim::capture::{Capture, Direction, LinkType, Resolution};

/// Losses, two paths, messages beside bulk: chance wherever there can be some.
const TEXT: &str = "version = 1\n[scenario]\nname = 'threads'\nabout = 'x'\nduration = '400ms'\n\
    [[link]]\nname = 'a'\nrate = '60Mb/s'\ndelay = '4ms'\nloss = '1%'\nqueue = '20ms'\n\
    [[link]]\nname = 'b'\nrate = '30Mb/s'\ndelay = '9ms'\nduplicate = '1%'\nqueue = '20ms'\n\
    [[workload]]\nkind = 'stream'\n\
    [[workload]]\nkind = 'messages'\nsize = '300B'\nevery = '5ms'\ncount = 60\narrivals = 'poisson'\npriority = 1\n";

fn read() -> Scenario {
    parse("threads.toml", TEXT, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"))
}

/// A capture, until its file is taken.
type Begun = RefCell<Option<Capture<Vec<u8>>>>;

/// A sink that writes a capture with an interface for each path at each host, and the capture.
fn capture(scenario: &Scenario) -> (Sink, Rc<Begun>) {
    let mut capture = Capture::new(Vec::new(), u32::MAX).expect("memory takes it");
    let interfaces = ["a", "b"].map(|host| {
        let mut add = |name: &String| {
            let name = format!("host {host}, path {name}");
            capture.add_interface(&name, LinkType::Own, Resolution::Nanos).expect("memory takes it")
        };
        scenario.paths.iter().map(|path| add(&path.name)).collect::<Vec<_>>()
    });
    let capture = Rc::new(RefCell::new(Some(capture)));
    let written = Rc::clone(&capture);
    let sink = move |sent: &Sent<'_>| {
        let (interface, length) = (interfaces[sent.direction][sent.path], sent.datagram.len() as u32);
        let mut capture = written.borrow_mut();
        let capture = capture.as_mut().expect("the run goes on");
        capture.packet(interface, Direction::Outbound, sent.at, sent.datagram, length).expect("memory takes it");
    };
    (Box::new(sink), capture)
}

fn file(capture: &Begun) -> Vec<u8> {
    capture.take().expect("it was begun").finish_file().expect("memory takes it")
}

fn order(scenario: &Scenario, seed: u64, run: u64) -> Order {
    Order { paths: (0..scenario.paths.len()).collect(), seed: seed + run }
}

/// The packets of a run, as a file.
fn captured(seed: u64, run: u64, stages: Stages) -> Vec<u8> {
    let scenario = read();
    let (sink, capture) = capture(&scenario);
    listen(&scenario, &order(&scenario, seed, run), stages, sink, &mut |_| true).expect("it runs");
    file(&capture)
}

fn machine() -> Machine {
    let point = "{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":4000,\"seal.cipher\":9000,\"recv_call\":3000,\
                 \"application\":2000}}]}";
    let profile = format!(
        "{{\"format\":\"litz-profile\",\"version\":1,\"memory\":{{\"sending\":{point},\"receiving\":{point}}}}}"
    );
    let costs = Costs::from_profile(&profile).expect("it is one");
    Machine { costs, placements: [Placement::Packet(2), Placement::Split], processors: 2, is_shared: true }
}

/// The packets and the trace of a run on a machine, as files.
fn traced(seed: u64, run: u64) -> (Vec<u8>, Vec<u8>) {
    let scenario = read();
    let (sink, capture) = capture(&scenario);
    let recording = Recording { sink: Some(sink), trace_entries_max: Some(100_000) };
    let order = order(&scenario, seed, run);
    let (recorded, trace) =
        simulate_recorded(&scenario, &order, &machine(), recording, &mut |_| true).expect("it runs");
    let unrecorded = simulate(&scenario, &order, &machine(), &mut |_| true).expect("it runs");
    assert_eq!(
        (recorded.outcome, recorded.reports),
        (unrecorded.outcome, unrecorded.reports),
        "looking changes nothing"
    );
    let trace = trace.expect("it was asked for");
    assert!(trace.len() > 1_000 && trace.left_out() == 0, "{} entries", trace.len());
    let mut text = Vec::new();
    trace.write(&mut text).expect("memory takes it");
    (file(&capture), text)
}

/// Runs `model` four times on one thread, and as often on others, and compares.
fn judge<R: PartialEq + Send>(model: impl Fn(u64, u64) -> R + Sync) -> Vec<R> {
    let plan = Replications { threads: 1, ..Replications::new(5, 4) };
    let alone = plan.run(&model);
    assert!(alone.windows(2).all(|pair| pair[0] != pair[1]), "runs differ");
    for threads in [2, 4] {
        // No words for the difference: these are files of megabytes.
        assert!(Replications { threads, ..plan.clone() }.run(&model) == alone, "{threads} threads");
    }
    alone
}

#[test]
fn captures_of_a_scenario_are_the_same_bytes_on_any_number_of_threads() {
    for stages in [Stages::Lengths, Stages::Bytes] {
        let files = judge(|seed, run| captured(seed, run, stages));
        assert!(
            files.iter().all(|file| file.len() > 1_000_000),
            "{:?}",
            files.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
}

#[test]
fn so_are_captures_and_traces_of_hosts_with_processors() {
    judge(traced);
}
