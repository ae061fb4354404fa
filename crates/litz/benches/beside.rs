//! The effect of a bulk transfer on small messages between the same two hosts. The client sends 200
//! bytes and the server returns them, a thousand times a second: alone, and during a bulk transfer
//! that is unlimited, limited by a rate, or of a lower class. Also measures the throughput of the
//! bulk transfer, alone and with the messages.
//!
//! `cargo bench -p litz --bench beside` measures. `cargo test -p litz --benches` only runs each
//! case briefly. Arguments after `--`: `rounds=5`, `seconds=3`, `cap=1000` (Mb/s of the variants
//! with a rate), `only=TEXT` (cases whose name contains it).
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

use world::{Variant, Wire, World};

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

/// The connection of the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageConnection {
    /// The connection of the bulk transfer.
    SameConnection,
    /// Another connection.
    OtherConnection,
}

/// The limit or class of the bulk transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bulk {
    /// No limit.
    Free,
    /// The rate cap of the transport, which applies to all data of a path.
    Capped,
    /// A lower priority than the messages.
    Lower,
    /// A lower priority, and a rate limit of the stream.
    Limited,
    /// A lower priority, and a rate limit of the connection.
    LimitedConnection,
    /// A lower priority, and the background class.
    Background,
}

struct Case {
    name: &'static str,
    placement: Placement,
    beside: MessageConnection,
    bulk: Bulk,
}

const fn case(name: &'static str, placement: Placement, beside: MessageConnection, bulk: Bulk) -> Case {
    Case { name, placement, beside, bulk }
}

const CASES: [Case; 13] = [
    case("same connection, capped", Placement::Thread, MessageConnection::SameConnection, Bulk::Capped),
    case("other connection, capped", Placement::Thread, MessageConnection::OtherConnection, Bulk::Capped),
    case("connection(2), capped", Placement::Connection(2), MessageConnection::OtherConnection, Bulk::Capped),
    case("same, stream limited", Placement::Thread, MessageConnection::SameConnection, Bulk::Limited),
    case("other, connection limited", Placement::Thread, MessageConnection::OtherConnection, Bulk::LimitedConnection),
    case("same, background", Placement::Thread, MessageConnection::SameConnection, Bulk::Background),
    case("other, background", Placement::Thread, MessageConnection::OtherConnection, Bulk::Background),
    case("connection(2), background", Placement::Connection(2), MessageConnection::OtherConnection, Bulk::Background),
    case("same, lower priority", Placement::Thread, MessageConnection::SameConnection, Bulk::Lower),
    case("same connection", Placement::Thread, MessageConnection::SameConnection, Bulk::Free),
    case("other connection", Placement::Thread, MessageConnection::OtherConnection, Bulk::Free),
    case("connection(2)", Placement::Connection(2), MessageConnection::OtherConnection, Bulk::Free),
    case("packet(2)", Placement::Packet(2), MessageConnection::OtherConnection, Bulk::Free),
];

/// The results of one phase.
struct Phase {
    /// Round-trip times of the messages, sorted.
    round_trips_us: Vec<f64>,
    /// The throughput of the bulk transfer.
    bulk: Rate,
}

/// One run: messages alone, bulk alone, and both together.
struct Run {
    alone: Phase,
    bulk_alone: Rate,
    beside: Phase,
}

fn main() {
    // Cargo passes this argument for `cargo bench` and not for `cargo test`.
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let rounds = argument("rounds", if measuring { 5 } else { 1 });
    let span = if measuring { Duration::from_secs(argument("seconds", 3)) } else { Duration::from_millis(50) };
    let cap = Rate::from_mbps(argument("cap", 1000));
    println!(
        "{MESSAGE_BYTES} bytes in each direction, 1000 times a second; {rounds} rounds of {span:?}; medians; cap {cap}"
    );
    println!(
        "{:<26} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>10} {:>10}",
        "case", "alone/us", "p99/us", "beside/us", "p99/us", "ratio", "p99", "alone/Mb/s", "bulk/Mb/s"
    );
    let only = text_argument("only");
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str()))) {
        let runs: Vec<Run> = (0..rounds).map(|_| run(case, cap, span)).collect();
        let of = |which: fn(&Run) -> &Phase, quantile: f64| median(runs.iter().map(|run| which(run).at(quantile)));
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

impl Phase {
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
    let world = World::new(Variant { wire: Wire::Udp, placement: case.placement });
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
        let alone = measure(&small, span, carried);
        let (large, at_server) = match case.beside {
            MessageConnection::SameConnection => (small.clone(), at_server),
            MessageConnection::OtherConnection => {
                (world.connect(&client, server.local_addr()), server.accept().unwrap())
            }
        };
        scope.spawn(move || read_bulk(&at_server, carried));
        scope.spawn(move || write_bulk(&large, case.bulk, cap, done));
        // Wait until the bulk transfer has reached its rate, and with spans of three seconds also
        // until the engine expects no more messages.
        pause(span * 2 / 5);
        let bulk_alone = throughput(span, carried);
        let beside = measure(&small, span, carried);
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

/// Reads the bulk data until the connection ends.
fn read_bulk(connection: &Connection, carried: &AtomicU64) {
    let Ok((_, mut recv)) = connection.accept_bi() else { return };
    while let Ok(Some(bytes)) = recv.read_strided() {
        carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

/// Writes the bulk data until `done`.
fn write_bulk(connection: &Connection, bulk: Bulk, rate: Rate, done: &AtomicBool) {
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

/// The throughput of the bulk transfer during `span`.
fn throughput(span: Duration, carried: &AtomicU64) -> Rate {
    let clock = MonotonicClock::start();
    let (begun, before) = (clock.now(), carried.load(Ordering::Relaxed));
    pause(span);
    let bytes = carried.load(Ordering::Relaxed) - before;
    Rate::from_transfer(bytes, clock.now().saturating_since(begun)).unwrap_or(Rate::ZERO)
}

/// Measures round trips a thousand times a second for `span`.
fn measure(connection: &Connection, span: Duration, carried: &AtomicU64) -> Phase {
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
        let sent_at = clock.now();
        connection.send_message(Bytes::from(vec![1; MESSAGE_BYTES])).unwrap();
        let answer = connection.recv_message().unwrap();
        assert_eq!(answer.len(), MESSAGE_BYTES);
        round_trips_us.push(clock.now().saturating_since(sent_at).as_nanos() as f64 / 1000.0);
    }
    round_trips_us.sort_by(f64::total_cmp);
    let bytes = carried.load(Ordering::Relaxed) - before;
    let bulk = Rate::from_transfer(bytes, clock.now().saturating_since(begun)).unwrap_or(Rate::ZERO);
    Phase { round_trips_us, bulk }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark that sends at a fixed rate")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}
