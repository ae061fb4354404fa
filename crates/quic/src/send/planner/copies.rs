//! Copies: stream data that another path carries already, sent again at once because the scheduler wants it on both.

use units::Instant;
use wire::quic::Space;
use wire::quic::frame::{emit_stream_header, stream_header_len};

use super::SendHalf;
use crate::exchange::Exchange;
use crate::plan::{PLAN_BYTES_MAX, Plan};
use crate::send::draft::Draft;
use crate::send::frames::SentFrame;
use crate::send::path::Copy;
use crate::send::sent_log::RUNS_MAX;
use crate::spaces::DATA;

impl SendHalf {
    /// Sends what waits in the path's queue of copies, as far as its window lets it. Loss of a copy is not repaired: the
    /// original's would be.
    pub(super) fn plan_copies(
        &mut self,
        now: Instant,
        at: usize,
        datagrams_max: usize,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) {
        let size = self.paths[at].datagram_size;
        let mut bytes_left = self.data_budget(now, at, size, true);
        let number_len = self.number_len(at, Space::Data, datagrams_max as u64);
        let fixed_bit = self.fixed_bit(Space::Data);
        plan.segment_size = size;
        let limit = datagrams_max.min(PLAN_BYTES_MAX / size).max(1);
        while plan.datagram_count < limit
            && bytes_left >= size as u64
            && self.spaces[DATA + at].log.run_count() < RUNS_MAX
        {
            let fields = self.fields(at, Space::Data, number_len, &[], fixed_bit);
            let Some(mut draft) = Draft::begin(plan, &fields, size) else { break };
            let mut frames = Vec::new();
            self.fill_copies(at, &mut draft, plan, &mut frames);
            if draft.body_len == 0 {
                draft.abandon(plan);
                break;
            }
            let (number, pieces_to) = (draft.number, plan.pieces.len());
            let packet_size = draft.finish(plan, &fields, 0, pieces_to);
            plan.size_bytes += packet_size;
            plan.datagram_count += 1;
            plan.note_numbers(Space::Data, number, number);
            self.spaces[DATA + at].next_number += 1;
            self.record(now, at, Space::Data, number, packet_size, true, true, &mut frames, exchange);
            self.spaces[DATA + at].log.mark_last_moved();
            bytes_left -= packet_size as u64;
            if packet_size < size {
                break;
            }
        }
        self.settle_plan(now, at, plan, exchange);
    }

    fn fill_copies(&mut self, at: usize, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        while let Some(Copy { id, range, fin }) = self.paths[at].copies.pop_front() {
            let Some(stream) = self.streams.get(id) else { continue };
            // What the peer has acknowledged meanwhile needs no copy.
            let range = range.start.max(stream.buffer.floor())..range.end;
            if range.start > range.end || (range.is_empty() && !fin) || stream.is_reset() {
                continue;
            }
            let header_len = stream_header_len(id, range.start, draft.room, false);
            let len = (range.end - range.start).min(draft.room.saturating_sub(header_len) as u64);
            if header_len > draft.room || (len == 0 && !range.is_empty()) {
                self.paths[at].copies.push_front(Copy { id, range, fin });
                return;
            }
            let part = range.start..range.start + len;
            let is_whole = part.end == range.end;
            draft.put_head(plan, |out| emit_stream_header(id, part.start, len as usize, fin && is_whole, false, out));
            if len > 0 {
                stream.buffer.add_to_plan(part.clone(), plan);
                draft.add_payload(len as usize);
            }
            draft.eliciting = true;
            frames.push(SentFrame::Stream { id, range: part.clone(), fin: fin && is_whole });
            if !is_whole {
                self.paths[at].copies.push_front(Copy { id, range: part.end..range.end, fin });
                return;
            }
        }
    }
}
