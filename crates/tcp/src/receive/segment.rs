//! Checks of a synchronized connection's segments: whether they are acceptable and their
//! acknowledgements credible (RFC 9293, section 3.10.7.4). From the send half they need only the
//! position up to which data were sent.

use units::{Instant, Seq32};
use wire::tcp::Flags;

use super::ReceiveHalf;
use super::challenges::Challenges;
use crate::accurate_ecn;
use crate::arrival::Arrival;
use crate::position::SequenceSpace;
use crate::send::ack_info::AckInfo;

/// Bounds on what the peer may acknowledge.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentBounds {
    space: SequenceSpace,
    /// Highest acknowledged position.
    una: u64,
    /// Largest window that the peer has granted, in bytes: at most 2^30 (RFC 7323, section 2.3).
    window_max: u32,
    /// Position after the last one that the peer may have received.
    end: u64,
}

impl SentBounds {
    pub(super) const fn new(space: SequenceSpace) -> Self {
        Self { space, una: 0, window_max: 0, end: 0 }
    }
}

/// Verdict on a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The segment is dropped. An answer, if required, is due.
    Dropped,
    /// The segment lies entirely outside the window (RFC 9293, section 3.10.7.4).
    Outside,
    /// Part of the segment lies in the window; `position` is that of its sequence number.
    Acceptable { position: u64 },
}

impl ReceiveHalf {
    /// Sets the position after the last one that the peer may have received.
    pub(crate) const fn set_sent_end(&mut self, end: u64) {
        self.sent.end = end;
    }

    /// Performs the first check: the timestamp (RFC 7323, section 5.3), and the sequence number.
    pub(crate) fn judge(&mut self, now: Instant, arrival: &Arrival) -> Judgement {
        let header = &arrival.header;
        // RFC 7323, section 3.2: a segment without timestamps should be dropped. We accept it like
        // Linux: a path that removes timestamps would end the connection without a message.
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

    /// Returns whether a segment with this sequence number that occupies `len` positions lies in
    /// the window (RFC 9293, section 3.10.7.4, the table). A FIN without data takes no buffer
    /// space, so it is accepted in a closed window, too: its sender would give up otherwise.
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

    /// Returns whether `seq` is the sequence number of the peer's SYN.
    pub(crate) fn is_syn(&self, seq: Seq32) -> bool {
        seq == self.space.wire(0)
    }

    /// Returns whether `seq` is the next expected sequence number.
    pub(crate) fn is_next(&self, seq: Seq32) -> bool {
        seq == self.nxt_on_wire()
    }

    /// Records the timestamp of the segment that the next acknowledgement answers, to be echoed
    /// (RFC 7323, section 4.3). With delayed acknowledgements it is the first of several. Only a
    /// segment with a credible acknowledgement counts: a forged timestamp would make those of the
    /// peer look old.
    pub(crate) fn note_timestamp(&mut self, now: Instant, position: u64, arrival: &Arrival) {
        let is_answered = self.terms.timestamps && position <= self.announced.acked;
        if let Some(timestamps) = arrival.header.options.timestamps.filter(|_| is_answered) {
            self.received.clock.update(now, timestamps.value);
        }
    }

    /// Processes a segment other than a reset that lies entirely outside the window. Returns true
    /// if its acknowledgement counts all the same.
    ///
    /// With a closed window, the acknowledgement of the segment counts, its data do not. The same
    /// holds for a segment that begins one position too early. Its sender does not know that we
    /// accepted the byte of its window probe; if both sides have probed and neither accepted
    /// acknowledgements from the other, neither would ever know.
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

    /// Notes a segment outside the window. Data received before are reported once more (RFC 2883,
    /// section 4): the peer learns that it need not have resent them.
    fn note_repeated(&mut self, seq: Seq32, len: u64) {
        let Some(position) = self.space.position(seq, self.received.nxt) else { return };
        if len > 0 && position + len <= self.received.nxt {
            self.stats.bytes_duplicate += len;
            self.received.on_duplicate(position..position + len);
        }
    }

    /// Answers an unacceptable segment (RFC 9293, section 3.10.7.4). Answers to segments without
    /// data are rate-limited, because those might be answers themselves; data must be answered,
    /// because their sender repeats them until an answer arrives.
    fn answer_unacceptable(&mut self, now: Instant, arrival: &Arrival) {
        let is_limited = arrival.data.is_empty() || arrival.has(Flags::SYN);
        if is_limited {
            self.challenge(now);
        } else {
            self.received.demand();
        }
    }

    /// Answers a segment without accepting it, unless too many were answered (RFC 5961, section 7).
    pub(crate) fn challenge(&mut self, now: Instant) {
        if self.may_challenge(now) {
            self.received.demand();
        }
    }

    /// Returns whether one more unaccepted segment may be answered.
    pub(crate) fn may_challenge(&mut self, now: Instant) -> bool {
        self.challenges.take(now)
    }

    /// Takes the remaining answers, for the half that replaces this one.
    pub(crate) fn take_challenges(&mut self) -> Challenges {
        std::mem::take(&mut self.challenges)
    }

    pub(crate) fn set_challenges(&mut self, challenges: Challenges) {
        self.challenges = challenges;
    }

    /// Performs the fifth check and returns the segment's acknowledgement for the send half.
    /// Returns `None` if the segment is dropped.
    pub(crate) fn credible_ack(&mut self, now: Instant, arrival: &Arrival) -> Option<AckInfo> {
        let SentBounds { space, una, window_max, end } = self.sent;
        // RFC 5961, section 5.2: an acknowledgement of data never sent, or of data far older than
        // the window, is answered and not accepted.
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

    /// Records that the peer acknowledged everything before `position` and granted a window.
    pub(crate) fn note_acked(&mut self, position: u64, window: u64) {
        self.sent.una = self.sent.una.max(position);
        self.sent.window_max = self.sent.window_max.max(window as u32);
    }

    /// Extracts the fields of a segment for the send half.
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
