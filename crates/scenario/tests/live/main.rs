//! The live engine and the simulated host send the same packets: each scenario runs in both, and
//! every datagram is compared, with its time, direction, path and bytes, in order of sending.
//!
//! Both run the crate `driver`. The live engine adds its handles, its sockets and its way to run
//! turns; `live_engine` says which parts of the live run are real. Several processors can take
//! their turns in many orders, and other orders give other packets as soon as two processors have
//! work at one time. Both runs take one order: each processor has a turn, the driver last, then the
//! application. With random turns, the test compares only that all work is complete with every byte
//! checked, and that the number of packets is similar.

mod digests;
mod live_engine;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use engine::Placement;
use live_engine::HostSetup;
use scenario::model::Scenario;
use scenario::packets::{SentDatagram, run_placed_with_sink};
use scenario::parse::parse;
use scenario::world::{PayloadMode, RunPlan};
use units::{Duration, Instant, Rng};

/// Virtual time of each shipped scenario.
const SHIPPED_DURATION: Duration = Duration::from_millis(1_500);

/// Virtual time of each shipped scenario under placements other than `thread`.
const SHIPPED_DURATION_PLACED: Duration = Duration::from_millis(400);

/// Every placement except `thread`.
const PLACEMENTS: [Placement; 7] = [
    Placement::Inline,
    Placement::Split,
    Placement::Packet(1),
    Placement::Packet(3),
    Placement::Path(2),
    Placement::Path(3),
    Placement::Connection(2),
];

/// A sent datagram.
#[derive(Clone, PartialEq, Eq)]
struct Packet {
    at: Instant,
    direction: usize,
    path: usize,
    number: u64,
    datagram: Vec<u8>,
}

impl Packet {
    fn of(sent: &SentDatagram<'_>) -> Self {
        let SentDatagram { at, direction, path, number, datagram } = *sent;
        Self { at, direction, path, number, datagram: datagram.to_vec() }
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at, direction, path, number, datagram } = self;
        let sent = SentDatagram { at: *at, direction: *direction, path: *path, number: *number, datagram };
        write!(f, "{sent:?}")
    }
}

