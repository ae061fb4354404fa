//! Which segments of a synchronized connection are acceptable, and which acknowledgements credible (RFC
//! 9293, section 3.10.7.4). Needs nothing of the send half but how much was sent.

use units::{Instant, Seq32};
use wire::tcp::Flags;

use super::ReceiveHalf;
use super::challenges::Challenges;
use crate::accurate_ecn;
use crate::arrival::Arrival;
use crate::position::SequenceSpace;
use crate::send::ack_info::AckInfo;

/// What the peer may acknowledge.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentBounds {
    space: SequenceSpace,
    /// The highest position that was acknowledged.
    una: u64,
    /// The largest window that the peer has granted, bytes: at most 2^30 (RFC 7323, section 2.3).
    window_max: u32,
    /// The position after the last that the peer may have.
    end: u64,
}

impl SentBounds {
    pub(super) const fn new(space: SequenceSpace) -> Self {
        Self { space, una: 0, window_max: 0, end: 0 }
    }
}

/// What becomes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It is dropped. If that needs an answer, it is due.
    Dropped,
    /// Nothing of it lies in the window (RFC 9293, section 3.10.7.4).
    Outside,
    /// Part of it lies in the window: `position` is that of its sequence number.
    Acceptable { position: u64 },
}

impl ReceiveHalf {
    /// The position after the last that the peer may have.
    pub(crate) const fn set_sent_end(&mut self, end: u64) {
        self.sent.end = end;
    }

    /// First check: the timestamp (RFC 7323, section 5.3), and the sequence number.
    pub(crate) fn judge(&mut self, now: Instant, arrival: &Arrival) -> Judgement {
        let header = &arrival.header;
        // RFC 7323, section 3.2: a segment without timestamps should be dropped. As in Linux it is
        // not: a path that removes them would end the connection without a message.
        if let Some(timestamps) =
            header.options.timestamps.filter(|_| self.terms.timestamps && !arrival.has(Flags::RST))
            && self.received.clock.is_old(now, timestamps.value)
        {
            self.stats.dropped_by_paws += 1;
            self.old_segments = self.old_segments.saturating_add(1);
            self.answer_unacceptable(now, arrival);
            return Judgement::Dropped;
        }
        self.acceptance(header.seq, arrival.data.len() as u64, arrival.sequence_len())
    }

    /// Whether a segment with this sequence number, which takes `len` positions, lies in the window
    /// (RFC 9293, section 3.10.7.4, the table). A FIN without data takes no space in the buffer, so it is
    /// welcome in a closed window, too: its sender would give up otherwise.
    fn acceptance(&self, seq: Seq32, data_len: u64, len: u64) -> Judgement {
        let (nxt, edge) = (self.received.nxt, self.announced.edge);
        let Some(position) = self.space.position(seq, nxt) else { return Judgement::Outside };
        // A FIN at the edge has its position beyond it.
        let window = edge.saturating_sub(nxt);
        let is_in_window = |at: u64| nxt <= at && at < edge;
        let is_acceptable = match (len, window) {
            (_, 0) => data_len == 0 && position == nxt,
            (0, _) => is_in_window(position),
            _ => is_in_window(position) || is_in_window(position + len - 1),
        };
        if is_acceptable { Judgement::Acceptable { position } } else { Judgement::Outside }
    }

    /// Whether `seq` is the number of the peer's SYN.
    pub(crate) fn is_syn(&self, seq: Seq32) -> bool {
        seq == self.space.wire(0)
    }

    /// Whether `seq` is the next expected sequence number.
    pub(crate) fn is_next(&self, seq: Seq32) -> bool {
        seq == self.nxt_on_wire()
    }

    /// RFC 7323, section 4.3: the timestamp of the segment that the next acknowledgement answers is
    /// echoed. If acknowledgements are delayed, that is the first of several. Only a segment with a
    /// credible acknowledgement counts: a forged timestamp would make those of the peer look old.
    pub(crate) fn note_timestamp(&mut self, now: Instant, position: u64, arrival: &Arrival) {
        let is_answered = self.terms.timestamps && position <= self.announced.acked;
        if let Some(timestamps) = arrival.header.options.timestamps.filter(|_| is_answered) {
            self.received.clock.update(now, timestamps.value);
        }
    }

