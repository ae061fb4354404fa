//! What a tunnel takes from its peer: datagrams with items, and messages of the control stream.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tunnel::inner::Inner;
use tunnel::{Arrived, Message, Sink, Unpacker};
use units::{Duration, Instant};

/// Checks that only whole packets leave the tunnel.
struct Checked;

impl Sink for Checked {
    fn allows(&self, _inner: &Inner) -> bool {
        true
    }

    fn deliver(&mut self, packet: &Arrived<'_>) {
        let ip = [packet.headers, &packet.parts.concat()].concat();
        assert!(Inner::parse(&ip).is_ok());
    }
}

// The first byte of each piece is the length of a datagram, the path and the time before it.
fuzz_target!(|input: &[u8]| {
    let _message = Message::decode(input);
    let (mut unpacker, mut now, mut rest) = (Unpacker::with_udp_runs(true), Instant::ZERO, input);
    while let [head, more @ ..] = rest {
        let (datagram, next) = more.split_at(usize::from(head & 0x7f).min(more.len()));
        now += Duration::from_millis(u64::from(head & 3));
        unpacker.push(now, usize::from(head >> 7), Bytes::copy_from_slice(datagram), &mut Checked);
        unpacker.handle_timeout(now, &mut Checked);
        rest = next;
    }
    unpacker.handle_timeout(now + Duration::from_secs(9), &mut Checked);
    unpacker.flush(&mut Checked);
    assert_eq!(unpacker.order().held_items(), 0);
});
