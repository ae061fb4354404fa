//! What a peer can make us hold, in bytes of memory, counted by the allocator.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use quic::{Chunk, Dir, PathId, Side, StreamId};
use support::Setup;
use support::hostile::{Duel, Hostile, client_parameters, encode, payload};
use units::Duration;
use wire::quic::{Frame, Stream, TransportParameters};

/// The system's allocator, with a count of what is held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counter touches no memory that it hands out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the hostile peer's `act` makes the victim hold, in bytes. The peer itself forgets what it has heard.
fn held_after(act: impl FnMut(&mut Duel, u64), rounds: u64) -> usize {
    held_in(Duel::against_server(), act, rounds)
}

fn held_in(mut duel: Duel, mut act: impl FnMut(&mut Duel, u64), rounds: u64) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    for round in 0..rounds {
        act(&mut duel, round);
        duel.hostile.forget();
        duel.victim.events.iter_mut().for_each(|events| events.clear());
        if !duel.victim_lives() {
            break;
        }
    }
    HELD.load(Ordering::Relaxed).saturating_sub(before)
}

/// A victim whose stream has credit while the connection has none.
fn starved() -> Duel {
    let hostile =
        Hostile::client(7, |id| encode(&TransportParameters { initial_max_data: 1_000, ..client_parameters(id) }));
    let mut duel = Duel::established(Duel::with_server(quic::TransportConfig::default(), hostile));
    let stream = duel.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    duel.victim.connection(0).write(stream, bytes::Bytes::from(vec![1; 200_000])).expect("room");
    duel.say_and_ack(&payload(&[Frame::Ping]));
    duel
}

/// A server with as many paths as there may be, which the hostile peer has opened.
fn all_paths() -> Duel {
    let mut duel = Duel::against_multipath_server(quic::PATHS_MAX, quic::PATHS_MAX - 1);
    for path in 1..quic::PATHS_MAX {
        let issued = [duel.hostile.issue(path, 0)];
        duel.say_and_ack(&payload(&issued));
        duel.say_on(path, &payload(&[Frame::Ping, Frame::Padding { len: 1150 }]));
    }
    assert_eq!(duel.victim.connection(0).path_stats().len() as u32, quic::PATHS_MAX);
    duel
}

/// What floods of several paths make us hold: name, bytes and their bound.
fn held_by_paths() -> Vec<(&'static str, usize, usize)> {
    const MIB: usize = 1 << 20;
    let path = |round: u64| round as u32 % quic::PATHS_MAX;
    let challenges = held_in(
        all_paths(),
        |duel, round| duel.say_on(path(round), &payload(&[Frame::PathChallenge(round.to_be_bytes()); 100])),
        6_000,
    );
    let statuses = held_in(
        all_paths(),
        |duel, round| {
            let frame = Frame::PathStatus { path: PathId(path(round)), sequence: round, available: round % 3 == 0 };
            duel.say(&payload(&[frame]));
        },
        20_000,
    );
    // Each packet leaves a gap, on every path.
    let gaps = held_in(
        all_paths(),
        |duel, round| {
            let _skipped = duel.hostile.packet_on(path(round), &[1]);
            duel.say_on(path(round), &payload(&[Frame::Ping]));
        },
        20_000,
    );
    let ids = held_in(
        all_paths(),
        |duel, round| {
            let sequence = round + 1;
            let Frame::NewConnectionId { path, id, reset_token, .. } = duel.hostile.issue(1, sequence) else { return };
            let frame = Frame::NewConnectionId { path, sequence, retire_prior_to: sequence, id, reset_token };
            duel.say_and_ack(&payload(&[frame]));
        },
        2_000,
    );
    // One path after the other is given up, and the next one opened in its place.
    let turns = held_in(
        Duel::against_multipath_server(3, 2),
        |duel, round| {
            let path = round as u32 + 1;
            let (limit, issued) = (Frame::MaxPathId(PathId(path + 1)), duel.hostile.issue(path, 0));
            duel.say_and_ack(&payload(&[limit, issued]));
            assert!(duel.hostile.can_use(path), "path {path}");
            duel.say_on(path, &payload(&[Frame::Ping, Frame::Padding { len: 1150 }]));
            duel.say_and_ack(&payload(&[Frame::PathAbandon { path: PathId(path), code: 0 }]));
            for _ in 0..40 {
                // Prompt answers, so that its probe timeouts stay short.
                duel.say_and_ack(&payload(&[Frame::Ping]));
                duel.wait(Duration::from_millis(100));
            }
            duel.hostile.forget_path(path);
        },
        500,
    );
    vec![
        ("challenges on all paths", challenges, MIB),
        ("statuses", statuses, MIB / 4),
        ("gaps on all paths", gaps, MIB * 5 / 8),
        ("connection IDs of a path", ids, MIB / 2),
        ("paths in turn", turns, MIB / 4),
    ]
}

