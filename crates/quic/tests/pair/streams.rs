//! Streams: large numbers, resets, stops, and priorities.

use bytes::Bytes;
use quic::{Chunk, Dir, Event, ReadError, StreamId, WriteError};
use units::Duration;

use crate::support::{Pair, Setup, apps};

fn connected(setup: Setup) -> Pair {
    let mut pair = setup.build();
    pair.connect();
    pair
}

#[test]
fn thousands_of_streams_pass_through_a_limit_of_a_hundred() {
    for seed in 0..3 {
        let setup = Setup::new(seed).with_loss(seed * 3).with_config(|config| config.max_concurrent_uni_streams = 100);
        let mut pair = connected(setup);
        let (mut opened, mut finished, mut most) = (0_u64, 0_u64, 0);
        let (mut readers, mut refused) = (Vec::<apps::Reader>::new(), 0);
        let done = pair.run_until(Duration::from_secs(120), |pair| {
            let client = pair.client.connection(0);
            while opened < 3000 {
                let Some(id) = client.open(Dir::Uni) else {
                    refused += 1;
                    break;
                };
                opened += 1;
                apps::Writer::new(id, 500 + opened % 700).pump(client);
            }
            let now = pair.now;
            let server = pair.server.connection(0);
            while let Some(id) = server.accept(Dir::Uni) {
                readers.push(apps::Reader::new(id));
            }
            most = most.max(server.stats().receive.streams_open);
            readers.retain_mut(|reader| {
                reader.pump(now, server);
                finished += u64::from(reader.ended);
                !reader.ended
            });
            finished == 3000
        });
        assert!(done, "seed {seed}: {finished} of {opened} streams");
        assert!(most <= 100 && refused > 0, "{most} at a time, refused {refused} times");
        pair.run_for(Duration::from_secs(1));
        assert_eq!(pair.client.connection(0).stats().send.streams_open, 0, "no stream state is left");
        assert_eq!(pair.client.connection(0).stats().send.held_bytes, 0);
        assert_eq!(pair.client.events[0].iter().filter(|event| matches!(event, Event::Finished(_))).count(), 3000);
        assert!(pair.client.events[0].contains(&Event::StreamsAvailable(Dir::Uni)));
    }
}

#[test]
fn a_thousand_streams_at_once_share_a_connection() {
    let mut pair = connected(Setup::new(5));
    let ids: Vec<StreamId> =
        (0..1000).map(|_| pair.client.connection(0).open(Dir::Uni).expect("1024 are allowed")).collect();
    let mut writers: Vec<apps::Writer> = ids.iter().map(|id| apps::Writer::new(*id, 300)).collect();
    let mut readers: Vec<apps::Reader> = Vec::new();
    let done = pair.run_until(Duration::from_secs(30), |pair| {
        let client = pair.client.connection(0);
        writers.iter_mut().filter(|writer| !writer.finished).for_each(|writer| writer.pump(client));
        let now = pair.now;
        let server = pair.server.connection(0);
        while let Some(id) = server.accept(Dir::Uni) {
            readers.push(apps::Reader::new(id));
        }
        readers.iter_mut().filter(|reader| !reader.ended).for_each(|reader| reader.pump(now, server));
        readers.len() == 1000 && readers.iter().all(|reader| reader.ended)
    });
    assert!(done);
}

#[test]
fn streams_of_both_types_work_in_both_directions() {
    let mut pair = connected(Setup::new(6).with_loss(10));
    for by_server in [false, true] {
        let opener = if by_server { &mut pair.server } else { &mut pair.client };
        let id = opener.connection(0).open(Dir::Bi).expect("streams are allowed");
        let (mut there, mut back) = (apps::Writer::new(id, 40_000), apps::Writer::new(id, 60_000));
        let (mut read_there, mut read_back) = (apps::Reader::new(id), apps::Reader::new(id));
        let mut accepted = false;
        let done = pair.run_until(Duration::from_secs(60), |pair| {
            let now = pair.now;
            let (opener, other) = match by_server {
                false => (pair.client.connections[0].as_mut(), pair.server.connections[0].as_mut()),
                true => (pair.server.connections[0].as_mut(), pair.client.connections[0].as_mut()),
            };
            let (opener, other) = (opener.expect("the connection is alive"), other.expect("the connection is alive"));
            there.pump(opener);
            accepted |= other.accept(Dir::Bi).is_some();
            if accepted {
                read_there.pump(now, other);
                back.pump(other);
            }
            read_back.pump(now, opener);
            read_there.ended && read_back.ended
        });
        assert!(done, "by the server: {by_server}");
    }
    pair.run_for(Duration::from_secs(1));
    for node in [&mut pair.client, &mut pair.server] {
        let stats = node.connection(0).stats();
        assert_eq!((stats.send.streams_open, stats.receive.streams_open), (0, 0), "{stats:?}");
    }
}

