//! Fills plans: which frames go into which packet, and how many packets may leave.
//!
//! While the handshake lasts, a plan is one datagram in which packets of several spaces are coalesced. Afterwards it is a
//! batch of 1-RTT packets of one path, all of the same size but the last.

use units::{Duration, Instant};
use wire::quic::frame::{
    CloseOrigin, Frame, ack_len_max, close_len_min, crypto_header_len, datagram_header_len, emit_ack, emit_close,
    emit_crypto_header, emit_datagram_header, emit_stream_header, stream_header_len,
};
use wire::quic::{ErrorCode, MIN_INITIAL_SIZE, PathId, Side, Space, number_len};

use super::SendHalf;
use super::draft::{Draft, HeaderFields, lone_stream};
use super::frames::{ControlFrame, SentFrame};
use super::sent_log::{Content, RUNS_MAX, Run};
use crate::exchange::{Exchange, ToControl, ToReceive};
use crate::plan::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Plan};
use crate::receive::{AckSnapshot, Snapshot};

/// Ranges in one ACK frame: all that are remembered, so that none is forgotten unsaid.
const ACK_RANGES_SENT_MAX: usize = crate::receive::acks::RANGES_MAX;

/// Our ack_delay_exponent: the default, so that it need not be sent (RFC 9000, section 18.2).
pub(crate) const ACK_DELAY_EXPONENT: u32 = 3;

/// After so many packets with nothing but acknowledgements, one carries a PING, so that the peer's answer tells us which
/// ranges need no repetition (RFC 9000, section 13.2.4).
const SILENT_PACKETS_MAX: u32 = 16;

/// A number is skipped about every so many packets.
pub(crate) const SKIP_INTERVAL: u64 = 1 << 12;

impl SendHalf {
    /// Fills `plan` with what may leave now, at most `datagrams_max` datagrams; false if that is nothing.
    pub(crate) fn plan(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        datagrams_max: usize,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) -> bool {
        plan.clear();
        plan.path = PathId::ZERO;
        plan.addresses = Some(self.paths[0].addresses);
        plan.planned_at = now;
        if self.closing {
            self.plan_close(plan);
        } else if self.keys[0].is_some() || self.keys[1].is_some() {
            self.plan_handshake(now, snapshot, plan, exchange);
        } else if self.keys[2].is_some() {
            self.plan_data(now, snapshot, datagrams_max.min(PLAN_DATAGRAMS_MAX), plan, exchange);
        }
        if plan.packets.is_empty() {
            return false;
        }
        for space in Space::ALL {
            if plan.numbers[space.index()].is_some() {
                plan.keys[space.index()].clone_from(&self.keys[space.index()]);
            }
        }
        self.paths[0].on_sent(plan.size_bytes as u64);
        self.stats.datagrams_sent += plan.datagram_count as u64;
        self.stats.bytes_sent += plan.size_bytes as u64;
        self.stats.packets_sent += plan.packets.len() as u64;
        self.stats.plans += 1;
        true
    }

