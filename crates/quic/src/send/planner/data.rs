//! The fast path: a batch of 1-RTT packets of one path.

use units::Instant;
use wire::quic::frame::{
    Frame, crypto_header_len, datagram_header_len, emit_crypto_header, emit_datagram_header, emit_stream_header,
    stream_header_len,
};
use wire::quic::{MIN_INITIAL_SIZE, PacketType, Space};

use super::PlanScope;
use crate::exchange::Exchange;
use crate::plan::{PLAN_BYTES_MAX, Plan};
use crate::receive::acks::snapshot::Snapshot;
use crate::send::SendHalf;
use crate::send::draft::Draft;
use crate::send::frames::{ControlFrame, SentFrame};
use crate::send::path::{AMPLIFICATION_BUDGET_MIN, SendPath};
use crate::send::sent_log::RUNS_MAX;
use crate::spaces::DATA;

/// Bytes to an unvalidated address that only challenges use: three of about 40 bytes.
const CHALLENGES_RESERVE: u64 = 160;

impl SendHalf {
    /// Fills `plan` for the path at `at` with everything due there, or records that nothing is.
    #[expect(clippy::too_many_arguments, reason = "one plan's context; a struct would only rename them")]
    pub(super) fn plan_data(
        &mut self,
        now: Instant,
        at: usize,
        scope: PlanScope,
        snapshot: &Snapshot,
        datagrams_max: usize,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) {
        let has_data = scope != PlanScope::PathBound && self.has_anything_due();
        let has_bound =
            self.spaces[DATA + at].probes_due > 0 || self.paths[at].validation.has_due() || self.paths[at].pings.is_due;
        let (ack_pending, ack_due) = self.ack_demand(at, snapshot);
        if !has_data && !ack_due && !has_bound {
            if scope == PlanScope::All {
                self.note_nothing_due(at);
            }
            return;
        }
        // Most endpoints search for no size: they are spared the call.
        let searches = scope.fills_window() && self.paths[at].size.search.is_some();
        if searches && self.plan_mtu_probe(now, at, plan, exchange) {
            return;
        }
        let (scope, budget) = self.limit_of_validation(at, scope);
        let mut size = self.segment_size(at, budget);
        plan.segment_size = size;
        let mut bytes_left = self.paths[at].recovery.data_budget(now, size, has_data);
        let number_len = self.number_len(at, Space::Data, datagrams_max as u64);
        let mut acks = Some(snapshot);
        let fixed_bit = self.fixed_bit(at, Space::Data);
        let limit = datagrams_max.min(PLAN_BYTES_MAX / size).max(1);
        while plan.datagram_count < limit {
            let sent = plan.size_bytes as u64;
            let has_window = bytes_left >= size as u64 && self.spaces[DATA + at].log.run_count() < RUNS_MAX;
            // Probes may exceed the congestion window (RFC 9002, section 7.5), and so may
            // challenges on a path that carries no data.
            let exceeds = !self.paths[at].is_active() && self.paths[at].validation.may_exceed_window();
            let challenges = self.paths[at].validation.has_due() && (has_window || exceeds);
            let probes = self.spaces[DATA + at].probes_due > 0;
            let pings = self.paths[at].pings.is_due && has_window;
            let may_elicit = (has_window && scope.fills_window()) || probes || challenges || pings;
            if !(may_elicit || ack_due && acks.is_some()) || budget < sent + size as u64 {
                break;
            }
            if scope == PlanScope::All && has_window && self.is_bulk_due(at, ack_pending && acks.is_some()) {
                let packets = (limit - plan.datagram_count) as u64;
                let packets = packets.min(bytes_left / size as u64).min((budget - sent) / size as u64);
                let planned = self.plan_packet_run(now, at, packets as u32, number_len, fixed_bit, plan, exchange);
                bytes_left -= u64::from(planned) * size as u64;
                if planned > 0 {
                    continue;
                }
            }
            if scope.fills_window() && has_window && self.is_datagram_run_due(at, scope) {
                // An acknowledgement that is due leaves in the last packet.
                let reserved = usize::from(ack_due && acks.is_some());
                let packets = (limit - plan.datagram_count).saturating_sub(reserved);
                let packets = packets.min((bytes_left.min(budget - sent) / size as u64) as usize);
                let planned = self.plan_datagram_run(now, at, packets, number_len, fixed_bit, plan, exchange);
                if planned > 0 {
                    size = plan.segment_size;
                    bytes_left -= (planned * size) as u64;
                    continue;
                }
            }
            let first = acks.take();
            let packet_size =
                self.plan_data_packet(now, at, scope, first, may_elicit, number_len, fixed_bit, plan, exchange);
            let Some(packet_size) = packet_size else { break };
            if scope == PlanScope::Probes && self.spaces[DATA + at].probes_due == 0 {
                break;
            }
            if challenges && !has_window {
                self.paths[at].validation.on_window_exceeded();
            }
            bytes_left = bytes_left.saturating_sub(packet_size as u64);
            if packet_size < size {
                break;
            }
        }
        if scope.fills_window() {
            self.finish_turn(at, scope, size, bytes_left, limit, plan);
        }
        self.settle_plan(now, at, plan, exchange);
    }

