//! One connection: the state machine, its two halves, and their exchange.
//!
//! ```text
//!   write, finish ──▶ SendHalf ──▶ poll_plan ──▶ Plan
//!                        ▲              ▲
//!                  AckInfo│       Snapshot│ (the latest acknowledgement)
//!                        │              │
//!   read ◀────────── ReceiveHalf ◀── handle_segment ◀── Arrival
//! ```
//!
//! | module | content |
//! |---|---|
//! | `cookie` | SYNs answered without keeping state |
//! | `detached` | the receive half on another processor |
//! | `handshake` | SYNs and their negotiation |
//! | `icmp` | errors reported by routers |
//! | `journal` | the entries of the connection's journal |
//! | `segment` | segments of a synchronized connection |
//! | `syn_received` | segments before our SYN is acknowledged |
//! | `plan` | choice of the next segments |
//! | `timers` | timeouts |

mod cookie;
mod detached;
mod handshake;
mod icmp;
mod journal;
mod plan;
mod segment;
mod syn_received;
mod timers;

use std::sync::Arc;

use bytes::Bytes;
use units::{Instant, Seq32};
use wire::tcp::Timestamps;

pub use self::cookie::COOKIE_LIFETIME;
use crate::arrival::Arrival;
use crate::config::{DSCP_MAX, KeepAlive, Nagle, TcpConfig};
use crate::detached::ReceiveCommands;
use crate::event::{Event, Events, SoftError};
use crate::journal::outcome::Answer;
use crate::journal::recording::Journal;
use crate::negotiated::Negotiated;
use crate::receive::{ReceiveHalf, ReceiveStats};
use crate::reply::TimeWait;
pub use crate::results::{CloseReason, Read, WriteError};
use crate::send::{SendHalf, SendStats};
use crate::state::State;
use crate::timestamps::TimestampClock;
use crate::tuple::Tuple;

/// A TCP connection.
///
/// The caller passes every arriving [segment](Self::handle_segment). After each call, including
/// those of the application, it takes [plans](Self::poll_plan) and [events](Self::poll_event) until
/// there are none, and calls [`handle_timeout`](Self::handle_timeout) at
/// [`poll_timeout`](Self::poll_timeout). Time never goes backwards. Every call does a bounded
/// amount of work.
#[derive(Debug)]
pub struct Connection {
    config: Arc<TcpConfig>,
    tuple: Tuple,
    state: State,
    /// Whether the connection answered a SYN and was not opened by this side.
    is_passive: bool,
    send: SendHalf,
    /// Receive half; `None` until the peer's SYN is received.
    receive: Option<ReceiveHalf>,
    /// Information about plans last passed to the receive half on another processor; `None` unless
    /// it is detached. While it is detached, `receive` is its stand-in.
    detached: Option<Box<ReceiveCommands>>,
    timestamp_offset: u32,
    negotiated: Negotiated,
    timers: timers::Timers,
    /// Data and FIN that came with the peer's SYN, until the handshake is complete.
    syn_text: Option<Box<Arrival>>,
    /// Reset to send next.
    reset_due: Option<Reset>,
    events: Events,
    close_reason: Option<CloseReason>,
    /// Last soft error, until the peer answers.
    soft_error: Option<SoftError>,
    /// Whether the application is gone and reads no more data.
    is_orphan: bool,
    /// Code point of all outgoing packets.
    dscp: u8,
    /// Recorder of all inputs, if configured.
    journal: Option<Box<Journal>>,
}

/// A reset to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reset {
    /// Ends the connection from this side (RFC 9293, section 3.10.5). Carries the next sequence
    /// number.
    Abort(Seq32),
    /// Answers an acknowledgement of this number, which was never sent (RFC 9293, section 3.5.2,
    /// group 2).
    Unacceptable(Seq32),
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Send half.
    pub send: SendStats,
    /// Receive half.
    pub receive: ReceiveStats,
}

impl Connection {
    /// Returns the addresses and ports.
    pub const fn tuple(&self) -> &Tuple {
        &self.tuple
    }

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns why the connection ended; `None` while it has not. It has not ended in
    /// [`State::TimeWait`].
    pub const fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// Returns the last soft error, unless the peer has answered since.
    pub const fn soft_error(&self) -> Option<SoftError> {
        self.soft_error
    }

    /// Appends data to the send buffer and removes from `bytes` the part that fits.
    ///
    /// # Errors
    /// Fails if no byte fits.
    pub fn write(&mut self, bytes: &mut Bytes) -> Result<(), WriteError> {
        if self.journal.is_some() {
            return self.write_recorded(bytes);
        }
        if let Some(reason) = self.close_reason {
            return Err(WriteError::Closed(reason));
        }
        if self.send.is_finished() {
            return Err(WriteError::Finished);
        }
        let space = self.send_space();
        if space == 0 && !bytes.is_empty() {
            return Err(WriteError::Blocked);
        }
        self.send.write(bytes.split_to(space.min(bytes.len())));
        Ok(())
    }

