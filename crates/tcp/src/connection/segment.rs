//! Segments of a connection whose peer's SYN was received (RFC 9293, section 3.10.7.4).

use units::{Ecn, Instant};
use wire::tcp::Flags;

use super::{CloseReason, Connection};
use crate::arrival::Arrival;
use crate::receive::Acceptance;
use crate::send::ack_info::AckInfo;
use crate::state::State;

impl Connection {
    /// Processes a segment of this connection.
    pub fn handle_segment(&mut self, now: Instant, arrival: Arrival) {
        match self.state {
            State::Closed => {}
            State::SynSent => self.on_segment_syn_sent(now, &arrival),
            _ => self.on_segment_synchronized(now, arrival),
        }
        self.settle(now);
    }

    fn on_segment_synchronized(&mut self, now: Instant, arrival: Arrival) {
        let Some(position) = self.check_sequence(now, &arrival) else { return };
        self.timers.on_heard(now);
        if arrival.has(Flags::RST) {
            return self.on_reset(now, &arrival);
        }
        if arrival.has(Flags::SYN) {
            return self.on_syn_again(now);
        }
        // Without an acknowledgement a segment is dropped.
        if !arrival.has(Flags::ACK) || !self.on_ack(now, &arrival) {
            return;
        }
        self.note_timestamp(now, position, &arrival);
        self.on_content(now, position, arrival);
    }

    /// First check: the sequence number, and the timestamp (RFC 7323, section 5.3). The position of
    /// the segment if it is acceptable.
    fn check_sequence(&mut self, now: Instant, arrival: &Arrival) -> Option<u64> {
        let (header, receive) = (&arrival.header, self.receive.as_ref()?);
        if self.negotiated.timestamps && !arrival.has(Flags::RST) {
            // RFC 7323, section 3.2: a segment without timestamps should be dropped.
            let timestamps = header.options.timestamps?;
            if self.clock.is_old(now, timestamps.value) {
                self.answer_unacceptable(now, arrival);
                return None;
            }
        }
        match receive.acceptance(header.seq, arrival.data.len() as u64, arrival.sequence_len()) {
            Acceptance::Acceptable { position } => Some(position),
            Acceptance::Outside => {
                if !arrival.has(Flags::RST) {
                    self.on_outside(now, arrival);
                }
                None
            }
        }
    }

    /// RFC 7323, section 4.3: the timestamp of the segment that the next acknowledgement answers is
    /// echoed. If acknowledgements are delayed, that is the first of several. Only a segment with a
    /// credible acknowledgement counts: a forged timestamp would make those of the peer look old.
    fn note_timestamp(&mut self, now: Instant, position: u64, arrival: &Arrival) {
        let is_answered = self.receive.as_ref().is_some_and(|receive| position <= receive.acked());
        if let Some(timestamps) =
            arrival.header.options.timestamps.filter(|_| self.negotiated.timestamps && is_answered)
        {
            self.clock.update(now, timestamps.value);
        }
    }

    /// Nothing of the segment lies in the window.
    fn on_outside(&mut self, now: Instant, arrival: &Arrival) {
        let (seq, len) = (arrival.header.seq, arrival.sequence_len());
        let Some(receive) = &mut self.receive else { return };
        if self.state == State::SynReceived && arrival.has(Flags::SYN | Flags::ACK) && receive.is_syn(seq) {
            // Both sides have opened at once, and the peer answers our SYN (RFC 9293, section 3.5, figure 7).
            receive.set_ack_due();
            self.on_ack(now, arrival);
            return;
        }
        if !arrival.has(Flags::SYN) {
            receive.note_repeated(seq, len);
        }
        // Our acknowledgement of the FIN was lost (RFC 9293, section 3.10.7.4, eighth check).
        if self.state == State::TimeWait && arrival.has(Flags::FIN) && receive.is_next(seq + len as u32) {
            self.timers.start_time_wait(now + self.config.time_wait);
        }
        // The window is closed: what the segment acknowledges counts, its data do not. The same for a
        // segment that begins a position too early. Its sender does not know that we have taken the byte
        // with which it probed our window; if both sides have probed and neither took acknowledgements
        // from the other, neither would ever know.
        let is_close = receive.is_next(seq) || receive.is_next(seq + 1);
        self.answer_unacceptable(now, arrival);
        if is_close && arrival.has(Flags::ACK) && !arrival.has(Flags::SYN) && self.on_ack(now, arrival) {
            self.note_urgent_outside(arrival);
        }
    }

    /// The window is closed: that urgent data wait behind it is a reason to open it (RFC 9293, section 3.4).
    fn note_urgent_outside(&mut self, arrival: &Arrival) {
        if let Some(receive) = self.receive.as_mut().filter(|receive| receive.is_next(arrival.header.seq))
            && arrival.has(Flags::URG)
        {
            self.events.urgent |= receive.note_urgent(receive.nxt(), arrival.header.urgent);
        }
    }