    /// Nothing is due on the path at `at`: records that it is application-limited.
    fn note_nothing_due(&mut self, at: usize) {
        self.paths[at].on_nothing_due();
        // Streams blocked by a class become due by their own timer.
        self.found_nothing_due = self.paths.len() == 1 && !self.streams.has_classes() && self.off_paths.is_empty();
    }

    /// What may leave on the path at `at`, within `scope`: which frames, and how many bytes.
    ///
    /// After the handshake, the limit for an unvalidated address may be a few bytes, and only a packet of
    /// the peer raises it, which may have nothing to send. If such bytes carry data and are lost, nothing
    /// happens any more. So a challenge that fits no full datagram leaves alone, and everything else
    /// leaves room for challenges.
    fn limit_of_validation(&self, at: usize, scope: PlanScope) -> (PlanScope, u64) {
        let path = &self.paths[at];
        let budget = path.link.amplification_budget();
        if budget == u64::MAX || !self.handshake_complete {
            return (scope, budget);
        }
        let full = MIN_INITIAL_SIZE as u64;
        let is_challenge_due = path.validation.has_due();
        if is_challenge_due && budget < full {
            return (PlanScope::PathBound, budget);
        }
        let rest = budget.saturating_sub(CHALLENGES_RESERVE);
        let rest = if is_challenge_due { rest.max(full) } else { rest };
        (scope, if rest < AMPLIFICATION_BUDGET_MIN { 0 } else { rest })
    }

    /// The size of a plan's datagrams, bytes, with a `budget` in bytes from the anti-amplification
    /// limit. Sending to an unvalidated address is limited: at most one challenge's datagram at a
    /// time.
    fn segment_size(&self, at: usize, budget: u64) -> usize {
        let size = self.paths[at].size.bytes();
        if budget == u64::MAX {
            return size;
        }
        size.min(MIN_INITIAL_SIZE).min(budget.max(AMPLIFICATION_BUDGET_MIN) as usize)
    }

    /// Ends the turn of the stream that was planned, and records whether the plan is a background
    /// plan and whether it ended for lack of data. The plan holds at most `limit` datagrams of
    /// `size` bytes; `bytes_left` more bytes could have left.
    fn finish_turn(
        &mut self,
        at: usize,
        scope: PlanScope,
        size: usize,
        bytes_left: u64,
        limit: usize,
        plan: &mut Plan,
    ) {
        let mut is_over = plan.datagram_count >= limit;
        if scope.has_streams() {
            if plan.datagram_count > 0 {
                self.streams.rotate();
            }
            is_over |= self.streams.defers_background();
            plan.is_background = self.streams.holds_only_background();
        }
        let is_app_limited = bytes_left >= size as u64 && !is_over;
        let path = &mut self.paths[at];
        path.recovery.note_app_limited(is_app_limited, size, path.size.bytes());
    }

    /// Reports a completed plan to the pacer and to the count of packets per key.
    pub(in crate::send) fn settle_plan(&mut self, now: Instant, at: usize, plan: &mut Plan, exchange: &mut Exchange) {
        let path = &mut self.paths[at];
        if plan.datagram_count > 0 {
            path.recovery.pacer.on_sent(now, plan.size_bytes as u64);
            if plan.datagram_count == 1 {
                plan.segment_size = plan.size_bytes;
            }
        }
        self.count_sealed_packets(plan.packet_count as u64, exchange);
    }