    /// Ends our stream: a FIN follows the data. Repeated calls have no effect.
    pub fn finish(&mut self) {
        self.record(Journal::finish);
        self.end_stream();
    }

    fn end_stream(&mut self) {
        if self.close_reason.is_none() {
            self.send.finish();
        }
    }

    /// Returns up to `len_max` received bytes.
    pub fn read(&mut self, len_max: usize) -> Read {
        self.record(|journal| journal.read(len_max));
        let read = match &mut self.receive {
            Some(receive) => receive.read_or_end(len_max, self.close_reason),
            None => self.close_reason.map_or(Read::Blocked, Read::Closed),
        };
        if self.journal.is_some() {
            // Building the answer in a reference parameter would cost a copy through memory.
            let answer = Answer::read(&read);
            self.record_answer(answer);
        }
        read
    }

    /// Returns the number of bytes written and not acknowledged.
    pub const fn buffered(&self) -> usize {
        self.send.buffered()
    }

    /// Returns the number of bytes that can be read now.
    pub fn readable(&self) -> usize {
        self.receive.as_ref().map_or(0, ReceiveHalf::readable)
    }

    /// Returns the number of bytes to read until the end of the peer's urgent data; zero if there
    /// are none. Urgent data are read in line with the others (RFC 6093, section 4).
    pub fn urgent_left(&self) -> u64 {
        self.receive.as_ref().map_or(0, ReceiveHalf::urgent_left)
    }

    /// Ends the connection at once with a reset to the peer (RFC 9293, section 3.10.5). Data not
    /// acknowledged by the peer may be lost.
    pub fn abort(&mut self) {
        self.record(Journal::abort);
        self.reset();
    }

    fn reset(&mut self) {
        if self.close_reason.is_none() {
            if self.state != State::SynSent {
                self.reset_due = Some(Reset::Abort(self.send.nxt_on_wire()));
            }
            self.close(CloseReason::Aborted);
        }
    }

    /// Detaches the application: written data are still sent, then the FIN. If unread data are
    /// buffered, or more arrive, the peer gets a reset, so that it does not take them for read (RFC
    /// 1122, section 4.2.2.13).
    pub fn orphan(&mut self) {
        self.record(Journal::orphan);
        self.is_orphan = true;
        if self.readable() > 0 { self.reset() } else { self.end_stream() }
    }

    /// Sets whether small segments wait while others are outstanding: by the configured rule, or by
    /// Minshall's if that is [`Nagle::Off`].
    pub fn set_nagle(&mut self, nagle: bool) {
        self.record(|journal| journal.set_nagle(nagle));
        self.send.set_nagle(match (nagle, self.config.nagle) {
            (false, _) => Nagle::Off,
            (true, Nagle::Off) => Nagle::Minshall,
            (true, rule) => rule,
        });
    }

    /// Sets the keep-alive schedule; `None` disables probes.
    pub fn set_keep_alive(&mut self, keep_alive: Option<KeepAlive>) {
        self.record(|journal| journal.set_keep_alive(keep_alive.as_ref()));
        Arc::make_mut(&mut self.config).keep_alive = keep_alive;
    }

    /// Sets the differentiated services code point (RFC 2474) of all packets from now on. All
    /// packets share one, so that none overtakes another (RFC 7657, section 5.1). It is 0 at first,
    /// including in the SYN.
    ///
    /// # Panics
    /// Panics if it has more than six bits.
    pub fn set_dscp(&mut self, dscp: u8) {
        assert!(dscp <= DSCP_MAX, "a DSCP has six bits");
        self.record(|journal| journal.set_dscp(dscp));
        self.dscp = dscp;
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.journal.is_some() {
            return self.event_recorded();
        }
        if !self.events.has_any() {
            return None;
        }
        let take = std::mem::take::<bool>;
        if take(&mut self.events.connected) {
            return Some(Event::Connected);
        }
        if take(&mut self.events.readable) {
            return Some(Event::Readable);
        }
        if take(&mut self.events.writable) {
            return Some(Event::Writable);
        }
        if take(&mut self.events.urgent) {
            return Some(Event::Urgent);
        }
        if take(&mut self.events.soft_error)
            && let Some(error) = self.soft_error
        {
            return Some(Event::SoftError(error));
        }
        if take(&mut self.events.closed) {
            return self.close_reason.map(Event::Closed);
        }
        None
    }

    /// Returns the number of bytes that [`write`](Self::write) accepts now.
    pub const fn send_space(&self) -> usize {
        self.send.space_left()
    }

    /// Returns the sizes of the send and receive buffers in bytes. Both grow with use.
    pub fn buffer_sizes(&self) -> (u64, u64) {
        (self.send.buffer_size(), self.receive.as_ref().map_or(0, ReceiveHalf::buffer))
    }

