//! An application stops reading: its stream waits and holds exactly what its window allows;
//! everything else continues.

use quic::Dir;
use units::{Duration, Rate};

use super::flow::Flow;
use super::heap_meter::Meter;
use crate::support::{Pair, Setup, apps};

const WINDOW: u64 = 1 << 20;

fn pair(seed: u64) -> Pair {
    let setup = Setup::new(seed).with_loss(seed % 2 * 2).with_config(|config| {
        // A pause that exceeds the idle timeout has its own test below.
        config.keep_alive = Some(Duration::from_secs(10));
        config.stream_window = WINDOW;
        config.stream_window_max = WINDOW;
    });
    let mut pair = setup.build();
    pair.connect();
    pair
}

/// Writes what the stream accepts and runs for a minute without reading.
fn leave_alone(pair: &mut Pair, flow: &mut Flow) {
    for _ in 0..60 {
        flow.write(&mut pair.client, 0);
        pair.run_for(Duration::from_secs(1));
    }
}

/// Reads what is available now, without letting the peer send more; returns the number of bytes.
fn drain(pair: &mut Pair, flow: &mut Flow) -> u64 {
    let before = flow.reader.read;
    flow.read(pair.now, &mut pair.server, 0);
    flow.reader.read - before
}

/// Writes and reads until the reader has `bytes` bytes.
fn read_until(pair: &mut Pair, flow: &mut Flow, bytes: u64) {
    let seed = pair.seed;
    let done = pair.run_until(Duration::from_secs(60), |pair| {
        flow.write(&mut pair.client, 0);
        flow.read(pair.now, &mut pair.server, 0);
        flow.reader.read >= bytes
    });
    assert!(done, "seed {seed}: {} of {bytes}", flow.reader.read);
}

/// Resumes reading: everything arrives, and the pattern is correct.
fn finish(pair: &mut Pair, flow: &mut Flow) {
    read_until(pair, flow, flow.writer.total);
    pair.run_for(Duration::from_secs(1));
    drain(pair, flow);
    assert!(flow.is_done());
}

#[test]
fn an_unread_stream_holds_exactly_one_window() {
    for seed in 0..2 {
        let mut pair = pair(seed);
        let mut flow = Flow::open(&mut pair.client, 0, 4 * WINDOW);
        leave_alone(&mut pair, &mut flow);
        assert_eq!(pair.server.connection(0).accept(Dir::Uni), Some(flow.writer.id));
        assert_eq!(drain(&mut pair, &mut flow), WINDOW, "seed {seed}");
        let lost = pair.link_stats()[0].lost;
        assert!(lost > 0 || seed % 2 == 0, "seed {seed}: the link lost nothing");
        finish(&mut pair, &mut flow);
    }
}

#[test]
fn a_stream_that_is_no_longer_read_holds_its_window_while_others_fill_the_link() {
    for seed in 0..4 {
        let mut pair = pair(seed);
        let mut flow = Flow::open(&mut pair.client, 0, 10 * WINDOW);
        flow.write(&mut pair.client, 0);
        assert!(pair.run_until(Duration::from_secs(5), |pair| pair.server.connection(0).accept(Dir::Uni).is_some()));
        read_until(&mut pair, &mut flow, 4 * WINDOW);

        // From here on the application does not read for a minute; other streams have the link.
        let mut meter = Meter::start();
        leave_alone(&mut pair, &mut flow);
        // The receiver's window, as packets; the sender holds what it held before.
        let bound = 2 * WINDOW as usize;
        assert!(meter.look() < bound, "seed {seed}: {} bytes for a window of {WINDOW}", meter.most());
        let other = 5_000_000;
        let took = apps::transfer(&mut pair, other, Duration::from_secs(60));
        let goodput = Rate::from_transfer(other, took).expect("time passed");
        let wanted = if seed % 2 == 0 { Rate::from_mbps(80) } else { Rate::from_mbps(2) };
        assert!(goodput > wanted, "seed {seed}: {goodput} of 100 Mb/s with an unread stream");
        assert!(meter.look() < 2 * bound, "seed {seed}: {} bytes after the others finished", meter.most());

        // Credit is granted in steps of half a window.
        let held = drain(&mut pair, &mut flow);
        assert!((WINDOW / 2..=WINDOW).contains(&held), "seed {seed}: {held} bytes waited, the window is {WINDOW}");
        finish(&mut pair, &mut flow);
    }
}

/// RFC 9000, section 4.1: a sender that is blocked by flow control should repeat its BLOCKED frames
/// while it has no ack-eliciting packets in flight, to keep the connection from closing.
#[test]
fn a_reader_that_pauses_for_longer_than_the_idle_timeout_keeps_its_connection() {
    let mut pair = Setup::new(1).build();
    pair.connect();
    let mut flow = Flow::open(&mut pair.client, 0, 40_000_000);
    leave_alone(&mut pair, &mut flow);
    let sent = |pair: &mut Pair| pair.client.connection(0).stats().send.packets_sent;
    let before = sent(&mut pair);
    leave_alone(&mut pair, &mut flow);
    let packets = sent(&mut pair) - before;
    assert!((6..=12).contains(&packets), "{packets} packets in a minute, the idle timeout is 30 s");
    let lives = [&pair.client, &pair.server].map(|node| node.connections[0].is_some());
    assert_eq!(lives, [true, true], "the client had data to send all the time: {:?}", pair.client.events[0].back());
    finish(&mut pair, &mut flow);
}

/// As above, but with the connection's credit exhausted, and the peer's idle timeout the shorter
/// one.
#[test]
fn a_connection_whose_credit_is_exhausted_stays_alive() {
    let mut setup = Setup::new(2).with_config(|config| {
        config.stream_window = WINDOW;
        config.connection_window = WINDOW;
        config.connection_window_max = WINDOW;
    });
    setup.server.idle_timeout = Duration::from_secs(6);
    let mut pair = setup.build();
    pair.connect();
    let mut flows = [0, 1].map(|_| Flow::open(&mut pair.client, 0, WINDOW));
    for _ in 0..60 {
        flows.iter_mut().for_each(|flow| flow.write(&mut pair.client, 0));
        pair.run_for(Duration::from_secs(1));
    }
    for flow in &mut flows {
        finish(&mut pair, flow);
    }
    // Once no data wait, no frames are sent, and the connection ends like any other.
    pair.run_for(Duration::from_secs(20));
    assert!(pair.client.connections[0].is_none());
}
