//! Slow readers: their streams wait, nothing is lost, other streams continue, and memory stays
//! within the windows.

use bytes::Bytes;
use quic::{Dir, Event, WriteError};
use units::{Duration, Rate};

use crate::support::{Setup, apps};

fn small_windows(seed: u64) -> Setup {
    Setup::new(seed).with_config(|config| {
        config.stream_window = 20_000;
        config.stream_window_max = 20_000;
        config.connection_window = 100_000;
        config.connection_window_max = 100_000;
    })
}

#[test]
fn a_slow_reader_blocks_its_stream_and_no_other() {
    for seed in 0..3 {
        let mut pair = small_windows(seed).with_loss(seed * 5).build();
        pair.connect();
        let slow = pair.client.connection(0).open(Dir::Uni).expect("allowed");
        let mut slow_writer = apps::Writer::new(slow, 200_000);
        let mut slow_reader = apps::Reader::new(slow);
        slow_writer.pump(pair.client.connection(0));
        assert!(pair.run_until(Duration::from_secs(5), |pair| pair.server.connection(0).accept(Dir::Uni).is_some()));
        pair.run_for(Duration::from_secs(5));
        let received = pair.server.connection(0).stats().receive.bytes_received;
        assert!(received < 60_000, "{received} bytes arrived through a window of 20000");
        // Another stream is not blocked.
        let took = apps::transfer(&mut pair, 300_000, Duration::from_secs(60));
        assert!(took < Duration::from_secs(30), "{took}");
        // Reading a few bytes at a time delivers everything in the end.
        for _ in 0..3000 {
            let now = pair.now;
            slow_writer.pump(pair.client.connection(0));
            slow_reader.pump_some(now, pair.server.connection(0), 700);
            if slow_reader.ended {
                break;
            }
            pair.run_for(Duration::from_millis(20));
        }
        assert!(slow_reader.ended, "seed {seed}: {} bytes", slow_reader.read);
        assert_eq!(slow_reader.read, 200_000);
    }
}

#[test]
fn unread_streams_together_fill_the_connections_window_and_no_more() {
    let mut pair = small_windows(1).build();
    pair.connect();
    let ids: Vec<_> = (0..20).map(|_| pair.client.connection(0).open(Dir::Uni).expect("allowed")).collect();
    let mut writers: Vec<_> = ids.iter().map(|id| apps::Writer::new(*id, 15_000)).collect();
    writers.iter_mut().for_each(|writer| writer.pump(pair.client.connection(0)));
    pair.run_for(Duration::from_secs(10));
    let received = pair.server.connection(0).stats().receive.bytes_received;
    assert!((100_000..115_000).contains(&received), "{received} bytes with a window of 100000");
    let mut readers: Vec<apps::Reader> = Vec::new();
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        let now = pair.now;
        let server = pair.server.connection(0);
        while let Some(id) = server.accept(Dir::Uni) {
            readers.push(apps::Reader::new(id));
        }
        readers.iter_mut().for_each(|reader| reader.pump(now, server));
        readers.len() == 20 && readers.iter().all(|reader| reader.ended)
    });
    assert!(done);
}

/// Reads the two oldest unfinished streams at a time; true if twelve streams of three windows each
/// complete.
fn reading_the_oldest_two_succeeds(streams_max: u64) -> bool {
    const STREAMS: usize = 12;
    let setup = small_windows(3).with_config(|config| config.max_concurrent_uni_streams = streams_max);
    let mut pair = setup.build();
    pair.connect();
    let mut writers: Vec<apps::Writer> = Vec::new();
    let (mut readers, mut over): (Vec<apps::Reader>, usize) = (Vec::new(), 0);
    pair.run_until(Duration::from_secs(10), |pair| {
        let now = pair.now;
        let client = pair.client.connection(0);
        while writers.len() < STREAMS
            && let Some(id) = client.open(Dir::Uni)
        {
            writers.push(apps::Writer::new(id, 60_000));
        }
        writers.iter_mut().filter(|writer| !writer.finished).for_each(|writer| writer.pump(client));
        let server = pair.server.connection(0);
        while readers.len() < 2
            && let Some(id) = server.accept(Dir::Uni)
        {
            readers.push(apps::Reader::new(id));
        }
        readers.iter_mut().for_each(|reader| reader.pump(now, server));
        over += readers.extract_if(.., |reader| reader.ended).count();
        over == STREAMS
    })
}

/// Regression test: a file transfer stalled forever. Unread streams held all of the connection's
/// credit, and the streams that were read got none.
#[test]
fn unread_streams_starve_others_unless_their_number_is_bounded() {
    assert!(!reading_the_oldest_two_succeeds(12), "twelve first windows are more than the connection's");
    // All windows that no waiting stream holds are usable, not only the half that is granted in one
    // step.
    assert!(reading_the_oldest_two_succeeds(5), "five windows, of which three are held");
}

