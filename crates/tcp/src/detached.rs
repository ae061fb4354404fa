//! A receive half on a different processor from the rest of its connection.
//!
//! ```text
//!                            ReceiveReport: received data and acknowledgements
//!   ┌─────────────────────┐ ─────────────────────────────────────────────────▶ ┌────────────┐
//!   │ DetachedReceiveHalf │                                                    │ Connection │
//!   └─────────────────────┘ ◀───────────────────────────────────────────────── └────────────┘
//!                            ReceiveCommands: sent and announced positions
//! ```
//!
//! [`Connection::detach`](crate::Connection::detach) takes the receive half out of a connection on
//! which the peer sends, and [`Connection::attach`](crate::Connection::attach) puts it back. A
//! segment that concerns both halves, one with SYN, FIN, RST or URG, causes it to be attached.
//!
//! Three rules make a connection with a detached half behave as one on a single processor:
//!
//! - The half takes pending commands before it takes a segment. The connection passes commands on
//!   before a plan leaves: the answer to the plan is judged by them.
//! - The connection takes pending reports before it makes a plan and before a timer fires, so that
//!   it acknowledges the latest data.
//! - Reports and commands are processed in the order of their creation.

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

/// Report of a detached receive half to its connection. The caller keeps it and has it refilled.
#[derive(Debug, Default)]
pub struct ReceiveReport {
    /// Number of the report since the half was detached, from one.
    pub(crate) number: u64,
    /// Time of the last sign of life from the peer.
    pub(crate) heard_at: Option<Instant>,
    /// Acknowledgements for the send half, in order of arrival.
    pub(crate) acks: Vec<AckInfo>,
    /// Receive state. `None` in a report that was never filled.
    pub(crate) received: Option<Received>,
    pub(crate) stats: ReceiveStats,
    /// Number of consecutive segments dropped for their timestamps, without data between them.
    pub(crate) old_segments: u8,
}

/// Update from a connection to its detached receive half. The latest one replaces earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveCommands {
    /// Number of the update since the half was detached, from one.
    pub(crate) number: u64,
    pub(crate) announced: Announced,
    /// Position after the last one that the peer may have received.
    pub(crate) sent_end: u64,
}

/// A receive half detached from its connection: see the [module](self).
#[derive(Debug)]
pub struct DetachedReceiveHalf {
    pub(crate) half: ReceiveHalf,
    heard_at: Option<Instant>,
    acks: Vec<AckInfo>,
    /// Acknowledgement and window of the latest segment.
    said: Option<(Seq32, u64)>,
    has_news: bool,
    /// Whether an acknowledgement for the send half must not wait.
    has_urgent: bool,
    /// Whether the connection was notified of a due acknowledgement. It answers with commands.
    is_due_reported: bool,
    /// Number of reports made.
    reports: u64,
    /// Recorder of all inputs, if configured.
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

    /// Processes a segment like [`Connection::handle_segment`](crate::Connection::handle_segment).
    /// Returns true if the segment needs the connection: then it has had no effect, and the
    /// connection must process it after it has attached the half.
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

    /// Queues the acknowledgement of a segment for a report. Returns false if it is not credible.
    fn take_ack(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let Some(info) = self.half.credible_ack(now, arrival) else { return false };
        let said = Some((info.ack, info.window));
        let is_new = std::mem::replace(&mut self.said, said) != said;
        self.has_urgent |= is_new || info.is_bare || info.is_marked || !info.sack.is_empty();
        match self.acks.last_mut() {
            // A peer that only sends repeats the same acknowledgement in segment after segment.
            Some(last) if last.is_repeated_by(&info) => last.seq = info.seq,
            _ => self.acks.push(info),
        }
        true
    }

    /// Processes an update on what the connection has sent and announced.
    pub fn handle_commands(&mut self, commands: &ReceiveCommands) {
        self.record(|journal| journal.took_commands(commands.number));
        self.half.set_sent_end(commands.sent_end);
        self.half.set_announced(commands.announced);
        self.is_due_reported = false;
    }

    /// Returns up to `len_max` received bytes.
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

    /// Returns whether there is anything to report.
    pub const fn has_report(&self) -> bool {
        self.has_news
    }

    /// Returns whether a report should not wait: an acknowledgement is due, perhaps only because of
    /// the time, or the peer has sent something new to the send half.
    pub fn is_urgent(&self, now: Instant) -> bool {
        let is_expired = || self.half.poll_timeout().is_some_and(|at| at <= now);
        self.has_urgent || (!self.is_due_reported && (self.half.is_ack_due() || is_expired()))
    }

    /// Returns the number of values that wait for a report. A caller that cannot take a report must
    /// not pass more segments.
    pub fn unreported(&self) -> usize {
        self.acks.len()
    }

    /// Fills `report` with the changes since the last one; returns false if there are none.
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

    /// Records that a report passes to the connection. Flushes everything recorded before to the
    /// log.
    #[cold]
    fn record_and_flush(&mut self, write: impl FnOnce(&mut Journal)) {
        self.write_entry(true, write);
        if self.journal.as_mut().is_some_and(|journal| !journal.writer.flush()) {
            self.journal = None;
        }
    }

    /// Writes an entry; `begins` is false for the result of the preceding entry. Drops the journal
    /// after the last entry that it takes.
    #[cold]
    fn write_entry(&mut self, begins: bool, write: impl FnOnce(&mut Journal)) {
        if self.journal.as_mut().is_some_and(|journal| !journal.write(begins, write)) {
            self.journal = None;
        }
    }
}
