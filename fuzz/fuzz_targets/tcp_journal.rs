//! Journals of TCP: the input is the entries after the first one, or all of them, with matching checks, so
//! that only the format and the connection itself stand between the input and a panic. A connection that
//! violates one of its own invariants during a replay is reported, not passed on.
#![no_main]

use std::sync::{LazyLock, Once};

use journal::memory::{MemoryJournals, entries, sealed};
use libfuzzer_sys::fuzz_target;
use tcp::{Arrival, Connection, Plan, Replay, SuperPacket, TcpConfig, Tuple};
use units::{Instant, Seq32};

/// The head of a log, and nothing, the first entry of a client or those of a server until it is connected,
/// because a server's log begins when its handshake is complete.
static BEGINNINGS: LazyLock<(Vec<u8>, [Vec<u8>; 3])> = LazyLock::new(|| {
    let journals = MemoryJournals::default();
    let config = TcpConfig { journal: Some(journals.source()), ..TcpConfig::default() };
    let tuple = Tuple { local: ([10, 0, 0, 1], 1000).into(), remote: ([10, 0, 0, 2], 80).into() };
    let mut client = Connection::connect(Instant::ZERO, TcpConfig::default(), tuple, Seq32::new(1), 2);
    let syn = segment_of(&mut client);
    drop(Connection::connect(Instant::ZERO, config.clone(), tuple, Seq32::new(1), 2));
    let mut server = Connection::accept(Instant::ZERO, config, &syn, Seq32::new(3), 4);
    client.handle_segment(Instant::ZERO, segment_of(&mut server));
    server.handle_segment(Instant::ZERO, segment_of(&mut client));
    drop(server);
    let logs = journals.logs();
    // Without the end, which takes two bytes.
    let first = |at: usize| entries(&logs[at].1).1.split_last_chunk::<2>().expect("it ends").0.to_vec();
    (entries(&logs[0].1).0, [Vec::new(), first(0), first(1)])
});

/// The next segment of a connection.
fn segment_of(connection: &mut Connection) -> Arrival {
    let (mut plan, mut packet) = (Plan::default(), SuperPacket::default());
    assert!(connection.poll_plan(Instant::ZERO, 1, &mut plan), "there is nothing to send");
    plan.seal(&mut packet);
    Arrival::open(&packet.bytes.into(), None, true).expect("a valid segment")
}

fuzz_target!(|input: &[u8]| {
    static QUIET: Once = Once::new();
    let (head, beginnings) = &*BEGINNINGS;
    // The fuzzer ends with the first panic otherwise, even with one that the replay reports.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let Some((kind, rest)) = input.split_first() else { return };
    let log = sealed(head, &[&beginnings[usize::from(kind % 3)], rest].concat());
    for log in [&log[..], rest] {
        let Ok(mut replay) = Replay::begin(log) else { continue };
        while let Ok(Some(step)) = replay.step() {
            assert!(!step.to_string().is_empty(), "an entry without a text");
        }
    }
});
