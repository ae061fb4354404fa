//! CONNECTION_CLOSE.

use wire::quic::frame::{CloseOrigin, close_len_min, emit_close};
use wire::quic::{ErrorCode, MIN_INITIAL_SIZE, PacketType, Side, Space};

use super::HeaderForm;
use super::handshake::finish_coalesced;
use crate::plan::Plan;
use crate::send::SendHalf;
use crate::send::draft::Draft;

impl SendHalf {
    /// Plans one datagram with a CONNECTION_CLOSE in every space whose packets the peer may be able
    /// to open (RFC 9000, section 10.2.3).
    pub(super) fn plan_close(&mut self, at: usize, plan: &mut Plan) {
        self.closing.on_planned(at);
        let Some(close) = self.closing.value.take() else { return };
        let path = &self.paths[at];
        let size_max = path.size.bytes().min(usize::try_from(path.link.amplification_budget()).unwrap_or(usize::MAX));
        let token = std::mem::take(&mut self.long.token);
        let (mut used, mut drafts) = (0, Vec::with_capacity(3));
        for space in Space::ALL {
            if !self.seal.has(space) {
                continue;
            }
            let form = HeaderForm { fixed_bit: true, ..self.header_form(at, space, 1) };
            let fields = self.fields(at, self.seal.packet_type(space), form, &token);
            let Some(mut draft) = Draft::begin(plan, &fields, size_max.saturating_sub(used)) else { break };
            // The application's code and reason are for an authenticated peer only.
            let reveal = (space == Space::Data && self.progress.is_complete) || !close.application;
            let (code, reason) =
                if reveal { (close.error.code.0, &*close.error.reason) } else { (ErrorCode::APPLICATION_ERROR.0, "") };
            let origin = if close.application && reveal {
                CloseOrigin::Application
            } else {
                CloseOrigin::Transport { frame_type: close.error.frame_type }
            };
            if draft.bytes_left < close_len_min(code, origin) {
                draft.abandon(plan);
                break;
            }
            let bytes_left = draft.bytes_left;
            draft.put_head(plan, |out| emit_close(code, origin, reason, bytes_left, out));
            used += draft.size();
            self.spaces[Self::index_of(space, at)].next_number += 1;
            drafts.push((draft, fields, plan.pieces.len()));
        }
        let has_initial = drafts.first().is_some_and(|(draft, ..)| draft.ty == PacketType::Initial);
        let padding = if has_initial && self.side == Side::Client {
            MIN_INITIAL_SIZE.min(size_max).saturating_sub(used)
        } else {
            0
        };
        finish_coalesced(drafts, padding, plan);
        self.long.token = token;
        self.closing.value = Some(close);
    }
}
