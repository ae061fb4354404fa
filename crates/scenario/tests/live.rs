//! The engine that runs live and the simulated host do the same, packet for packet: each run is made by both, and every datagram is
//! compared, with its time, its way and all its bytes. See `live_engine` for what is real in the live run.
//!
//! What is compared under which placement:
//!
//! | placement | |
//! |---|---|
//! | `thread`, `inline`, `split`, `connection(n)` | all packets, in the order in which they leave |
//! | `packet(n)`, `path(n)` | all packets, but not which of two paths' leave first within one moment: a path's leave when its processor is done |
//!
//! With several processors that holds for one order of their turns: each has its turn, the driver last, then the application. In other
//! orders packets are others too, as soon as something is due to two of them at one time: what a driver hears a turn later it
//! acknowledges a turn later. Some shipped scenarios part even so, and [`PARTING`] says why. In an order that chance decides, what is left
//! to compare is that all work is done, with every byte checked, and about as many packets.

mod live_engine;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::rc::Rc;

use engine::Placement;
use live_engine::Placed;
use scenario::model::Scenario;
use scenario::packets::{Sent, listen_placed};
use scenario::parse::parse;
use scenario::world::{Order, Stages};
use units::{Duration, Instant, Rng};

/// Virtual time of each shipped scenario: what comes later is more of the same, and they are many.
const SHIPPED_FOR: Duration = Duration::from_millis(1_500);

/// The same, of those that are run under all the other placements.
const PLACED_FOR: Duration = Duration::from_millis(400);

/// Beginnings of shipped scenarios that are others live: what they depend on is no part of the protocol.
///
/// - `four-equal`: datagrams of several paths arrive at one moment. A driver takes those of its own sockets first, and then those that
///   others have received, whatever the numbers of their paths.
/// - `gigabit`, `reordering`: a processor of paths that has four plans takes no more before its turn, and the driver, whose turn it is,
///   gives the rest to another path. How often that happens is a matter of speed, which nothing has here.
const PARTING: [(Placement, &[&str]); 3] = [
    (Placement::Connection(2), &["four-equal"]),
    (Placement::Path(2), &["four-equal", "gigabit", "reordering"]),
    (Placement::Path(3), &["four-equal", "gigabit"]),
];

/// Each kind, with more processors than the driver's.
const PLACEMENTS: [Placement; 7] = [
    Placement::Inline,
    Placement::Split,
    Placement::Packet(1),
    Placement::Packet(3),
    Placement::Path(2),
    Placement::Path(3),
    Placement::Connection(2),
];

/// A datagram as it left.
#[derive(Clone, PartialEq, Eq)]
struct Packet {
    at: Instant,
    direction: usize,
    path: usize,
    number: u64,
    datagram: Vec<u8>,
}

impl Packet {
    fn of(sent: &Sent<'_>) -> Self {
        let Sent { at, direction, path, number, datagram } = *sent;
        Self { at, direction, path, number, datagram: datagram.to_vec() }
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at, direction, path, number, datagram } = self;
        let sent = Sent { at: *at, direction: *direction, path: *path, number: *number, datagram };
        write!(f, "{sent:?}")
    }
}

