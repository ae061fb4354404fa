//! Frames that wait for a packet, apart from data of streams and datagrams: control frames, handshake
//! data, credit for the peer, and requests for another frequency of acknowledgements.

use wire::quic::Space;
use wire::quic::frame::{Frame, crypto_header_len, emit_crypto_header};

use super::ack_frequency::AckFrequency;
use super::buffer::SendBuffer;
use super::draft::Draft;
use super::frames::{ControlFrame, SentFrame};
use super::grants::Grants;
use super::path::{SendPath, path_index};
use super::streams::SendStreams;
use crate::error::TransportError;
use crate::plan::Plan;
use crate::queue::Queue;
use crate::spaces::Spaces;

/// Control frames waiting to be sent, at most. The peer causes most of them (challenges to respond
/// to, connection IDs to retire), so a peer that causes more without reading any is refused.
pub(crate) const CONTROL_QUEUE_MAX: usize = 1024;

/// The frames of a connection that wait.
pub(super) struct WaitingFrames {
    control: Queue<ControlFrame>,
    /// CRYPTO bytes, by space.
    pub(super) crypto: Spaces<SendBuffer>,
    pub(super) grants: Grants,
    pub(super) ack_frequency: AckFrequency,
}

impl WaitingFrames {
    pub(super) fn new() -> Self {
        Self {
            control: Queue::new(),
            crypto: Spaces::default(),
            grants: Grants::default(),
            ack_frequency: AckFrequency::new(),
        }
    }

    pub(super) fn push(&mut self, frame: ControlFrame) -> Result<(), TransportError> {
        if self.control.len() >= CONTROL_QUEUE_MAX {
            return Err(TransportError::violation("the peer asks for answers and reads none"));
        }
        self.control.push_back(frame);
        Ok(())
    }

    /// True if frames are due in 1-RTT packets, those of `streams` about their credit included.
    pub(super) fn are_due(&self, streams: &SendStreams) -> bool {
        !self.control.is_empty()
            || self.grants.is_due()
            || self.ack_frequency.is_due()
            || streams.has_control_due()
            || self.has_crypto(Space::Data)
    }

    /// True if handshake data of this space are due.
    pub(super) fn has_crypto(&self, space: Space) -> bool {
        self.crypto[space.index()].peek(u64::MAX).is_some()
    }

    /// Adds handshake data of a space; false if some do not fit.
    pub(super) fn fill_crypto(
        &mut self,
        space: Space,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
    ) -> bool {
        let buffer = &mut self.crypto[space.index()];
        while let Some(next) = buffer.peek(u64::MAX) {
            let header_len = crypto_header_len(next.start, draft.bytes_left);
            if draft.bytes_left <= header_len {
                return false;
            }
            let len = ((draft.bytes_left - header_len) as u64).min(next.end - next.start);
            let range = buffer.take(u64::MAX, len).expect("what was peeked can be taken");
            let len = (range.end - range.start) as usize;
            draft.put_head(plan, |out| emit_crypto_header(range.start, len, out));
            buffer.add_to_plan(range.clone(), plan);
            draft.add_payload(len);
            draft.eliciting = true;
            frames.push(SentFrame::Crypto(range));
        }
        true
    }

    /// Adds handshake data and control frames to a 1-RTT packet.
    pub(super) fn fill_control(&mut self, draft: &mut Draft, plan: &mut Plan, frames: &mut Vec<SentFrame>) {
        if !self.fill_crypto(Space::Data, draft, plan, frames) {
            return;
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
    pub(super) fn fill_credit(
        &mut self,
        streams: &mut SendStreams,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
    ) {
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
            } else if let Some((id, code, final_size)) = streams.pop_reset() {
                (Frame::ResetStream { id, code, final_size }, SentFrame::ResetStream(id))
            } else if let Some(limit) = streams.pop_data_blocked() {
                (Frame::DataBlocked(limit), SentFrame::DataBlocked)
            } else if let Some((id, limit)) = streams.pop_stream_blocked() {
                (Frame::StreamDataBlocked { id, limit }, SentFrame::StreamDataBlocked(id))
            } else if let Some((dir, limit)) = streams.pop_streams_blocked() {
                (Frame::StreamsBlocked { dir, limit }, SentFrame::StreamsBlocked(dir))
            } else {
                return;
            };
            let fits = draft.put(plan, &frame);
            debug_assert!(fits, "the longest frame fits");
            frames.push(sent);
        }
    }

    /// A frame was lost, or its packet never left: it is due again, here or in `streams`.
    pub(super) fn requeue(&mut self, space: Space, frame: SentFrame, streams: &mut SendStreams, paths: &[SendPath]) {
        match frame {
            // A lost status frame older than the latest one would mislead the peer (multipath
            // draft-21, section 4.3).
            SentFrame::Control(ControlFrame::PathStatus { path, sequence, .. })
                if path_index(paths, path).is_none_or(|at| paths[at].phase.status_sequence != sequence) => {}
            // A probe may already have queued a copy.
            SentFrame::Control(frame) if frame.repeats() && !self.control.iter().any(|due| *due == frame) => {
                self.control.push_back(frame);
            }
            SentFrame::Crypto(range) => self.crypto[space.index()].lose(range),
            SentFrame::Stream { id, range, fin } => streams.on_lost(id, range, fin),
            SentFrame::MaxData => self.grants.on_data_lost(),
            SentFrame::MaxStreamData(id) => self.grants.on_stream_data_lost(id),
            SentFrame::MaxStreams(dir) => self.grants.on_streams_lost(dir),
            SentFrame::ResetStream(id) => streams.on_reset_lost(id),
            SentFrame::DataBlocked => streams.on_data_blocked_lost(),
            SentFrame::StreamDataBlocked(id) => streams.on_stream_blocked_lost(id),
            SentFrame::StreamsBlocked(dir) => streams.on_streams_blocked_lost(dir),
            SentFrame::AckFrequency { sequence } => self.ack_frequency.on_lost(sequence),
            SentFrame::Datagram
            | SentFrame::Ping
            | SentFrame::Responses(_)
            | SentFrame::Control(_)
            | SentFrame::Ack { .. } => {}
        }
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self) {
        self.control.shrink();
        self.grants.shrink();
        self.crypto.iter_mut().for_each(SendBuffer::shrink);
    }
}
