//! Applications offer ten times what the link carries: the link is used fully, and no memory
//! accumulates.

use bytes::Bytes;
use quic::{Chunk, Dir, Event, SendDatagramError};
use recovery::RateCap;
use units::{Duration, Rate};

use super::flow::Flow;
use super::heap_meter::Meter;
use crate::support::Setup;

const LINK: Rate = Rate::from_mbps(20);
const QUEUE_BYTES: u64 = 100_000;
const MIB: usize = 1 << 20;

fn setup(seed: u64) -> Setup {
    Setup::new(seed).with_links(|link| {
        link.rate = Some(LINK);
        link.queue_bytes = QUEUE_BYTES;
    })
}

/// Ten applications, each with its own connection and as much data as the link carries in total.
#[test]
fn ten_connections_share_what_the_link_carries() {
    const CONNECTIONS: usize = 10;
    let span = Duration::from_secs(10);
    let mut pair = setup(1).build();
    for _ in 0..CONNECTIONS {
        pair.start();
    }
    let connected = pair.run_until(Duration::from_secs(10), |pair| {
        pair.server.connections.len() == CONNECTIONS
            && pair.client.connections.iter().chain(&pair.server.connections).flatten().all(|it| it.is_established())
    });
    assert!(connected);
    let offered = LINK.bytes_in(span);
    let mut flows: Vec<_> = (0..CONNECTIONS).map(|index| Flow::open(&mut pair.client, index, offered)).collect();
    let mut meter = Meter::start();
    let until = pair.now + span;
    pair.run_until(span, |pair| {
        for (index, flow) in flows.iter_mut().enumerate() {
            flow.write(&mut pair.client, index);
            flow.read(pair.now, &mut pair.server, index);
        }
        meter.look();
        pair.now >= until
    });
    let arrived: Vec<u64> = flows.iter().map(|flow| flow.reader.read).collect();
    let least = arrived.iter().min().copied().unwrap_or(0);
    let arrived: u64 = arrived.iter().sum();
    let goodput = Rate::from_transfer(arrived, span).expect("time passed");
    let stats = pair.link_stats()[0];
    assert!(offered * CONNECTIONS as u64 >= 9 * arrived, "{offered} bytes each were offered, {arrived} arrived in all");
    assert!(stats.overflowed > 100 && stats.queue_bytes_max > QUEUE_BYTES * 9 / 10, "{stats:?}");
    assert!(goodput > LINK.mul_ratio(85, 100), "{goodput} of {LINK}");
    assert!(least > arrived / CONNECTIONS as u64 / 4, "one of ten got {least} of {arrived} bytes");
    // Each side holds a send buffer, a few MiB at most with this window, and as much again in
    // packets and reassembly.
    let held: u64 = pair.client.connections.iter().flatten().map(|it| it.stats().send.held_bytes).sum();
    assert!(meter.most() < 2 * held as usize + 4 * MIB, "{} bytes, {held} of them in send buffers", meter.most());
}