fn read(text: &str) -> Scenario {
    let head = "version = 1\n[scenario]\nname = 'judge'\nabout = 'x'\n";
    parse("judge.toml", &format!("{head}{text}"), &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"))
}

fn order(scenario: &Scenario, seed: u64) -> Order {
    Order { paths: (0..scenario.paths.len()).collect(), seed }
}

/// The packets of a simulated run, and whether all its work was done.
fn simulated(scenario: &Scenario, seed: u64, stages: Stages, placement: Placement) -> (Vec<Packet>, bool) {
    let packets = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&packets);
    let sink = Box::new(move |sent: &Sent<'_>| heard.borrow_mut().push(Packet::of(sent)));
    let placements = [placement.to_string().parse().expect("they have the same names"); 2];
    let order = order(scenario, seed);
    let outcome = listen_placed(scenario, &order, stages, placements, sink, &mut |_| true).expect("it runs");
    // What leaves in the last moment depends on whether the run is over before or after it.
    let end = Instant::ZERO + scenario.duration;
    let packets = packets.take().into_iter().filter(|packet| packet.at < end).collect();
    (packets, outcome.is_complete())
}

/// The packets of a live run, and whether all its work was done. `carries` says which datagrams the links get.
fn live(
    scenario: &Scenario,
    seed: u64,
    stages: Stages,
    placed: &Placed,
    carries: impl Fn(&Sent<'_>) -> bool,
) -> (Vec<Packet>, bool) {
    let mut packets = Vec::new();
    let run = live_engine::run(scenario, &order(scenario, seed), stages, placed, &mut |sent| {
        packets.push(Packet::of(sent));
        carries(sent)
    });
    assert_eq!(run.failure, None);
    (packets, run.is_done)
}

/// Runs it with turns in an order that chance decides: all is delivered as it was written, and about as much is sent.
fn judge_chance(scenario: &Scenario, seed: u64, placement: Placement) {
    let (in_order, _) = simulated(scenario, seed, Stages::Lengths, placement);
    let chance = Some(Rng::from_seed(seed).split("turns"));
    let (live, is_done) = live(scenario, seed, Stages::Bytes, &Placed { placement, chance }, |_| true);
    assert!(is_done, "{placement}, seed {seed}");
    let share = live.len() as f64 / in_order.len() as f64;
    assert!((0.95..1.05).contains(&share), "{placement}, seed {seed}: {} packets, {}", live.len(), in_order.len());
}

/// Where two sequences part, and what is there.
fn difference(one: &[Packet], other: &[Packet]) -> Option<String> {
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    let at = at.or_else(|| (one.len() != other.len()).then_some(one.len().min(other.len())))?;
    let around = |packets: &[Packet]| {
        let from = at.saturating_sub(3).min(packets.len());
        let shown: Vec<String> =
            packets[from..packets.len().min(at + 4)].iter().map(|packet| format!("{packet:?}")).collect();
        shown.join("\n    ")
    };
    Some(format!("they part at packet {at}:\n    {}\n  and\n    {}", around(one), around(other)))
}

/// What is defined of the order of a run's packets under this placement.
fn defined(placement: Placement, mut packets: Vec<Packet>) -> Vec<Packet> {
    if matches!(placement, Placement::Packet(_) | Placement::Path(_)) {
        packets.sort_by_key(|packet| (packet.at, packet.direction, packet.path, packet.number));
    }
    packets
}

/// Runs `text` live and simulated under these seeds, with lengths and with bytes, and with the first of them under all placements.
fn judge(text: &str, seeds: std::ops::RangeInclusive<u64>, packets_min: usize) {
    let scenario = read(text);
    let first = *seeds.start();
    for (seed, stages) in seeds.flat_map(|seed| [(seed, Stages::Bytes), (seed, Stages::Lengths)]) {
        judge_placed(&scenario, seed, stages, Placement::Thread, packets_min);
    }
    for placement in PLACEMENTS {
        judge_placed(&scenario, first, Stages::Lengths, placement, packets_min);
        judge_chance(&scenario, first, placement);
    }
    judge_placed(&scenario, first, Stages::Bytes, Placement::Inline, packets_min);
}

fn judge_placed(scenario: &Scenario, seed: u64, stages: Stages, placement: Placement, packets_min: usize) {
    let (simulated, is_complete) = simulated(scenario, seed, stages, placement);
    let (live, is_done) = live(scenario, seed, stages, &Placed::new(placement), |_| true);
    let (simulated, live) = (defined(placement, simulated), defined(placement, live));
    if let Some(words) = difference(&simulated, &live) {
        panic!(
            "{placement}, seed {seed}, {stages:?}: simulated ({} packets) and live ({}): {words}",
            simulated.len(),
            live.len()
        );
    }
    assert!(is_complete && is_done, "seed {seed}, {stages:?}: {is_complete}, {is_done}");
    assert!(live.len() > packets_min, "seed {seed}: {} packets say little", live.len());
}

const CLEAN: &str = "duration = '5s'\n[[link]]\nname = 'a'\nrate = '50Mb/s'\ndelay = '10ms'\nqueue = '30ms'\n\
                     [[workload]]\nkind = 'file'\nsize = '4MB'\n";

#[test]
fn a_file_over_one_clean_link() {
    judge(CLEAN, 1..=3, 3_000);
}

#[test]
fn a_file_over_two_links_of_which_one_loses_in_bursts_and_damages() {
    let text = "duration = '9s'\n\
                [[link]]\nname = 'a'\nrate = '40Mb/s'\ndelay = '12ms'\nqueue = '40ms'\nloss = '0.5%'\n\
                [[link]]\nname = 'b'\nrate = '15Mb/s'\ndelay = '31ms'\njitter = { distribution = 'uniform', max = '2ms' }\ncorrupt = '0.3%'\nduplicate = '0.3%'\n\
                reorder = { share = '1%', by = '4ms' }\nqueue = '60ms'\n\
                [[workload]]\nkind = 'file'\nsize = '6MB'\n";
    judge(text, 1..=4, 4_000);
}

#[test]
fn messages_requests_and_a_stream_beside_each_other() {
    let text = "duration = '9s'\n\
                [[link]]\nname = 'a'\nrate = '30Mb/s'\ndelay = '7ms'\nqueue = '30ms'\nloss = '0.2%'\n\
                [[link]]\nname = 'b'\nrate = '20Mb/s'\ndelay = '19ms'\nqueue = '30ms'\n\
                [[workload]]\nkind = 'messages'\nsize = '700B'\nevery = '9ms'\ncount = 200\narrivals = 'poisson'\npriority = 3\n\
                [[workload]]\nkind = 'request-response'\nrequest = '300B'\nresponse = '30kB'\nevery = '40ms'\ncount = 40\n\
                [[workload]]\nkind = 'stream'\nsize = '3MB'\n";
    judge(text, 1..=3, 3_000);
}

#[test]
fn a_link_that_falls_silent_and_a_backup_path() {
    let text = "duration = '9s'\n[transport]\ncongestion = 'bbr'\n\
                [[link]]\nname = 'a'\nrate = '25Mb/s'\ndelay = '15ms'\nqueue = '50ms'\n\
                [[link]]\nname = 'b'\nrate = '10Mb/s'\ndelay = '40ms'\nqueue = '90ms'\n\
                [[path]]\nlink = 'a'\n[[path]]\nlink = 'b'\nbackup = true\n\
                [[fault]]\nlink = 'a'\nat = '400ms'\nuntil = '1300ms'\nstate = 'silent'\n\
                [[workload]]\nkind = 'file'\nsize = '4MB'\n";
    judge(text, 1..=2, 3_000);
}

const WAITING: &str = "duration = '9s'\n[hosts.a]\ncoalesce = '50us'\n[hosts.b]\ncoalesce = '700us'\n\
    [[link]]\nname = 'a'\nrate = '300Mb/s'\ndelay = '5ms'\nloss = '0.1%'\nqueue = '20ms'\n\
    [[link]]\nname = 'b'\nrate = '120Mb/s'\ndelay = '9ms'\ncorrupt = '0.1%'\nqueue = '20ms'\n\
    [[workload]]\nkind = 'request-response'\nrequest = '3kB'\nresponse = '90kB'\nevery = '40ms'\ncount = 20\n\
    [[workload]]\nkind = 'file'\nsize = '12MB'\n";

/// With bytes only: without them what is read at a time ends where the sender's chunk ended, not where the batch did, and credit is granted
/// as it is read.
#[test]
fn hosts_that_let_datagrams_wait_for_each_other_and_join_them() {
    let scenario = read(WAITING);
    for placement in std::iter::once(Placement::Thread).chain(PLACEMENTS) {
        if !HEARING_LATER.contains(&placement) {
            (1..=3).for_each(|seed| judge_placed(&scenario, seed, Stages::Bytes, placement, 8_000));
        }
        judge_chance(&scenario, 1, placement);
    }
}

/// Where others open batches that are not small, and the driver hears a turn later what was in them: a receive half that has gone to the
/// receiver, and workers. What is acknowledged when depends on it.
const HEARING_LATER: [Placement; 2] = [Placement::Split, Placement::Packet(3)];

/// A packet without its bytes, of which only a digest is kept: some scenarios send many.
type Digest = (Instant, usize, usize, u64, usize, u64);

fn digest(sent: &Sent<'_>) -> Digest {
    let mut hasher = DefaultHasher::new();
    hasher.write(sent.datagram);
    (sent.at, sent.direction, sent.path, sent.number, sent.datagram.len(), hasher.finish())
}

/// The shipped scenarios, cut off after so long.
fn shipped(duration_max: Duration) -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(&folder).expect("the folder is there").map(|entry| entry.expect("readable").path());
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

/// What was sent, simulated and live, as far as its order is defined.
fn digests(scenario: &Scenario, placement: Placement) -> [Vec<Digest>; 2] {
    let end = Instant::ZERO + scenario.duration;
    let simulated = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&simulated);
    let sink = Box::new(move |sent: &Sent<'_>| {
        if sent.at < end {
            heard.borrow_mut().push(digest(sent));
        }
    });
    let placements = [placement.to_string().parse().expect("they have the same names"); 2];
    let order = order(scenario, 1);
    listen_placed(scenario, &order, Stages::Lengths, placements, sink, &mut |_| true).expect("it runs");
    let mut live = Vec::new();
    let run = live_engine::run(scenario, &order, Stages::Lengths, &Placed::new(placement), &mut |sent| {
        live.push(digest(sent));
        true
    });
    assert_eq!(run.failure, None, "{}", scenario.name);
    let mut both = [simulated.take(), live];
    if matches!(placement, Placement::Packet(_) | Placement::Path(_)) {
        both.iter_mut().for_each(|packets| packets.sort_unstable());
    }
    both
}

