//! What a bulk transfer costs small messages on the same two hosts: 200 bytes there and back, a thousand times a second, alone
//! and beside a transfer that takes what it gets, or what a rate or its class leaves it; and what that carries alone and beside them.
//!
//! `cargo bench -p litz --bench beside` measures; `cargo test -p litz --benches` only runs each case a little, so that none
//! rots. Arguments behind `--`: `rounds=5`, `seconds=3`, `cap=1000` (Mb/s of the arms with a rate),
//! `only=WORDS` (of the cases).
#![expect(clippy::print_stdout, reason = "the table is the result")]

#[path = "../tests/world.rs"]
#[expect(dead_code, reason = "shared with tests that use more of it")]
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use litz::{Connection, Placement, RateLimit};
use net::MonotonicClock;
use recovery::RateCap;
use units::{Instant, Rate};

use world::{Arm, Wire, World};

const MESSAGE_BYTES: usize = 200;
const INTERVAL: units::Duration = units::Duration::from_millis(1);
const CHUNK_BYTES: usize = 64 << 10;
const BURST_BYTES: u64 = 64 << 10;

/// The value of argument `name=value`.
fn text_argument(name: &str) -> Option<String> {
    std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

fn argument(name: &str, otherwise: u64) -> u64 {
    text_argument(name).and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// Where the messages travel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// On the connection of the bulk.
    SameConnection,
    /// On another one.
    OtherConnection,
}

/// What the bulk asks for, or is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bulk {
    /// All it can get.
    Free,
    /// The transport's cap, which holds for everything on a path.
    Capped,
    /// A lower priority than the messages.
    Lower,
    /// That, and a rate of its own.
    Limited,
    /// That, and a rate of the whole connection's.
    LimitedConnection,
    /// A lower priority, and the background.
    Background,
}

struct Case {
    name: &'static str,
    placement: Placement,
    beside: Beside,
    bulk: Bulk,
}

const fn case(name: &'static str, placement: Placement, beside: Beside, bulk: Bulk) -> Case {
    Case { name, placement, beside, bulk }
}

const CASES: [Case; 13] = [
    case("same connection, capped", Placement::Thread, Beside::SameConnection, Bulk::Capped),
    case("other connection, capped", Placement::Thread, Beside::OtherConnection, Bulk::Capped),
    case("connection(2), capped", Placement::Connection(2), Beside::OtherConnection, Bulk::Capped),
    case("same, stream limited", Placement::Thread, Beside::SameConnection, Bulk::Limited),
    case("other, connection limited", Placement::Thread, Beside::OtherConnection, Bulk::LimitedConnection),
    case("same, background", Placement::Thread, Beside::SameConnection, Bulk::Background),
    case("other, background", Placement::Thread, Beside::OtherConnection, Bulk::Background),
    case("connection(2), background", Placement::Connection(2), Beside::OtherConnection, Bulk::Background),
    case("same, lower priority", Placement::Thread, Beside::SameConnection, Bulk::Lower),
    case("same connection", Placement::Thread, Beside::SameConnection, Bulk::Free),
    case("other connection", Placement::Thread, Beside::OtherConnection, Bulk::Free),
    case("connection(2)", Placement::Connection(2), Beside::OtherConnection, Bulk::Free),
    case("packet(2)", Placement::Packet(2), Beside::OtherConnection, Bulk::Free),
];

/// Round trips of one stretch, sorted, in microseconds, and what the bulk carried meanwhile.
struct Stretch {
    round_trips_us: Vec<f64>,
    bulk: Rate,
}

/// Messages alone, bulk alone, and messages beside the bulk.
struct Run {
    alone: Stretch,
    bulk_alone: Rate,
    beside: Stretch,
}

fn main() {
    // Cargo passes this when benchmarks, not tests, are asked for.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let rounds = argument("rounds", if measuring { 5 } else { 1 });
    let span = if measuring { Duration::from_secs(argument("seconds", 3)) } else { Duration::from_millis(50) };
    let cap = Rate::from_mbps(argument("cap", 1000));
    println!(
        "{MESSAGE_BYTES} bytes there and back, 1000 a second; {rounds} rounds of {span:?}; medians, capped at {cap}"
    );
    println!(
        "{:<26} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>10} {:>10}",
        "case", "alone/us", "p99/us", "beside/us", "p99/us", "ratio", "p99", "alone/Mb/s", "bulk/Mb/s"
    );
    let only = text_argument("only");
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str()))) {
        let runs: Vec<Run> = (0..rounds).map(|_| run(case, cap, span)).collect();
        let of = |which: fn(&Run) -> &Stretch, quantile: f64| median(runs.iter().map(|run| which(run).at(quantile)));
        let ratio = |quantile: f64| median(runs.iter().map(|run| run.beside.at(quantile) / run.alone.at(quantile)));
        let mbps = |which: fn(&Run) -> Rate| median(runs.iter().map(|run| which(run).as_bps() as f64 / 1e6));
        println!(
            "{:<26} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>7.2} {:>7.2} {:>10.0} {:>10.0}",
            case.name,
            of(|run| &run.alone, 0.5),
            of(|run| &run.alone, 0.99),
            of(|run| &run.beside, 0.5),
            of(|run| &run.beside, 0.99),
            ratio(0.5),
            ratio(0.99),
            mbps(|run| run.bulk_alone),
            mbps(|run| run.beside.bulk),
        );
    }
}