    fn fields<'a>(&self, space: Space, number_len: usize, token: &'a [u8], fixed_bit: bool) -> HeaderFields<'a> {
        let path = &self.paths[0];
        HeaderFields {
            space,
            number: self.spaces[space.index()].next_number,
            number_len,
            dcid: path.remote_id,
            scid: self.local_id,
            token,
            key_phase: self.key_phase % 2 == 1,
            fixed_bit,
        }
    }

    /// RFC 9287: a peer that ignores the QUIC bit gets it at random. Never on Initial packets, which a server may have to
    /// route before it knows us (section 3.1 allows those only with a token from the same server).
    fn fixed_bit(&mut self, space: Space) -> bool {
        !(self.peer.grease_quic_bit && self.config.grease && space != Space::Initial) || self.rng.next_u64() & 1 == 0
    }

    // ── While the handshake lasts ────────────────────────────────────────────────────────────────────────────────────

    fn plan_handshake(&mut self, now: Instant, snapshot: &Snapshot, plan: &mut Plan, exchange: &mut Exchange) {
        let path = &self.paths[0];
        let size_max = path.datagram_size.min(usize::try_from(path.amplification_room()).unwrap_or(usize::MAX));
        let has_window = path.window_room() >= size_max as u64;
        let has_data = self.handshake_complete && (self.has_control_due() || self.streams.has_ready());
        let paced = self.data_budget(now, size_max, has_data) >= size_max as u64;
        let token = std::mem::take(&mut self.token);
        let mut drafts: Vec<(Draft, HeaderFields<'_>, Vec<SentFrame>, usize)> = Vec::with_capacity(3);
        let mut used = 0;
        let (mut needs_padding, mut frames) = (false, Vec::new());
        for space in Space::ALL {
            if self.keys[space.index()].is_none() || (space == Space::Data && !self.handshake_complete) {
                continue;
            }
            let fixed_bit = self.fixed_bit(space);
            let number_len = self.number_len(space, 1);
            let fields = self.fields(space, number_len, &token, fixed_bit);
            let Some(mut draft) = Draft::begin(plan, &fields, size_max.saturating_sub(used)) else { break };
            let may_elicit = has_window || self.spaces[space.index()].probes_due > 0;
            // An Initial packet that elicits fills a datagram of 1200 bytes (RFC 9000, section 14.1), or waits for more room.
            let may_elicit = may_elicit && (space != Space::Initial || size_max >= MIN_INITIAL_SIZE);
            // The handshake itself is too short to be paced; data behind it keep to the user's rate.
            let may_elicit = may_elicit && (space != Space::Data || paced || self.spaces[space.index()].probes_due > 0);
            let ack = snapshot.get(space, PathId::ZERO);
            if space == Space::Data {
                self.fill_data(now, ack, may_elicit, &mut draft, plan, &mut frames, exchange);
            } else {
                self.fill_handshake(now, space, ack, may_elicit, &mut draft, plan, &mut frames, exchange);
            }
            if draft.body_len == 0 {
                draft.abandon(plan);
                continue;
            }
            // RFC 9000, section 14.1: every datagram of a client with an Initial packet, those of a server if it elicits.
            needs_padding |= space == Space::Initial && (self.side == Side::Client || draft.eliciting);
            used += draft.size();
            self.spaces[space.index()].next_number += 1;
            drafts.push((draft, fields, std::mem::take(&mut frames), plan.pieces.len()));
        }
        let padding = if needs_padding { MIN_INITIAL_SIZE.min(size_max).saturating_sub(used) } else { 0 };
        let last = drafts.len().wrapping_sub(1);
        for (index, (draft, fields, mut frames, pieces_to)) in drafts.into_iter().enumerate() {
            let padding = if index == last { padding } else { 0 };
            let (space, number, eliciting) = (draft.space, draft.number, draft.eliciting);
            let size = draft.finish(plan, &fields, padding, pieces_to);
            plan.size_bytes += size;
            plan.segment_size += size;
            plan.numbers[space.index()] = Some((number, number));
            self.record(now, space, number, size, eliciting, eliciting || padding > 0, &mut frames, exchange);
        }
        plan.datagram_count = usize::from(!plan.packets.is_empty());
        self.paths[0].pacer.on_sent(now, plan.size_bytes as u64);
        self.token = token;
    }

    #[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
    fn fill_handshake(
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
        if ack.pending {
            put_ack(now, space, PathId::ZERO, ack, draft, plan, frames, exchange);
        }
        if !may_elicit {
            return;
        }
        let buffer = &mut self.crypto[space.index()];
        while let Some(next) = buffer.peek(u64::MAX) {
            let header_len = crypto_header_len(next.start, draft.room);
            if draft.room <= header_len {
                break;
            }
            let len = (draft.room - header_len).min((next.end - next.start) as usize);
            let range = buffer.take(u64::MAX, len as u64).expect("what was peeked can be taken");
            let len = (range.end - range.start) as usize;
            draft.put_head(plan, |out| emit_crypto_header(range.start, len, out));
            buffer.add_to_plan(range.clone(), plan);
            draft.add_payload(len);
            draft.eliciting = true;
            frames.push(SentFrame::Crypto(range));
        }
        self.put_probe_ping(space, draft, plan, frames);
    }

    /// A probe that found nothing to carry is a PING.
    fn put_probe_ping(&mut self, space: Space, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        let probes = &mut self.spaces[space.index()].probes_due;
        if *probes == 0 {
            return;
        }
        if !draft.eliciting && draft.put(plan, &Frame::Ping) {
            frames.push(SentFrame::Ping);
        }
        *probes -= u8::from(draft.eliciting);
    }

    // ── The fast path ────────────────────────────────────────────────────────────────────────────────────────────────

    fn plan_data(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        datagrams_max: usize,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) {
        let ack = snapshot.get(Space::Data, PathId::ZERO);
        let has_data = self.has_control_due() || self.streams.has_ready();
        if !has_data && !ack.due && self.spaces[2].probes_due == 0 {
            self.paths[0].app_limited = true;
            self.paths[0].release_at = None;
            return;
        }
        let path = &mut self.paths[0];
        let size = path.datagram_size;
        plan.segment_size = size;
        let mut bytes_left = self.data_budget(now, size, has_data);
        let room = self.paths[0].amplification_room();
        let number_len = self.number_len(Space::Data, datagrams_max as u64);
        let mut ack = Some(ack);
        let fixed_bit = self.fixed_bit(Space::Data);
        let limit = datagrams_max.min(PLAN_BYTES_MAX / size).max(1);
        while plan.datagram_count < limit {
            let sent = plan.size_bytes as u64;
            let may_elicit = (bytes_left >= size as u64 && self.spaces[2].log.run_count() < RUNS_MAX)
                || self.spaces[2].probes_due > 0;
            let due = ack.is_some_and(|ack| ack.due);
            if (!may_elicit && !due) || room < sent + size as u64 {
                break;
            }
            let packet_size = self.plan_data_packet(now, ack.take(), may_elicit, number_len, fixed_bit, plan, exchange);
            let Some(packet_size) = packet_size else { break };
            bytes_left = bytes_left.saturating_sub(packet_size as u64);
            if packet_size < size {
                break;
            }
        }
        self.streams.rotate();
        let path = &mut self.paths[0];
        path.app_limited = bytes_left >= size as u64 && plan.datagram_count < limit;
        if plan.datagram_count > 0 {
            path.pacer.on_sent(now, plan.size_bytes as u64);
            if plan.datagram_count == 1 {
                plan.segment_size = plan.size_bytes;
            }
        }
        self.note_wear(plan.packets.len() as u64, exchange);
    }

    /// Bytes that window and pacer let out now. If it is the pacer that holds data back, remembers until when.
    fn data_budget(&mut self, now: Instant, size: usize, has_data: bool) -> u64 {
        let path = &mut self.paths[0];
        path.release_at = None;
        let window = path.window_room();
        let rate = path.congestion.pacing_rate(&path.rtt);
        let paced = path.pacer.budget(now, rate);
        if has_data && window >= size as u64 && paced < size as u64 {
            path.release_at = Some(path.pacer.next_release(now, rate, size as u64));
        }
        window.min(paced)
    }

    /// Plans one packet; returns its size, or `None` if there was nothing to put into it.
    #[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
    fn plan_data_packet(
        &mut self,
        now: Instant,
        ack: Option<&AckSnapshot>,
        may_elicit: bool,
        number_len: usize,
        fixed_bit: bool,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) -> Option<usize> {
        self.maybe_skip_number(plan);
        let fields = self.fields(Space::Data, number_len, &[], fixed_bit);
        let mut draft = Draft::begin(plan, &fields, self.paths[0].datagram_size)?;
        let mut frames = std::mem::take(&mut self.frame_scratch);
        static NOTHING: AckSnapshot = AckSnapshot::EMPTY;
        self.fill_data(now, ack.unwrap_or(&NOTHING), may_elicit, &mut draft, plan, &mut frames, exchange);
        if draft.body_len == 0 {
            draft.abandon(plan);
            self.frame_scratch = frames;
            return None;
        }
        let (number, eliciting) = (draft.number, draft.eliciting);
        let pieces_to = plan.pieces.len();
        let size = draft.finish(plan, &fields, 0, pieces_to);
        plan.size_bytes += size;
        plan.datagram_count += 1;
        let numbers = &mut plan.numbers[Space::Data.index()];
        *numbers = Some((numbers.map_or(number, |(first, _)| first), number));
        self.spaces[2].next_number += 1;
        self.record(now, Space::Data, number, size, eliciting, eliciting, &mut frames, exchange);
        self.frame_scratch = frames;
        Some(size)
    }

    /// Fills a 1-RTT packet, the most urgent frames first.
    #[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
    fn fill_data(
        &mut self,
        now: Instant,
        ack: &AckSnapshot,
        may_elicit: bool,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
        exchange: &mut Exchange,
    ) {
        if ack.pending {
            put_ack(now, Space::Data, PathId::ZERO, ack, draft, plan, frames, exchange);
        }
        if !may_elicit {
            return;
        }
        if self.has_control_due() {
            self.fill_control(draft, plan, frames);
            self.fill_credit(draft, plan, frames);
            self.fill_datagrams(draft, plan, frames);
        }
        if self.handshake_complete {
            self.fill_streams(draft, plan, frames);
        }
        if draft.body_len > 0 && !draft.eliciting {
            self.silent_count += 1;
            if self.silent_count >= SILENT_PACKETS_MAX && draft.put(plan, &Frame::Ping) {
                frames.push(SentFrame::Ping);
            }
        }
        self.put_probe_ping(Space::Data, draft, plan, frames);
        if draft.eliciting {
            self.silent_count = 0;
        }
    }

    fn fill_control(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        let buffer = &mut self.crypto[Space::Data.index()];
        while let Some(next) = buffer.peek(u64::MAX) {
            let header_len = crypto_header_len(next.start, draft.room);
            if draft.room <= header_len {
                return;
            }
            let len = ((draft.room - header_len) as u64).min(next.end - next.start);
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
            let frame = self.control.pop_front().expect("it was there");
            frames.push(if frame == ControlFrame::Ping { SentFrame::Ping } else { SentFrame::Control(frame) });
        }
    }

    /// Limits, resets and complaints about limits. All of them are small; what does not fit goes into the next packet.
    fn fill_credit(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        /// The longest of these frames: a type and three eight-byte integers.
        const FRAME_LEN_MAX: usize = 1 + 3 * 8;
        while draft.room >= FRAME_LEN_MAX {
            let (frame, sent) = if let Some(max) = self.grants.pop_data() {
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

    fn fill_datagrams(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        let len_max = self.datagram_len_max().unwrap_or(0);
        while let Some(data) = self.datagrams.front() {
            if data.len() > len_max {
                // Too large for any packet, since the path's limit shrank: drop it rather than block.
                self.datagram_bytes -= data.len() as u64;
                self.datagrams.pop_front();
                self.stats.datagrams_lost += 1;
                continue;
            }
            let fits = |last| datagram_header_len(data.len(), last) + data.len() <= draft.room;
            // Without its length it must be alone; while the handshake lasts, other packets of the datagram may take the
            // room even then.
            if !fits(false) && (draft.body_len > 0 || !fits(true)) {
                return;
            }
            let data = self.datagrams.pop_front().expect("it was there");
            let last = datagram_header_len(data.len(), false) + data.len() > draft.room;
            draft.put_head(plan, |out| emit_datagram_header(data.len(), last, out));
            plan.push_chunk_piece(&data, 0, data.len());
            draft.add_payload(data.len());
            draft.eliciting = true;
            self.datagram_bytes -= data.len() as u64;
            frames.push(SentFrame::Datagram);
            if last {
                draft.room = 0;
                return;
            }
        }
    }

    fn fill_streams(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        while draft.room > 0 {
            let Some((id, limit)) = self.streams.next_ready() else { return };
            let stream = self.streams.get(id).expect("a ready stream exists");
            let next = stream.buffer.peek(limit).unwrap_or_else(|| stream.buffer.end()..stream.buffer.end());
            let available = next.end - next.start;
            // A frame that fills the packet needs no length field; any other one does, since something may follow.
            let room = draft.room.saturating_sub(stream_header_len(id, next.start, 0, true));
            let last = available >= room as u64 && room > 0;
            let len = if last {
                room
            } else {
                let header_len = stream_header_len(id, next.start, draft.room, false);
                if header_len + usize::from(available > 0) > draft.room {
                    return;
                }
                (draft.room - header_len).min(available as usize)
            };
            let (range, fin) = self.streams.take(id, limit, len as u64);
            draft.put_head(plan, |out| emit_stream_header(id, range.start, len, fin, last, out));
            self.streams.get(id).expect("it exists still").buffer.add_to_plan(range.clone(), plan);
            draft.add_payload(len);
            draft.eliciting = true;
            frames.push(SentFrame::Stream { id, range, fin });
        }
    }

    // ── Goodbye ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// One datagram with a CONNECTION_CLOSE at every level the peer may be able to open (RFC 9000, section 10.2.3).
    fn plan_close(&mut self, plan: &mut Plan) {
        let Some(close) = self.close.take() else { return };
        let path = &self.paths[0];
        let size_max = path.datagram_size.min(usize::try_from(path.amplification_room()).unwrap_or(usize::MAX));
        let token = std::mem::take(&mut self.token);
        let (mut used, mut drafts) = (0, Vec::with_capacity(3));
        for space in Space::ALL {
            if self.keys[space.index()].is_none() {
                continue;
            }
            let number_len = self.number_len(space, 1);
            let fields = self.fields(space, number_len, &token, true);
            let Some(mut draft) = Draft::begin(plan, &fields, size_max.saturating_sub(used)) else { break };
            // The application's words are for an authenticated peer only.
            let reveal = (space == Space::Data && self.handshake_complete) || !close.application;
            let (code, reason) =
                if reveal { (close.error.code.0, &*close.error.reason) } else { (ErrorCode::APPLICATION_ERROR.0, "") };
            let origin = if close.application && reveal {
                CloseOrigin::Application
            } else {
                CloseOrigin::Transport { frame_type: close.error.frame_type }
            };
            if draft.room < close_len_min(code, origin) {
                draft.abandon(plan);
                break;
            }
            let room = draft.room;
            draft.put_head(plan, |out| emit_close(code, origin, reason, room, out));
            used += draft.size();
            self.spaces[space.index()].next_number += 1;
            drafts.push((draft, fields, plan.pieces.len()));
        }
        let has_initial = drafts.first().is_some_and(|(draft, ..)| draft.space == Space::Initial);
        let padding = if has_initial && self.side == Side::Client {
            MIN_INITIAL_SIZE.min(size_max).saturating_sub(used)
        } else {
            0
        };
        let last = drafts.len().wrapping_sub(1);
        for (index, (draft, fields, pieces_to)) in drafts.into_iter().enumerate() {
            let (space, number) = (draft.space, draft.number);
            let size = draft.finish(plan, &fields, if index == last { padding } else { 0 }, pieces_to);
            plan.size_bytes += size;
            plan.segment_size += size;
            plan.numbers[space.index()] = Some((number, number));
        }
        plan.datagram_count = usize::from(!plan.packets.is_empty());
        self.token = token;
    }

    // ── Bookkeeping ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// Bytes of the packet numbers of the next `count` packets.
    fn number_len(&self, space: Space, count: u64) -> usize {
        let space = &self.spaces[space.index()];
        number_len(space.next_number + count, space.largest_acked)
    }

    fn maybe_skip_number(&mut self, plan: &Plan) {
        // Between plans only: the packets of a plan are numbered in a row.
        let space = &mut self.spaces[2];
        if plan.packets.is_empty() && space.next_number >= self.next_skip {
            space.skip_number();
            self.next_skip = space.next_number + SKIP_INTERVAL / 2 + self.rng.below(SKIP_INTERVAL);
        }
    }

    /// Writes a packet into the log and tells the others what they must know of it.
    #[expect(clippy::too_many_arguments, reason = "one packet's facts; a struct would only rename them")]
    fn record(
        &mut self,
        now: Instant,
        space: Space,
        number: u64,
        size: usize,
        eliciting: bool,
        in_flight: bool,
        frames: &mut Vec<SentFrame>,
        exchange: &mut Exchange,
    ) {
        if number == 0 {
            exchange.to_control.push_back(ToControl::FirstSent(space));
        }
        if eliciting {
            if !self.elicited {
                self.elicited = true;
                exchange.to_control.push_back(ToControl::ElicitingSent { at: now });
            }
            self.probe_anchor = now;
        }
        if !in_flight {
            // Nobody will answer it: there is nothing to remember.
            frames.clear();
            return;
        }
        let log = &mut self.spaces[space.index()].log;
        let content = match lone_stream(frames) {
            Some((id, range)) => {
                frames.clear();
                Content::Stream { id, offset: range.start, stride: (range.end - range.start) as u32 }
            }
            None => log.store_frames(frames),
        };
        log.push(Run { first: number, count: 1, size: size as u16, eliciting, in_flight, sent_at: now, content });
        let path = &mut self.paths[0];
        path.in_flight += size as u64;
        path.congestion.on_sent(now, size as u64, path.in_flight);
    }

    /// Asks for a key update before the AEAD's limit comes near (RFC 9001, section 6.6).
    fn note_wear(&mut self, packets: u64, exchange: &mut Exchange) {
        let before = self.sealed_in_phase;
        self.sealed_in_phase += packets;
        if before < self.config.key_update_interval && self.sealed_in_phase >= self.config.key_update_interval {
            exchange.to_control.push_back(ToControl::KeyWornOut);
        }
        // RFC 9001, section 6.6: a peer that never follows an update must not make us use a key beyond its limit.
        let limit = self.keys[2].as_ref().map_or(u64::MAX, |keys| keys.packet.confidentiality_limit());
        if self.sealed_in_phase.saturating_add(PLAN_DATAGRAMS_MAX as u64) > limit {
            exchange.to_control.push_back(ToControl::KeyExhausted);
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
fn put_ack(
    now: Instant,
    space: Space,
    path: PathId,
    ack: &AckSnapshot,
    draft: &mut Draft,
    plan: &mut Plan,
    frames: &mut Vec<SentFrame>,
    exchange: &mut Exchange,
) {
    let Some(largest) = ack.ranges.max() else { return };
    // As many ranges as surely fit: each takes at most two eight-byte integers beside the fixed part.
    let fit = draft.room.saturating_sub(ack_len_max(1)) / 16 + 1;
    if draft.room < ack_len_max(1) {
        return;
    }
    let ranges = ack.ranges.iter().rev().take(ACK_RANGES_SENT_MAX.min(fit)).map(|range| range.start..=range.end - 1);
    let delay = now.saturating_since(ack.largest_at);
    let delay = if space == Space::Data { delay } else { Duration::ZERO };
    draft.put_head(plan, |out| emit_ack(None, delay.as_micros() >> ACK_DELAY_EXPONENT, ranges, None, out));
    plan.acks[space.index()] = true;
    frames.push(SentFrame::Ack { path, largest });
    exchange.to_receive.push_back(ToReceive::AckSent { space, path });
}