/// The moment at which a stream is reset or stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    BeforeAnything,
    Written,
    OnTheWay,
    FinishedNotSent,
    Arrived,
    Read,
}

/// Bytes written to a stream that is then reset or stopped.
const GIVEN_UP: usize = 30_000;

const MOMENTS: [Moment; 6] =
    [Moment::BeforeAnything, Moment::Written, Moment::OnTheWay, Moment::FinishedNotSent, Moment::Arrived, Moment::Read];

/// Brings a stream of the client to `moment`.
fn bring_to(moment: Moment, seed: u64) -> (Pair, StreamId) {
    // A window that the stream fills alone: unless its credit were returned, nothing could follow
    // it.
    let setup = Setup::new(seed).with_loss((seed % 3) * 10).with_config(|config| {
        config.connection_window = GIVEN_UP as u64;
        config.connection_window_max = GIVEN_UP as u64;
    });
    let mut pair = connected(setup);
    let id = pair.client.connection(0).open(Dir::Uni).expect("streams are allowed");
    let total = GIVEN_UP;
    if moment != Moment::BeforeAnything {
        pair.client.connection(0).write(id, Bytes::from(vec![1; total])).expect("the send buffer has space");
    }
    match moment {
        Moment::BeforeAnything | Moment::Written => {}
        Moment::OnTheWay => pair.run_for(Duration::from_millis(12)),
        Moment::FinishedNotSent => pair.client.connection(0).finish(id).expect("open"),
        Moment::Arrived | Moment::Read => {
            pair.client.connection(0).finish(id).expect("open");
            pair.run_for(Duration::from_millis(if moment == Moment::Arrived { 14 } else { 2000 }));
        }
    }
    (pair, id)
}

#[test]
fn a_reset_at_any_moment_ends_the_stream_on_both_sides() {
    for moment in MOMENTS {
        for seed in 0..6 {
            let (mut pair, id) = bring_to(moment, seed);
            let result = pair.client.connection(0).reset(id, 99);
            assert_eq!(result.is_ok(), moment != Moment::Read, "{moment:?}: {result:?}");
            assert_eq!(pair.client.connection(0).reset(id, 98), Err(WriteError::Closed));
            assert_eq!(pair.client.connection(0).write(id, Bytes::from_static(b"x")), Err(WriteError::Closed));
            let mut ended = None;
            let done = pair.run_until(Duration::from_secs(60), |pair| {
                let now = pair.now;
                let server = pair.server.connection(0);
                let _ = server.accept(Dir::Uni);
                if server.stats().receive.streams_open == 1 {
                    loop {
                        match server.read(now, id, 1 << 16) {
                            Ok(Chunk::Bytes(bytes)) => assert!(bytes.iter().all(|byte| *byte == 1)),
                            Ok(Chunk::End) => ended = Some(Chunk::End),
                            Err(ReadError::Reset(code)) => {
                                assert_eq!(code, 99);
                                ended = Some(Chunk::Bytes(Bytes::new().into()));
                            }
                            Err(_) => break,
                        }
                    }
                }
                ended.is_some() && pair.client.connection(0).stats().send.streams_open == 0
            });
            assert!(done, "{moment:?}, seed {seed}: {ended:?}");
            let stats = pair.client.connection(0).stats();
            assert_eq!(stats.send.held_bytes, 0, "{moment:?}");
            assert_eq!(pair.server.connection(0).stats().receive.streams_open, 0, "{moment:?}");
            // The connection works as before, with all of its credit.
            apps::transfer(&mut pair, 100_000, Duration::from_secs(600));
        }
    }
}

#[test]
fn a_stop_at_any_moment_ends_the_stream_on_both_sides() {
    for moment in MOMENTS {
        if moment == Moment::BeforeAnything {
            // The peer does not know of the stream yet, so it cannot stop it.
            continue;
        }
        for seed in 0..6 {
            let (mut pair, id) = bring_to(moment, seed);
            let mut stopped = false;
            let done = pair.run_until(Duration::from_secs(60), |pair| {
                let now = pair.now;
                let server = pair.server.connection(0);
                if !stopped && server.accept(Dir::Uni).is_some() {
                    server.stop(now, id, 55).expect("the stream exists");
                    assert_eq!(server.stop(now, id, 56), Err(ReadError::Closed));
                    assert_eq!(server.read(now, id, 10), Err(ReadError::Closed));
                    stopped = true;
                }
                stopped && pair.client.connection(0).stats().send.streams_open == 0
            });
            assert!(done, "{moment:?}, seed {seed}, stopped {stopped}: {:?}", pair.client.connection(0).stats());
            pair.run_for(Duration::from_secs(2));
            let is_told = pair.client.take_event(0, |event| *event == Event::Stopped { id, code: 55 }).is_some();
            let finished = pair.client.take_event(0, |event| *event == Event::Finished(id)).is_some();
            assert!(is_told || finished, "{moment:?}, seed {seed}");
            assert_eq!(pair.server.connection(0).stats().receive.streams_open, 0, "{moment:?}");
            apps::transfer(&mut pair, 100_000, Duration::from_secs(600));
        }
    }
}

