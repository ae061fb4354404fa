//! Journals that are damaged, truncated, foreign or malicious: each is reported as what it is,
//! without a panic and with bounded memory. `random_operations/replays.rs` covers which journals
//! replay.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use journal::memory::{entries, sealed};
use proptest::prelude::*;
use quic::journal::{JournalErrorKind, LogEnd, Stopped, VERSION};
use quic::{Class, Dir, JournalSink, JournalSource, PathId, PathSet, Policy, RateLimit, Replay, Side};
use units::{Duration, Rate, Ratio};

use crate::support::journals::{Journals, Replayed, replay};
use crate::support::stages::Staging;
use crate::support::{Setup, apps};

/// The journals of a connection over two lossy paths: the client's and the server's.
fn journals(seed: u64) -> [Vec<u8>; 2] {
    journals_staged(seed, Staging::default())
}

/// The same with the receive halves of both sides detached.
fn detached_journals(seed: u64) -> [Vec<u8>; 2] {
    journals_staged(seed, Staging { detached: true, gathers: true, ..Staging::default() })
}

fn journals_staged(seed: u64, staging: Staging) -> [Vec<u8>; 2] {
    let journals = Journals::default();
    let link = netem::LinkConfig {
        rate: Some(units::Rate::from_mbps(50)),
        delay: Duration::from_millis(5),
        queue_bytes: 64 * 1024,
        loss: Ratio::new(2, 100),
        ..netem::LinkConfig::default()
    };
    let mut setup = Setup::new(seed).over(&[link.clone(), link]).with_config(|config| {
        config.journal = Some(journals.source());
        config.policy = Policy::CRCA;
        config.key_update_interval = 100;
    });
    setup.staging = staging;
    let mut pair = setup.build();
    pair.connect();
    pair.open_paths();
    pair.run_for(Duration::from_millis(200));
    let id = pair.client.connection(0).open(Dir::Uni).expect("the peer allows streams");
    let content: Vec<u8> = (0..300_000).map(|at| apps::pattern_byte(id, at)).collect();
    pair.client.connection(0).write(id, content.into()).expect("the send buffer has space");
    pair.client.connection(0).finish(id).expect("the stream is open");
    pair.client.connection(0).send_datagram(Bytes::from_static(b"beside it")).expect("the peer accepts datagrams");
    pair.run_for(Duration::from_secs(2));
    let now = pair.now;
    while let Some(id) = pair.server.connection(0).accept(Dir::Uni) {
        while pair.server.connection(0).read(now, id, usize::MAX).is_ok() {}
    }
    pair.run_for(Duration::from_secs(1));
    let now = pair.now;
    pair.server.connection(0).close(now, 3, "enough");
    pair.run_for(Duration::from_secs(5));
    drop(pair);
    let logs = journals.logs();
    let of = |wanted| logs.iter().find(|(side, _)| *side == wanted).expect("both sides are recorded").1.clone();
    [of(Side::Client), of(Side::Server)]
}

fn replayed(log: &[u8]) -> Result<LogEnd, Stopped> {
    replay(log, &mut Replayed::default())
}

#[test]
fn a_journal_replays_and_describes_its_connection() {
    let [client, server] = journals(1);
    for (log, side) in [(&client, Side::Client), (&server, Side::Server)] {
        let mut replay = Replay::begin(&log[..]).expect("the replay starts");
        assert_eq!(replay.head().side, side);
        assert_eq!(replay.head().config.policy, Policy::CRCA);
        let (mut lines, mut milestones) = (0, Vec::new());
        while let Some(step) = replay.step().expect("the log replays") {
            lines += usize::from(!step.to_string().is_empty());
            if step.entry.is_milestone() {
                milestones.push(step.to_string());
            }
        }
        assert_eq!(replay.end(), Some(LogEnd::Complete));
        assert!(lines as u64 == replay.entry_count() - 1 && lines > 100, "{lines}");
        let stats = replay.connection().stats();
        assert!(stats.is_multipath && stats.send.key_updates + stats.receive.packets_received > 100, "{stats:?}");
        assert!(milestones.iter().any(|line| line.contains("path 1 opened")), "{milestones:?}");
        assert!(milestones.last().is_some_and(|line| line.contains("event: closed")), "{milestones:?}");
    }
    let head = |log: &[u8]| Replay::begin(log).expect("the replay starts").head().original_destination;
    assert_eq!(head(&client), head(&server), "by which the two sides' logs are found");
}

