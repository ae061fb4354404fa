//! Journals of connections: their contents; their replay, whatever the connection has been through;
//! and reports of damaged, truncated, foreign or malicious ones, without a panic and with bounded
//! memory.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use journal::memory::{MemoryJournals, entries, head, sealed};
use journal::{JournalErrorKind, JournalSink, JournalSource, LogEnd, Side, Stopped};
use netem::LinkConfig;
use proptest::prelude::*;
use tcp::journal::{MAGIC, VERSION};
use tcp::{
    Arrival, BufferBudget, Connection, HostSecret, KeepAlive, Md5Key, Plan, Read, Replay, State, SuperPacket,
    TcpConfig, Tuple,
};
use units::{Duration, Instant, Ratio, Seq32};
use wire::tcp::{Flags, Header};

use crate::support::journals::{Replayed, replay, replay_all};
use crate::support::{CLIENT, Pair, SERVER, link, pattern};

/// Transfers data each way over links that lose and reorder, with the receive halves detached if
/// `detached`.
fn transferred(seed: u64, detached: bool) -> MemoryJournals {
    let lossy = LinkConfig {
        loss: Ratio::new(2, 100),
        reorder: Ratio::new(5, 100),
        reorder_by: Duration::from_millis(3),
        ..link(50, 5)
    };
    transferred_over(lossy, seed, TcpConfig::default(), detached)
}

/// Does the same over a long link that makes buffers grow.
fn grown(budget: BufferBudget) -> MemoryJournals {
    let config = TcpConfig { budget: Arc::new(budget), ..TcpConfig::default() };
    transferred_over(link(100, 20), 5, config, false)
}

fn transferred_over(lossy: LinkConfig, seed: u64, config: TcpConfig, detached: bool) -> MemoryJournals {
    let journals = MemoryJournals::default();
    let config = TcpConfig { journal: Some(journals.source()), ..config };
    let mut pair = Pair::with(seed, [lossy.clone(), lossy], [config.clone(), config]);
    pair.connect();
    pair.hosts.iter_mut().for_each(|host| host.split.is_wanted = detached);
    pair.transfer_part(1, 60_000);
    pair.transfer(0, 400_000, Duration::from_secs(60));
    pair.hosts[1].send(Vec::new(), true);
    pair.run_for(Duration::from_secs(300));
    drop(pair);
    journals
}

/// Returns the logs of the client and of the server.
fn logs(journals: &MemoryJournals) -> [Vec<u8>; 2] {
    let logs = journals.logs();
    let of = |wanted| logs.iter().find(|(side, _)| *side == wanted).expect("both sides are recorded").1.clone();
    [of(Side::Client), of(Side::Server)]
}

fn replayed(log: &[u8]) -> Result<LogEnd, Stopped> {
    replay(log, &mut Replayed::default())
}

/// Returns the lines of a log that replays.
fn lines(log: &[u8]) -> Vec<String> {
    let mut replay = Replay::begin(log).expect("the replay begins");
    let mut lines = Vec::new();
    while let Some(step) = replay.step().expect("the log replays") {
        lines.push(step.to_string());
    }
    lines
}

#[test]
fn a_journal_replays_and_describes_its_connection() {
    for detached in [false, true] {
        let journals = transferred(1, detached);
        let all = replay_all(&journals);
        assert!(all.logs == 2 && all.bytes >= 460_000 && all.plans > 100, "{all:?}");
        assert!(all.log_bytes < 60 * all.entries, "{all:?}");
        let [client, server] = logs(&journals);
        for (log, side, tuple) in [(&client, Side::Client, [CLIENT, SERVER]), (&server, Side::Server, [SERVER, CLIENT])]
        {
            let mut replay = Replay::begin(&log[..]).expect("the replay begins");
            assert_eq!((replay.head().side, [replay.head().tuple.local, replay.head().tuple.remote]), (side, tuple));
            let (mut milestones, mut at) = (Vec::new(), Instant::ZERO);
            while let Some(step) = replay.step().expect("the log replays") {
                // Calls of the other half that exchanged nothing may stand in another order.
                assert!(step.at >= at || detached, "times of one thread do not go back");
                at = step.at;
                if step.entry.is_milestone() {
                    milestones.push(step.to_string());
                }
            }
            assert_eq!(replay.end(), Some(LogEnd::Complete));
            let stats = replay.connection().stats();
            assert!(stats.send.bytes_resent > 0 || stats.receive.bytes_duplicate > 0, "{stats:?}");
            assert!(milestones.contains(&"event: connected".to_owned()), "{milestones:?}");
            assert!(milestones.iter().any(|line| line == "event: closed: both sides have finished"), "{milestones:?}");
            let is_detached = milestones.iter().any(|line| line.starts_with("detached"));
            assert_eq!(is_detached, detached, "{milestones:?}");
        }
    }
}