fn read(text: &str) -> Scenario {
    let head = "version = 1\n[scenario]\nname = 'check'\nabout = 'x'\n";
    parse("check.toml", &format!("{head}{text}"), &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"))
}

fn plan(scenario: &Scenario, seed: u64) -> RunPlan {
    RunPlan { paths: (0..scenario.paths.len()).collect(), seed }
}

/// Returns the packets of a simulated run, and whether all work was completed.
fn simulated(scenario: &Scenario, seed: u64, payload_mode: PayloadMode, placement: Placement) -> (Vec<Packet>, bool) {
    let packets = Rc::new(RefCell::new(Vec::new()));
    let captured = Rc::clone(&packets);
    let sink = Box::new(move |sent: &SentDatagram<'_>| captured.borrow_mut().push(Packet::of(sent)));
    let placements = [placement; 2];
    let plan = plan(scenario, seed);
    let outcome = run_placed_with_sink(scenario, &plan, payload_mode, placements, sink, &mut |_| true)
        .expect("the run completes");
    // Packets at the end time depend on whether the run stops before or after they are sent.
    let end = Instant::ZERO + scenario.duration;
    let packets = packets.take().into_iter().filter(|packet| packet.at < end).collect();
    (packets, outcome.is_complete())
}

/// The packets of a live run, and whether all work was completed. Links carry the datagrams for
/// which `carries` returns true.
fn live(
    scenario: &Scenario,
    seed: u64,
    payload_mode: PayloadMode,
    setup: &HostSetup,
    carries: impl Fn(&SentDatagram<'_>) -> bool,
) -> (Vec<Packet>, bool) {
    let mut packets = Vec::new();
    let run = live_engine::run(scenario, &plan(scenario, seed), payload_mode, setup, &mut |sent| {
        packets.push(Packet::of(sent));
        carries(sent)
    });
    assert_eq!(run.failure, None);
    (packets, run.is_done)
}

/// Runs the scenario with turns in random order. All data must be delivered, with about the same
/// number of packets.
fn compare_random_turns(scenario: &Scenario, seed: u64, placement: Placement) {
    let (in_order, _) = simulated(scenario, seed, PayloadMode::Lengths, placement);
    let random_turns = Some(Rng::from_seed(seed).split("turns"));
    let (live, is_done) = live(scenario, seed, PayloadMode::Bytes, &HostSetup { placement, random_turns }, |_| true);
    assert!(is_done, "{placement}, seed {seed}");
    let share = live.len() as f64 / in_order.len() as f64;
    assert!((0.95..1.05).contains(&share), "{placement}, seed {seed}: {} packets, {}", live.len(), in_order.len());
}

/// Returns the first difference of two sequences, with the packets around it.
fn difference(one: &[Packet], other: &[Packet]) -> Option<String> {
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    let at = at.or_else(|| (one.len() != other.len()).then_some(one.len().min(other.len())))?;
    let around = |packets: &[Packet]| {
        let from = at.saturating_sub(3).min(packets.len());
        let shown: Vec<String> =
            packets[from..packets.len().min(at + 4)].iter().map(|packet| format!("{packet:?}")).collect();
        shown.join("\n    ")
    };
    Some(format!("they differ at packet {at}:\n    {}\n  and\n    {}", around(one), around(other)))
}

/// Runs `text` live and simulated with these seeds in both payload modes, and with the first seed
/// under all placements.
fn compare(text: &str, seeds: std::ops::RangeInclusive<u64>, packets_min: usize) {
    let scenario = read(text);
    let first = *seeds.start();
    for (seed, payload_mode) in seeds.flat_map(|seed| [(seed, PayloadMode::Bytes), (seed, PayloadMode::Lengths)]) {
        compare_placed(&scenario, seed, payload_mode, Placement::Thread, packets_min);
    }
    for placement in PLACEMENTS {
        compare_placed(&scenario, first, PayloadMode::Lengths, placement, packets_min);
        compare_random_turns(&scenario, first, placement);
    }
    compare_placed(&scenario, first, PayloadMode::Bytes, Placement::Inline, packets_min);
}

fn compare_placed(scenario: &Scenario, seed: u64, payload_mode: PayloadMode, placement: Placement, packets_min: usize) {
    let (simulated, is_complete) = simulated(scenario, seed, payload_mode, placement);
    let (live, is_done) = live(scenario, seed, payload_mode, &HostSetup::new(placement), |_| true);
    if let Some(message) = difference(&simulated, &live) {
        panic!(
            "{placement}, seed {seed}, {payload_mode:?}: simulated ({} packets) and live ({}): {message}",
            simulated.len(),
            live.len()
        );
    }
    assert!(is_complete && is_done, "seed {seed}, {payload_mode:?}: {is_complete}, {is_done}");
    assert!(live.len() > packets_min, "seed {seed}: only {} packets", live.len());
}

const CLEAN: &str = "duration = '5s'\n[[link]]\nname = 'a'\nrate = '50Mb/s'\ndelay = '10ms'\nqueue = '30ms'\n\
                     [[workload]]\nkind = 'file'\nsize = '4MB'\n";

#[test]
fn a_file_over_one_clean_link() {
    compare(CLEAN, 1..=3, 3_000);
}

#[test]
fn a_file_over_two_impaired_links() {
    let text = "duration = '9s'\n\
                [[link]]\nname = 'a'\nrate = '40Mb/s'\ndelay = '12ms'\nqueue = '40ms'\nloss = '0.5%'\n\
                [[link]]\nname = 'b'\nrate = '15Mb/s'\ndelay = '31ms'\njitter = { distribution = 'uniform', max = '2ms' }\ncorrupt = '0.3%'\nduplicate = '0.3%'\n\
                reorder = { share = '1%', by = '4ms' }\nqueue = '60ms'\n\
                [[workload]]\nkind = 'file'\nsize = '6MB'\n";
    compare(text, 1..=4, 4_000);
}

#[test]
fn messages_requests_and_a_stream_concurrently() {
    let text = "duration = '9s'\n\
                [[link]]\nname = 'a'\nrate = '30Mb/s'\ndelay = '7ms'\nqueue = '30ms'\nloss = '0.2%'\n\
                [[link]]\nname = 'b'\nrate = '20Mb/s'\ndelay = '19ms'\nqueue = '30ms'\n\
                [[workload]]\nkind = 'messages'\nsize = '700B'\nevery = '9ms'\ncount = 200\narrivals = 'poisson'\npriority = 3\n\
                [[workload]]\nkind = 'request-response'\nrequest = '300B'\nresponse = '30kB'\nevery = '40ms'\ncount = 40\n\
                [[workload]]\nkind = 'stream'\nsize = '3MB'\n";
    compare(text, 1..=3, 3_000);
}

#[test]
fn a_link_that_falls_silent_and_a_backup_path() {
    let text = "duration = '9s'\n[transport]\ncongestion = 'bbr'\n\
                [[link]]\nname = 'a'\nrate = '25Mb/s'\ndelay = '15ms'\nqueue = '50ms'\n\
                [[link]]\nname = 'b'\nrate = '10Mb/s'\ndelay = '40ms'\nqueue = '90ms'\n\
                [[path]]\nlink = 'a'\n[[path]]\nlink = 'b'\nbackup = true\n\
                [[fault]]\nlink = 'a'\nat = '400ms'\nuntil = '1300ms'\nstate = 'silent'\n\
                [[workload]]\nkind = 'file'\nsize = '4MB'\n";
    compare(text, 1..=2, 3_000);
}

const COALESCING: &str = "duration = '9s'\n[hosts.a]\ncoalesce = '50us'\n[hosts.b]\ncoalesce = '700us'\n\
    [[link]]\nname = 'a'\nrate = '300Mb/s'\ndelay = '5ms'\nloss = '0.1%'\nqueue = '20ms'\n\
    [[link]]\nname = 'b'\nrate = '120Mb/s'\ndelay = '9ms'\ncorrupt = '0.1%'\nqueue = '20ms'\n\
    [[workload]]\nkind = 'request-response'\nrequest = '3kB'\nresponse = '90kB'\nevery = '40ms'\ncount = 20\n\
    [[workload]]\nkind = 'file'\nsize = '12MB'\n";

/// Compares with payload bytes only: without them, one read ends at the sender's chunk boundary
/// instead of the batch boundary, and credit is granted by reads.
#[test]
fn hosts_that_coalesce_and_join_datagrams() {
    let scenario = read(COALESCING);
    for placement in std::iter::once(Placement::Thread).chain(PLACEMENTS) {
        (1..=3).for_each(|seed| compare_placed(&scenario, seed, PayloadMode::Bytes, placement, 8_000));
        compare_random_turns(&scenario, 1, placement);
    }
}

/// A packet with a digest instead of its bytes, because some scenarios send many packets.
type Digest = (Instant, usize, usize, u64, usize, u64);

fn digest(sent: &SentDatagram<'_>) -> Digest {
    let hash = blake3::hash(sent.datagram);
    let first = hash.as_bytes().first_chunk().expect("a hash is longer");
    (sent.at, sent.direction, sent.path, sent.number, sent.datagram.len(), u64::from_le_bytes(*first))
}

/// Returns the shipped scenarios, limited to this duration.
fn shipped(duration_max: Duration) -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(&folder).expect("the folder exists").map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    files.sort();
    assert!(files.len() > 10);
    let trace = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())?;
        text.parse().map_err(|error: netem::TraceError| error.to_string())
    };
    let scenario = |file: &std::path::PathBuf| {
        let text = std::fs::read_to_string(file).expect("readable");
        let mut scenario = parse(&file.display().to_string(), &text, &trace).unwrap_or_else(|error| panic!("{error}"));
        scenario.duration = scenario.duration.min(duration_max);
        scenario
    };
    files.iter().map(scenario).collect()
}

