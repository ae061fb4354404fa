//! The seal stage: turns a [`Plan`] into datagrams. Copies each payload byte once, from the
//! application's chunk to the place it is sealed in.
//!
//! It has no state: any number of processors may seal plans of one connection at the same time.

use wire::quic::{PathId, SAMPLE_LEN, Space, emit_short, sample_offset};

use crate::plan::{PacketRun, Piece, Plan, Planned, PlannedPacket};
use crate::session::DirectionKeys;

/// Seals `plan` into `out`, which is cleared first: `plan.size_bytes()` bytes, to be segmented
/// every `plan.segment_size` bytes.
///
/// # Panics
/// If the plan is inconsistent (missing keys, wrong sizes), which is a bug of this crate.
pub fn seal(plan: &Plan, out: &mut Vec<u8>) {
    out.clear();
    out.reserve(plan.size_bytes);
    for item in &plan.items {
        seal_item(plan, item, out);
    }
    debug_assert_eq!(out.len(), plan.size_bytes, "a plan states its own size");
}

/// Seals an entry of `plan` and appends it to `out`.
pub(crate) fn seal_item(plan: &Plan, item: &Planned, out: &mut Vec<u8>) {
    match item {
        Planned::Packet(packet) => seal_packet(plan, packet, out),
        Planned::Run(run) => seal_run(plan, run, out),
    }
}

impl Plan {
    pub(crate) fn keys_of(&self, space: Space) -> &DirectionKeys {
        self.keys[space.index()].as_ref().expect("a plan carries the keys of its packets")
    }

    pub(crate) fn bytes_of(&self, piece: &Piece) -> &[u8] {
        let source = if piece.chunk == Piece::HEAD { &self.head[..] } else { &self.chunks[piece.chunk as usize][..] };
        &source[piece.start as usize..(piece.start + piece.len) as usize]
    }
}

fn seal_packet(plan: &Plan, packet: &PlannedPacket, out: &mut Vec<u8>) {
    let start = out.len();
    for piece in &plan.pieces[packet.pieces_from as usize..packet.pieces_to as usize] {
        out.extend_from_slice(plan.bytes_of(piece));
    }
    out.resize(out.len() + usize::from(packet.padding), 0);
    let keys = plan.keys_of(packet.space);
    protect(keys, plan.path, packet.number, packet.number_len, usize::from(packet.header_len), start, out);
}

fn seal_run(plan: &Plan, run: &PacketRun, out: &mut Vec<u8>) {
    let keys = plan.keys_of(Space::Data);
    let mut pieces = plan.pieces[run.pieces_from as usize..run.pieces_to as usize].iter();
    let mut rest: &[u8] = &[];
    for index in 0..u64::from(run.count) {
        let (start, number) = (out.len(), run.number + index);
        let number_len = usize::from(run.number_len);
        let number_at = emit_short(&run.dcid, number, number_len, run.key_phase, false, run.fixed_bit, out);
        let stride = run.stride as usize;
        run.frame.emit_header(index, run.stride, out);
        let mut missing = stride;
        while missing > 0 {
            if rest.is_empty() {
                rest = plan.bytes_of(pieces.next().expect("a run has the payload of all its packets"));
            }
            let (taken, left) = rest.split_at(missing.min(rest.len()));
            out.extend_from_slice(taken);
            missing -= taken.len();
            rest = left;
        }
        protect(keys, plan.path, number, run.number_len, number_at + number_len, start, out);
    }
}

/// Encrypts the packet that begins at `start` and ends where `out` does, appends its tag, and
/// protects its header.
pub(crate) fn protect(
    keys: &DirectionKeys,
    path: PathId,
    number: u64,
    number_len: u8,
    header_len: usize,
    start: usize,
    out: &mut Vec<u8>,
) {
    let (header, payload) = out[start..].split_at_mut(header_len);
    let tag = keys.packet.seal(path, number, header, payload);
    out.extend_from_slice(&tag);

    // Header protection samples the sealed bytes four bytes past the start of the number (RFC 9001,
    // section 5.4.2).
    let sealed = &mut out[start..];
    let number_at = header_len - usize::from(number_len);
    let sample_at = sample_offset(number_at);
    debug_assert!(sealed.len() >= sample_at + SAMPLE_LEN, "packets are padded until they can be sampled");
    let (head, sample) = sealed.split_at_mut(sample_at);
    let (first, rest) = head.split_at_mut(1);
    let number = &mut rest[number_at - 1..number_at - 1 + usize::from(number_len)];
    keys.header.protect(&sample[..SAMPLE_LEN], &mut first[0], number);
}
