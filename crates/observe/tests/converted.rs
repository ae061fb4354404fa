//! Journals of simulated connections as qlog: the contents of the files are compared with the
//! statistics of the connection and with the file of the other side.

#![expect(clippy::print_stdout, reason = "tests print their seeds")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use observe::{ConvertError, convert};
use quic::journal::{JournalSink, LogEnd, Stopped};
use quic::{JournalSource, Replay, Side, Stats};
use scenario::recording::Recording;
use scenario::simulated::Sim;
use scenario::world::RunPlan;
use serde_json::Value;

/// Two unlike links that lose packets.
const SCENARIO: &str = "version = 1\n[scenario]\nname = 'x'\nabout = 'x'\nduration = '20s'\n\
    [[link]]\nname = 'a'\nrate = '20Mb/s'\ndelay = '10ms'\nqueue = '64KiB'\nloss = '2%'\n[[path]]\nlink = 'a'\n\
    [[link]]\nname = 'b'\nrate = '10Mb/s'\ndelay = '25ms'\nqueue = '64KiB'\nloss = '1%'\n[[path]]\nlink = 'b'\n\
    [[workload]]\nkind = 'stream'\nsize = '3MB'\n";

type Logs = Arc<Mutex<Vec<(Side, Arc<Mutex<Vec<u8>>>)>>>;

struct MemorySink(Arc<Mutex<Vec<u8>>>);

impl JournalSink for MemorySink {
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        true
    }
}

/// Returns the journals of the client and of the server.
fn journals(seed: u64) -> [Vec<u8>; 2] {
    let scenario = scenario::parse::parse("x.toml", SCENARIO, &|_| Err(String::new())).expect("a valid scenario");
    let logs = Logs::default();
    let kept = Arc::clone(&logs);
    let source = JournalSource(Arc::new(move |side| {
        let log = Arc::default();
        kept.lock().unwrap_or_else(PoisonError::into_inner).push((side, Arc::clone(&log)));
        Some(Box::new(MemorySink(log)))
    }));
    let recording = Recording { journals: Some(source), ..Recording::default() };
    let plan = RunPlan { paths: vec![0, 1], seed };
    let outcome = Sim::default().run_recorded(&scenario, &plan, recording, &mut |_| true).expect("the run completes");
    assert_eq!(outcome.failure, None, "seed {seed}");
    let logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
    [Side::Client, Side::Server].map(|wanted| {
        let (_, log) = logs.iter().find(|(side, _)| *side == wanted).expect("both sides are recorded");
        log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    })
}

/// Returns the records of a qlog file.
fn records(file: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(file).expect("JSON is UTF-8");
    let mut records = text.split('\u{1e}');
    assert_eq!(records.next(), Some(""), "a record begins with its separator");
    records
        .map(|record| {
            assert!(record.ends_with("}\n") && !record[..record.len() - 1].contains('\n'), "{record}");
            serde_json::from_str(record).unwrap_or_else(|error| panic!("{error}: {record}"))
        })
        .collect()
}

/// A file and the statistics at the end of its connection.
struct Converted {
    events: Vec<Value>,
    stats: Stats,
}

impl Converted {
    fn of(log: &[u8]) -> Self {
        let mut file = Vec::new();
        let converted = convert(log, &mut file, "a test").expect("the journal converts");
        assert_eq!(converted.end, LogEnd::Complete);
        let mut events = records(&file);
        let header = events.remove(0);
        assert_eq!((&header["qlog_version"], &header["qlog_format"]), (&"0.3".into(), &"JSON-SEQ".into()));
        assert_eq!(header["trace"]["common_fields"]["time_format"], "relative");
        assert_eq!(converted.events, events.len() as u64);
        let mut replay = Replay::begin(log).expect("the replay begins");
        while replay.step().expect("it has no difference").is_some() {}
        Self { events, stats: replay.connection().stats() }
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["name"] == name).map(|event| &event["data"])
    }

    fn sum(&self, name: &str, field: impl Fn(&Value) -> &Value) -> u64 {
        self.named(name).map(|data| field(data).as_u64().expect("a number")).sum()
    }

    /// Returns the packets of an event by packet type, path and number.
    fn packets(&self, name: &str) -> BTreeMap<Key, &Value> {
        self.named(name).map(|data| (key(data), data)).collect()
    }
}

