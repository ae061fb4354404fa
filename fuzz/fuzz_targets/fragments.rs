//! Fragments of IP packets in any order, overlapping and lying: what is kept stays bounded, and a whole
//! packet has the bytes of its fragments.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use tcp_driver::fragments::{BYTES_MAX, PACKETS_MAX, Reassembler};
use units::{Duration, Instant};
use wire::checksum;
use wire::ip::{Header, Packet, Protocol};

fuzz_target!(|input: &[u8]| {
    let mut reassembler = Reassembler::default();
    let mut now = Instant::ZERO;
    for script in input.chunks_exact(5) {
        let [kind, id, offset, len, fill] = *script else { return };
        let bytes = fragment(kind, id, usize::from(offset) * 8, usize::from(len) * 8, fill);
        now += Duration::from_millis(u64::from(fill) * 20);
        if reassembler.poll_timeout().is_some_and(|at| at <= now) {
            reassembler.handle_timeout(now, |first| assert!(Packet::parse(first).is_ok()));
        }
        let Ok(packet) = Packet::parse(&bytes) else { continue };
        if let Some(whole) = reassembler.take(now, &packet, &bytes) {
            // An IPv6 payload may begin with headers that are not valid.
            if let Ok(parsed) = Packet::parse(&whole) {
                assert_eq!(parsed.header_len + parsed.payload.len(), whole.len());
                // Every fragment is full of a byte, and the last of them is there.
                assert!(
                    packet.payload.is_empty()
                        || parsed.payload.windows(packet.payload.len()).any(|part| part == packet.payload)
                );
            }
        }
        let (packets, held) = reassembler.held();
        assert!(packets <= PACKETS_MAX && held <= BYTES_MAX);
    }
});

/// A fragment. `kind`: its version, whether more follow, and its mark.
fn fragment(kind: u8, id: u8, offset: usize, len: usize, fill: u8) -> Vec<u8> {
    let more = kind & 1 != 0;
    let len = if more { len } else { len.saturating_sub(usize::from(fill % 8)) };
    let addresses = if kind & 2 == 0 { ["10.0.0.1", "10.0.0.2"] } else { ["fd00::1", "fd00::2"] };
    let [source, destination] = addresses.map(|ip| ip.parse::<IpAddr>().expect("an address"));
    let is_ipv6 = source.is_ipv6();
    let mark = [None, Some(units::Ecn::Ect0), Some(units::Ecn::Ce), None][usize::from(kind >> 2 & 3)];
    let protocol = if is_ipv6 { Protocol::FRAGMENT } else { Protocol::UDP };
    let header =
        Header { source, destination, protocol, hop_limit: 1, dscp: 0, ecn: mark, id: id.into(), may_fragment: true };
    let mut bytes = Vec::new();
    if is_ipv6 {
        header.emit(len + 8, &mut bytes);
        bytes.extend_from_slice(&[Protocol::UDP.0, 0]);
        bytes.extend_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
        bytes.extend_from_slice(&u32::from(id).to_be_bytes());
    } else {
        header.emit(len, &mut bytes);
        bytes[6..8].copy_from_slice(&((offset / 8) as u16 | u16::from(more) << 13).to_be_bytes());
        checksum::fill_ipv4(&mut bytes);
    }
    bytes.resize(bytes.len() + len, fill);
    bytes
}