    /// Plans one packet. Returns its size, or `None` if no frame was due.
    #[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
    pub(super) fn plan_data_packet(
        &mut self,
        now: Instant,
        at: usize,
        scope: PlanScope,
        acks: Option<&Snapshot>,
        may_elicit: bool,
        number_len: usize,
        fixed_bit: bool,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) -> Option<usize> {
        self.maybe_skip_number(at, plan);
        let fields = self.fields(at, PacketType::OneRtt, number_len, &[], fixed_bit);
        let mut draft = Draft::begin(plan, &fields, plan.segment_size)?;
        let mut frames = std::mem::take(&mut self.frame_scratch);
        let challenges = may_elicit && self.paths[at].validation.has_due();
        self.fill_data(now, at, scope, acks, may_elicit, &mut draft, plan, &mut frames, exchange);
        if draft.body_len == 0 {
            draft.abandon(plan);
            self.frame_scratch = frames;
            return None;
        }
        let (number, eliciting) = (draft.number, draft.eliciting);
        let pieces_to = plan.pieces.len();
        // Challenges and responses travel in full datagrams to show that the path carries them (RFC
        // 9000, section 8.2.1), unless the anti-amplification limit allows none.
        let is_expanded = challenges && plan.segment_size >= MIN_INITIAL_SIZE;
        let padding = if is_expanded { MIN_INITIAL_SIZE.saturating_sub(draft.size()) } else { 0 };
        let size = draft.finish(plan, &fields, padding, pieces_to);
        plan.size_bytes += size;
        plan.datagram_count += 1;
        plan.note_numbers(Space::Data, number, number);
        self.spaces[DATA + at].next_number += 1;
        self.record(now, at, Space::Data, number, size, eliciting, eliciting, &mut frames, exchange);
        self.frame_scratch = frames;
        Some(size)
    }

    /// Fills a 1-RTT packet, the most urgent frames first.
    #[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
    pub(super) fn fill_data(
        &mut self,
        now: Instant,
        at: usize,
        scope: PlanScope,
        acks: Option<&Snapshot>,
        may_elicit: bool,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
        exchange: &mut Exchange,
    ) {
        if let Some(snapshot) = acks {
            self.put_acks(now, at, snapshot, draft, plan, frames, exchange);
        }
        if may_elicit {
            self.fill_validation(at, draft, plan, frames);
            if scope != PlanScope::PathBound && self.has_control_due() {
                self.fill_control(draft, plan, frames);
                self.fill_credit(draft, plan, frames);
                self.fill_datagrams(draft, plan, frames);
            }
            if scope.has_streams() && self.handshake_complete {
                self.fill_streams(draft, plan, frames);
            }
        }
        if draft.body_len > 0 && !draft.eliciting && (may_elicit || !scope.fills_window()) {
            if self.paths[at].pings.is_due_after_ack_only() && draft.put(plan, &Frame::Ping) {
                frames.push(SentFrame::Ping);
            }
        }
        if may_elicit {
            self.put_probe_ping(DATA + at, draft, plan, frames);
            if self.paths[at].pings.is_due && !draft.eliciting && draft.put(plan, &Frame::Ping) {
                frames.push(SentFrame::Ping);
            }
        }
        if draft.eliciting {
            self.paths[at].pings.on_eliciting();
        }
    }

    /// Adds responses to the peer's challenges, and a challenge of ours.
    fn fill_validation(&mut self, at: usize, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        let SendPath { id, validation, .. } = &mut self.paths[at];
        let mut responded = false;
        while let Some(data) = validation.peek_response()
            && draft.put(plan, &Frame::PathResponse(data))
        {
            validation.pop_response();
            responded = true;
        }
        if responded {
            frames.push(SentFrame::Responses(*id));
        }
        /// A type of at most two bytes, and eight bytes of data.
        const CHALLENGE_LEN_MAX: usize = 10;
        if draft.bytes_left >= CHALLENGE_LEN_MAX
            && let Some(data) = validation.take_challenge(&mut self.rng, plan.segment_size >= MIN_INITIAL_SIZE)
        {
            let fits = draft.put(plan, &Frame::PathChallenge(data));
            debug_assert!(fits, "the length was checked");
            frames.push(SentFrame::Ping);
        }
    }