/// Returns the digests of a simulated and a live run.
fn digests(scenario: &Scenario, placement: Placement) -> [Vec<Digest>; 2] {
    let end = Instant::ZERO + scenario.duration;
    let simulated = Rc::new(RefCell::new(Vec::new()));
    let captured = Rc::clone(&simulated);
    let sink = Box::new(move |sent: &SentDatagram<'_>| {
        if sent.at < end {
            captured.borrow_mut().push(digest(sent));
        }
    });
    let placements = [placement; 2];
    let plan = plan(scenario, 1);
    run_placed_with_sink(scenario, &plan, PayloadMode::Lengths, placements, sink, &mut |_| true)
        .expect("the run completes");
    let mut live = Vec::new();
    let run = live_engine::run(scenario, &plan, PayloadMode::Lengths, &HostSetup::new(placement), &mut |sent| {
        live.push(digest(sent));
        true
    });
    assert_eq!(run.failure, None, "{}", scenario.name);
    [simulated.take(), live]
}

/// Compares all shipped scenarios under these placements.
fn compare_shipped(placements: &[Placement], duration_max: Duration) {
    for (placement, scenario) in
        placements.iter().flat_map(|placement| shipped(duration_max).into_iter().map(move |one| (placement, one)))
    {
        let [simulated, live] = digests(&scenario, *placement);
        assert!(!live.is_empty(), "{}", scenario.name);
        let at = simulated.iter().zip(&live).position(|(one, other)| one != other);
        let lens = (simulated.len(), live.len());
        assert!(at.is_none() && lens.0 == lens.1, "{placement}, {}: packet {at:?} of {lens:?}", scenario.name);
    }
}

