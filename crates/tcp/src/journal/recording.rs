//! A journal that is being written.

use std::fmt;

use ::journal::Side;
use ::journal::format::{put, tag as common};
use ::journal::writer::Writer;
use units::Instant;

use super::begin::{Seed, put_begin, put_keep_alive};
use super::format::{FORMAT, tag};
use super::outcome::{Answer, EventEntry, Planned};
use super::segment::LastSegment;
use crate::arrival::Arrival;
use crate::budget::Grant;
use crate::config::KeepAlive;
use crate::event::Event;
use crate::icmp::{IcmpError, IcmpErrorKind};

/// The journal of a connection or of its detached receive half, while it is written.
pub(crate) struct Journal {
    pub(crate) writer: Writer,
    last: LastSegment,
}

impl Journal {
    /// Begins the journal of a connection, if the configuration requests one.
    pub(crate) fn begin(now: Instant, seed: &Seed, syn: Option<&Arrival>) -> Option<Box<Self>> {
        let side = if syn.is_some() { Side::Server } else { Side::Client };
        let sink = seed.config.journal.as_ref()?.0(side)?;
        let mut writer = Writer::begin(now, FORMAT, sink, |out| put_begin(out, now, seed, syn));
        // A flood of SYNs must not create logs.
        if syn.is_some() {
            writer.hold();
        }
        Some(Box::new(Self { writer, last: LastSegment::default() }))
    }

    /// Creates the journal of the receive half, which is now detached. It continues in the same
    /// log.
    pub(crate) fn detach(&mut self) -> Box<Self> {
        Box::new(Self { writer: self.writer.detach(), last: LastSegment::default() })
    }

    /// Writes one entry; `begins` is false for the result of the preceding entry. Returns false if
    /// it was the last.
    pub(crate) fn write(&mut self, begins: bool, write: impl FnOnce(&mut Self)) -> bool {
        if begins {
            self.writer.begin_call();
        }
        write(self);
        self.writer.complete()
    }

    // ── Input ────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn timeout(&mut self, now: Instant) {
        self.writer.timed(tag::TIMEOUT, now);
    }

    pub(crate) fn plan_asked(&mut self, now: Instant, segments_max: usize) {
        put(self.writer.timed(tag::PLAN_ASKED, now), segments_max as u64);
    }

    pub(crate) fn emitted(&mut self, now: Instant, transmission: u64) {
        put(self.writer.timed(tag::EMITTED, now), transmission);
    }

    pub(crate) fn not_emitted(&mut self, transmission: u64) {
        put(self.writer.entry(tag::NOT_EMITTED), transmission);
    }

    pub(crate) fn segment(&mut self, now: Instant, arrival: &Arrival) {
        self.last.put(self.writer.timed(tag::SEGMENT, now), arrival);
    }

    pub(crate) fn icmp(&mut self, now: Instant, error: &IcmpError) {
        let (kind, mtu) = match error.kind {
            IcmpErrorKind::PacketTooBig(mtu) => (0, mtu),
            IcmpErrorKind::Refused => (1, None),
            IcmpErrorKind::Unreachable => (2, None),
        };
        let out = self.writer.timed(tag::ICMP, now);
        out.push(kind);
        put(out, error.seq.get().into());
        // `None` and zero have the same effect.
        put(out, mtu.unwrap_or(0).into());
    }

    /// Records that the SYN was answered with a cookie, at an unknown time.
    pub(crate) fn pass_over_syn(&mut self, now: Instant) {
        self.writer.timed(tag::PASS_OVER_SYN, now);
    }

    /// Records a call about `len` bytes: [`tag::WRITE`] and [`tag::READ`].
    fn bytes(&mut self, tag: u8, len: usize) {
        put(self.writer.entry(tag), len as u64);
    }

    pub(crate) fn written(&mut self, len: usize) {
        self.bytes(tag::WRITE, len);
    }

    pub(crate) fn read(&mut self, len_max: usize) {
        self.bytes(tag::READ, len_max);
    }

    pub(crate) fn finish(&mut self) {
        self.writer.entry(tag::FINISH);
    }

    pub(crate) fn abort(&mut self) {
        self.writer.entry(tag::ABORT);
    }

    pub(crate) fn orphan(&mut self) {
        self.writer.entry(tag::ORPHAN);
    }

    pub(crate) fn set_nagle(&mut self, nagle: bool) {
        self.writer.entry(tag::SET_NAGLE).push(u8::from(nagle));
    }

    pub(crate) fn set_keep_alive(&mut self, keep_alive: Option<&KeepAlive>) {
        put_keep_alive(self.writer.entry(tag::SET_KEEP_ALIVE), keep_alive);
    }

    pub(crate) fn set_dscp(&mut self, dscp: u8) {
        self.writer.entry(tag::SET_DSCP).push(dscp);
    }

    // ── Halves ───────────────────────────────────────────────────────────────────────────────────

    /// Records that the update with this number was processed. It precedes or accompanies a
    /// segment, so it needs no time.
    pub(crate) fn took_commands(&mut self, number: u64) {
        put(self.writer.entry(common::TOOK_COMMANDS), number);
    }

    // ── Output ───────────────────────────────────────────────────────────────────────────────────

    /// Records a grant of the budget during the call of the last entry.
    pub(crate) fn grant(&mut self, grant: Grant) {
        let out = self.writer.entry(tag::GRANT);
        put(out, grant.wanted);
        put(out, grant.granted);
    }

    pub(crate) fn planned(&mut self, planned: &Planned) {
        planned.put(self.writer.entry(tag::PLANNED));
    }

    pub(crate) fn answer(&mut self, answer: Answer) {
        answer.put(self.writer.entry(tag::ANSWER));
    }

    pub(crate) fn event(&mut self, event: Event) {
        EventEntry::of(event).put(self.writer.entry(tag::EVENT));
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