#[test]
fn detached_halves_write_one_log_with_the_entries_of_both() {
    for log in detached_journals(12) {
        let mut replay = Replay::begin(&log[..]).expect("the replay starts");
        let (mut lines, mut detached) = (Vec::new(), 0_u64);
        while let Some(step) = replay.step().expect("the log replays") {
            match step.entry.name() {
                "detached" => detached += 1,
                "attached" => assert!(!replay.connection().is_detached()),
                _ => {}
            }
            lines.push(step.to_string());
        }
        assert_eq!(replay.end(), Some(LogEnd::Complete));
        let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        assert!(detached > 0 && count("attached") as u64 == detached, "{detached} times detached");
        assert!(count("receive half: opened on") > 10, "{lines:#?}");
        assert_eq!(count("gave_commands"), count("receive half: took_commands"));
        // The values since the last report return with the half.
        assert_eq!(count("receive half: gave_report"), count("took_report"));
        assert!(count("took_report") > 10, "{lines:#?}");
    }
}

#[test]
fn entries_of_the_wrong_half_and_unknown_reports_are_rejected() {
    const OF_RECEIVE_HALF: u8 = 65;
    const GAVE_REPORT: [u8; 2] = [70, 1];
    const TOOK_REPORT: [u8; 3] = [71, 0, 1];
    const ATTACHED: [u8; 2] = [67, 0];
    let [log, _] = journals(13);
    let (head, whole) = entries(&log);
    // Before the end entry.
    let (end, before) = (whole.len() - 2, &whole[..whole.len() - 2]);
    let with = |added: &[u8]| replayed(&sealed(&head, &[before, added, &whole[end..]].concat()));
    for (added, wanted) in [
        (&[OF_RECEIVE_HALF, 34][..], "an entry of a receive half that is not detached"),
        (&GAVE_REPORT, "an entry of the other half"),
        (&[69, 0, 1], "an entry of the other half"),
        (&[OF_RECEIVE_HALF, 8, 0], "an entry of a receive half that is not detached"),
    ] {
        match with(added) {
            Err(Stopped::Journal(error)) => assert!(error.to_string().contains(wanted), "{added:?}: {error}"),
            other => panic!("{added:?}: {other:?}"),
        }
    }
    for added in [&TOOK_REPORT[..], &ATTACHED, &[68, 1], &[66]] {
        let result = with(added);
        assert!(matches!(result, Err(Stopped::Differs(_))), "{added:?}: {result:?}");
    }
}

#[test]
fn a_full_sink_ends_the_journal_of_detached_halves() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    let source = JournalSource(Arc::new(move |_| Some(Box::new(FullSink { pieces_left: 4, log: Arc::clone(&sink) }))));
    let mut setup = Setup::new(14);
    setup.server.journal = Some(source);
    setup.staging = Staging { detached: true, ..Staging::default() };
    let mut pair = setup.build();
    pair.connect();
    let id = pair.client.connection(0).open(Dir::Uni).expect("the peer allows streams");
    pair.client.connection(0).write(id, Bytes::from(vec![7; 900_000])).expect("the send buffer has space");
    pair.client.connection(0).finish(id).expect("the stream is open");
    pair.run_for(Duration::from_secs(5));
    assert!(pair.server.connection(0).stats().receive.bytes_received > 900_000, "all data arrived");
    drop(pair);
    let log = log.lock().unwrap();
    let mut replay = Replay::begin(&log[..]).expect("the replay starts");
    let mut has_parted = false;
    while let Some(step) = replay.step().expect("the log replays to its end") {
        has_parted |= step.entry.name() == "detached";
    }
    assert!(has_parted && matches!(replay.end(), Some(LogEnd::Cut(0))), "{:?}", replay.end());
}