/// Datagrams have no flow control: those that the link does not carry are dropped at its queue, and
/// a stream on the same connection still progresses.
#[test]
fn datagrams_beyond_the_link_rate_are_dropped_and_a_stream_still_progresses() {
    const LEN: usize = 1_000;
    let span = Duration::from_secs(10);
    let mut pair = setup(2).build();
    pair.connect();
    let mut flow = Flow::open(&mut pair.client, 0, LINK.bytes_in(span));
    let mut meter = Meter::start();
    let (mut offered, mut refused, mut arrived) = (0_u64, 0_u64, 0_u64);
    let begun = pair.now;
    let gap = LINK.time_for(LEN as u64).mul_ratio(1, 10);
    while pair.now < begun + span {
        // Ten times what the link carries, a hundred datagrams at a time.
        for _ in 0..100 {
            offered += 1;
            match pair.client.connection(0).send_datagram(Bytes::from_static(&[3; LEN])) {
                Ok(()) => {}
                Err(SendDatagramError::QueueFull) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        flow.write(&mut pair.client, 0);
        pair.run_for(gap * 100);
        while pair.server.connection(0).recv_datagram().is_some() {
            arrived += 1;
        }
        flow.read(pair.now, &mut pair.server, 0);
        meter.look();
    }
    let (datagrams, stream) = (arrived * LEN as u64, flow.reader.read);
    let overload = Rate::from_transfer(offered * LEN as u64, span).expect("time passed");
    let goodput = Rate::from_transfer(datagrams + stream, span).expect("time passed");
    assert!(overload > LINK.mul_ratio(99, 10), "only {overload} were offered");
    assert!(refused > offered * 8 / 10, "{refused} of {offered} datagrams were refused");
    // At this length, 4 % of each packet are headers.
    assert!(goodput > LINK.mul_ratio(80, 100), "{goodput} of {LINK}: {datagrams} and {stream} bytes");
    let least = stream.min(datagrams) * 10;
    assert!(least > stream + datagrams, "{datagrams} bytes of datagrams and {stream} of the stream");
    assert!(meter.most() < 8 * MIB, "{} bytes", meter.most());
}

/// One message per stream, from an application that never waits.
#[test]
fn many_streams_together_hold_no_more_than_the_send_buffer() {
    const STREAMS: u64 = 1_000;
    let setup = Setup::new(3).with_config(|config| {
        config.send_buffer_max = 4 << 20;
        // Flow-control credit for data that no application reads.
        (config.connection_window, config.connection_window_max) = (256 << 20, 256 << 20);
    });
    let mut pair = setup.build();
    pair.connect();
    let message = Bytes::from(vec![1; 1 << 20]);
    let mut rests = Vec::new();
    for index in 0..STREAMS {
        let connection = pair.client.connection(0);
        let id = connection.open(Dir::Uni).expect("allowed");
        if index % 2 == 0 {
            let _full = connection.write(id, message.clone());
            continue;
        }
        let mut rest = message.clone();
        let _full = connection.write_some(id, &mut rest);
        rests.push((id, rest));
    }
    let held = pair.client.connection(0).stats().send.held_bytes;
    // Each stream may hold its share of 64 KiB, so that no stream is blocked by the others.
    assert!(held <= (4 << 20) + STREAMS * (64 << 10) + (1 << 20), "{held} bytes in a send buffer of 4 MiB");
    let shortest = rests.iter().map(|(_, rest)| message.len() - rest.len()).min();
    assert_eq!(shortest, Some(64 << 10), "each stream has its share");

    // The last stream is read while no other is: the others fill the buffer and cannot stall it.
    let (id, mut rest) = rests.pop().expect("streams were opened");
    let mut read = 0;
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        if pair.client.take_event(0, |event| *event == Event::Writable(id)).is_some() {
            let _full = pair.client.connection(0).write_some(id, &mut rest);
        }
        while let Ok(Chunk::Bytes(bytes)) = pair.server.connection(0).read(pair.now, id, 1 << 20) {
            read += bytes.len();
        }
        read == message.len()
    });
    assert!(done, "{read} of {} bytes were read, {} are not yet taken", message.len(), rest.len());
}

/// A sender that never uses its window learns nothing from it (RFC 9002, section 7.8), and the
/// write limit follows the window. Otherwise a minute of data could be buffered, and the user would
/// see it reported as written.
#[test]
fn a_rate_limit_keeps_the_window_and_the_send_buffer_small() {
    let cap = RateCap { rate: Rate::from_mbps(2), burst: 20_000 };
    let mut pair = setup(4).with_config(|config| config.rate_cap = Some(cap)).build();
    pair.connect();
    let mut flow = Flow::open(&mut pair.client, 0, cap.rate.bytes_in(Duration::from_secs(600)));
    pair.run_until(Duration::from_secs(60), |pair| {
        flow.write(&mut pair.client, 0);
        flow.read(pair.now, &mut pair.server, 0);
        false
    });
    let stats = pair.client.connection(0).stats();
    assert!(flow.reader.read > cap.rate.bytes_in(Duration::from_secs(50)), "{} bytes arrived", flow.reader.read);
    assert!(stats.in_flight_bytes < 50_000, "{stats:?}");
    assert!(stats.congestion.window < MIB as u64, "{} bytes of window", stats.congestion.window);
    assert!(stats.send.held_bytes < 2 * MIB as u64, "{} bytes are written ahead", stats.send.held_bytes);
}