/// Names of shipped scenarios that begin otherwise live than in the simulation, and where they part, in words.
fn parting(placement: Placement, duration_max: Duration) -> (Vec<String>, Vec<String>) {
    let (mut parting, mut places) = (Vec::new(), Vec::new());
    for scenario in shipped(duration_max) {
        let [simulated, live] = digests(&scenario, placement);
        assert!(!live.is_empty(), "{}", scenario.name);
        if simulated != live {
            let at = simulated.iter().zip(&live).position(|(one, other)| one != other);
            places.push(format!("packet {at:?} of {} and {}", simulated.len(), live.len()));
            parting.push(scenario.name);
        }
    }
    (parting, places)
}

/// The names that are expected.
fn judge_shipped(placements: &[Placement], duration_max: Duration) {
    for placement in placements {
        let expected = PARTING.iter().find(|(of, _)| of == placement).map_or(&[][..], |(_, names)| names);
        let (names, places) = parting(*placement, duration_max);
        assert_eq!(names, expected, "{placement}: {places:?}");
    }
}

#[test]
fn the_beginning_of_every_shipped_scenario_on_all_of_its_paths() {
    judge_shipped(&[Placement::Thread], SHIPPED_FOR);
}

#[test]
fn the_beginning_of_every_shipped_scenario_in_calls_of_the_application_and_of_several_endpoints() {
    judge_shipped(&[Placement::Inline, Placement::Connection(2)], PLACED_FOR);
}

