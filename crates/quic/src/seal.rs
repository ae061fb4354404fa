//! The seal stage: turns a [`Plan`] into datagrams. Copies each payload byte once, from the application's chunk to the
//! place it is sealed in.
//!
//! No state, no owner: any number of processors may seal plans of one connection at the same time.

use wire::quic::SAMPLE_LEN;

use crate::plan::{Piece, Plan, PlannedPacket};

/// Seals `plan` into `out`, which is cleared first: `plan.size_bytes()` bytes, to be cut every `plan.segment_size` bytes.
///
/// # Panics
/// If the plan was not made by this crate's send half (keys missing, sizes wrong): a broken invariant of ours.
pub fn seal(plan: &Plan, out: &mut Vec<u8>) {
    out.clear();
    out.reserve(plan.size_bytes);
    for packet in &plan.packets {
        seal_packet(plan, packet, out);
    }
    debug_assert_eq!(out.len(), plan.size_bytes, "a plan states its own size");
}

fn seal_packet(plan: &Plan, packet: &PlannedPacket, out: &mut Vec<u8>) {
    let start = out.len();
    let pieces = &plan.pieces[packet.pieces_from as usize..packet.pieces_to as usize];
    for piece in pieces {
        let range = piece.start as usize..(piece.start + piece.len) as usize;
        let source = if piece.chunk == Piece::HEAD { &plan.head[..] } else { &plan.chunks[piece.chunk as usize][..] };
        out.extend_from_slice(&source[range]);
    }
    out.resize(out.len() + usize::from(packet.padding), 0);

    let header_len = usize::from(packet.header_len);
    let keys = plan.keys[packet.space.index()].as_ref().expect("a plan carries the keys of its packets");
    let (header, payload) = out[start..].split_at_mut(header_len);
    let tag = keys.packet.seal(plan.path, packet.number, header, payload);
    out.extend_from_slice(&tag);

    // Header protection samples the sealed bytes four past the start of the number (RFC 9001, section 5.4.2).
    let sealed = &mut out[start..];
    let number_at = header_len - usize::from(packet.number_len);
    debug_assert!(sealed.len() >= number_at + 4 + SAMPLE_LEN, "packets are padded until they can be sampled");
    let (head, sample) = sealed.split_at_mut(number_at + 4);
    let (first, rest) = head.split_at_mut(1);
    let number = &mut rest[number_at - 1..number_at - 1 + usize::from(packet.number_len)];
    keys.header.protect(&sample[..SAMPLE_LEN], &mut first[0], number);
}
