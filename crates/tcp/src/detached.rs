//! The receive half on another processor than the rest of its connection.
//!
//! ```text
//!                            ReceiveReport: what arrived, what it acknowledges
//!   ┌─────────────────────┐ ─────────────────────────────────────────────────▶ ┌────────────┐
//!   │ DetachedReceiveHalf │                                                    │ Connection │
//!   └─────────────────────┘ ◀───────────────────────────────────────────────── └────────────┘
//!                            ReceiveCommands: what was sent and announced
//! ```
//!
//! [`Connection::detach`](crate::Connection::detach) takes the receive half out of a connection in
//! which the peer sends, and [`Connection::attach`](crate::Connection::attach) puts it back. What
//! concerns both halves, a segment with SYN, FIN, RST or URG, is a reason to attach it.
//!
//! Three rules make a connection with a detached half behave as one on a single processor:
//!
//! - The half takes the commands that are there before it takes a segment. The connection passes
//!   commands on before a plan leaves: the answer to it is judged by them.
//! - The connection takes the reports that are there before it makes a plan and before a timer
//!   fires, so that it acknowledges the latest data.
//! - Reports and commands are taken in the order in which they were made.

use journal::format::tag;
use units::{Instant, Seq32};
use wire::tcp::Flags;

use crate::arrival::Arrival;
use crate::journal::outcome::Answer;
use crate::journal::recording::Journal;
use crate::receive::acks::{Announced, Received};
use crate::receive::{Judgement, ReceiveHalf, ReceiveStats};
use crate::results::Read;
use crate::send::ack_info::AckInfo;

/// News of a detached receive half for its connection. The caller keeps it and has it filled again
/// and again.
#[derive(Debug, Default)]
pub struct ReceiveReport {
    /// Counted from one since the half was detached.
    pub(crate) number: u64,
    /// When the peer was last heard of.
    pub(crate) heard_at: Option<Instant>,
    /// What segments say to the send half, in their order.
    pub(crate) acks: Vec<AckInfo>,
    /// What has arrived. `None` in a report that was never filled.
    pub(crate) received: Option<Received>,
    pub(crate) stats: ReceiveStats,
    /// Segments that were dropped for their timestamps, without any data between them.
    pub(crate) old_segments: u8,
}

/// What a connection tells its detached receive half. The latest replaces earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveCommands {
    /// Counted from one since the half was detached.
    pub(crate) number: u64,
    pub(crate) announced: Announced,
    /// The position after the last that the peer may have.
    pub(crate) sent_end: u64,
}

/// A receive half that is detached from its connection: see the [module](self).
#[derive(Debug)]
pub struct DetachedReceiveHalf {
    pub(crate) half: ReceiveHalf,
    heard_at: Option<Instant>,
    acks: Vec<AckInfo>,
    /// The acknowledgement and window of the latest segment.
    said: Option<(Seq32, u64)>,
    has_news: bool,
    /// What was said to the send half must not wait.
    has_urgent: bool,
    /// The connection knows that an acknowledgement is due. It answers with commands.
    is_due_reported: bool,
    /// How many reports were given.
    reports: u64,
    /// Records all inputs, if a journal is wanted.
    pub(crate) journal: Option<Box<Journal>>,
}

impl DetachedReceiveHalf {
    pub(crate) const fn new(half: ReceiveHalf, journal: Option<Box<Journal>>) -> Self {
        Self {
            half,
            heard_at: None,
            acks: Vec::new(),
            said: None,
            has_news: false,
            has_urgent: false,
            is_due_reported: false,
            reports: 0,
            journal,
        }
    }