#[test]
fn credit_of_abandoned_streams_is_returned() {
    // Ten times the connection's window passes through streams that are reset, stopped or left
    // unread.
    let mut pair = small_windows(2).with_loss(5).build();
    pair.connect();
    for round in 0..60_u64 {
        let id = pair.client.connection(0).open(Dir::Uni).expect("allowed");
        pair.client.connection(0).write(id, Bytes::from(vec![1; 18_000])).expect("the send buffer has space");
        let wait = Duration::from_millis(round % 40);
        pair.run_for(wait);
        if round % 2 == 0 {
            pair.client.connection(0).reset(id, 1).expect("open");
        }
        assert!(pair.run_until(Duration::from_secs(20), |pair| pair.server.connection(0).accept(Dir::Uni).is_some()));
        let now = pair.now;
        let server = pair.server.connection(0);
        if round % 2 == 1 {
            server.stop(now, id, 1).expect("there");
        } else {
            assert!(pair.run_until(Duration::from_secs(20), |pair| {
                let now = pair.now;
                loop {
                    match pair.server.connection(0).read(now, id, 5000) {
                        Ok(_) => {}
                        Err(quic::ReadError::Blocked) => return false,
                        Err(error) => {
                            assert_eq!(error, quic::ReadError::Reset(1));
                            return true;
                        }
                    }
                }
            }));
        }
    }
    pair.run_for(Duration::from_secs(5));
    apps::transfer(&mut pair, 300_000, Duration::from_secs(60));
    assert!(pair.link_stats()[0].lost > 0);
}

#[test]
fn windows_grow_until_they_limit_nothing() {
    let mut pair = Setup::new(1)
        .with_links(|link| link.delay = Duration::from_millis(50))
        .with_config(|config| {
            config.stream_window = 16_000;
            config.connection_window = 16_000;
        })
        .build();
    pair.connect();
    let bytes = 20_000_000;
    let took = apps::transfer(&mut pair, bytes, Duration::from_secs(60));
    let goodput = Rate::from_transfer(bytes, took).expect("time passed");
    assert!(goodput > Rate::from_mbps(40), "{goodput} of 100 Mb/s over 100 ms, from windows of 16000 bytes");
}

#[test]
fn a_writer_that_is_blocked_is_woken() {
    for buffer in [2, 1000, 50_000, 1 << 20] {
        let mut pair = Setup::new(1).with_config(|config| config.send_buffer_max = buffer).build();
        pair.connect();
        let id = pair.client.connection(0).open(Dir::Uni).expect("allowed");
        let (mut offset, total) = (0_u64, 60_000_u64.min(buffer * 200));
        let mut writable = true;
        let mut reader = apps::Reader::new(id);
        let (mut accepted, mut finished, mut blocked) = (false, false, 0);
        let done = pair.run_until(Duration::from_secs(200), |pair| {
            let now = pair.now;
            writable |= pair.client.take_event(0, |event| *event == Event::Writable(id)).is_some();
            // Only the event triggers another write.
            while writable && offset < total {
                let len = 500.min(total - offset).min(buffer);
                let chunk: Vec<u8> = (offset..offset + len).map(|at| apps::pattern_byte(id, at)).collect();
                match pair.client.connection(0).write(id, chunk.into()) {
                    Ok(()) => offset += len,
                    Err(error) => {
                        assert_eq!(error, WriteError::Blocked);
                        (writable, blocked) = (false, blocked + 1);
                    }
                }
            }
            assert!(pair.client.connection(0).stats().send.held_bytes <= buffer + 500);
            if offset == total && !finished {
                pair.client.connection(0).finish(id).expect("open");
                finished = true;
            }
            accepted |= pair.server.connection(0).accept(Dir::Uni).is_some();
            if accepted {
                reader.pump(now, pair.server.connection(0));
            }
            reader.ended
        });
        assert!(done, "a buffer of {buffer} bytes: {offset} written, {} read", reader.read);
        assert!(blocked > 0 || buffer == 1 << 20, "a buffer of {buffer} bytes never blocked");
    }
}

#[test]
fn windows_of_one_byte_still_make_progress() {
    let mut pair = Setup::new(1)
        .with_config(|config| {
            config.stream_window = 1;
            config.stream_window_max = 1;
            config.connection_window = 1;
            config.connection_window_max = 1;
        })
        .build();
    pair.connect();
    apps::transfer(&mut pair, 100, Duration::from_secs(60));
}

/// Regression test: unread streams filled a send buffer that had grown with the window. When the
/// window shrank, no buffer space was left for other streams, forever.
#[test]
fn unread_streams_leave_others_buffer_space_when_the_window_shrinks() {
    let mut pair = Setup::new(7).with_config(|config| config.connection_window = 64 << 20).build();
    pair.connect();
    // A transfer opens the congestion window, and with it the send buffer.
    apps::transfer(&mut pair, 20_000_000, Duration::from_secs(60));
    let stalled: Vec<_> = (0..2).map(|_| pair.client.connection(0).open(Dir::Uni).expect("allowed")).collect();
    let mut writers: Vec<_> = stalled.iter().map(|id| apps::Writer::new(*id, u64::MAX)).collect();
    for _ in 0..30 {
        writers.iter_mut().for_each(|writer| writer.pump(pair.client.connection(0)));
        pair.run_for(Duration::from_millis(100));
    }
    for _ in &stalled {
        assert!(pair.server.connection(0).accept(Dir::Uni).is_some());
    }
    let now = pair.now;
    let mut dead = pair.links[0].config().clone();
    let alive = dead.clone();
    dead.loss = units::Ratio::new(1, 2);
    pair.links[0].set_config(now, dead);
    let before = pair.client.connection(0).stats().congestion.window;
    apps::transfer(&mut pair, 500_000, Duration::from_secs(600));
    assert!(pair.client.connection(0).stats().congestion.window < before, "the window fell");
    let now = pair.now;
    pair.links[0].set_config(now, alive);
    apps::transfer(&mut pair, 2_000_000, Duration::from_secs(60));
    let held = pair.client.connection(0).stats().send.held_bytes;
    assert!(held >= 900_000, "the stalled streams still hold their bytes: {held}");
}
