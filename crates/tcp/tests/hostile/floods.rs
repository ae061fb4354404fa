//! Floods: the memory of a connection stays within its buffers and a small bound.

use bytes::Bytes;
use tcp::TcpConfig;
use units::Duration;
use wire::tcp::{Flags, Options, Timestamps};

use crate::support::heap_meter::Meter;
use crate::support::peer::{Peer, Segment, offer};

const BUFFER: usize = 1 << 18;

/// Limit on the memory of a connection beyond its buffers.
const BOUND: usize = 300_000;

/// Size of the buffer into which a device writes a packet.
const PACKET: usize = 2048;

fn peer() -> Peer {
    let config = TcpConfig { receive_buffer: BUFFER, send_buffer: BUFFER, ..TcpConfig::default() };
    let mut peer = Peer::opens(&config, Options { window_scale: Some(2), ..offer() });
    // The whole window is announced.
    peer.send_data(1);
    peer.pass(Duration::from_millis(50));
    peer.read();
    peer
}

/// Returns a segment with `len` bytes in a separate packet buffer.
fn in_packet(segment: Segment, len: usize) -> Segment {
    segment.data(Bytes::from(vec![b'x'; PACKET]).slice(..len))
}

/// Returns the number of bytes that the connection holds after `count` segments.
fn held_after(peer: &mut Peer, count: u32, mut make: impl FnMut(&Peer, u32) -> Segment) -> usize {
    let mut meter = Meter::start();
    for index in 0..count {
        let segment = make(peer, index);
        peer.send(segment);
        peer.sent();
        peer.events.clear();
    }
    peer.events.shrink_to_fit();
    meter.look()
}

#[test]
fn single_bytes_in_order_that_nobody_reads() {
    let mut peer = peer();
    let start = peer.nxt;
    let held = held_after(&mut peer, BUFFER as u32, |peer, index| in_packet(peer.segment().seq(start + index), 1));
    assert!(peer.connection.readable() > BUFFER - 1000);
    assert!(held < BUFFER + BOUND, "{held}");
}

#[test]
fn single_bytes_with_a_hole_before_each() {
    let mut peer = peer();
    let start = peer.nxt;
    let half = BUFFER as u32 / 2;
    let held = held_after(&mut peer, half, |peer, index| in_packet(peer.segment().seq(start + 1 + 2 * index), 1));
    assert_eq!(peer.connection.readable(), 0);
    assert!(held < BOUND, "{held}");
    peer.assert_works();
}

#[test]
fn segments_beyond_a_hole_that_is_never_filled() {
    let mut peer = peer();
    let start = peer.nxt;
    let count = BUFFER as u32 / 1000;
    let held =
        held_after(&mut peer, count, |peer, index| in_packet(peer.segment().seq(start + 1 + 1000 * index), 1000));
    assert!(held < BUFFER + BOUND, "{held}");
    assert_eq!(peer.connection.stats().receive.out_of_order, count.into());
}

#[test]
fn segments_of_all_kinds() {
    let flags = [Flags::RST, Flags::SYN, Flags::ACK, Flags::SYN | Flags::ACK, Flags::ACK | Flags::URG, Flags(0x1ff)];
    for flags in flags {
        let mut peer = peer();
        let held = held_after(&mut peer, 20_000, |peer, index| {
            let mut segment = in_packet(peer.segment().flags(flags), 1).seq(peer.nxt + 3 * index % 100_000 + 2);
            segment.options.timestamps = Some(Timestamps { value: index, echo: index });
            segment.ack(index)
        });
        assert!(held < BOUND, "{flags}: {held}");
        peer.assert_works();
    }
}