    /// Nothing of the segment, which is no reset, lies in the window. True if what it acknowledges counts all the same.
    ///
    /// The window is closed: what the segment acknowledges counts, its data do not. The same for a
    /// segment that begins a position too early. Its sender does not know that we have taken the byte
    /// with which it probed our window; if both sides have probed and neither took acknowledgements
    /// from the other, neither would ever know.
    pub(crate) fn on_outside(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let seq = arrival.header.seq;
        if !arrival.has(Flags::SYN) {
            self.note_repeated(seq, arrival.sequence_len());
        }
        self.note_answer_again(arrival);
        let is_close = self.is_next(seq) || self.is_next(seq + 1);
        self.answer_unacceptable(now, arrival);
        is_close && arrival.has(Flags::ACK) && !arrival.has(Flags::SYN)
    }

    /// A segment outside the window was received. What was received before is reported once more (RFC
    /// 2883, section 4): the peer learns that it need not have been sent.
    fn note_repeated(&mut self, seq: Seq32, len: u64) {
        let Some(position) = self.space.position(seq, self.received.nxt) else { return };
        if len > 0 && position + len <= self.received.nxt {
            self.stats.bytes_duplicate += len;
            self.received.on_duplicate(position..position + len);
        }
    }

    /// An unacceptable segment is answered (RFC 9293, section 3.10.7.4). Those without data are
    /// limited, because they might be answers themselves; data must be answered, because their sender
    /// repeats them until an answer arrives.
    fn answer_unacceptable(&mut self, now: Instant, arrival: &Arrival) {
        let is_limited = arrival.data.is_empty() || arrival.has(Flags::SYN);
        if is_limited {
            self.challenge(now);
        } else {
            self.received.demand();
        }
    }

    /// A segment is answered and not believed, unless too many were (RFC 5961, section 7).
    pub(crate) fn challenge(&mut self, now: Instant) {
        if self.may_challenge(now) {
            self.received.demand();
        }
    }

    /// Whether one more segment is answered that is not believed.
    pub(crate) fn may_challenge(&mut self, now: Instant) -> bool {
        self.challenges.take(now)
    }

    /// The answers that may still be given, for the half that takes its place.
    pub(crate) fn take_challenges(&mut self) -> Challenges {
        std::mem::take(&mut self.challenges)
    }

    pub(crate) fn set_challenges(&mut self, challenges: Challenges) {
        self.challenges = challenges;
    }

    /// Fifth check: what the segment acknowledges, for the send half. `None` if the segment is dropped.
    pub(crate) fn credible_ack(&mut self, now: Instant, arrival: &Arrival) -> Option<AckInfo> {
        let SentBounds { space, una, window_max, end } = self.sent;
        // RFC 5961, section 5.2: an acknowledgement for what was never sent, or far older than the
        // window, is answered and not believed.
        let oldest = una.saturating_sub(window_max.into());
        let position = space.position(arrival.header.ack, una);
        let Some(position) = position.filter(|position| oldest <= *position && *position <= end) else {
            self.challenge(now);
            return None;
        };
        let info = self.ack_info(now, arrival);
        self.note_acked(position, info.window);
        Some(info)
    }

    /// The peer has acknowledged everything before `position`, and grants a window.
    pub(crate) fn note_acked(&mut self, position: u64, window: u64) {
        self.sent.una = self.sent.una.max(position);
        self.sent.window_max = self.sent.window_max.max(window as u32);
    }

    /// What the segment says to the send half.
    pub(crate) fn ack_info(&self, now: Instant, arrival: &Arrival) -> AckInfo {
        let header = &arrival.header;
        let echo = header.options.timestamps.filter(|_| self.terms.timestamps);
        AckInfo {
            ack: header.ack,
            seq: header.seq,
            window: u64::from(header.window) << self.terms.peer_scale,
            sack: header.options.sack,
            echo: echo.and_then(|timestamps| self.received.clock.echoed(now, timestamps.echo)),
            is_bare: arrival.sequence_len() == 0,
            is_marked: arrival.has(Flags::ECE) && !self.terms.accurate_ecn,
            ace: self.terms.accurate_ecn.then(|| (accurate_ecn::ace(header.flags), header.options.accecn)),
        }
    }
}
