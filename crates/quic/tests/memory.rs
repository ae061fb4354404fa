//! The memory that a peer can make a connection hold, in bytes counted by the allocator.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use quic::{Chunk, Dir, PathId, Side, StreamId};
use support::Setup;
use support::hostile::{HOSTILE, Hostile, HostilePair, client_parameters, encode, payload};
use units::Duration;
use wire::quic::{Frame, Space, Stream, TransportParameters};

/// The system allocator, with a count of the bytes held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged; the counter touches no memory that the
// allocator returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// A flood: its name, the bytes held after it, and their bound.
type Flood = (&'static str, usize, usize);

/// Bytes that the victim holds after the hostile peer's `act`. The peer itself drops what it has
/// received.
fn held_after(act: impl FnMut(&mut HostilePair, u64), rounds: u64) -> usize {
    held_in(HostilePair::against_server(), act, rounds)
}

fn held_in(mut hostile_pair: HostilePair, mut act: impl FnMut(&mut HostilePair, u64), rounds: u64) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    for round in 0..rounds {
        act(&mut hostile_pair, round);
        hostile_pair.hostile.forget();
        hostile_pair.victim.events.iter_mut().for_each(|events| events.clear());
        if !hostile_pair.victim_is_alive() {
            break;
        }
    }
    HELD.load(Ordering::Relaxed).saturating_sub(before)
}

/// A victim whose stream has credit while the connection has none.
fn without_credit() -> HostilePair {
    let hostile =
        Hostile::client(7, |id| encode(&TransportParameters { initial_max_data: 1_000, ..client_parameters(id) }));
    let mut hostile_pair =
        HostilePair::established(HostilePair::with_server(quic::TransportConfig::default(), hostile));
    let stream = hostile_pair.victim.connection(0).open(Dir::Uni).expect("the peer allows streams");
    hostile_pair
        .victim
        .connection(0)
        .write(stream, bytes::Bytes::from(vec![1; 200_000]))
        .expect("the send buffer has space");
    hostile_pair.send_and_ack(&payload(&[Frame::Ping]));
    hostile_pair
}

/// A server with the maximum number of paths, all opened by the hostile peer.
fn all_paths() -> HostilePair {
    let mut hostile_pair = HostilePair::against_multipath_server(quic::PATHS_MAX, quic::PATHS_MAX - 1);
    for path in 1..quic::PATHS_MAX {
        let issued = [hostile_pair.hostile.issue(path, 0)];
        hostile_pair.send_and_ack(&payload(&issued));
        hostile_pair.send_on(path, &payload(&[Frame::Ping, Frame::Padding { len: 1150 }]));
    }
    assert_eq!(hostile_pair.victim.connection(0).path_stats().len() as u32, quic::PATHS_MAX);
    hostile_pair
}

/// The flooding client's unidirectional stream.
fn stream(index: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Uni, index)
}