#[test]
fn a_journal_records_classes_of_service_and_replays_their_effect() {
    let journals = Journals::default();
    let mut pair = Setup::new(11).with_config(|config| config.journal = Some(journals.source())).build();
    pair.connect();
    let limit = |mbps, burst| RateLimit::new(Rate::from_mbps(mbps), burst).expect("neither is too small");
    let class = Class::of_priority(3)
        .with_rate(limit(8, 2_000))
        .with_paths(PathSet::only(&[PathId::ZERO, PathId(9)]).expect("two paths"))
        .with_background(true);
    let client = pair.client.connection(0);
    client.set_rate(Some(limit(4, u64::MAX)));
    client.set_rate(Some(limit(4, 1_500)));
    let id = client.open(Dir::Uni).expect("the peer allows streams");
    client.set_class(id, &class).expect("the stream is open");
    client.write(id, Bytes::from(vec![1; 100_000])).expect("the send buffer has space");
    pair.run_for(Duration::from_millis(100));
    let client = pair.client.connection(0);
    let left = 100_000 - client.stats().send.bytes_sent.min(100_000);
    assert!(left > 20_000, "4 Mb/s let through all but {left} bytes in 100 ms");
    client.set_stream_paths(id, PathSet::ALL).expect("the stream is open");
    client.set_stream_rate(id, None).expect("the stream is open");
    client.set_background(id, false).expect("the stream is open");
    client.reset(id, 1).expect("the stream is open");
    pair.run_for(Duration::from_secs(1));
    // Streams that have ended have no class.
    let client = pair.client.connection(0);
    assert_eq!(client.set_class(id, &class), Err(quic::WriteError::Closed));
    assert_eq!(client.set_stream_rate(id, class.rate), Err(quic::WriteError::Closed));
    client.set_rate(None);
    drop(pair);
    assert_eq!(journals.replay().logs, 2);
    let logs = journals.logs();
    let (_, log) = logs.iter().find(|(side, _)| *side == Side::Client).expect("the connection is recorded");
    let mut replay = Replay::begin(&log[..]).expect("the replay starts");
    let mut lines = Vec::new();
    while let Some(step) = replay.step().expect("the log replays") {
        if step.entry.name().starts_with("set_") {
            lines.push(step.to_string());
        }
    }
    let wanted = [
        format!("set_rate to 4.0 Mb/s with a burst of {} bytes", u64::MAX),
        "set_rate to 4.0 Mb/s with a burst of 1500 bytes".to_owned(),
        format!("set_priority of {id} to 3: done"),
        format!("set_stream_rate of {id} to 8.0 Mb/s with a burst of 2000 bytes: done"),
        format!("set_background of {id}: true: done"),
        format!("set_stream_paths of {id} to 0 9: done"),
        format!("set_stream_paths of {id} to all: done"),
        format!("set_stream_rate of {id} to no limit: done"),
        format!("set_background of {id}: false: done"),
        format!("set_priority of {id} to 3: closed"),
        format!("set_stream_rate of {id} to 8.0 Mb/s with a burst of 2000 bytes: closed"),
        "set_rate to no limit".to_owned(),
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn a_journal_holds_no_payload() {
    let secret = b"a secret of the two ends";
    let journals = Journals::default();
    let mut pair = Setup::new(5).with_config(|config| config.journal = Some(journals.source())).build();
    pair.connect();
    let id = pair.client.connection(0).open(Dir::Uni).expect("the peer allows streams");
    pair.client.connection(0).write(id, Bytes::from_static(secret)).expect("the send buffer has space");
    pair.client.connection(0).send_datagram(Bytes::from_static(secret)).expect("the peer accepts datagrams");
    pair.run_for(Duration::from_secs(1));
    drop(pair);
    let logs = journals.logs();
    assert_eq!(logs.len(), 2);
    for (side, log) in logs {
        assert!(!log.windows(8).any(|window| secret.windows(8).any(|part| part == window)), "{side}");
    }
}

#[test]
fn one_changed_byte_is_detected_wherever_it_is() {
    let [log, _] = journals(2);
    for at in 0..log.len().min(30_000) {
        let mut changed = log.clone();
        changed[at] ^= 1 << (at % 8);
        // A change of the last block's length makes a truncated log; any other change is rejected.
        match replayed(&changed) {
            Err(Stopped::Journal(_)) | Ok(LogEnd::Cut(_)) => {}
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn a_truncated_log_replays_to_its_end() {
    let [log, _] = journals(3);
    let (mut cuts, mut complete, mut with_rest) = (0, 0, 0);
    for len in (10..=log.len()).rev().step_by(97) {
        match replayed(&log[..len]) {
            Ok(LogEnd::Cut(unused)) => {
                cuts += 1;
                with_rest += u64::from(unused > 0);
            }
            Ok(LogEnd::Complete) => complete += 1,
            Err(Stopped::Journal(error)) if matches!(error.kind, JournalErrorKind::Empty) => {}
            other => panic!("{len} of {} bytes: {other:?}", log.len()),
        }
    }
    assert!(cuts > 10 && complete == 1 && with_rest + 1 >= cuts, "{cuts}, {complete}, {with_rest}");
    // Truncated between two entries: the checksums match, and the rest is missing.
    let (head, entries) = entries(&log);
    let mut ends = 0;
    for len in (500..entries.len()).step_by(211) {
        ends += u64::from(matches!(replayed(&sealed(&head, &entries[..len])), Ok(LogEnd::Cut(0))));
    }
    assert!(ends > 0, "no cut fell between two entries");
}

#[test]
fn files_that_are_no_journal_or_of_another_version_are_rejected() {
    let kind = |log: &[u8]| match Replay::begin(log) {
        Err(Stopped::Journal(error)) => error.kind,
        other => panic!("{other:?}"),
    };
    assert!(matches!(kind(b""), JournalErrorKind::NotAJournal));
    assert!(matches!(kind(b"LITZ"), JournalErrorKind::NotAJournal));
    assert!(matches!(kind(b"\x7fELF\x02\x01\x01\x00\x00\x00"), JournalErrorKind::NotAJournal));
    let [mut log, _] = journals(4);
    assert!(matches!(kind(&log[..9]), JournalErrorKind::Empty));
    log[8] = VERSION as u8 + 1;
    assert!(matches!(kind(&log), JournalErrorKind::OtherVersion { found, .. } if found == VERSION + 1));
    log.truncate(8);
    log.extend_from_slice(&[VERSION as u8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert!(matches!(kind(&log), JournalErrorKind::TooLong));
}

#[test]
fn a_report_changed_into_another_is_detected() {
    const EMITTED: u8 = 9;
    const TIMEOUT: u8 = 8;
    let [log, _] = journals(6);
    let (head, entries) = entries(&log);
    let (mut differences, mut tried) = (0, 0);
    for at in (1_000..entries.len()).filter(|at| entries[*at] == EMITTED).take(40) {
        // Some of these bytes are reports of an emission, others parts of numbers, a few of which
        // are only counters.
        tried += 1;
        let mut changed = entries.clone();
        changed[at] = TIMEOUT;
        differences += u64::from(!matches!(replayed(&sealed(&head, &changed)), Ok(LogEnd::Complete)));
    }
    assert!(tried == 40 && differences >= 36, "{differences} of {tried}");
}

/// Accepts this many pieces and no more.
struct FullSink {
    pieces_left: u32,
    log: Arc<Mutex<Vec<u8>>>,
}

impl JournalSink for FullSink {
    fn take(&mut self, bytes: &[u8]) -> bool {
        if self.pieces_left > 0 {
            self.pieces_left -= 1;
            self.log.lock().unwrap().extend_from_slice(bytes);
        }
        self.pieces_left > 0
    }
}

#[test]
fn a_full_sink_ends_the_journal_and_the_connection_continues() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    let source = JournalSource(Arc::new(move |_| Some(Box::new(FullSink { pieces_left: 3, log: Arc::clone(&sink) }))));
    // Only the client is recorded.
    let mut setup = Setup::new(8);
    setup.client.journal = Some(source);
    let mut pair = setup.build();
    pair.connect();
    let id = pair.client.connection(0).open(Dir::Uni).expect("the peer allows streams");
    pair.client.connection(0).write(id, Bytes::from(vec![7; 400_000])).expect("the send buffer has space");
    pair.client.connection(0).finish(id).expect("the stream is open");
    pair.run_for(Duration::from_secs(5));
    assert!(pair.server.connection(0).stats().receive.bytes_received > 400_000, "all data arrived");
    drop(pair);
    let log = log.lock().unwrap();
    assert!(matches!(replayed(&log), Ok(LogEnd::Cut(0))));
}

#[test]
fn an_entry_that_is_too_long_ends_the_journal_with_a_note() {
    let journals = Journals::default();
    let mut setup = Setup::new(9);
    setup.server.journal = Some(journals.source());
    let mut pair = setup.build();
    pair.connect();
    let now = pair.now;
    pair.server.connection(0).close(now, 1, &"too many words ".repeat(100_000));
    pair.run_for(Duration::from_secs(5));
    drop(pair);
    let logs = journals.logs();
    assert!(matches!(replayed(&logs[0].1), Ok(LogEnd::TooLong)), "{} logs", logs.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// With matching checksums, only the format and the connection itself prevent a panic.
    #[test]
    fn no_changed_log_makes_the_replay_panic(
        side in 0_usize..4,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..12),
    ) {
        static LOGS: std::sync::LazyLock<Vec<Vec<u8>>> =
            std::sync::LazyLock::new(|| journals(7).into_iter().chain(detached_journals(7)).collect());
        let (head, mut entries) = entries(&LOGS[side]);
        for (at, byte, kind) in edits {
            let at = at.index(entries.len());
            match kind {
                0 => entries[at] = byte,
                1 => entries[at] ^= 1 << (byte % 8),
                2 => { entries.insert(at, byte); }
                _ => { entries.remove(at); }
            }
        }
        // Any result is acceptable: the call returns.
        let _ = replayed(&sealed(&head, &entries));
    }

    #[test]
    fn no_bytes_make_the_replay_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), begins: bool) {
        if begins {
            let mut entries = vec![1];
            entries.append(&mut bytes);
            bytes = sealed(b"LITZJRNL\x01", &entries);
        }
        let is_refused = matches!(replayed(&bytes), Err(Stopped::Journal(_)));
        prop_assert!(is_refused, "random bytes are no journal");
    }
}

#[test]
fn a_connection_that_ends_with_its_first_flight_replays() {
    let journals = Journals::default();
    let mut setup = Setup::new(1);
    setup.client.journal = Some(journals.source());
    let mut pair = setup.build();
    pair.start();
    drop(pair);
    assert_eq!(journals.replay().logs, 1);
}
