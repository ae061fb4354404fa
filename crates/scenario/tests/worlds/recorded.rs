//! Recording does not change a simulated run, and recordings are correct.

use std::collections::BTreeMap;
use std::io::{self, Write};

use scenario::memory::Memory;
use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::parse::parse;
use scenario::recording::Recording;
use scenario::simulated::{Costs, Machine, Placement, Sim, simulate, simulate_recorded};
use scenario::world::{RunPlan, World, WorldError};
use serde_json::Value;

use super::shared_buffer::SharedBuffer;

const SCENARIO: &str = "version = 1\n[scenario]\nname = 'two'\nabout = 'x'\nduration = '6s'\n\
    [[link]]\nname = 'wifi'\nrate = '40Mb/s'\ndelay = '5ms'\nloss = '0.5%'\ncorrupt = '0.2%'\n\
    [[link]]\nname = 'lte'\nrate = '15Mb/s'\ndelay = '20ms'\nqueue = '40ms'\n\
    [[fault]]\nlink = 'wifi'\nat = '400ms'\nuntil = '900ms'\nstate = 'silent'\n\
    [[workload]]\nkind = 'file'\nsize = '4MB'\n\
    [[workload]]\nkind = 'request-response'\nrequest = '2kB'\nresponse = '20kB'\nevery = '100ms'\ncount = 10\n";

/// A packet costs some tens of microseconds at each end.
const PROFILE: &str = "{\"format\":\"litz-profile\",\"version\":1,\"memory\":{\
    \"sending\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":5000,\"seal.cipher\":20000,\"send_call\":9000}}]},\
    \"receiving\":{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"recv_call\":9000,\"open_absorb.cipher\":20000,\
    \"open_absorb.absorb\":3000,\"application\":4000}}]}}}";