    /// Processes a segment as [`Connection::handle_segment`](crate::Connection::handle_segment) does.
    /// True if it needs the connection: then nothing was done, and the connection must process it
    /// when it has the half again.
    #[must_use]
    pub fn handle_segment(&mut self, now: Instant, arrival: &mut Arrival) -> bool {
        self.record(|journal| journal.segment(now, arrival));
        self.has_news = true;
        let position = match self.half.judge(now, arrival) {
            Judgement::Acceptable { position } => position,
            Judgement::Outside => {
                if arrival.has(Flags::URG) {
                    return true;
                }
                if !arrival.has(Flags::RST) && self.half.on_outside(now, arrival) {
                    self.take_ack(now, arrival);
                }
                return false;
            }
            Judgement::Dropped => return false,
        };
        if arrival.header.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST | Flags::URG) {
            return true;
        }
        self.heard_at = Some(now);
        if !arrival.has(Flags::ACK) || !self.take_ack(now, arrival) {
            return false;
        }
        self.half.note_timestamp(now, position, arrival);
        self.half.note_marks_of(arrival);
        if !arrival.data.is_empty() {
            let data = std::mem::take(&mut arrival.data);
            self.half.take(now, position, data, arrival.header.flags, arrival.segment as u64);
        }
        false
    }

    /// What the segment acknowledges waits for a report. False if it is not credible.
    fn take_ack(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let Some(info) = self.half.credible_ack(now, arrival) else { return false };
        let said = Some((info.ack, info.window));
        let is_new = std::mem::replace(&mut self.said, said) != said;
        self.has_urgent |= is_new || info.is_bare || info.is_marked || !info.sack.is_empty();
        match self.acks.last_mut() {
            // Segment after segment of a peer that only sends says the same.
            Some(last) if last.is_repeated_by(&info) => last.seq = info.seq,
            _ => self.acks.push(info),
        }
        true
    }

    /// Takes what the connection has sent and announced.
    pub fn handle_commands(&mut self, commands: &ReceiveCommands) {
        self.record(|journal| journal.took_commands(commands.number));
        self.half.set_sent_end(commands.sent_end);
        self.half.set_announced(commands.announced);
        self.is_due_reported = false;
    }

    /// The next received bytes, at most `len_max`.
    pub fn read(&mut self, len_max: usize) -> Read {
        if self.journal.is_some() {
            return self.read_recorded(len_max);
        }
        let read = self.half.read_or_end(len_max, None);
        self.has_news |= matches!(read, Read::Bytes(_));
        read
    }

    /// [`read`](Self::read) with a journal.
    #[cold]
    fn read_recorded(&mut self, len_max: usize) -> Read {
        self.write_entry(true, |journal| journal.read(len_max));
        let journal = self.journal.take();
        let read = self.read(len_max);
        self.journal = journal;
        self.write_entry(false, |journal| journal.answer(Answer::read(&read)));
        read
    }

    /// Whether there is something to report.
    pub const fn has_report(&self) -> bool {
        self.has_news
    }

    /// Whether a report should not wait: an acknowledgement is due, also by time alone, or the peer has
    /// said something new.
    pub fn is_urgent(&self, now: Instant) -> bool {
        let is_expired = || self.half.poll_timeout().is_some_and(|at| at <= now);
        self.has_urgent || (!self.is_due_reported && (self.half.is_ack_due() || is_expired()))
    }

    /// Values that wait for a report. A caller that cannot take a report passes no more segments.
    pub fn unreported(&self) -> usize {
        self.acks.len()
    }

    /// Fills `report` with the news since the last one; false if there are none.
    #[must_use]
    pub fn poll_report(&mut self, report: &mut ReceiveReport) -> bool {
        if !std::mem::take(&mut self.has_news) {
            return false;
        }
        (self.has_urgent, self.is_due_reported) = (false, self.half.is_ack_due());
        self.reports += 1;
        report.number = self.reports;
        report.heard_at = self.heard_at.take();
        debug_assert!(report.acks.is_empty(), "a report is taken before it is filled again");
        std::mem::swap(&mut report.acks, &mut self.acks);
        self.half.copy_received(&mut report.received);
        (report.stats, report.old_segments) = (self.half.stats(), self.half.old_segments());
        if self.journal.is_some() {
            self.record_and_flush(|journal| journal.writer.gave(tag::GAVE_REPORT, report.number));
        }
        true
    }

    // ── The journal ──────────────────────────────────────────────────────────────────────────────

    /// Records an input, before it takes effect.
    #[inline]
    fn record(&mut self, write: impl FnOnce(&mut Journal)) {
        if self.journal.is_some() {
            self.write_entry(true, write);
        }
    }

    /// Records that a report passes to the connection. The log then has everything that was done before.
    #[cold]
    fn record_and_flush(&mut self, write: impl FnOnce(&mut Journal)) {
        self.write_entry(true, write);
        if self.journal.as_mut().is_some_and(|journal| !journal.writer.flush()) {
            self.journal = None;
        }
    }

    /// Writes an entry, which `begins` unless it is the answer to the one before. The journal is gone
    /// afterwards if that was the last entry that it takes.
    #[cold]
    fn write_entry(&mut self, begins: bool, write: impl FnOnce(&mut Journal)) {
        if self.journal.as_mut().is_some_and(|journal| !journal.write(begins, write)) {
            self.journal = None;
        }
    }
}
