//! A digest that is cheap enough for every plan and the same on every machine.
//!
//! It detects accidents: a different header, a missing packet, a damaged file. It does not protect
//! against an attacker.

use crate::plan::{Piece, Plan, Planned};

/// The check of a block, seeded with that of the block before: it detects changed, missing and
/// moved blocks.
pub(super) fn check_of(chain: u64, block: &[u8]) -> u64 {
    let mut digest = Digest::new(chain);
    digest.bytes(block);
    digest.finish()
}

/// The odd constants of the mixing steps: digits of the golden ratio and of the square root of two.
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;
const SEED: u64 = 0x6a09_e667_f3bc_c909;

/// A running digest of 64 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digest(u64);

impl Digest {
    /// A digest that begins with `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(SEED ^ seed)
    }

    /// Adds a number.
    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        // Each step maps the state one to one for a given word, so no difference is ever lost; the
        // rotation lets high bits reach low ones.
        self.0 = (self.0 ^ word).wrapping_mul(FOLD).rotate_left(29) ^ (word >> 32);
    }

    /// Adds the number of bytes and the bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.word(u64::from_le_bytes(chunk.try_into().expect("chunks of eight")));
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
    }

    /// The result.
    pub(crate) const fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(FOLD);
        mixed ^ (mixed >> 29)
    }
}

/// A digest of the datagrams of a plan: headers, frames, and the length of payload. The frames say
/// which bytes of a stream or of the handshake the payload is.
pub(crate) fn plan_digest(plan: &Plan) -> u64 {
    let mut digest = Digest::new(0);
    for number in [
        u64::from(plan.path.0),
        plan.segment_size as u64,
        plan.datagram_count as u64,
        plan.size_bytes as u64,
        plan.planned_at.as_nanos(),
        plan.acks.iter().fold(u64::from(plan.ecn.is_some()), |bits, ack| bits << 1 | u64::from(*ack)),
    ] {
        digest.word(number);
    }
    if let Some(addresses) = &plan.addresses {
        digest.word(u64::from(addresses.socket));
        let mut text = Vec::with_capacity(super::format::ADDRESSES_LEN_MAX);
        super::format::put_addresses(&mut text, addresses);
        digest.bytes(&text);
    }
    for item in &plan.items {
        match item {
            Planned::Packet(packet) => {
                digest.word(packet.space as u64);
                digest.word(packet.number);
                digest.word(u64::from(packet.number_len) | u64::from(packet.header_len) << 8);
                digest.word(u64::from(packet.padding));
                digest_pieces(plan, packet.pieces_from, packet.pieces_to, &mut digest);
            }
            Planned::Run(run) => {
                digest.word(run.number);
                digest.word(u64::from(run.count) << 32 | u64::from(run.stride));
                digest.word(u64::from(run.number_len) | u64::from(run.key_phase) << 8 | u64::from(run.fixed_bit) << 9);
                digest.bytes(run.dcid.as_slice());
                digest.word(run.id.raw());
                digest.word(run.offset);
                digest_pieces(plan, run.pieces_from, run.pieces_to, &mut digest);
            }
        }
    }
    digest.finish()
}

/// Adds the plan's own bytes, and the number of payload bytes, however they lie in memory.
fn digest_pieces(plan: &Plan, from: u32, to: u32, digest: &mut Digest) {
    let mut payload = 0;
    for piece in &plan.pieces[from as usize..to as usize] {
        if piece.chunk == Piece::HEAD {
            digest.word(std::mem::take(&mut payload));
            digest.bytes(&plan.head[piece.start as usize..(piece.start + piece.len) as usize]);
        } else {
            payload += u64::from(piece.len);
        }
    }
    digest.word(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_and_every_moved_byte_changes_the_digest() {
        let digest = |bytes: &[u8]| {
            let mut digest = Digest::new(1);
            digest.bytes(bytes);
            digest.finish()
        };
        let bytes: Vec<u8> = (0..37).collect();
        let whole = digest(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest(&changed), whole, "bit {bit}");
        }
        for at in 1..bytes.len() {
            let mut swapped = bytes.clone();
            swapped.swap(at - 1, at);
            assert_ne!((digest(&swapped), digest(&bytes[..at])), (whole, whole), "byte {at}");
        }
    }
}