fn scenario() -> Scenario {
    parse("two.toml", SCENARIO, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"))
}

fn machine() -> Machine {
    let costs = Costs::from_profile(PROFILE).expect("a valid profile");
    Machine { costs, placements: [Placement::Packet(2), Placement::Split], processors: [2; 2], is_shared: false }
}

fn plan() -> RunPlan {
    RunPlan { paths: vec![0, 1], seed: 7 }
}

/// A recording, its trace and its capture.
fn recording() -> (Recording, SharedBuffer, SharedBuffer) {
    let (trace, packets) = (SharedBuffer::default(), SharedBuffer::default());
    let recording = Recording {
        about: "a test".to_owned(),
        trace: Some(Box::new(trace.clone())),
        packets: Some(Box::new(packets.clone())),
        journals: None,
    };
    (recording, trace, packets)
}

/// Returns the outcome, the trace and the capture of a run, with or without processors.
fn recorded(machine: Option<&Machine>) -> (Outcome, Value, Vec<u8>) {
    let (recording, trace, packets) = recording();
    let sim = Sim { machine: machine.cloned() };
    let outcome = sim.run_recorded(&scenario(), &plan(), recording, &mut |_| true).expect("the run completes");
    let trace = serde_json::from_slice(&trace.take()).expect("the trace is JSON");
    (outcome, trace, packets.take())
}

#[test]
fn a_recorded_run_has_the_same_events_as_an_unrecorded_one() {
    let alone = Sim::default().run(&scenario(), &plan(), &mut |_| true).expect("the run completes");
    assert!(alone.is_complete() && alone.events_digest.is_some(), "{alone:?}");
    assert_eq!(recorded(None).0, alone);
    // The world `memory` gives the same events.
    let in_memory = Memory.run(&scenario(), &plan(), &mut |_| true).expect("the run completes");
    assert_eq!(in_memory.events_digest, alone.events_digest);
    let other =
        Sim::default().run(&scenario(), &RunPlan { seed: 8, ..plan() }, &mut |_| true).expect("the run completes");
    assert_ne!(other.events_digest, alone.events_digest);

    let (scenario, machine) = (scenario(), machine());
    let alone = simulate(&scenario, &plan(), &machine, &mut |_| true).expect("the run completes");
    let (recording, trace, packets) = recording();
    let recorded =
        simulate_recorded(&scenario, &plan(), &machine, Some(recording), &mut |_| true).expect("the run completes");
    assert_eq!((recorded.events, &recorded.busy, recorded.overflowed), (alone.events, &alone.busy, alone.overflowed));
    assert_eq!(recorded.outcome, alone.outcome);
    assert!(!trace.take().is_empty() && !packets.take().is_empty());
}

fn events<'a>(trace: &'a Value, ph: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().expect("a list").iter().filter(|event| event["ph"] == ph).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// Returns the names of tracks with spans or marks, by number.
fn tracks(trace: &Value) -> BTreeMap<u64, String> {
    let named = events(trace, "M").into_iter().map(|event| {
        (event["tid"].as_u64().expect("a number"), event["args"]["name"].as_str().expect("a name").to_owned())
    });
    named.collect()
}

#[test]
fn a_trace_shows_links_paths_events_and_faults_within_the_run() {
    let (outcome, trace, _) = recorded(None);
    assert_eq!((&trace["otherData"]["about"], &trace["otherData"]["left_out"]), (&"a test".into(), &0.into()));
    let end_us = outcome.ended_at.as_nanos() as f64 / 1e3;
    for event in trace["traceEvents"].as_array().expect("a list") {
        let (ts, dur) = (number(&event["ts"]), event["dur"].as_f64().unwrap_or(0.0));
        assert!(ts >= 0.0 && dur >= 0.0 && ts + dur <= end_us + 1e-3, "{event}");
    }
    let levels: std::collections::BTreeSet<_> =
        events(&trace, "C").iter().map(|event| event["name"].as_str().expect("a name").to_owned()).collect();
    for name in [
        "link wifi, forward: packets in it",
        "link lte, back: packets in it",
        "link lte, forward: bytes queued",
        "link wifi, forward: packets gone",
        "host a, path wifi: bytes in flight",
        "host a, path lte: window, bytes",
        "host b, path wifi: round trip, us",
    ] {
        assert!(levels.contains(name), "{name}: {levels:?}");
    }
    // The last value of the counter track equals the link's counter.
    let last = |name: &str| {
        let of = events(&trace, "C").into_iter().rfind(|event| event["name"] == name).expect("there is one");
        of["args"]["value"].as_u64().expect("a count")
    };
    let gone = outcome.link_outcomes[0].stats[0].undelivered();
    assert!(gone > 0 && last("link wifi, forward: packets gone") == gone, "{gone}");
    let tracks = tracks(&trace);
    let marks: Vec<_> = events(&trace, "i")
        .iter()
        .map(|event| format!("{}: {}", tracks[&event["tid"].as_u64().unwrap()], event["name"].as_str().unwrap()))
        .collect();
    for mark in
        ["host a: connection: connected", "host a: connection: path 1 opened", "host a: connection: path 0 silent"]
    {
        assert!(marks.iter().any(|known| known == mark), "{mark}: {marks:?}");
    }
    let faults = events(&trace, "X");
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!((number(&faults[0]["ts"]), number(&faults[0]["dur"])), (400_000.0, 500_000.0));
    assert!(tracks[&faults[0]["tid"].as_u64().unwrap()].contains("link wifi: fault"), "{tracks:?}");
}

#[test]
fn a_trace_of_machines_shows_all_work_of_each_thread() {
    let machine = machine();
    let (_, trace, _) = recorded(Some(&machine));
    let simulated = simulate(&scenario(), &plan(), &machine, &mut |_| true).expect("the run completes");
    let tracks = tracks(&trace);
    let busy_us = |track: &str| -> f64 {
        let on = |event: &&&Value| tracks[&event["tid"].as_u64().unwrap()] == track;
        events(&trace, "X").iter().filter(on).map(|event| number(&event["dur"])).sum()
    };
    for (host, threads) in ["a", "b"].into_iter().zip(&simulated.busy) {
        for (index, (busy, role)) in threads.iter().zip(["application", "driver", "worker"]).enumerate() {
            let shown = busy_us(&format!("host {host}, thread {index} ({role})"));
            let busy = busy.as_nanos() as f64 / 1e3;
            assert!((shown - busy).abs() < 1e-3 * (1.0 + busy), "host {host}, thread {index}: {shown}, not {busy}");
        }
    }
    let names: std::collections::BTreeSet<_> =
        events(&trace, "X").iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect();
    for name in ["plan", "seal", "send", "receive", "open", "absorb", "read"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    assert!(events(&trace, "C").iter().any(|event| event["name"] == "host b, socket 0: bytes"));
}

/// Returns all names in a recording.
fn names_of(trace: &Value, packets: &[u8]) -> Vec<String> {
    let mut names: Vec<String> = tracks(trace).into_values().collect();
    let shown = ["C", "i", "X"].into_iter().flat_map(|ph| events(trace, ph));
    names.extend(shown.filter_map(|event| event["name"].as_str().map(str::to_owned)));
    names.extend(read_pcapng(packets).0);
    names
}

#[test]
fn traces_captures_and_results_use_the_host_names_of_the_file() {
    let text = SCENARIO.replace(
        "[[link]]\nname = 'wifi'",
        "[hosts.a]\nname = 'laptop'\n[hosts.b]\nname = 'server'\n[[link]]\nname = 'wifi'",
    );
    let scenario = parse("named.toml", &text, &|_| Err(String::new())).unwrap_or_else(|error| panic!("{error}"));
    let (recording, trace, packets) = recording();
    let sim = Sim { machine: Some(machine()) };
    let outcome = sim.run_recorded(&scenario, &plan(), recording, &mut |_| true).expect("the run completes");
    let trace = serde_json::from_slice(&trace.take()).expect("the trace is JSON");
    let mut names = names_of(&trace, &packets.take());
    for name in [
        "host laptop, thread 1 (driver)",
        "host server, thread 2 (worker)",
        "host server, socket 1: bytes",
        "host laptop: connection",
        "host server, path lte: round trip, us",
        "wifi at laptop",
        "lte at server",
    ] {
        assert!(names.iter().any(|known| known == name), "no {name:?}: {names:?}");
    }
    names.extend(outcome.components.iter().map(|component| component.name.clone()));
    assert!(names.iter().any(|name| name == "processors of laptop"));
    // The keys `a` and `b` of the file's tables must not appear as names.
    let is_a_table = |word: &str| matches!(word, "a" | "b");
    let wrong = names.iter().find(|name| name.split(|sign: char| !sign.is_alphanumeric()).any(is_a_table));
    assert_eq!(wrong, None);
}

#[test]
fn component_statistics_match_the_run() {
    let machine = machine();
    let simulated = simulate(&scenario(), &plan(), &machine, &mut |_| true).expect("the run completes");
    let outcome = &simulated.outcome;
    let find = |name: &str| {
        let found = outcome.components.iter().find(|component| component.name == name);
        found.unwrap_or_else(|| panic!("no {name}: {:?}", outcome.components))
    };
    let run = outcome.ended_at.since_start().as_secs_f64();
    let forward = &outcome.link_outcomes[1].stats[0];
    let link = find("link lte, forward");
    assert_eq!((link.kind, link.served, link.mean_wait), ("link", forward.carried, forward.queue_delay_mean()));
    // The carried bytes, divided by the rate.
    let share = forward.carried_bytes as f64 * 8.0 / 15e6 / run;
    assert!((link.utilisation.expect("it has a rate") - share).abs() < 0.01, "{link:?}, not {share}");
    let waiting = forward.queue_delay_sum.as_secs_f64() / run;
    assert!(waiting > 0.1 && (link.mean_queue - waiting).abs() < 1e-9, "{link:?}, not {waiting}");
    let threads = find("host a, thread 1 (driver)");
    assert!((threads.utilisation.unwrap() - simulated.busy[0][1].as_secs_f64() / run).abs() < 1e-9, "{threads:?}");
    let processors = find("processors of a");
    let busy: f64 = simulated.busy[0].iter().map(|busy| busy.as_secs_f64()).sum();
    // A job in progress at the end counts for its processor up to then, and for its thread once it has ended.
    let in_progress = processors.utilisation.unwrap() * 2.0 * run - busy;
    assert!((-1e-9..200e-6).contains(&in_progress), "{processors:?}, and {in_progress} s in progress");
    let taken = find("host b, socket 0").served + find("host b, socket 1").served;
    // All delivered datagrams, except damaged ones, which are dropped.
    let stats = outcome.link_outcomes.iter().map(|link| &link.stats[0]);
    let (delivered, damaged) = stats.fold((0, 0), |sum, stats| (sum.0 + stats.delivered, sum.1 + stats.corrupted));
    assert!(damaged > 0 && (delivered - damaged..=delivered).contains(&taken), "{taken} of {delivered}");
    let names: std::collections::BTreeSet<_> = outcome.components.iter().map(|component| &component.name).collect();
    assert_eq!(names.len(), outcome.components.len(), "names are unique");
}

/// A packet of a capture.
#[derive(Debug)]
struct Captured {
    interface: u32,
    at: u64,
    inbound: bool,
    length: usize,
    bytes: Vec<u8>,
}

/// Parses a capture by the pcapng draft, independently of the writer. Checks lengths, alignment,
/// order of time and interfaces.
fn read_pcapng(file: &[u8]) -> (Vec<String>, Vec<Captured>) {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let half = |bytes: &[u8], at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
    let (mut interfaces, mut packets, mut rest) = (Vec::new(), Vec::<Captured>::new(), file);
    assert_eq!((word(rest, 0), word(rest, 8)), (0x0a0d_0d0a, 0x1a2b_3c4d), "a section in this byte order");
    while !rest.is_empty() {
        let (kind, length) = (word(rest, 0), word(rest, 4) as usize);
        assert!(length >= 12 && length.is_multiple_of(4) && length <= rest.len(), "{length} of {}", rest.len());
        assert_eq!(word(rest, length - 4) as usize, length, "the length is at both ends of a block");
        let body = &rest[8..length - 4];
        // Pairs of code and value, up to the end-of-options marker, which must end the block.
        let options = |mut at: usize| {
            let mut options = BTreeMap::new();
            while half(body, at) != 0 {
                let bytes = usize::from(half(body, at + 2));
                options.insert(half(body, at), body[at + 4..at + 4 + bytes].to_vec());
                at += 4 + bytes.next_multiple_of(4);
            }
            assert_eq!(at + 4, body.len());
            options
        };
        match kind {
            0x0a0d_0d0a => assert_eq!(options(16)[&1], b"a test"),
            1 => {
                assert_eq!(half(body, 0), 101, "raw IP");
                let options = options(8);
                assert_eq!(options[&9], [9], "nanoseconds");
                interfaces.push(String::from_utf8(options[&2].clone()).expect("text"));
            }
            6 => {
                let [interface, high, low, kept, length] = [0, 4, 8, 12, 16].map(|at| word(body, at));
                let at = u64::from(high) << 32 | u64::from(low);
                assert!((interface as usize) < interfaces.len() && kept <= length);
                assert!(packets.last().is_none_or(|last| last.at <= at), "time does not decrease");
                let flags = &options(20 + (kept as usize).next_multiple_of(4))[&2];
                let bytes = body[20..20 + kept as usize].to_vec();
                packets.push(Captured { interface, at, inbound: flags[0] & 3 == 1, length: length as usize, bytes });
            }
            other => panic!("a block of type {other:x}"),
        }
        rest = &rest[length..];
    }
    (interfaces, packets)
}

#[test]
fn a_capture_has_each_packet_at_both_ends_with_correct_lengths() {
    let (outcome, _, file) = recorded(None);
    let (interfaces, packets) = read_pcapng(&file);
    assert_eq!(interfaces, ["wifi at a", "wifi at b", "lte at a", "lte at b"]);
    assert!(packets.last().expect("some").at <= outcome.ended_at.as_nanos());
    for (place, (path, link)) in outcome.path_outcomes.iter().zip(&outcome.link_outcomes).enumerate() {
        for direction in 0..2 {
            let at_end = |end: usize, inbound: bool| {
                let interface = (2 * place + end) as u32;
                let of =
                    packets.iter().filter(move |packet| packet.interface == interface && packet.inbound == inbound);
                of.fold((0, 0), |(count, bytes), packet| (count + 1, bytes + packet.length as u64 - 28))
            };
            let sent = at_end(direction, false);
            assert_eq!(sent, (path.datagrams[direction], path.bytes[direction]), "what {place} sent");
            let stats = &link.stats[direction];
            assert_eq!(at_end(1 - direction, true), (stats.delivered, stats.delivered_bytes), "delivered");
        }
    }
    for packet in &packets {
        let total = usize::from(u16::from_be_bytes([packet.bytes[2], packet.bytes[3]]));
        assert_eq!((packet.bytes[0], packet.bytes[9], total), (0x45, 17, packet.length), "{packet:?}");
    }
    let (whole, short): (Vec<_>, Vec<_>) = packets.iter().partition(|packet| packet.bytes.len() == packet.length);
    // The first packet of the handshake is complete: a long header of version 1.
    assert_eq!((whole[0].bytes[28] & 0x80, &whole[0].bytes[29..33]), (0x80, &[0, 0, 0, 1][..]));
    // Bulk data has short headers (the fixed bit may be greased, RFC 9287) and no payload.
    assert!(short.len() > whole.len() / 2 && short.len() > 1000, "{} and {}", short.len(), whole.len());
    assert!(short.iter().all(|packet| packet.bytes[28] & 0x80 == 0 && packet.bytes.len() < 28 + 64));
}

/// A writer that fails after this number of bytes.
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_fails_the_run_with_a_message() {
    for machine in [None, Some(machine())] {
        let sim = Sim { machine };
        for free_bytes in [10, 100_000] {
            let full = || -> Option<Box<dyn Write + Send>> { Some(Box::new(FullDisk(free_bytes))) };
            for (recording, what) in [
                (Recording { trace: full(), ..Recording::default() }, "cannot write the trace"),
                (Recording { packets: full(), ..Recording::default() }, "cannot write the packets"),
            ] {
                let error = sim.run_recorded(&scenario(), &plan(), recording, &mut |_| true);
                let Err(WorldError::Failed(message)) = error else { panic!("{what}: {free_bytes}") };
                assert!(message.starts_with(what), "{message}");
            }
        }
    }
}