#[test]
fn detached_halves_write_one_log_with_the_entries_of_both() {
    let [_, server] = logs(&transferred(12, true));
    let lines = lines(&server);
    let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert!(count("detached") > 0 && count("attached") == count("detached"), "{lines:#?}");
    assert!(count("receive half: segment") > 100, "{lines:#?}");
    assert!(count("gave_commands") > 10 && count("gave_commands") == count("receive half: took_commands"));
    assert!(count("receive half: gave_report") > 10 && count("receive half: gave_report") == count("took_report"));
    assert!(count("receive half: read") > 10, "{lines:#?}");
}

/// Other connections share the budget, so its grants are inputs.
#[test]
fn grants_of_a_shared_budget_are_replayed_from_the_log() {
    const BUDGET: u64 = 100_000;
    let [little, _] = logs(&grown(BufferBudget::new(BUDGET)));
    let [much, _] = logs(&grown(BufferBudget::new(512 << 20)));
    let sizes = |log: &[u8]| {
        let mut replay = Replay::begin(log).expect("the replay begins");
        let (mut send, mut receive) = (0, 0);
        while replay.step().expect("the log replays").is_some() {
            let sizes = replay.connection().buffer_sizes();
            (send, receive) = (sizes.0.max(send), sizes.1.max(receive));
        }
        send + receive
    };
    let (little, much) = (sizes(&little), sizes(&much));
    let initial = 2 * TcpConfig::default().buffers_initial as u64;
    assert!(initial < little && little <= initial + BUDGET && much > initial + BUDGET, "{little} {much}");
}

#[test]
fn a_changed_grant_is_a_difference() {
    const GRANT: u8 = 48;
    let [log, _] = logs(&grown(BufferBudget::new(512 << 20)));
    let (head, whole) = entries(&log);
    // Everything was granted: the same number twice, in two bytes each.
    let is_grant =
        |at: &usize| whole[*at] == GRANT && whole[at + 1] >> 6 == 1 && whole[at + 1..at + 3] == whole[at + 3..at + 5];
    let grants: Vec<usize> = (0..whole.len() - 5).filter(is_grant).collect();
    assert!(grants.len() > 3, "{grants:?}");
    let (mut tried, mut same) = (0, 0);
    for at in grants {
        // A smaller grant, another request, and a grant larger than the request.
        for (place, change) in [(at + 4, -1_i8), (at + 2, 1), (at + 4, 1)] {
            let mut changed = whole.clone();
            changed[place] = changed[place].wrapping_add_signed(change);
            tried += 1;
            same += u64::from(replayed(&sealed(&head, &changed)).is_ok());
        }
    }
    // A grant that is one byte smaller shows only if it is used.
    assert!(3 * same <= tried, "{same} of {tried}");
}

#[test]
fn a_journal_holds_neither_data_nor_keys() {
    let (journals, secret) = (MemoryJournals::default(), b"a secret of the two ends");
    let key = Md5Key::new(b"the key of the routers").expect("a valid key");
    let config = TcpConfig { journal: Some(journals.source()), md5: Some(key), ..TcpConfig::default() };
    let mut pair = Pair::with(3, [link(50, 5), link(50, 5)], [config.clone(), config]);
    pair.connect();
    pair.hosts[0].send(Bytes::from_static(secret), true);
    pair.run_for(Duration::from_secs(3));
    assert_eq!(pair.hosts[1].received, secret);
    drop(pair);
    assert_eq!(replay_all(&journals).logs, 2);
    for (side, log) in journals.logs() {
        for hidden in [&secret[..], b"the key of the routers"] {
            assert!(!log.windows(8).any(|window| hidden.windows(8).any(|part| part == window)), "{side}");
        }
    }
}

