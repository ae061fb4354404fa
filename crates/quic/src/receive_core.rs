//! The receive half with the queues it fills and the journal it writes.
//!
//! A [`Connection`](crate::Connection) always has one. While its receive half is detached, the half
//! in it is a stand-in, and the [`DetachedReceiveHalf`](crate::DetachedReceiveHalf) has the other
//! one. The work that both do is here: absorbing packets, the application's calls, journal entries.

use bytes::Bytes;
use units::Instant;
use wire::quic::{Dir, ErrorCode, StreamId};

use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::Exchange;
use crate::journal::format::tag;
use crate::journal::outcome::Answer;
use crate::journal::recording::Journal;
use crate::open::opened::Opened;
use crate::receive::ReceiveHalf;
use crate::receive::streams::{Chunk, ReadError};
use crate::received_datagram::ReceivedDatagram;

/// A receive half, its output and its journal.
pub(crate) struct ReceiveCore {
    pub(crate) half: ReceiveHalf,
    /// Values for the other owners.
    pub(crate) exchange: Exchange,
    pub(crate) events: Events,
    /// Packets that failed to authenticate, against the AEAD's integrity limit (RFC 9001, section
    /// 6.6).
    pub(crate) unauthentic_count: u64,
    /// Records all inputs, if a journal is wanted.
    pub(crate) journal: Option<Box<Journal>>,
}

impl ReceiveCore {
    pub(crate) fn new(half: ReceiveHalf, unauthentic_count: u64, journal: Option<Box<Journal>>) -> Self {
        Self { half, exchange: Exchange::default(), events: Events::default(), unauthentic_count, journal }
    }

    // ── Packets ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Absorbs the packets of an opened batch. Fails at the first one with which the peer violates
    /// the protocol.
    #[inline]
    pub(crate) fn absorb(&mut self, now: Instant, opened: &Opened, buffer: &Bytes) -> Result<(), TransportError> {
        self.half.stats.packets_unauthentic += opened.unauthentic_count;
        self.half.stats.packets_dropped += opened.dropped_count;
        for packet in &opened.packets {
            self.half.absorb(now, packet, opened, buffer, &mut self.exchange, &mut self.events)?;
        }
        Ok(())
    }

    /// Counts packets that failed to authenticate. Fails once there are `limit` of them.
    #[inline]
    pub(crate) fn count_unauthentic(&mut self, count: u64, limit: u64) -> Result<(), TransportError> {
        self.unauthentic_count += count;
        if count > 0 && self.unauthentic_count >= limit {
            let reason = "too many packets failed to authenticate";
            return Err(TransportError::new(ErrorCode::AEAD_LIMIT_REACHED, reason));
        }
        Ok(())
    }

    // ── The application's calls ──────────────────────────────────────────────────────────────────────────────────────

    /// The next event for the application.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop();
        if let Some(event) = &event {
            self.record(|journal| journal.event(event));
        }
        event
    }

    /// The next stream the peer opened.
    pub(crate) fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.record(|journal| journal.accept(dir));
        let id = self.half.streams.accept(dir);
        self.record_answer(|| Answer::optional(id.map(StreamId::raw)));
        id
    }

    /// The next bytes of a stream, at most `len`, or its end.
    pub(crate) fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
        self.record(|journal| journal.of_stream_at(tag::READ, now, id, len as u64));
        let chunk = self.half.streams.read(now, id, len, &mut self.exchange);
        self.record_answer(|| Answer::read(&chunk));
        chunk
    }

    /// Asks the peer to stop sending on a stream.
    pub(crate) fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.record(|journal| journal.of_stream_at(tag::STOP, now, id, code));
        let result = self.half.streams.stop(now, id, code, &mut self.exchange);
        self.record_answer(|| Answer::stopped(result));
        result
    }

    /// The oldest datagram received.
    pub(crate) fn recv_datagram(&mut self) -> Option<ReceivedDatagram> {
        self.record(|journal| journal.recv_datagram());
        let data = self.half.recv_datagram();
        self.record_answer(|| Answer::optional(data.as_ref().map(|data| data.data.len() as u64)));
        data
    }

    // ── The journal ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// Records an input, before it takes effect.
    #[inline]
    pub(crate) fn record(&mut self, write: impl FnOnce(&mut Journal)) {
        if self.journal.is_some() {
            self.write_entry(true, write);
        }
    }

    /// Records the answer to a call of the application.
    #[inline]
    fn record_answer(&mut self, answer: impl FnOnce() -> Answer) {
        if self.journal.is_some() {
            self.write_entry(false, |journal| journal.answer(answer()));
        }
    }

    /// Records that a report or commands pass to the other half. The log then has everything that
    /// was done before, ahead of anything that the other half does because of it.
    pub(crate) fn record_and_flush(&mut self, write: impl FnOnce(&mut Journal)) {
        self.record(write);
        if self.journal.as_mut().is_some_and(|journal| !journal.writer.flush()) {
            self.journal = None;
        }
    }

    /// Writes an entry, which `begins` unless it is the answer to the one before. The journal is
    /// gone afterwards if that was the last entry it takes.
    #[cold]
    pub(crate) fn write_entry<T>(&mut self, begins: bool, write: impl FnOnce(&mut Journal) -> T) -> Option<T> {
        let journal = self.journal.as_mut()?;
        let (written, goes_on) = journal.write(begins, write);
        if !goes_on {
            self.journal = None;
        }
        Some(written)
    }
}