#[test]
fn the_beginning_of_every_shipped_scenario_where_others_seal_and_receive() {
    judge_shipped(&[Placement::Split, Placement::Packet(3)], PLACED_FOR);
}

#[test]
fn the_beginning_of_every_shipped_scenario_on_processors_of_its_paths() {
    judge_shipped(&[Placement::Path(2), Placement::Path(3)], PLACED_FOR);
}

#[test]
fn one_packet_that_is_lost_live_and_not_in_the_simulation_is_noticed() {
    let scenario = read(CLEAN);
    let (one, _) = simulated(&scenario, 1, Stages::Lengths, Placement::Thread);
    let thread = Placed::new(Placement::Thread);
    let (other, is_done) =
        live(&scenario, 1, Stages::Lengths, &thread, |sent| (sent.direction, sent.number) != (0, 500));
    assert!(is_done);
    let words = difference(&one, &other).expect("the loss has to be answered");
    let at: usize = words.split([' ', ':']).find_map(|word| word.parse().ok()).expect("it says where");
    assert!((500..900).contains(&at), "{words}");
    // Another seed, too.
    let (other, _) = live(&scenario, 2, Stages::Lengths, &thread, |_| true);
    assert!(difference(&one, &other).expect("they have other secrets").contains("at packet 0:"));
}

#[test]
fn the_comparison_sees_every_field_of_a_packet_and_a_missing_one() {
    let (packets, _) = simulated(&read(CLEAN), 1, Stages::Lengths, Placement::Thread);
    assert_eq!(difference(&packets, &packets.clone()), None);
    type Change = fn(&mut Vec<Packet>);
    let changes: [(&str, Change); 6] = [
        ("time", |packets| packets[900].at += Duration::from_nanos(1)),
        ("direction", |packets| packets[900].direction ^= 1),
        ("path", |packets| packets[900].path += 1),
        ("number", |packets| packets[900].number += 1),
        ("byte", |packets| *packets[900].datagram.last_mut().expect("it has bytes") ^= 1),
        ("order", |packets| packets.swap(900, 901)),
    ];
    for (what, change) in changes {
        let mut changed = packets.clone();
        change(&mut changed);
        assert!(difference(&packets, &changed).expect(what).contains("at packet 900:"), "{what}");
    }
    assert!(difference(&packets, &packets[..packets.len() - 1]).is_some());
}