type Key = (String, u64, u64);

fn key(data: &Value) -> Key {
    let number = |value: &Value| value.as_u64().expect("a number");
    let header = &data["header"];
    let ty = header["packet_type"].as_str().expect("a packet type").to_owned();
    (ty, number(&data["path_id"]), number(&header["packet_number"]))
}

fn both(seed: u64) -> [Converted; 2] {
    println!("seed {seed}");
    journals(seed).map(|log| Converted::of(&log))
}

#[test]
fn packets_and_bytes_add_up_to_the_statistics() {
    let loses = |file: &Converted| file.stats.send.packets_lost > 0;
    let files = (1..50).map(both).find(|files| files.iter().all(loses)).expect("the links lose packets of both sides");
    for file in files {
        let Stats { send, receive, .. } = &file.stats;
        assert_eq!(file.named("transport:packet_sent").count() as u64, send.packets_sent);
        assert_eq!(file.sum("transport:packet_sent", |data| &data["raw"]["length"]), send.bytes_sent);
        assert_eq!(file.named("recovery:packet_lost").count() as u64, send.packets_lost);
        assert_eq!(
            file.named("transport:packet_received").count() as u64,
            receive.packets_received + receive.packets_duplicate
        );
        assert_eq!(file.sum("transport:datagrams_received", |data| &data["count"]), receive.datagrams_received);
        assert_eq!(file.sum("transport:datagrams_received", |data| &data["total_length"]), receive.bytes_received);
    }
}

#[test]
fn numbers_increase_and_only_sent_packets_are_acknowledged_or_lost() {
    for file in both(2) {
        let mut sent: BTreeMap<(String, u64), BTreeSet<u64>> = BTreeMap::new();
        let (mut acknowledged, mut lost) = (0, 0);
        for event in &file.events {
            let data = &event["data"];
            match event["name"].as_str().expect("a name") {
                "transport:packet_sent" => {
                    let (ty, path, number) = key(data);
                    let numbers = sent.entry((ty, path)).or_default();
                    assert!(numbers.last().is_none_or(|last| *last < number), "{data}");
                    numbers.insert(number);
                }
                "transport:packet_received" => {
                    let ty = key(data).0;
                    for frame in data["frames"].as_array().expect("frames").iter().filter(|frame| is_ack(frame)) {
                        let path = frame["path_id"].as_u64().expect("a path");
                        for range in frame["acked_ranges"].as_array().expect("ranges") {
                            let end = |at: usize| range[at].as_u64().expect("a number");
                            let numbers = sent.get(&(ty.clone(), path)).expect("packets were sent on this path");
                            for number in end(0)..=end(1) {
                                assert!(numbers.contains(&number), "{number} of path {path}: {frame}");
                            }
                            acknowledged += 1;
                        }
                    }
                }
                "recovery:packet_lost" => {
                    let (ty, path, number) = key(data);
                    assert!(sent[&(ty, path)].contains(&number), "{data}");
                    lost += 1;
                }
                _ => {}
            }
        }
        assert!(acknowledged > 10 && lost > 0, "{acknowledged} and {lost}");
        assert!(sent.len() == 4, "two paths, and the handshake: {:?}", sent.keys());
    }
}

fn is_ack(frame: &Value) -> bool {
    frame["frame_type"] == "ack" || frame["frame_name"] == "path_ack"
}

/// Returns the frames that a received packet shows.
fn shown(frames: &Value) -> Vec<&Value> {
    let is_hidden = |frame: &&Value| ["padding", "ping", "streams_blocked"].iter().any(|ty| frame["frame_type"] == *ty);
    frames.as_array().expect("frames").iter().filter(|frame| !is_hidden(frame)).collect()
}

