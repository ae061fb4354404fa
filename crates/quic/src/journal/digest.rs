//! The digest of a plan.

use ::journal::digest::Digest;

use super::format::{ADDRESSES_LEN_MAX, put_addresses};
use crate::plan::{Piece, Plan, Planned, RunFrame};

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
        let mut text = Vec::with_capacity(ADDRESSES_LEN_MAX);
        put_addresses(&mut text, addresses);
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
                match run.frame {
                    RunFrame::Stream { id, offset } => {
                        digest.word(id.raw());
                        digest.word(offset);
                    }
                    // No stream has this ID (RFC 9000, section 2.1).
                    RunFrame::Datagram => digest.word(u64::MAX),
                }
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