    /// An unacceptable segment is answered (RFC 9293, section 3.10.7.4). Those without data are
    /// limited, because they might be answers themselves; data must be answered, because their sender
    /// repeats them until an answer arrives.
    fn answer_unacceptable(&mut self, now: Instant, arrival: &Arrival) {
        let is_limited = arrival.data.is_empty() || arrival.has(Flags::SYN);
        if (!is_limited || self.challenges.take(now))
            && let Some(receive) = &mut self.receive
        {
            receive.set_ack_due();
        }
    }

    /// RFC 5961, section 3.2: only the expected sequence number resets; another one in the window is
    /// answered, and a peer that means it repeats the reset with the right number.
    fn on_reset(&mut self, now: Instant, arrival: &Arrival) {
        let Some(receive) = &mut self.receive else { return };
        if self.state == State::TimeWait {
            // An old reset must not let old data into the next connection (RFC 1337, section 3).
            return;
        }
        if receive.is_next(arrival.header.seq) {
            let reason = if self.state == State::SynReceived { CloseReason::Refused } else { CloseReason::Reset };
            self.close(reason);
        } else if self.challenges.take(now) {
            receive.set_ack_due();
        }
    }

    /// RFC 5961, section 4.2: answered, never believed.
    fn on_syn_again(&mut self, now: Instant) {
        if self.challenges.take(now)
            && let Some(receive) = &mut self.receive
        {
            receive.set_ack_due();
        }
    }

    /// Fifth check: the acknowledgement. False if the segment is dropped.
    fn on_ack(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let (una, end) = (self.send.una(), self.send.sent_end());
        let ack = self.send.space().position(arrival.header.ack, una);
        if self.state == State::SynReceived {
            if !ack.is_some_and(|ack| una < ack && ack <= end) {
                self.reset_due = Some(arrival.header.ack);
                return false;
            }
            self.on_handshake_ack(now, arrival);
            self.connected();
            return true;
        }
        // RFC 5961, section 5.2: an acknowledgement for what was never sent, or far older than the
        // window, is answered and not believed.
        let oldest = una.saturating_sub(self.send.window_max());
        if !ack.is_some_and(|ack| oldest <= ack && ack <= end) {
            if self.challenges.take(now)
                && let Some(receive) = &mut self.receive
            {
                receive.set_ack_due();
            }
            return false;
        }
        let info = self.ack_info(now, arrival);
        if self.send.handle_ack(now, &info) {
            self.events.writable = true;
        }
        if self.send.timeouts() == 0 {
            self.soft_error = None;
        }
        // Without an application, a peer that never opens its window must not hold memory for ever.
        if !self.is_detached {
            self.send.note_answer();
        }
        true
    }

    /// What the segment says to the send half.
    pub(super) fn ack_info(&self, now: Instant, arrival: &Arrival) -> AckInfo {
        let header = &arrival.header;
        let echo = header.options.timestamps.filter(|_| self.negotiated.timestamps);
        AckInfo {
            ack: header.ack,
            seq: header.seq,
            window: u64::from(header.window) << self.negotiated.peer_scale,
            sack: header.options.sack,
            echo: echo.and_then(|timestamps| self.clock.echoed(now, timestamps.echo)),
            is_bare: arrival.sequence_len() == 0,
            is_marked: arrival.has(Flags::ECE),
        }
    }

    /// Sixth to eighth check: urgent data stay in the stream (RFC 6093, section 4), then the data and
    /// the FIN.
    fn on_content(&mut self, now: Instant, position: u64, arrival: Arrival) {
        let announced_mss = self.announced_mss();
        let Some(receive) = &mut self.receive else { return };
        if self.negotiated.ecn {
            receive.note_marks(arrival.ecn == Some(Ecn::Ce), arrival.has(Flags::CWR));
        }
        if arrival.has(Flags::URG) {
            self.events.urgent |= receive.note_urgent(position, arrival.header.urgent);
        }
        if arrival.sequence_len() == 0 {
            // A keep-alive probe is answered, because its sequence number is not the next (RFC 9293,
            // section 3.8.4); so is nothing else without data.
            return;
        }
        if !self.state.may_receive() {
            // A repeated FIN.
            receive.set_ack_due();
            return;
        }
        if self.is_detached && !arrival.data.is_empty() {
            return self.abort();
        }
        // No segment is larger than we said; if it is, others have joined it without a note.
        let segment = arrival.segment.min(announced_mss.into()) as u64;
        let flags = arrival.header.flags;
        if receive.take(now, position, arrival.data, flags, segment) {
            self.events.readable = true;
            receive.tune(now, self.send.rtt().smoothed());
        }
        if receive.is_fin_received() {
            self.state.on_fin_received();
        }
    }
}
