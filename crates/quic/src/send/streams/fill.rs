//! Puts data of the next streams into packets.

use wire::quic::frame::{emit_stream_header, stream_header_len};

use super::SendStreams;
use crate::plan::Plan;
use crate::send::draft::Draft;
use crate::send::frames::SentFrame;

impl SendStreams {
    /// Ends the turn of the stream that was planned, and records whether the plan is a background plan.
    /// Returns whether the plan ended early because background data follow in the next.
    pub(in crate::send) fn finish_turn(&mut self, plan: &mut Plan) -> bool {
        if plan.datagram_count > 0 {
            self.rotate();
        }
        plan.is_background = self.holds_only_background();
        self.defers_background()
    }

    /// Adds data of the streams that are next, as much as fits.
    pub(in crate::send) fn fill(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        while draft.bytes_left > 0 {
            let Some((id, limit)) = self.next_ready() else { return };
            let stream = self.get(id).expect("a ready stream exists");
            let next = stream.buffer.peek(limit).unwrap_or_else(|| stream.buffer.end()..stream.buffer.end());
            let available = next.end - next.start;
            // A frame that fills the packet needs no length field; any other does, since a frame
            // may follow.
            let payload_max = draft.bytes_left.saturating_sub(stream_header_len(id, next.start, 0, true));
            let last = available >= payload_max as u64 && payload_max > 0;
            let len = if last {
                payload_max
            } else {
                let header_len = stream_header_len(id, next.start, draft.bytes_left, false);
                if header_len + usize::from(available > 0) > draft.bytes_left {
                    return;
                }
                (draft.bytes_left - header_len).min(available as usize)
            };
            let (range, fin) = self.take(id, limit, len as u64);
            draft.put_head(plan, |out| emit_stream_header(id, range.start, len, fin, last, out));
            self.get(id).expect("the stream still exists").buffer.add_to_plan(range.clone(), plan);
            draft.add_payload(len);
            draft.eliciting = true;
            frames.push(SentFrame::Stream { id, range, fin });
        }
    }
}