#[test]
fn shipped_scenarios_under_thread() {
    compare_shipped(&[Placement::Thread], SHIPPED_DURATION);
}

#[test]
fn shipped_scenarios_under_inline_and_connection() {
    compare_shipped(&[Placement::Inline, Placement::Connection(2)], SHIPPED_DURATION_PLACED);
}

#[test]
fn shipped_scenarios_under_split_and_packet() {
    compare_shipped(&[Placement::Split, Placement::Packet(3)], SHIPPED_DURATION_PLACED);
}

#[test]
fn shipped_scenarios_under_path() {
    compare_shipped(&[Placement::Path(2), Placement::Path(3)], SHIPPED_DURATION_PLACED);
}

#[test]
fn a_packet_lost_only_in_the_live_run_is_detected() {
    let scenario = read(CLEAN);
    let (one, _) = simulated(&scenario, 1, PayloadMode::Lengths, Placement::Thread);
    let thread = HostSetup::new(Placement::Thread);
    let (other, is_done) =
        live(&scenario, 1, PayloadMode::Lengths, &thread, |sent| (sent.direction, sent.number) != (0, 500));
    assert!(is_done);
    let message = difference(&one, &other).expect("the lost packet is retransmitted");
    let at: usize =
        message.split([' ', ':']).find_map(|word| word.parse().ok()).expect("the message contains the index");
    assert!((500..900).contains(&at), "{message}");
    // Another seed differs too.
    let (other, _) = live(&scenario, 2, PayloadMode::Lengths, &thread, |_| true);
    assert!(difference(&one, &other).expect("other seeds have other secrets").contains("at packet 0:"));
}

#[test]
fn the_comparison_detects_a_change_of_every_field_and_a_missing_packet() {
    let (packets, _) = simulated(&read(CLEAN), 1, PayloadMode::Lengths, Placement::Thread);
    assert_eq!(difference(&packets, &packets.clone()), None);
    type Change = fn(&mut Vec<Packet>);
    let changes: [(&str, Change); 6] = [
        ("time", |packets| packets[900].at += Duration::from_nanos(1)),
        ("direction", |packets| packets[900].direction ^= 1),
        ("path", |packets| packets[900].path += 1),
        ("number", |packets| packets[900].number += 1),
        ("byte", |packets| *packets[900].datagram.last_mut().expect("not empty") ^= 1),
        ("order", |packets| packets.swap(900, 901)),
    ];
    for (what, change) in changes {
        let mut changed = packets.clone();
        change(&mut changed);
        assert!(difference(&packets, &changed).expect(what).contains("at packet 900:"), "{what}");
    }
    assert!(difference(&packets, &packets[..packets.len() - 1]).is_some());
}