#[test]
fn calls_of_the_application_are_replayed() {
    let journals = MemoryJournals::default();
    let config = TcpConfig { journal: Some(journals.source()), ..TcpConfig::default() };
    let mut pair = Pair::with(4, [link(50, 5), link(50, 5)], [config.clone(), config]);
    pair.connect();
    let client = pair.hosts[0].connection();
    client.set_nagle(false);
    client.set_dscp(46);
    client.set_keep_alive(Some(KeepAlive {
        after: Duration::from_secs(2),
        interval: Duration::from_secs(1),
        probes_max: 2,
    }));
    client.write(&mut Bytes::from(pattern(300_000, 1))).expect("there is space");
    assert!(client.write(&mut Bytes::from_static(b"more")).is_err(), "the buffer is full");
    pair.run_for(Duration::from_secs(20));
    assert!(matches!(pair.hosts[0].connection().read(10), Read::Blocked));
    pair.hosts[1].connection().write(&mut Bytes::from_static(b"unread")).expect("there is space");
    pair.hosts[0].reads = false;
    pair.run_for(Duration::from_secs(1));
    assert!(matches!(pair.hosts[0].connection().read(2), Read::Bytes(bytes) if bytes.len() == 2));
    pair.hosts[0].connection().orphan();
    pair.run_for(Duration::from_secs(5));
    assert!(pair.hosts[1].connection().close_reason().is_some(), "what is unread resets");
    assert!(pair.hosts[1].connection().write(&mut Bytes::from_static(b"late")).is_err());
    pair.hosts[1].connection().abort();
    pair.hosts[1].connection().finish();
    drop(pair);
    assert_eq!(replay_all(&journals).logs, 2);
    let [client, server] = logs(&journals);
    let (client, server) = (lines(&client), lines(&server));
    for line in [
        "set_nagle: false",
        "set_dscp: 46",
        "set_keep_alive: after 2.00 s, then every 1.00 s",
        "write 300000 bytes: 65536 bytes",
        "write 4 bytes: blocked",
        "read at most 10 bytes: blocked",
        "read at most 2 bytes: 2 bytes",
        "orphan: the application is gone",
    ] {
        assert!(client.iter().any(|known| known == line), "{line}: {client:#?}");
    }
    for line in [
        "event: closed: the peer has reset the connection",
        "write 4 bytes: closed: the peer has reset the connection",
        "abort",
        "finish",
    ] {
        assert!(server.iter().any(|known| known == line), "{line}: {server:#?}");
    }
}

