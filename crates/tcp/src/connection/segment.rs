//! Segments of a connection whose peer's SYN was received (RFC 9293, section 3.10.7.4).

use units::Instant;
use wire::tcp::Flags;

use super::{CloseReason, Connection};
use crate::arrival::Arrival;
use crate::receive::Judgement;
use crate::send::ack_info::AckInfo;
use crate::state::State;

impl Connection {
    /// Processes a segment of this connection.
    pub fn handle_segment(&mut self, now: Instant, arrival: Arrival) {
        self.record(|journal| journal.segment(now, &arrival));
        match self.state {
            State::Closed => {}
            State::SynSent => self.on_segment_syn_sent(now, arrival),
            State::SynReceived => self.on_segment_syn_received(now, arrival),
            _ => self.on_segment_synchronized(now, arrival),
        }
        self.settle(now);
    }

    fn on_segment_synchronized(&mut self, now: Instant, arrival: Arrival) {
        let Some(receive) = &mut self.receive else { return };
        receive.set_sent_end(self.send.sent_end());
        let position = match receive.judge(now, &arrival) {
            Judgement::Acceptable { position } => position,
            Judgement::Outside => return self.on_outside(now, &arrival),
            Judgement::Dropped => return self.note_old_timestamps(),
        };
        self.timers.on_heard(now);
        if arrival.has(Flags::RST) {
            return self.on_reset(now, &arrival);
        }
        if arrival.has(Flags::SYN) {
            // RFC 5961, section 4.2: answered, never accepted.
            return receive.challenge(now);
        }
        // A segment without an acknowledgement is dropped.
        if !arrival.has(Flags::ACK) || !self.on_ack(now, &arrival) {
            return;
        }
        if let Some(receive) = &mut self.receive {
            receive.note_timestamp(now, position, &arrival);
        }
        self.on_content(now, position, arrival);
    }

    /// Processes a segment entirely outside the window.
    fn on_outside(&mut self, now: Instant, arrival: &Arrival) {
        let (seq, len) = (arrival.header.seq, arrival.sequence_len());
        let Some(receive) = &mut self.receive else { return };
        if arrival.has(Flags::RST) {
            // Some peers do not count a FIN that they have sent (Linux accepts it, too).
            let has_end = matches!(self.state, State::CloseWait | State::LastAck | State::Closing);
            if has_end && receive.is_next(seq + 1) {
                self.close(CloseReason::Reset);
            }
            return;
        }
        // Our acknowledgement of the FIN was lost (RFC 9293, section 3.10.7.4, eighth check).
        if self.state == State::TimeWait && arrival.has(Flags::FIN) && receive.is_next(seq + len as u32) {
            self.timers.start_time_wait(now + self.config.time_wait);
        }
        if receive.on_outside(now, arrival) && self.on_ack(now, arrival) {
            self.note_urgent_outside(arrival);
        }
    }

    /// Notes urgent data behind a closed window: a reason for the application to read and so open
    /// it (RFC 9293, section 3.4).
    fn note_urgent_outside(&mut self, arrival: &Arrival) {
        if let Some(receive) = self.receive.as_mut().filter(|receive| receive.is_next(arrival.header.seq))
            && arrival.has(Flags::URG)
        {
            self.events.urgent |= receive.note_urgent(receive.nxt(), arrival.header.urgent);
        }
    }

    /// Processes a reset (RFC 5961, section 3.2): only one with the expected sequence number
    /// counts. Others in the window are answered, and a peer that means it repeats the reset with
    /// the right number. TIME-WAIT also ends: see [`TimeWait`](crate::TimeWait::handle_segment).
    fn on_reset(&mut self, now: Instant, arrival: &Arrival) {
        let Some(receive) = &mut self.receive else { return };
        if receive.is_next(arrival.header.seq) {
            self.close(CloseReason::Reset);
        } else {
            receive.challenge(now);
        }
    }

    /// Performs the fifth check: the acknowledgement. Returns false if the segment is dropped.
    fn on_ack(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let Some(receive) = &mut self.receive else { return false };
        let Some(info) = receive.credible_ack(now, arrival) else { return false };
        self.take_ack(now, &info);
        true
    }

    /// Passes the acknowledgement of a segment to the send half.
    pub(super) fn take_ack(&mut self, now: Instant, info: &AckInfo) {
        if self.send.handle_ack(now, info) {
            self.events.writable = true;
        }
        if self.send.timeouts() == 0 {
            self.soft_error = None;
        }
        // Without an application, a peer that never opens its window must not hold memory for ever.
        if !self.is_orphan {
            self.send.note_answer();
        }
    }

    /// Performs the sixth to eighth checks: urgent data, which stay in the stream (RFC 6093,
    /// section 4), then the data and the FIN.
    pub(super) fn on_content(&mut self, now: Instant, position: u64, arrival: Arrival) {
        if let Some(receive) = &mut self.receive {
            receive.note_marks_of(&arrival);
        }
        self.take_content(now, position, arrival);
    }

    /// Does the same as [`on_content`](Self::on_content) without the congestion marks: in a SYN
    /// those negotiate (RFC 3168, section 6.1.1).
    pub(super) fn take_content(&mut self, now: Instant, position: u64, arrival: Arrival) {
        let Some(receive) = &mut self.receive else { return };
        if arrival.has(Flags::URG) {
            self.events.urgent |= receive.note_urgent(position, arrival.header.urgent);
        }
        if arrival.sequence_len() == 0 {
            // A keep-alive probe was answered because its sequence number is not the next one (RFC
            // 9293, section 3.8.4); no other segment without data needs an answer.
            return;
        }
        if !self.state.may_receive() {
            // A repeated FIN.
            receive.set_ack_due();
            return;
        }
        if self.is_orphan && !arrival.data.is_empty() {
            return self.reset();
        }
        let flags = arrival.header.flags;
        if receive.take(now, position, arrival.data, flags, arrival.segment as u64) {
            self.events.readable = true;
        }
        if receive.is_fin_received() {
            self.state.on_fin_received();
        }
    }
}