#[test]
fn a_stopped_writer_gets_the_code() {
    let (mut pair, id) = bring_to(Moment::OnTheWay, 0);
    assert!(pair.run_until(Duration::from_secs(1), |pair| pair.server.connection(0).accept(Dir::Uni).is_some()));
    let now = pair.now;
    pair.server.connection(0).stop(now, id, 5).expect("there");
    assert!(pair.run_until(Duration::from_secs(1), |pair| {
        let answer = pair.client.connection(0).write(id, Bytes::from_static(b"more"));
        assert!(matches!(answer, Ok(()) | Err(WriteError::Blocked | WriteError::Stopped(5))), "{answer:?}");
        answer == Err(WriteError::Stopped(5))
    }));
    assert_eq!(pair.client.connection(0).finish(id), Err(WriteError::Stopped(5)));
}

#[test]
fn higher_priorities_go_first() {
    let mut pair = connected(Setup::new(1).with_links(|link| link.rate = Some(units::Rate::from_mbps(5))));
    let ids: Vec<StreamId> = (0..3).map(|_| pair.client.connection(0).open(Dir::Uni).expect("allowed")).collect();
    for (id, priority) in ids.iter().zip([-5, 0, 7]) {
        pair.client.connection(0).set_priority(*id, priority).expect("open");
    }
    for id in &ids {
        apps::Writer::new(*id, 150_000).pump(pair.client.connection(0));
    }
    let mut order = Vec::new();
    let mut readers: Vec<apps::Reader> = Vec::new();
    let done = pair.run_until(Duration::from_secs(30), |pair| {
        let now = pair.now;
        let server = pair.server.connection(0);
        while let Some(id) = server.accept(Dir::Uni) {
            readers.push(apps::Reader::new(id));
        }
        readers.retain_mut(|reader| {
            reader.pump(now, server);
            if reader.ended {
                order.push(reader.id);
            }
            !reader.ended
        });
        order.len() == 3
    });
    assert!(done);
    assert_eq!(order, [ids[2], ids[1], ids[0]]);
}

#[test]
fn equal_priorities_take_turns() {
    let mut pair = connected(Setup::new(1).with_links(|link| link.rate = Some(units::Rate::from_mbps(5))));
    let ids: Vec<StreamId> = (0..4).map(|_| pair.client.connection(0).open(Dir::Uni).expect("allowed")).collect();
    for id in &ids {
        apps::Writer::new(*id, 200_000).pump(pair.client.connection(0));
    }
    let mut readers: Vec<apps::Reader> = Vec::new();
    pair.run_until(Duration::from_millis(700), |pair| {
        let now = pair.now;
        let server = pair.server.connection(0);
        while let Some(id) = server.accept(Dir::Uni) {
            readers.push(apps::Reader::new(id));
        }
        readers.iter_mut().for_each(|reader| reader.pump(now, server));
        false
    });
    let read: Vec<u64> = readers.iter().map(|reader| reader.read).collect();
    let (least, most) = (read.iter().min().expect("four"), read.iter().max().expect("four"));
    assert!(read.len() == 4 && *least > 50_000 && *least * 2 > *most, "{read:?}");
}

/// The data that a driver may delay: bytes of one stream that fill no plan, and nothing else.
#[test]
fn only_a_tail_is_reported_for_less_than_a_plan_of_one_open_stream() {
    const DATAGRAMS: usize = 10;
    let mut pair = connected(Setup::new(9));
    pair.run_for(Duration::from_secs(1));
    let client = pair.client.connection(0);
    assert!(!client.has_only_a_tail(DATAGRAMS), "nothing is ready");
    let id = client.open(Dir::Uni).unwrap();
    client.write(id, Bytes::from_static(&[7; 5_000])).unwrap();
    assert!(client.has_only_a_tail(DATAGRAMS));
    assert!(!client.has_only_a_tail(4), "four datagrams of 1200 bytes are full");
    client.write(id, Bytes::from_static(&[7; 20_000])).unwrap();
    assert!(!client.has_only_a_tail(DATAGRAMS));
    pair.run_for(Duration::from_secs(1));

    let client = pair.client.connection(0);
    client.write(id, Bytes::from_static(&[7; 100])).unwrap();
    let other = client.open(Dir::Uni).unwrap();
    assert!(client.has_only_a_tail(DATAGRAMS));
    client.write(other, Bytes::from_static(&[7; 100])).unwrap();
    assert!(!client.has_only_a_tail(DATAGRAMS), "two streams have something");
    pair.run_for(Duration::from_secs(1));

    let client = pair.client.connection(0);
    client.write(id, Bytes::from_static(&[7; 100])).unwrap();
    client.finish(id).unwrap();
    assert!(!client.has_only_a_tail(DATAGRAMS), "nothing follows the end");
}
