//! Data that are bound to a given path: copies of stream data that another path carries, at the
//! scheduler's request, stream data that this path lost, if the policy keeps retransmissions on it, and
//! datagrams that the application has bound to paths.

use wire::quic::frame::{datagram_header_len, emit_datagram_header, emit_stream_header, stream_header_len};
use wire::quic::{PacketType, PathId, Space};

use super::{LoggedPacket, Pass};
use crate::plan::{PLAN_BYTES_MAX, Plan};
use crate::send::SendHalf;
use crate::send::draft::Draft;
use crate::send::frames::SentFrame;
use crate::send::path::{PathQueues, SendPath, SentRange};
use crate::send::sent_log::RUNS_MAX;
use crate::send::streams::{DeliveryState, SendStreams};
use crate::spaces::DATA;

/// Why data are bound to the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// A copy requested by the scheduler. Its loss is not repaired; the loss of the original is.
    Copy,
    /// A retransmission of data lost on this path.
    Resend,
    /// A datagram that the application wants on this path.
    Datagram,
}

impl SendHalf {
    /// Sends what waits in one of the path's queues, as far as its window allows.
    pub(super) fn plan_retransmissions(&mut self, pass: &mut Pass<'_>, reason: Reason, datagrams_max: usize) {
        let at = pass.at;
        let size = self.paths[at].size.bytes();
        let mut bytes_left = self.paths[at].recovery.data_budget(pass.now, size, true);
        let form = self.header_form(at, Space::Data, datagrams_max as u64);
        pass.plan.segment_size = size;
        let limit = datagrams_max.min(PLAN_BYTES_MAX / size).max(1);
        while pass.plan.datagram_count < limit
            && bytes_left >= size as u64
            && self.spaces[DATA + at].log.run_count() < RUNS_MAX
        {
            let fields = self.fields(at, PacketType::OneRtt, form, &[]);
            let plan = &mut *pass.plan;
            let Some(mut draft) = Draft::begin(plan, &fields, size) else { break };
            let mut frames = Vec::new();
            let (SendPath { id, queues, counts, .. }, streams) = (&mut self.paths[at], &mut self.streams);
            match reason {
                Reason::Copy => queues.fill_copies(*id, streams, &mut draft, plan, &mut frames),
                Reason::Resend => {
                    counts.bytes_resent += queues.fill_resends(*id, streams, &mut draft, plan, &mut frames);
                }
                Reason::Datagram => {
                    self.stats.datagrams_lost += queues.fill_datagrams(&mut draft, plan, &mut frames);
                }
            }
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
            let packet =
                LoggedPacket { space: Space::Data, number, size: packet_size, eliciting: true, in_flight: true };
            self.record(pass, packet, &mut frames);
            if reason == Reason::Copy {
                self.spaces[DATA + at].log.mark_last_moved();
            }
            bytes_left -= packet_size as u64;
            if packet_size < size {
                break;
            }
        }
        self.settle_plan(pass);
    }
}

impl PathQueues {
    /// Adds the copies that wait, as far as they fit.
    fn fill_copies(
        &mut self,
        path: PathId,
        streams: &SendStreams,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
    ) {
        while let Some(SentRange { id, range, fin }) = self.copies.pop_front() {
            let Some(stream) = streams.get(id) else { continue };
            // Bytes acknowledged meanwhile need no copy.
            let range = range.start.max(stream.buffer.floor())..range.end;
            if range.start > range.end || (range.is_empty() && !fin) || stream.is_reset() {
                continue;
            }
            if !streams.allows(id, path) {
                continue;
            }
            let header_len = stream_header_len(id, range.start, draft.bytes_left, false);
            let len = (range.end - range.start).min(draft.bytes_left.saturating_sub(header_len) as u64);
            if header_len > draft.bytes_left || (len == 0 && !range.is_empty()) {
                self.copies.push_front(SentRange { id, range, fin });
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
                self.copies.push_front(SentRange { id, range: part.end..range.end, fin });
                return;
            }
        }
    }

    /// Adds the datagrams that wait, as far as they fit. Returns how many were dropped because they are too
    /// large.
    fn fill_datagrams(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) -> u64 {
        let mut lost = 0;
        while let Some(data) = self.datagrams.pop_front() {
            let len = datagram_header_len(data.len(), false) + data.len();
            // Without a length it fills the packet that it has for itself.
            let is_last = len > draft.bytes_left && draft.body_len == 0;
            if len > draft.bytes_left && !is_last {
                self.datagrams.push_front(data);
                return lost;
            }
            if is_last && datagram_header_len(data.len(), true) + data.len() > draft.bytes_left {
                // The path's packets have become smaller since.
                lost += 1;
                continue;
            }
            draft.put_head(plan, |out| emit_datagram_header(data.len(), is_last, out));
            plan.push_chunk_piece(&data, 0, data.len());
            draft.add_payload(data.len());
            draft.eliciting = true;
            frames.push(SentFrame::Datagram);
            if is_last {
                draft.bytes_left = 0;
                return lost;
            }
        }
        lost
    }

    /// Adds the retransmissions that wait, as far as they fit. Returns their bytes.
    fn fill_resends(
        &mut self,
        path: PathId,
        streams: &mut SendStreams,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
    ) -> u64 {
        let mut bytes = 0;
        while let Some(SentRange { id, range, fin }) = self.resends.pop_front() {
            let Some(stream) = streams.get(id).filter(|stream| !stream.is_reset()) else { continue };
            // Packets that arrived late may have acknowledged part of the range meanwhile.
            let fin = fin && stream.fin == DeliveryState::Sent;
            let end = range.end;
            let Some(missing) = stream.buffer.first_missing_in(range).or(fin.then_some(end..end)) else { continue };
            if !streams.allows(id, path) {
                streams.on_lost(id, missing.start..end, fin);
                continue;
            }
            let header_len = stream_header_len(id, missing.start, draft.bytes_left, false);
            let len = (missing.end - missing.start).min(draft.bytes_left.saturating_sub(header_len) as u64);
            if header_len > draft.bytes_left || (len == 0 && !missing.is_empty()) {
                self.resends.push_front(SentRange { id, range: missing.start..end, fin });
                return bytes;
            }
            let part = missing.start..missing.start + len;
            let is_whole = part.end == end;
            draft.put_head(plan, |out| emit_stream_header(id, part.start, len as usize, fin && is_whole, false, out));
            if len > 0 {
                stream.buffer.add_to_plan(part.clone(), plan);
                draft.add_payload(len as usize);
            }
            draft.eliciting = true;
            bytes += len;
            frames.push(SentFrame::Stream { id, range: part.clone(), fin: fin && is_whole });
            if !is_whole {
                self.resends.push_front(SentRange { id, range: part.end..end, fin });
            }
        }
        bytes
    }
}
