//! Our qlog files, read by quiche's qlog library, version 0.15: the last one for qlog 0.3, which
//! qvis reads.
//!
//! The library is here and not in the main workspace because its features change how JSON is
//! printed in every program that is built with it.

use std::collections::BTreeMap;
use std::io::{BufReader, Cursor};
use std::sync::{Arc, Mutex};

use qlog::VantagePointType;
use qlog::events::EventData;
use qlog::reader::{Event, QlogSeqReader};
use quic::{JournalSink, JournalSource, Side};
use scenario::recording::Recording;
use scenario::simulated::Sim;
use scenario::world::RunPlan;

/// Two links, one of which loses packets.
const SCENARIO: &str = "version = 1\n[scenario]\nname = 'x'\nabout = 'x'\nduration = '20s'\n\
    [[link]]\nname = 'a'\nrate = '20Mb/s'\ndelay = '10ms'\nqueue = '64KiB'\nloss = '2%'\n[[path]]\nlink = 'a'\n\
    [[link]]\nname = 'b'\nrate = '10Mb/s'\ndelay = '25ms'\nqueue = '64KiB'\n[[path]]\nlink = 'b'\n\
    [[workload]]\nkind = 'file'\nsize = '1MB'\n";

/// Events about paths, which qlog 0.3 does not have: docs/spec/qlog.md.
const OWN: [&str; 4] = [
    "connectivity:path_assigned",
    "connectivity:path_migrated",
    "connectivity:path_state_updated",
    "recovery:ecn_state_updated",
];

type Log = Arc<Mutex<Vec<u8>>>;

struct MemorySink(Log);

impl JournalSink for MemorySink {
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.0.lock().unwrap().extend_from_slice(bytes);
        true
    }
}

/// The journals of both sides of a simulated connection.
fn journals() -> Vec<(Side, Vec<u8>)> {
    let scenario = scenario::parse::parse("x.toml", SCENARIO, &|_| Err(String::new())).unwrap();
    let logs: Arc<Mutex<Vec<(Side, Log)>>> = Arc::default();
    let kept = Arc::clone(&logs);
    let source = JournalSource(Arc::new(move |side| {
        let log = Log::default();
        kept.lock().unwrap().push((side, Arc::clone(&log)));
        Some(Box::new(MemorySink(log)))
    }));
    let recording = Recording { journals: Some(source), ..Recording::default() };
    let plan = RunPlan { paths: vec![0, 1], seed: 1 };
    Sim::default().run_recorded(&scenario, &plan, recording, &mut |_| true).unwrap();
    let logs = logs.lock().unwrap();
    logs.iter().map(|(side, log)| (*side, log.lock().unwrap().clone())).collect()
}

#[test]
fn the_qlog_library_reads_every_event() {
    let logs = journals();
    assert_eq!(logs.len(), 2);
    for (side, log) in logs {
        let mut file = Vec::new();
        let converted = observe::convert(&log[..], &mut file, "a test").unwrap();
        let mut reader = QlogSeqReader::new(Box::new(BufReader::new(Cursor::new(file)))).unwrap();
        let kind = if side == Side::Client { VantagePointType::Client } else { VantagePointType::Server };
        assert_eq!(
            (reader.qlog.qlog_version.as_str(), reader.qlog.trace.vantage_point.ty.clone()),
            (qlog::QLOG_VERSION, kind)
        );
        let (mut typed, mut own) = (0, BTreeMap::<String, u64>::new());
        let (mut sent, mut received, mut lost) = (0, 0, 0);
        for event in &mut reader {
            match event {
                Event::Qlog(event) => {
                    typed += 1;
                    match event.data {
                        EventData::PacketSent(_) => sent += 1,
                        EventData::PacketReceived(_) => received += 1,
                        EventData::PacketLost(_) => lost += 1,
                        _ => {}
                    }
                }
                Event::Json(event) => *own.entry(event.name).or_default() += 1,
            }
        }
        assert!(own.keys().all(|name| OWN.contains(&name.as_str())), "{side}: {own:?}");
        // The reader skips what it cannot read.
        assert_eq!(typed + own.values().sum::<u64>(), converted.events, "{side}");
        assert!(sent > 50 && received > 50, "{side}: {sent} and {received}");
        assert!(side == Side::Server || lost > 0, "the link loses packets");
    }
}
