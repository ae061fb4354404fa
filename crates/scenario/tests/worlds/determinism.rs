//! Recordings of a run depend only on scenario, seed and machine: they are byte-identical for any
//! number of threads, regardless of earlier runs on the same threads.

use std::cell::RefCell;
use std::rc::Rc;

use scenario::model::Scenario;
use scenario::packets::{DatagramSink, SentDatagram, run_with_sink};
use scenario::parse::parse;
use scenario::recording::Recording;
use scenario::simulated::{Costs, Machine, Placement, simulate, simulate_recorded};
use scenario::world::{PayloadMode, RunPlan};
use sim::Replications;
use sim::capture::{Capture, Direction, LinkType, Resolution};

use super::shared_buffer::SharedBuffer;

/// A scenario with many random choices: losses, two paths, and messages together with bulk data.
const TEXT: &str = "version = 1\n[scenario]\nname = 'threads'\nabout = 'x'\nduration = '400ms'\n\
    [[link]]\nname = 'a'\nrate = '60Mb/s'\ndelay = '4ms'\nloss = '1%'\nqueue = '20ms'\n\
    [[link]]\nname = 'b'\nrate = '30Mb/s'\ndelay = '9ms'\nduplicate = '1%'\nqueue = '20ms'\n\
    [[workload]]\nkind = 'stream'\n\
    [[workload]]\nkind = 'messages'\nsize = '300B'\nevery = '5ms'\ncount = 60\narrivals = 'poisson'\npriority = 1\n";

fn read() -> Scenario {
    parse("threads.toml", TEXT, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"))
}

/// A shared capture that is still being written.
type Open = Rc<RefCell<Option<Capture<Vec<u8>>>>>;

/// A sink that writes a capture with an interface for each path at each host, and that capture.
fn capture(scenario: &Scenario) -> (DatagramSink, Open) {
    let mut capture = Capture::new(Vec::new(), u32::MAX).expect("memory takes it");
    let interfaces = ["a", "b"].map(|host| {
        let mut add = |name: &String| {
            let name = format!("host {host}, path {name}");
            capture.add_interface(&name, LinkType::User0, Resolution::Nanos).expect("memory takes it")
        };
        scenario.paths.iter().map(|path| add(&path.name)).collect::<Vec<_>>()
    });
    let capture = Rc::new(RefCell::new(Some(capture)));
    let written = Rc::clone(&capture);
    let sink = move |sent: &SentDatagram<'_>| {
        let (interface, length) = (interfaces[sent.direction][sent.path], sent.datagram.len() as u32);
        let mut capture = written.borrow_mut();
        let capture = capture.as_mut().expect("the capture is open");
        capture.packet(interface, Direction::Outbound, sent.at, sent.datagram, length).expect("memory takes it");
    };
    (Box::new(sink), capture)
}

fn file(capture: &RefCell<Option<Capture<Vec<u8>>>>) -> Vec<u8> {
    capture.take().expect("a started capture").finish_file().expect("memory takes it")
}

fn plan(scenario: &Scenario, seed: u64, run: u64) -> RunPlan {
    RunPlan { paths: (0..scenario.paths.len()).collect(), seed: seed + run }
}

/// Returns the capture of a run.
fn captured(seed: u64, run: u64, payload_mode: PayloadMode) -> Vec<u8> {
    let scenario = read();
    let (sink, capture) = capture(&scenario);
    run_with_sink(&scenario, &plan(&scenario, seed, run), payload_mode, sink, &mut |_| true)
        .expect("the run completes");
    file(&capture)
}

fn machine() -> Machine {
    let point = "{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":4000,\"seal.cipher\":9000,\"recv_call\":3000,\
                 \"application\":2000}}]}";
    let profile = format!(
        "{{\"format\":\"litz-profile\",\"version\":1,\"memory\":{{\"sending\":{point},\"receiving\":{point}}}}}"
    );
    let costs = Costs::from_profile(&profile).expect("a valid profile");
    Machine { costs, placements: [Placement::Packet(2), Placement::Split], processors: [2; 2], is_shared: true }
}

/// Returns the capture and the trace of a run on a machine.
fn traced(seed: u64, run: u64) -> (Vec<u8>, Vec<u8>) {
    let (scenario, packets, trace) = (read(), SharedBuffer::default(), SharedBuffer::default());
    let recording = Recording {
        about: "threads".to_owned(),
        trace: Some(Box::new(trace.clone())),
        packets: Some(Box::new(packets.clone())),
        journals: None,
    };
    let plan = plan(&scenario, seed, run);
    let recorded =
        simulate_recorded(&scenario, &plan, &machine(), Some(recording), &mut |_| true).expect("the run completes");
    let unrecorded = simulate(&scenario, &plan, &machine(), &mut |_| true).expect("the run completes");
    assert_eq!((recorded.outcome, recorded.busy), (unrecorded.outcome, unrecorded.busy), "recording changes nothing");
    let files = (packets.take(), trace.take());
    assert!(files.0.len() > 100_000 && files.1.len() > 100_000, "{} and {} bytes", files.0.len(), files.1.len());
    files
}

/// Runs `model` four times on one thread, and four times on several threads, and compares the
/// results.
fn compare<R: PartialEq + Send>(model: impl Fn(u64, u64) -> R + Sync) -> Vec<R> {
    let plan = Replications { threads: 1, ..Replications::new(5, 4) };
    let alone = plan.run(&model);
    assert!(alone.windows(2).all(|pair| pair[0] != pair[1]), "runs differ");
    for threads in [2, 4] {
        // Compare without printing: the files have megabytes.
        assert!(Replications { threads, ..plan.clone() }.run(&model) == alone, "{threads} threads");
    }
    alone
}

#[test]
fn captures_are_byte_identical_on_any_number_of_threads() {
    for payload_mode in [PayloadMode::Lengths, PayloadMode::Bytes] {
        let files = compare(|seed, run| captured(seed, run, payload_mode));
        assert!(
            files.iter().all(|file| file.len() > 1_000_000),
            "{:?}",
            files.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
}

#[test]
fn captures_and_traces_of_hosts_with_processors_are_byte_identical() {
    compare(traced);
}