    pub(super) fn fill_control(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        let buffer = &mut self.crypto[Space::Data.index()];
        while let Some(next) = buffer.peek(u64::MAX) {
            let header_len = crypto_header_len(next.start, draft.bytes_left);
            if draft.bytes_left <= header_len {
                return;
            }
            let len = ((draft.bytes_left - header_len) as u64).min(next.end - next.start);
            let range = buffer.take(u64::MAX, len).expect("what was peeked can be taken");
            draft.put_head(plan, |out| emit_crypto_header(range.start, (range.end - range.start) as usize, out));
            buffer.add_to_plan(range.clone(), plan);
            draft.add_payload((range.end - range.start) as usize);
            draft.eliciting = true;
            frames.push(SentFrame::Crypto(range));
        }
        while let Some(frame) = self.control.front() {
            if !draft.put(plan, &frame.wire()) {
                return;
            }
            let frame = self.control.pop_front().expect("the queue is not empty");
            frames.push(if frame == ControlFrame::Ping { SentFrame::Ping } else { SentFrame::Control(frame) });
        }
    }

    /// Adds flow-control credit, resets, BLOCKED frames and the ACK frequency. All are small;
    /// frames that do not fit go into the next packet.
    pub(super) fn fill_credit(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        /// The longest of these frames: a type of at most two bytes and four eight-byte integers.
        const FRAME_LEN_MAX: usize = 2 + 4 * 8;
        while draft.bytes_left >= FRAME_LEN_MAX {
            let (frame, sent) = if let Some(request) = self.ack_frequency.pop() {
                request
            } else if let Some(max) = self.grants.pop_data() {
                (Frame::MaxData(max), SentFrame::MaxData)
            } else if let Some((id, max)) = self.grants.pop_stream_data() {
                (Frame::MaxStreamData { id, max }, SentFrame::MaxStreamData(id))
            } else if let Some((dir, max)) = self.grants.pop_streams() {
                (Frame::MaxStreams { dir, max }, SentFrame::MaxStreams(dir))
            } else if let Some((id, code, final_size)) = self.streams.pop_reset() {
                (Frame::ResetStream { id, code, final_size }, SentFrame::ResetStream(id))
            } else if let Some(limit) = self.streams.pop_data_blocked() {
                (Frame::DataBlocked(limit), SentFrame::DataBlocked)
            } else if let Some((id, limit)) = self.streams.pop_stream_blocked() {
                (Frame::StreamDataBlocked { id, limit }, SentFrame::StreamDataBlocked(id))
            } else if let Some((dir, limit)) = self.streams.pop_streams_blocked() {
                (Frame::StreamsBlocked { dir, limit }, SentFrame::StreamsBlocked(dir))
            } else {
                return;
            };
            let fits = draft.put(plan, &frame);
            debug_assert!(fits, "the longest frame fits");
            frames.push(sent);
        }
    }

    pub(super) fn fill_datagrams(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        let len_max = self.datagram_len_max().unwrap_or(0);
        while let Some(data) = self.datagrams.front() {
            if data.len() > len_max {
                // Too large for any packet because the path's limit shrank: drop it rather than
                // block the queue.
                self.datagrams.pop_front();
                self.stats.datagrams_lost += 1;
                continue;
            }
            let fits = |last| datagram_header_len(data.len(), last) + data.len() <= draft.bytes_left;
            // A DATAGRAM frame without a length field must be the last one in its packet. During
            // the handshake, other packets in the same datagram may take the remaining space even
            // then.
            if !fits(false) && (draft.body_len > 0 || !fits(true)) {
                return;
            }
            let data = self.datagrams.pop_front().expect("the queue is not empty");
            let last = datagram_header_len(data.len(), false) + data.len() > draft.bytes_left;
            draft.put_head(plan, |out| emit_datagram_header(data.len(), last, out));
            plan.push_chunk_piece(&data, 0, data.len());
            draft.add_payload(data.len());
            draft.eliciting = true;
            self.streams.on_datagram_taken();
            frames.push(SentFrame::Datagram);
            if last {
                draft.bytes_left = 0;
                return;
            }
        }
    }

    pub(in crate::send) fn fill_streams(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        while draft.bytes_left > 0 {
            let Some((id, limit)) = self.streams.next_ready() else { return };
            let stream = self.streams.get(id).expect("a ready stream exists");
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
            let (range, fin) = self.streams.take(id, limit, len as u64);
            draft.put_head(plan, |out| emit_stream_header(id, range.start, len, fin, last, out));
            self.streams.get(id).expect("the stream still exists").buffer.add_to_plan(range.clone(), plan);
            draft.add_payload(len);
            draft.eliciting = true;
            frames.push(SentFrame::Stream { id, range, fin });
        }
    }
}