/// What one side of a connection holds that was used and then left alone, in bytes, keys apart: those of the deterministic
/// session are smaller than real ones.
fn held_at_rest() -> usize {
    const CONNECTIONS: usize = 100;
    let mut pair = Setup::new(1).build();
    pair.connect();
    pair.run_for(Duration::from_secs(2));
    let before = HELD.load(Ordering::Relaxed);
    for index in 1..=CONNECTIONS {
        pair.start();
        assert!(pair.run_until(Duration::from_secs(1), |pair| {
            let nodes = [&pair.client, &pair.server];
            nodes.iter().all(|node| node.connections.get(index).is_some_and(Option::is_some))
                && pair.client.connection(index).is_established()
        }));
        let id = pair.client.connection(index).open(Dir::Uni).expect("allowed");
        pair.client.connection(index).write(id, bytes::Bytes::from(vec![1; 100_000])).expect("room");
        pair.client.connection(index).finish(id).expect("open");
        assert!(pair.run_until(Duration::from_secs(5), |pair| {
            let now = pair.now;
            loop {
                match pair.server.connection(index).read(now, id, usize::MAX) {
                    Ok(Chunk::Bytes(_)) => {}
                    end => return end == Ok(Chunk::End),
                }
            }
        }));
    }
    pair.run_for(Duration::from_secs(2));
    [&mut pair.client, &mut pair.server].into_iter().for_each(|node| node.events.clear());
    (HELD.load(Ordering::Relaxed) - before) / CONNECTIONS / 2
}

/// All in one test: the counter belongs to the process.
#[test]
fn no_flood_makes_a_connection_hold_more_than_its_windows_allow() {
    let at_rest = held_at_rest();
    assert!(at_rest < 6_100, "{at_rest} bytes are held by a connection at rest");
    const MIB: usize = 1 << 20;
    let id = |index| StreamId::new(Side::Client, Dir::Uni, index);
    let data = |index, offset, data: &'static [u8]| Frame::Stream(Stream { id: id(index), offset, fin: false, data });

    // A window's worth of single bytes, in order, that nobody reads: 2 MiB of data.
    let in_order = held_after(
        |duel, round| {
            let frames: Vec<Frame<'_>> =
                (0..200).map(|index| data(round % 2, (round / 2) * 200 + index, b"x")).collect();
            duel.say(&payload(&frames));
        },
        9_000,
    );
    // As many crumbs out of order as are allowed, on many streams.
    let crumbs = held_after(
        |duel, round| {
            let frames: Vec<Frame<'_>> =
                (0..100).map(|index| data(round % 200, 1 + 2 * ((round / 200) * 100 + index), b"x")).collect();
            duel.say(&payload(&frames));
        },
        2_000,
    );
    let streams = held_after(|duel, round| duel.say(&payload(&[data(round.min(1023), 0, b"")])), 1_100);
    let datagrams = held_after(|duel, _| duel.say(&payload(&[Frame::Datagram { data: b"" }; 400])), 2_000);
    let pings = held_after(|duel, _| duel.say(&payload(&[Frame::Ping; 10])), 20_000);
    let challenges = held_after(|duel, round| duel.say(&payload(&[Frame::PathChallenge([round as u8; 8]); 100])), 100);
    let blocked = held_after(
        |duel, round| {
            let frames = [Frame::DataBlocked(round), Frame::StreamDataBlocked { id: id(0), limit: round }];
            duel.say(&payload(&frames.repeat(50)));
        },
        5_000,
    );
    let credit = held_in(
        starved(),
        |duel, round| {
            duel.say(&payload(&[Frame::MaxStreamData {
                id: StreamId::new(Side::Server, Dir::Uni, 0),
                max: (1 << 18) + round,
            }]));
        },
        60_000,
    );
    let mut kinds = vec![
        ("in order", in_order, 8 * MIB),
        ("crumbs", crumbs, 32 * MIB),
        ("streams", streams, 2 * MIB),
        ("datagrams", datagrams, 4 * MIB),
        ("pings", pings, MIB / 4),
        ("challenges", challenges, MIB / 2),
        ("blocked", blocked, MIB / 4),
        ("credit", credit, MIB / 4),
    ];
    kinds.extend(held_by_paths());
    let report: Vec<String> = kinds.iter().map(|(name, held, _)| format!("{name}: {held}")).collect();
    assert!(kinds.iter().all(|(_, held, bound)| held < bound), "bytes held: {report:?}");
    if std::env::var_os("LITZ_SHOW").is_some() {
        show(&report);
    }
}

#[expect(clippy::print_stdout, reason = "asked for")]
fn show(report: &[String]) {
    println!("{report:?}");
}
