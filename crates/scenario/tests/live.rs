//! The engine that runs live and the simulated host do the same, packet for packet: each run is made by both, and every datagram is
//! compared, with its time, its way and all its bytes. See `live_engine` for what is real in the live run.

mod live_engine;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::rc::Rc;

use scenario::model::Scenario;
use scenario::packets::{Sent, listen};
use scenario::parse::parse;
use scenario::world::{Order, Stages};
use units::{Duration, Instant};

/// Virtual time of each shipped scenario: what comes later is more of the same, and they are many.
const SHIPPED_FOR: Duration = Duration::from_millis(1_500);

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
fn simulated(scenario: &Scenario, seed: u64, stages: Stages) -> (Vec<Packet>, bool) {
    let packets = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&packets);
    let sink = Box::new(move |sent: &Sent<'_>| heard.borrow_mut().push(Packet::of(sent)));
    let outcome = listen(scenario, &order(scenario, seed), stages, sink, &mut |_| true).expect("it runs");
    // What leaves in the last moment depends on whether the run is over before or after it.
    let end = Instant::ZERO + scenario.duration;
    let packets = packets.take().into_iter().filter(|packet| packet.at < end).collect();
    (packets, outcome.is_complete())
}

/// The packets of a live run, and whether all its work was done. `carries` says which datagrams the links get.
fn live(scenario: &Scenario, seed: u64, stages: Stages, carries: impl Fn(&Sent<'_>) -> bool) -> (Vec<Packet>, bool) {
    let mut packets = Vec::new();
    let run = live_engine::run(scenario, &order(scenario, seed), stages, &mut |sent| {
        packets.push(Packet::of(sent));
        carries(sent)
    });
    assert_eq!(run.failure, None);
    (packets, run.is_done)
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

/// Runs `text` live and simulated under these seeds, with lengths and with bytes.
fn judge(text: &str, seeds: std::ops::RangeInclusive<u64>, packets_min: usize) {
    let scenario = read(text);
    for (seed, stages) in seeds.flat_map(|seed| [(seed, Stages::Bytes), (seed, Stages::Lengths)]) {
        let (simulated, is_complete) = simulated(&scenario, seed, stages);
        let (live, is_done) = live(&scenario, seed, stages, |_| true);
        if let Some(words) = difference(&simulated, &live) {
            panic!(
                "seed {seed}, {stages:?}: simulated ({} packets) and live ({}): {words}",
                simulated.len(),
                live.len()
            );
        }
        assert!(is_complete && is_done, "seed {seed}, {stages:?}: {is_complete}, {is_done}");
        assert!(live.len() > packets_min, "seed {seed}: {} packets say little", live.len());
    }
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

/// A packet without its bytes, of which only a digest is kept: some scenarios send many.
fn digest(sent: &Sent<'_>) -> (Instant, usize, usize, u64, usize, u64) {
    let mut hasher = DefaultHasher::new();
    hasher.write(sent.datagram);
    (sent.at, sent.direction, sent.path, sent.number, sent.datagram.len(), hasher.finish())
}

#[test]
fn the_beginning_of_every_shipped_scenario_on_all_of_its_paths() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(&folder).expect("the folder is there").map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    files.sort();
    assert!(files.len() > 10);
    for file in files {
        let trace = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())?;
            text.parse().map_err(|error: netem::TraceError| error.to_string())
        };
        let text = std::fs::read_to_string(&file).expect("readable");
        let mut scenario = parse(&file.display().to_string(), &text, &trace).unwrap_or_else(|error| panic!("{error}"));
        scenario.duration = scenario.duration.min(SHIPPED_FOR);
        let end = Instant::ZERO + scenario.duration;
        let expected = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&expected);
        let sink = Box::new(move |sent: &Sent<'_>| {
            if sent.at < end {
                heard.borrow_mut().push(digest(sent));
            }
        });
        listen(&scenario, &order(&scenario, 1), Stages::Lengths, sink, &mut |_| true).expect("it runs");
        let mut expected = expected.take().into_iter().enumerate();
        let run = live_engine::run(&scenario, &order(&scenario, 1), Stages::Lengths, &mut |sent| {
            let (at, packet) = expected.next().unwrap_or_else(|| panic!("{}: only live: {sent:?}", scenario.name));
            assert_eq!(digest(sent), packet, "{}, packet {at}", scenario.name);
            true
        });
        assert_eq!(run.failure, None, "{}", scenario.name);
        assert_eq!(expected.next(), None, "{}: only simulated", scenario.name);
    }
}

#[test]
fn one_packet_that_is_lost_live_and_not_in_the_simulation_is_noticed() {
    let scenario = read(CLEAN);
    let (one, _) = simulated(&scenario, 1, Stages::Lengths);
    let (other, is_done) = live(&scenario, 1, Stages::Lengths, |sent| (sent.direction, sent.number) != (0, 500));
    assert!(is_done);
    let words = difference(&one, &other).expect("the loss has to be answered");
    let at: usize = words.split([' ', ':']).find_map(|word| word.parse().ok()).expect("it says where");
    assert!((500..900).contains(&at), "{words}");
    // Another seed, too.
    let (other, _) = live(&scenario, 2, Stages::Lengths, |_| true);
    assert!(difference(&one, &other).expect("they have other secrets").contains("at packet 0:"));
}

#[test]
fn the_comparison_sees_every_field_of_a_packet_and_a_missing_one() {
    let (packets, _) = simulated(&read(CLEAN), 1, Stages::Lengths);
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