#[test]
fn one_changed_byte_is_detected_wherever_it_is() {
    let [log, _] = logs(&transferred(2, false));
    for at in 0..log.len().min(20_000) {
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
    let [log, _] = logs(&transferred(3, true));
    let (mut cuts, mut complete) = (0, 0);
    for len in (10..=log.len()).rev().step_by(97) {
        match replayed(&log[..len]) {
            Ok(LogEnd::Cut(_)) => cuts += 1,
            Ok(LogEnd::Complete) => complete += 1,
            Err(Stopped::Journal(error)) if matches!(error.kind, JournalErrorKind::Empty) => {}
            other => panic!("{len} of {} bytes: {other:?}", log.len()),
        }
    }
    assert!(cuts > 10 && complete == 1, "{cuts}, {complete}");
    // Truncated between two entries: the checks match, and the rest is missing.
    let (head, whole) = entries(&log);
    let cut = |len: &usize| matches!(replayed(&sealed(&head, &whole[..*len])), Ok(LogEnd::Cut(0)));
    let ends = (500..whole.len()).step_by(211).filter(cut).count();
    assert!(ends > 0, "no cut fell between two entries");
}

#[test]
fn files_that_are_no_journal_of_tcp_are_rejected() {
    let kind = |log: &[u8]| match Replay::begin(log) {
        Err(Stopped::Journal(error)) => error.kind,
        other => panic!("{other:?}"),
    };
    assert!(matches!(kind(b""), JournalErrorKind::NotAJournal));
    assert!(matches!(kind(b"LITZJRNL\x06\x00"), JournalErrorKind::NotAJournal), "one of QUIC");
    let [mut log, _] = logs(&transferred(4, false));
    assert_eq!((&log[..8], u64::from(log[8])), (&MAGIC[..], VERSION));
    assert!(matches!(kind(&log[..9]), JournalErrorKind::Empty));
    log[8] += 1;
    assert!(matches!(kind(&log), JournalErrorKind::OtherVersion { found, .. } if found == VERSION + 1));
    log.truncate(8);
    log.extend_from_slice(&[VERSION as u8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert!(matches!(kind(&log), JournalErrorKind::TooLong));
}

#[test]
fn entries_of_the_wrong_half_and_unknown_messages_are_rejected() {
    let [log, _] = logs(&transferred(13, false));
    let (head, whole) = entries(&log);
    // Before the end entry.
    let (end, before) = (whole.len() - 2, &whole[..whole.len() - 2]);
    let with = |added: &[u8]| replayed(&sealed(&head, &[before, added, &whole[end..]].concat()));
    for (added, wanted) in [
        (&[65, 26, 1][..], "an entry of a receive half that is not detached"),
        (&[70, 1], "an entry of the other half"),
        (&[69, 1], "an entry of the other half"),
        (&[200], "an unknown entry"),
        (&[26, 1, 8, 0], "a call without an answer"),
        (&[48, 1, 2], "an unknown entry"),
        (&[27, 48, 1, 2], "grants that no call can have"),
    ] {
        match with(added) {
            Err(Stopped::Journal(error)) => assert!(error.to_string().contains(wanted), "{added:?}: {error}"),
            other => panic!("{added:?}: {other:?}"),
        }
    }
    for added in [&[71, 0, 1][..], &[67, 0], &[68, 1], &[66], &[27, 48, 1, 1, 27]] {
        let result = with(added);
        assert!(matches!(result, Err(Stopped::Differs(_))), "{added:?}: {result:?}");
    }
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
    for detached in [false, true] {
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&log);
        let source =
            JournalSource(Arc::new(move |_| Some(Box::new(FullSink { pieces_left: 4, log: Arc::clone(&sink) }))));
        // Only the server is recorded.
        let config = TcpConfig { journal: Some(source), ..TcpConfig::default() };
        let mut pair = Pair::with(8, [link(50, 5), link(50, 5)], [TcpConfig::default(), config]);
        pair.connect();
        pair.hosts[1].split.is_wanted = detached;
        pair.transfer(0, 2_000_000, Duration::from_secs(60));
        drop(pair);
        let log = log.lock().unwrap();
        assert!(matches!(replayed(&log), Ok(LogEnd::Cut(0))));
        assert_eq!(lines(&log).iter().any(|line| line.starts_with("detached")), detached);
    }
}

/// A log with buffers larger than any memory is not replayed.
#[test]
fn a_log_with_huge_buffers_is_rejected() {
    for (send_buffer, receive_buffer) in [(1 << 31, 1000), (1000, 1 << 31)] {
        let journals = MemoryJournals::default();
        let config =
            TcpConfig { send_buffer, receive_buffer, journal: Some(journals.source()), ..TcpConfig::default() };
        let tuple = Tuple { local: CLIENT, remote: SERVER };
        drop(Connection::connect(Instant::ZERO, config, tuple, Seq32::new(1), 2));
        match replayed(&journals.logs()[0].1) {
            Err(Stopped::Journal(error)) => assert!(error.to_string().contains("2^30"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the segments that `connection` sends now.
fn packets(now: Instant, connection: &mut Connection) -> Vec<Arrival> {
    let (mut plan, mut packet, mut sent) = (Plan::default(), SuperPacket::default(), Vec::new());
    while connection.poll_plan(now, 16, &mut plan) {
        sent.push(arrival(&plan, &mut packet));
    }
    sent
}

fn arrival(plan: &Plan, packet: &mut SuperPacket) -> Arrival {
    plan.seal(packet);
    Arrival::open(&Bytes::copy_from_slice(&packet.bytes), None, true).expect("a valid segment")
}

#[test]
fn a_connection_that_a_cookie_has_begun_replays_and_a_cookie_alone_leaves_no_log() {
    let (journals, now) = (MemoryJournals::default(), Instant::ZERO + Duration::from_secs(1000));
    let config = Arc::new(TcpConfig { journal: Some(journals.source()), ..TcpConfig::default() });
    let (secret, tuple) = (HostSecret::new([7; 32]), Tuple { local: CLIENT, remote: SERVER });
    let mut client = Connection::connect(now, TcpConfig::default(), tuple, Seq32::new(1), 2);
    let syn = packets(now, &mut client).remove(0);
    let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
    Connection::answer_with_cookie(now, &config, &secret, &syn, &mut plan);
    assert!(journals.logs().is_empty());
    client.handle_segment(now, arrival(&plan, &mut packet));
    client.write(&mut Bytes::from_static(b"hello")).expect("there is space");
    let mut sent = packets(now, &mut client).into_iter();
    let acknowledgement = sent.next().expect("the handshake is complete");
    let server = Connection::accept_cookie(now, &config, &secret, acknowledgement);
    let mut server = server.expect("its cookie is valid");
    sent.for_each(|arrival| server.handle_segment(now, arrival));
    assert!(matches!(server.read(usize::MAX), Read::Bytes(bytes) if bytes == b"hello"[..]));
    let answer = packets(now + Duration::from_secs(1), &mut server);
    assert!(!answer.is_empty() || server.poll_timeout().is_some());
    drop(server);
    assert_eq!(replay_all(&journals).logs, 1);
    let lines = lines(&journals.logs()[0].1);
    assert!(lines[0] == "pass_over_syn: a cookie has answered it" && lines[1].starts_with("segment"), "{lines:#?}");
    // A wrong one leaves no log either.
    let wrong = Arrival { header: Header { ack: syn.header.seq, flags: Flags::ACK, ..syn.header }, ..syn };
    assert!(Connection::accept_cookie(now, &config, &secret, wrong).is_none());
    assert_eq!(journals.logs().len(), 1);
}

#[test]
fn a_log_begins_when_the_handshake_is_complete() {
    let (journals, mut now) = (MemoryJournals::default(), Instant::ZERO + Duration::from_secs(1000));
    let config = TcpConfig { journal: Some(journals.source()), ..TcpConfig::default() };
    let tuple = Tuple { local: CLIENT, remote: SERVER };
    for completes in [false, true] {
        let mut client = Connection::connect(now, TcpConfig::default(), tuple, Seq32::new(1), 2);
        let syn = packets(now, &mut client).remove(0);
        let mut server = Connection::accept(now, config.clone(), &syn, Seq32::new(2), 3);
        let answer = packets(now, &mut server).remove(0);
        // It is repeated for seconds, and other segments arrive.
        for _ in 0..3 {
            now = server.poll_timeout().expect("the answer is repeated");
            server.handle_timeout(now);
            assert!(!packets(now, &mut server).is_empty());
            server.handle_segment(now, syn.clone());
        }
        assert!(journals.logs().is_empty());
        if completes {
            client.handle_segment(now, answer);
            packets(now, &mut client).into_iter().for_each(|arrival| server.handle_segment(now, arrival));
            assert_eq!(server.state(), State::Established);
        }
        drop(server);
        assert_eq!(journals.logs().len(), usize::from(completes));
    }
    assert_eq!(replay_all(&journals).logs, 1);
}

#[test]
fn a_connection_that_ends_with_its_first_plan_replays() {
    let journals = MemoryJournals::default();
    let config = TcpConfig { journal: Some(journals.source()), ..TcpConfig::default() };
    let tuple = Tuple { local: CLIENT, remote: SERVER };
    let now = Instant::ZERO + Duration::from_secs(7);
    let mut connection = Connection::connect(now, config, tuple, Seq32::new(1), 2);
    assert!(connection.poll_plan(now, 1, &mut Plan::default()));
    drop(connection);
    assert_eq!(replay_all(&journals).plans, 1);
    let log = &journals.logs()[0].1;
    assert_eq!(Replay::begin(&log[..]).expect("the replay begins").head().began_at, now);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// With matching checks, only the format and the connection itself prevent a panic.
    #[test]
    fn no_changed_log_makes_the_replay_panic(
        side in 0_usize..4,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..12),
    ) {
        static LOGS: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(|| {
            [false, true].into_iter().flat_map(|is| logs(&transferred(7, is))).collect()
        });
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
            bytes = sealed(&head(journal::format::Format { magic: MAGIC, version: VERSION }), &entries);
        }
        let is_refused = matches!(replayed(&bytes), Err(Stopped::Journal(_)));
        prop_assert!(is_refused, "random bytes are no journal");
    }
}