impl Stretch {
    fn at(&self, quantile: f64) -> f64 {
        let last = self.round_trips_us.len() - 1;
        self.round_trips_us[(last as f64 * quantile) as usize]
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn run(case: &Case, cap: Rate, span: Duration) -> Run {
    let world = World::new(Arm { wire: Wire::Udp, placement: case.placement });
    let mut config = world.config();
    config.transport.rate_cap = (case.bulk == Bulk::Capped).then_some(RateCap { rate: cap, burst: BURST_BYTES });
    let server = world.server(config.clone());
    let client = world.client(config.clone());
    let small = world.connect(&client, server.local_addr());
    let (done, carried) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (server, done, carried) = (&server, &done, &carried);
        let echoing = server.accept().unwrap();
        let at_server = echoing.clone();
        scope.spawn(move || echo(&echoing));
        let alone = ask(&small, span, carried);
        let (large, at_server) = match case.beside {
            Beside::SameConnection => (small.clone(), at_server),
            Beside::OtherConnection => (world.connect(&client, server.local_addr()), server.accept().unwrap()),
        };
        scope.spawn(move || take(&at_server, carried));
        scope.spawn(move || give(&large, case.bulk, cap, done));
        // Until it has found its rate; with three seconds also until the engine expects no more messages.
        pause(span * 2 / 5);
        let bulk_alone = watch(span, carried);
        let beside = ask(&small, span, carried);
        done.store(true, Ordering::Relaxed);
        small.close(0, "done");
        client.close();
        server.close();
        Run { alone, bulk_alone, beside }
    })
}

/// Answers every message until the connection ends.
fn echo(connection: &Connection) {
    while let Ok(message) = connection.recv_message() {
        if connection.send_message(message).is_err() {
            break;
        }
    }
}

/// Reads the bulk until the connection ends.
fn take(connection: &Connection, carried: &AtomicU64) {
    let Ok((_, mut recv)) = connection.accept_bi() else { return };
    while let Ok(Some(strip)) = recv.read_strided() {
        carried.fetch_add(strip.len() as u64, Ordering::Relaxed);
    }
}

/// Writes the bulk until told to stop.
fn give(connection: &Connection, bulk: Bulk, rate: Rate, done: &AtomicBool) {
    let Ok((mut send, _recv)) = connection.open_bi() else { return };
    let limit = Some(RateLimit::new(rate, BURST_BYTES).unwrap());
    match bulk {
        Bulk::Free | Bulk::Capped => {}
        Bulk::Lower => send.set_priority(-1),
        Bulk::Limited => {
            send.set_priority(-1);
            send.set_rate(limit);
        }
        Bulk::LimitedConnection => {
            connection.set_priority(-1).unwrap();
            connection.set_rate(limit).unwrap();
        }
        Bulk::Background => {
            send.set_priority(-1);
            send.set_background(true);
            connection.set_priority(-1).unwrap();
        }
    }
    let chunk = Bytes::from(vec![7; CHUNK_BYTES]);
    while !done.load(Ordering::Relaxed) && send.write_chunk(chunk.clone()).is_ok() {}
}

/// What the bulk carries in `span`.
fn watch(span: Duration, carried: &AtomicU64) -> Rate {
    let clock = MonotonicClock::start();
    let (begun, before) = (clock.now(), carried.load(Ordering::Relaxed));
    pause(span);
    let bytes = carried.load(Ordering::Relaxed) - before;
    Rate::from_transfer(bytes, clock.now().saturating_since(begun)).unwrap_or(Rate::ZERO)
}

/// Asks a thousand times a second for `span`.
fn ask(connection: &Connection, span: Duration, carried: &AtomicU64) -> Stretch {
    let clock = MonotonicClock::start();
    let (begun, before) = (clock.now(), carried.load(Ordering::Relaxed));
    let until = begun + span.into();
    let mut next: Instant = begun;
    let mut round_trips_us = Vec::new();
    while clock.now() < until {
        let now = clock.now();
        if now < next {
            pause(next.saturating_since(now).into());
        }
        next += INTERVAL;
        let asked = clock.now();
        connection.send_message(Bytes::from(vec![1; MESSAGE_BYTES])).unwrap();
        let answer = connection.recv_message().unwrap();
        assert_eq!(answer.len(), MESSAGE_BYTES);
        round_trips_us.push(clock.now().saturating_since(asked).as_nanos() as f64 / 1000.0);
    }
    round_trips_us.sort_by(f64::total_cmp);
    let bytes = carried.load(Ordering::Relaxed) - before;
    let bulk = Rate::from_transfer(bytes, clock.now().saturating_since(begun)).unwrap_or(Rate::ZERO);
    Stretch { round_trips_us, bulk }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark that asks at a pace")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}
