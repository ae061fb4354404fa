//! During the handshake: one datagram with coalesced packets of several spaces.

use wire::quic::{MIN_INITIAL_SIZE, PathId, Side, Space};

use super::{LoggedPacket, Pass, PlanScope, put_ack};
use crate::plan::Plan;
use crate::send::SendHalf;
use crate::send::draft::{Draft, HeaderFields};

impl SendHalf {
    pub(super) fn plan_handshake(&mut self, pass: &mut Pass<'_>) {
        let path = &self.paths[0];
        let size_max = path.size.bytes().min(usize::try_from(path.link.amplification_budget()).unwrap_or(usize::MAX));
        let has_window = path.recovery.available_window() >= size_max as u64;
        let has_data = if self.seal.is_early {
            self.streams.has_ready()
        } else {
            self.progress.is_complete && (self.has_control_due() || self.streams.has_ready())
        };
        let is_paced = self.paths[0].recovery.data_budget(pass.now, size_max, has_data) >= size_max as u64;
        let token = std::mem::take(&mut self.long.token);
        let (mut drafts, mut contents) = (Vec::with_capacity(3), Vec::with_capacity(3));
        let mut used = 0;
        let (mut needs_padding, mut frames) = (false, Vec::new());
        for space in Space::ALL {
            let may_send = space != Space::Data || self.progress.is_complete || self.seal.is_early;
            if !self.seal.has(space) || !may_send {
                continue;
            }
            let fields = self.fields(0, self.seal.packet_type(space), self.header_form(0, space, 1), &token);
            let Some(mut draft) = Draft::begin(pass.plan, &fields, size_max.saturating_sub(used)) else { break };
            let may_elicit = self.may_elicit(space, size_max, has_window, is_paced);
            if space == Space::Data && self.seal.is_early {
                if may_elicit {
                    self.streams.fill(&mut draft, pass.plan, &mut frames);
                }
            } else if space == Space::Data {
                self.fill_data(pass, PlanScope::All, true, may_elicit, &mut draft, &mut frames);
            } else {
                let ack = pass.snapshot.get(space, PathId::ZERO);
                if ack.is_pending() {
                    put_ack(pass, space, PathId::ZERO, false, ack, &mut draft, &mut frames);
                }
                if may_elicit {
                    self.frames.fill_crypto(space, &mut draft, pass.plan, &mut frames);
                    self.spaces[space.index()].put_probe_ping(&mut draft, pass.plan, &mut frames);
                }
            }
            if draft.body_len == 0 {
                draft.abandon(pass.plan);
                continue;
            }
            // A client pads every datagram with an Initial packet, a server those with an
            // ack-eliciting one (RFC 9000, section 14.1).
            needs_padding |= space == Space::Initial && (self.side == Side::Client || draft.eliciting);
            used += draft.size();
            self.spaces[space.index()].next_number += 1;
            drafts.push((draft, fields, pass.plan.pieces.len()));
            contents.push(std::mem::take(&mut frames));
        }
        let padding = if needs_padding { MIN_INITIAL_SIZE.min(size_max).saturating_sub(used) } else { 0 };
        for (packet, mut frames) in finish_coalesced(drafts, padding, pass.plan).into_iter().zip(contents) {
            self.record(pass, packet, &mut frames);
        }
        self.paths[0].recovery.pacer.on_sent(pass.now, pass.plan.size_bytes as u64);
        self.long.token = token;
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
}

/// Completes the packets of one datagram, each with the end of its pieces; the last packet takes
/// the padding.
pub(super) fn finish_coalesced(
    drafts: Vec<(Draft, HeaderFields<'_>, usize)>,
    padding: usize,
    plan: &mut Plan,
) -> Vec<LoggedPacket> {
    let last = drafts.len().wrapping_sub(1);
    let mut finished = Vec::with_capacity(drafts.len());
    for (index, (draft, fields, pieces_to)) in drafts.into_iter().enumerate() {
        let padding = if index == last { padding } else { 0 };
        let (space, number, eliciting) = (draft.ty.space(), draft.number, draft.eliciting);
        let size = draft.finish(plan, &fields, padding, pieces_to);
        plan.size_bytes += size;
        plan.segment_size += size;
        plan.numbers[space.index()] = Some((number, number));
        finished.push(LoggedPacket { space, number, size, eliciting, in_flight: eliciting || padding > 0 });
    }
    plan.datagram_count = usize::from(!finished.is_empty());
    finished
}