fn data(index: u64, offset: u64, data: &'static [u8]) -> Frame<'static> {
    Frame::Stream(Stream { id: stream(index), offset, fin: false, data })
}

/// Floods of stream data, and of frames about their flow control.
fn held_by_streams() -> Vec<Flood> {
    // A window's worth of single bytes, in order, unread: 2 MiB of data.
    let in_order = held_after(
        |hostile_pair, round| {
            let frames: Vec<Frame<'_>> =
                (0..200).map(|index| data(round % 2, (round / 2) * 200 + index, b"x")).collect();
            hostile_pair.send(&payload(&frames));
        },
        9_000,
    );
    // As many out-of-order fragments as are allowed, on many streams.
    let crumbs = held_after(
        |hostile_pair, round| {
            let frames: Vec<Frame<'_>> =
                (0..100).map(|index| data(round % 200, 1 + 2 * ((round / 200) * 100 + index), b"x")).collect();
            hostile_pair.send(&payload(&frames));
        },
        2_000,
    );
    let streams =
        held_after(|hostile_pair, round| hostile_pair.send(&payload(&[data(round.min(1023), 0, b"")])), 1_100);
    let blocked = held_after(
        |hostile_pair, round| {
            let frames = [Frame::DataBlocked(round), Frame::StreamDataBlocked { id: stream(0), limit: round }];
            hostile_pair.send(&payload(&frames.repeat(50)));
        },
        5_000,
    );
    let credit = held_in(
        without_credit(),
        |hostile_pair, round| {
            hostile_pair.send(&payload(&[Frame::MaxStreamData {
                id: StreamId::new(Side::Server, Dir::Uni, 0),
                max: (1 << 18) + round,
            }]));
        },
        60_000,
    );
    vec![
        ("in order", in_order, 8 * MIB),
        ("crumbs", crumbs, 32 * MIB),
        ("streams", streams, 2 * MIB),
        ("blocked", blocked, MIB / 4),
        ("credit", credit, MIB / 4),
    ]
}

/// Floods of other frames, on one path.
fn held_by_frames() -> Vec<Flood> {
    let datagrams =
        held_after(|hostile_pair, _| hostile_pair.send(&payload(&[Frame::Datagram { data: b"" }; 400])), 2_000);
    let pings = held_after(|hostile_pair, _| hostile_pair.send(&payload(&[Frame::Ping; 10])), 20_000);
    let challenges = held_after(
        |hostile_pair, round| hostile_pair.send(&payload(&[Frame::PathChallenge([round as u8; 8]); 100])),
        100,
    );
    let probes = held_after(
        |hostile_pair, round| {
            let probe = hostile_pair.hostile.packet(Space::Data, &payload(&[Frame::PathChallenge([1; 8]); 100]));
            let source = SocketAddr::new(HOSTILE.ip(), round as u16);
            hostile_pair.deliver_unpadded(&probe, source);
            hostile_pair.victim_bytes.clear();
        },
        20_000,
    );
    vec![
        ("datagrams", datagrams, 4 * MIB),
        ("pings", pings, MIB / 4),
        ("challenges", challenges, MIB / 2),
        ("probes from many addresses", probes, MIB / 4),
    ]
}

/// Floods on several paths.
fn held_by_paths() -> Vec<Flood> {
    let path = |round: u64| round as u32 % quic::PATHS_MAX;
    let challenges = held_in(
        all_paths(),
        |hostile_pair, round| {
            hostile_pair.send_on(path(round), &payload(&[Frame::PathChallenge(round.to_be_bytes()); 100]))
        },
        6_000,
    );
    let statuses = held_in(
        all_paths(),
        |hostile_pair, round| {
            let frame = Frame::PathStatus { path: PathId(path(round)), sequence: round, available: round % 3 == 0 };
            hostile_pair.send(&payload(&[frame]));
        },
        20_000,
    );
    // Each packet leaves a gap in the packet numbers, on every path.
    let gaps = held_in(
        all_paths(),
        |hostile_pair, round| {
            let _skipped = hostile_pair.hostile.packet_on(path(round), &[1]);
            hostile_pair.send_on(path(round), &payload(&[Frame::Ping]));
        },
        20_000,
    );
    let ids = held_in(
        all_paths(),
        |hostile_pair, round| {
            let sequence = round + 1;
            let Frame::NewConnectionId { path, id, reset_token, .. } = hostile_pair.hostile.issue(1, sequence) else {
                return;
            };
            let frame = Frame::NewConnectionId { path, sequence, retire_prior_to: sequence, id, reset_token };
            hostile_pair.send_and_ack(&payload(&[frame]));
        },
        2_000,
    );
    // The paths are abandoned one by one, and the next is opened in place of each.
    let turns = held_in(
        HostilePair::against_multipath_server(3, 2),
        |hostile_pair, round| {
            let path = round as u32 + 1;
            let (limit, issued) = (Frame::MaxPathId(PathId(path + 1)), hostile_pair.hostile.issue(path, 0));
            hostile_pair.send_and_ack(&payload(&[limit, issued]));
            assert!(hostile_pair.hostile.can_use(path), "path {path}");
            hostile_pair.send_on(path, &payload(&[Frame::Ping, Frame::Padding { len: 1150 }]));
            hostile_pair.send_and_ack(&payload(&[Frame::PathAbandon { path: PathId(path), code: 0 }]));
            for _ in 0..40 {
                // Prompt acknowledgements keep the probe timeouts short.
                hostile_pair.send_and_ack(&payload(&[Frame::Ping]));
                hostile_pair.wait(Duration::from_millis(100));
            }
            hostile_pair.hostile.forget_path(path);
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

/// Bytes that one side of an idle connection holds after use, keys apart: those of the
/// deterministic session are smaller than real ones.
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
        pair.client
            .connection(index)
            .write(id, bytes::Bytes::from(vec![1; 100_000]))
            .expect("the send buffer has space");
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
    assert!(at_rest < 6_500, "{at_rest} bytes are held by a connection at rest");
    let kinds = [held_by_streams(), held_by_frames(), held_by_paths()].concat();
    let report: Vec<String> = kinds.iter().map(|(name, held, _)| format!("{name}: {held}")).collect();
    assert!(kinds.iter().all(|(_, held, bound)| held < bound), "bytes held: {report:?}");
    if std::env::var_os("LITZ_SHOW").is_some() {
        show(&report);
    }
}

#[expect(clippy::print_stdout, reason = "run on request")]
fn show(report: &[String]) {
    println!("{report:?}");
}