    /// Returns the number of bytes written and not sent.
    pub const fn unsent(&self) -> u64 {
        self.send.unsent()
    }

    /// Returns the number of bytes of data in a full segment.
    pub const fn segment(&self) -> u64 {
        self.send.segment()
    }

    /// Returns the initial sequence number of this side.
    pub fn initial_sequence(&self) -> Seq32 {
        self.send.space().wire(0)
    }

    /// Returns the initial sequence number of the peer, once it is known.
    pub fn peer_initial_sequence(&self) -> Option<Seq32> {
        self.receive.as_ref().map(ReceiveHalf::initial)
    }

    /// Returns whether an answer is due although the connection has ended.
    pub fn has_plan(&self) -> bool {
        // A closed connection acknowledges nothing.
        let may_acknowledge = self.state != State::Closed;
        self.reset_due.is_some() || (may_acknowledge && self.receive.as_ref().is_some_and(ReceiveHalf::is_ack_due))
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        let receive = self.receive.as_ref().map(ReceiveHalf::stats).unwrap_or_default();
        Stats { send: self.send.stats(), receive }
    }

    /// Returns the smoothed round trip; one third of a second before the first measurement.
    pub fn rtt(&self) -> units::Duration {
        self.send.rtt().smoothed()
    }

    /// Returns the congestion window and the bytes in flight.
    pub fn congestion(&self) -> (u64, u64) {
        (self.send.congestion_window(), self.send.in_flight())
    }

    /// Returns whether a segment has arrived after one that was sent later (RFC 8985, section 6.2,
    /// step 3): from then on losses are detected a little later.
    pub const fn has_seen_reordering(&self) -> bool {
        self.send.has_seen_reordering()
    }

    /// Returns the number of entries in the log of unacknowledged data, a measure of its memory.
    pub fn sent_runs(&self) -> usize {
        self.send.run_count()
    }

    /// Returns the remaining part of a connection in [`State::TimeWait`]: it answers from now on,
    /// and the connection can be dropped.
    pub fn time_wait(&self) -> Option<TimeWait> {
        let (receive, until) = (self.receive.as_ref()?, self.timers.time_wait()?);
        let clock = self.negotiated.timestamps.then(|| receive.clock().clone());
        let (seq, ack) = (self.send.nxt_on_wire(), receive.nxt_on_wire());
        let time_wait = TimeWait::new(self.tuple, seq, ack, clock, self.config.time_wait, until);
        Some(time_wait.signed(self.config.md5.clone()).with_dscp(self.dscp))
    }

    /// Returns the timestamps of a segment that leaves now.
    fn stamp(&self, now: Instant) -> Timestamps {
        match &self.receive {
            Some(receive) => receive.clock().stamp(now),
            None => TimestampClock::new(self.timestamp_offset).stamp(now),
        }
    }

    fn announced_mss(&self) -> u16 {
        self.config.announced_mss(self.tuple.local.is_ipv6())
    }

    fn close(&mut self, reason: CloseReason) {
        self.state = State::Closed;
        if self.close_reason.is_none() {
            self.close_reason = Some(reason);
            self.events.closed = true;
        }
        self.timers.stop();
        self.syn_text = None;
    }

    /// Closes the connection because the peer did not answer.
    fn time_out(&mut self) {
        let is_reported = matches!(self.soft_error, Some(SoftError::Unreachable | SoftError::Refused));
        self.close(if is_reported { CloseReason::Unreachable } else { CloseReason::TimedOut });
    }

    /// Counts a segment dropped for its timestamp. If all are dropped, the application is notified
    /// that no data arrive: the peer may repeat them for weeks.
    fn note_old_timestamps(&mut self) {
        if self.receive.as_ref().is_some_and(ReceiveHalf::has_only_old_segments) {
            self.note_soft_error(SoftError::OldTimestamps);
        }
    }

    /// Notifies the application of a soft error, once until the peer answers.
    fn note_soft_error(&mut self, error: SoftError) {
        self.events.soft_error |= self.soft_error != Some(error);
        self.soft_error = Some(error);
    }

    /// Updates the state after a change in one of the halves.
    fn settle(&mut self, now: Instant) {
        if self.send.is_fin_acked() {
            self.state.on_fin_acked();
        }
        match self.state {
            State::TimeWait if self.close_reason.is_none() => {
                self.timers.start_time_wait(now + self.config.time_wait);
                self.close_reason = Some(CloseReason::Finished);
                self.events.closed = true;
            }
            State::Closed => self.close(CloseReason::Finished),
            _ => {}
        }
    }

    /// Starts the timer that keeps a peer without a FIN from holding the connection for ever once
    /// the application is gone.
    fn watch_orphan(&mut self, now: Instant) {
        if self.is_orphan && self.state == State::FinWait2 {
            self.timers.start_orphan(now + self.config.time_wait);
        }
    }
}
