//! During the handshake: one datagram with coalesced packets of several spaces.

use units::Instant;
use wire::quic::frame::{Frame, crypto_header_len, emit_crypto_header};
use wire::quic::{MIN_INITIAL_SIZE, PathId, Side, Space};

use super::{PlanScope, put_ack};
use crate::exchange::Exchange;
use crate::plan::Plan;
use crate::receive::acks::snapshot::{AckSnapshot, Snapshot};
use crate::send::SendHalf;
use crate::send::draft::{Draft, HeaderFields};
use crate::send::frames::SentFrame;

impl SendHalf {
    pub(super) fn plan_handshake(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) {
        let path = &self.paths[0];
        let size_max = path.size.bytes().min(usize::try_from(path.link.amplification_budget()).unwrap_or(usize::MAX));
        let has_window = path.recovery.available_window() >= size_max as u64;
        let has_data = if self.is_early {
            self.streams.has_ready()
        } else {
            self.handshake_complete && (self.has_control_due() || self.streams.has_ready())
        };
        let is_paced = self.paths[0].recovery.data_budget(now, size_max, has_data) >= size_max as u64;
        let token = std::mem::take(&mut self.token);
        let (mut drafts, mut contents) = (Vec::with_capacity(3), Vec::with_capacity(3));
        let mut used = 0;
        let (mut needs_padding, mut frames) = (false, Vec::new());
        for space in Space::ALL {
            let may_send = space != Space::Data || self.handshake_complete || self.is_early;
            if self.keys[space.index()].is_none() || !may_send {
                continue;
            }
            let fixed_bit = self.fixed_bit(0, space);
            let number_len = self.number_len(0, space, 1);
            let fields = self.fields(0, self.packet_type(space), number_len, &token, fixed_bit);
            let Some(mut draft) = Draft::begin(plan, &fields, size_max.saturating_sub(used)) else { break };
            let may_elicit = self.may_elicit(space, size_max, has_window, is_paced);
            if space == Space::Data && self.is_early {
                self.fill_early(may_elicit, &mut draft, plan, &mut frames);
            } else if space == Space::Data {
                self.fill_data(
                    now,
                    0,
                    PlanScope::All,
                    Some(snapshot),
                    may_elicit,
                    &mut draft,
                    plan,
                    &mut frames,
                    exchange,
                );
            } else {
                let ack = snapshot.get(space, PathId::ZERO);
                self.fill_handshake(now, space, ack, may_elicit, &mut draft, plan, &mut frames, exchange);
            }
            if draft.body_len == 0 {
                draft.abandon(plan);
                continue;
            }
            // A client pads every datagram with an Initial packet, a server those with an
            // ack-eliciting one (RFC 9000, section 14.1).
            needs_padding |= space == Space::Initial && (self.side == Side::Client || draft.eliciting);
            used += draft.size();
            self.spaces[space.index()].next_number += 1;
            drafts.push((draft, fields, plan.pieces.len()));
            contents.push(std::mem::take(&mut frames));
        }
        let padding = if needs_padding { MIN_INITIAL_SIZE.min(size_max).saturating_sub(used) } else { 0 };
        for (packet, mut frames) in finish_coalesced(drafts, padding, plan).into_iter().zip(contents) {
            let Finished { space, number, size, eliciting, is_padded } = packet;
            self.record(now, 0, space, number, size, eliciting, eliciting || is_padded, &mut frames, exchange);
        }
        self.paths[0].recovery.pacer.on_sent(now, plan.size_bytes as u64);
        self.token = token;
    }

    /// Whether the packet of a space in a datagram of up to `size_max` bytes may elicit an acknowledgement.
    /// `has_window` says whether the congestion window holds it, `is_paced` whether the pacer lets it leave.
    fn may_elicit(&self, space: Space, size_max: usize, has_window: bool, is_paced: bool) -> bool {
        let has_probe = self.spaces[space.index()].probes_due > 0;
        match space {
            // It needs a datagram of 1200 bytes (RFC 9000, section 14.1), or waits until the limit allows one.
            Space::Initial => (has_window || has_probe) && size_max >= MIN_INITIAL_SIZE,
            // The handshake is too short to be paced; application data after it obey the configured rate limit.
            Space::Handshake => has_window || has_probe,
            Space::Data => has_window && is_paced || has_probe,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
    pub(super) fn fill_handshake(
        &mut self,
        now: Instant,
        space: Space,
        ack: &AckSnapshot,
        may_elicit: bool,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
        exchange: &mut Exchange,
    ) {
        if ack.is_pending() {
            put_ack(now, space, PathId::ZERO, false, ack, draft, plan, frames, exchange);
        }
        if !may_elicit {
            return;
        }
        let buffer = &mut self.crypto[space.index()];
        while let Some(next) = buffer.peek(u64::MAX) {
            let header_len = crypto_header_len(next.start, draft.bytes_left);
            if draft.bytes_left <= header_len {
                break;
            }
            let len = (draft.bytes_left - header_len).min((next.end - next.start) as usize);
            let range = buffer.take(u64::MAX, len as u64).expect("what was peeked can be taken");
            let len = (range.end - range.start) as usize;
            draft.put_head(plan, |out| emit_crypto_header(range.start, len, out));
            buffer.add_to_plan(range.clone(), plan);
            draft.add_payload(len);
            draft.eliciting = true;
            frames.push(SentFrame::Crypto(range));
        }
        self.put_probe_ping(space.index(), draft, plan, frames);
    }

    /// A probe without content to carry is a PING.
    pub(super) fn put_probe_ping(
        &mut self,
        space_index: usize,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
    ) {
        let probes = &mut self.spaces[space_index].probes_due;
        if *probes == 0 {
            return;
        }
        if !draft.eliciting && draft.put(plan, &Frame::Ping) {
            frames.push(SentFrame::Ping);
        }
        *probes -= u8::from(draft.eliciting);
    }
}

/// The result of one packet of a coalesced datagram.
pub(super) struct Finished {
    pub(super) space: Space,
    pub(super) number: u64,
    pub(super) size: usize,
    pub(super) eliciting: bool,
    pub(super) is_padded: bool,
}

/// Completes the packets of one datagram, each with the end of its pieces; the last packet takes
/// the padding.
pub(super) fn finish_coalesced(
    drafts: Vec<(Draft, HeaderFields<'_>, usize)>,
    padding: usize,
    plan: &mut Plan,
) -> Vec<Finished> {
    let last = drafts.len().wrapping_sub(1);
    let mut finished = Vec::with_capacity(drafts.len());
    for (index, (draft, fields, pieces_to)) in drafts.into_iter().enumerate() {
        let padding = if index == last { padding } else { 0 };
        let (space, number, eliciting) = (draft.ty.space(), draft.number, draft.eliciting);
        let size = draft.finish(plan, &fields, padding, pieces_to);
        plan.size_bytes += size;
        plan.segment_size += size;
        plan.numbers[space.index()] = Some((number, number));
        finished.push(Finished { space, number, size, eliciting, is_padded: padding > 0 });
    }
    plan.datagram_count = usize::from(!finished.is_empty());
    finished
}