#[test]
fn both_sides_show_the_same_packets() {
    let [client, server] = both(3);
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (sent, received) = (from.packets("transport:packet_sent"), to.packets("transport:packet_received"));
        assert!(received.len() > 100, "{}", received.len());
        let mut sizes = 0;
        for (key, packet) in &received {
            let origin = sent.get(key).unwrap_or_else(|| panic!("{key:?} was received and not sent"));
            assert_eq!(shown(&packet["frames"]), shown(&origin["frames"]), "{key:?}");
            if let Some(length) = packet["raw"]["length"].as_u64() {
                assert_eq!(Some(length), origin["raw"]["length"].as_u64(), "{key:?}");
                sizes += 1;
            }
        }
        assert!(sizes > received.len() / 2, "most sizes are known: {sizes} of {}", received.len());
    }
}

#[test]
fn times_and_states_are_in_order() {
    for file in both(4) {
        let times: Vec<f64> = file.events.iter().map(|event| event["time"].as_f64().expect("a time")).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "times never go back");
        let first = |name: &str| file.events.iter().position(|event| event["name"] == name);
        assert_eq!(first("connectivity:connection_started"), Some(0));
        // A state follows the one before it.
        let mut states: BTreeMap<(&str, u64), &Value> = BTreeMap::new();
        for name in
            ["connectivity:path_state_updated", "recovery:congestion_state_updated", "recovery:ecn_state_updated"]
        {
            for data in file.named(name) {
                let path = data["path_id"].as_u64().expect("a path");
                if let Some(before) = states.insert((name, path), &data["new"]) {
                    assert_eq!((before, before == &data["new"]), (&data["old"], false), "{name}: {data}");
                }
            }
        }
        assert!(states.contains_key(&("connectivity:path_state_updated", 1)), "{states:?}");
        // The metrics at the end are those of the connection.
        for path in &file.stats.paths {
            let of_path = |data: &&Value| data["path_id"] == path.id.0;
            let newest = |field: &str| {
                file.named("recovery:metrics_updated").filter(of_path).filter_map(|data| data[field].as_f64()).last()
            };
            assert_eq!(newest("congestion_window"), Some(path.congestion.window as f64));
            assert_eq!(newest("bytes_in_flight"), Some(path.in_flight_bytes as f64));
            assert_eq!(newest("smoothed_rtt"), Some(path.round_trip.as_nanos() as f64 / 1e6));
        }
        let owners: Vec<&Value> = file.named("transport:parameters_set").map(|data| &data["owner"]).collect();
        assert!(owners.contains(&&"local".into()) && owners.contains(&&"remote".into()), "{owners:?}");
    }
}

#[test]
fn a_cut_or_damaged_journal_converts_up_to_there() {
    let [log, _] = journals(5);
    let mut whole = Vec::new();
    convert(&log[..], &mut whole, "").expect("it converts");
    let mut part = Vec::new();
    let cut = convert(&log[..log.len() / 2], &mut part, "").expect("it converts up to the cut");
    assert!(matches!(cut.end, LogEnd::Cut(_)), "{cut:?}");
    assert!(records(&part).len() > 100 && whole.starts_with(&part), "{} of {}", part.len(), whole.len());

    let mut damaged = log.clone();
    damaged[log.len() / 2] ^= 1;
    let mut part = Vec::new();
    let error = convert(&damaged[..], &mut part, "").expect_err("a block is damaged");
    assert!(matches!(error, ConvertError::Replay(Stopped::Journal(_))), "{error}");
    assert!(!records(&part).is_empty() && whole.starts_with(&part));

    let error = convert(&b"no journal"[..], &mut Vec::new(), "").expect_err("it is none");
    assert!(matches!(error, ConvertError::Replay(Stopped::Journal(_))), "{error}");
    // A writer that takes a little and then fails.
    let mut small = [0_u8; 1000];
    let error = convert(&log[..], &mut small[..], "").expect_err("the file is full");
    assert!(matches!(error, ConvertError::Write(_)), "{error}");
}
