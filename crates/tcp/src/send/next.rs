//! Order of transmission: a probe of a closed window, then lost data, then a tail loss probe, then
//! new data.

use std::ops::Range;

use bytes::Bytes;
use units::{Ecn, Instant};

use super::SendHalf;
use super::log::{Judgement, Run, RunState};
use super::timers::{Probe, WindowProbe};
use crate::config::Nagle;
use crate::position::FIRST_BYTE;

/// Positions to send in one plan, and the flags that go with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) start: u64,
    /// The number of bytes of data.
    pub(crate) data_len: u64,
    pub(crate) has_syn: bool,
    pub(crate) has_fin: bool,
    /// Whether it contains all written data: the receiver need not wait for more (RFC 9293, section
    /// 3.9.1).
    pub(crate) is_push: bool,
    /// Whether the window was reduced (RFC 3168, section 6.1.2).
    pub(crate) is_cwr: bool,
    /// Codepoint, if the path may mark it: it has new data (RFC 3168, section 6.1.5).
    pub(crate) ecn: Option<Ecn>,
    /// The number of the plan.
    pub(crate) transmission: u64,
    /// Whether all data are in one segment that is larger than others: a probe.
    pub(crate) is_probe: bool,
}

/// Reason for sending a range although the window is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Window,
    TailLossProbe,
    Timeout,
    /// A byte beyond the peer's window.
    WindowProbe,
    /// Data that a silly window permits.
    SillyWindow,
    /// A segment larger than the path is known to carry.
    PathProbe,
}

impl SendHalf {
    /// Returns the next positions to send, at most `bytes_max` of data in full segments, and
    /// appends references to their bytes to `pieces`. They count as sent at `now`.
    pub(crate) fn next(&mut self, now: Instant, bytes_max: u64, pieces: &mut Vec<Bytes>) -> Option<Next> {
        let Some((range, cause)) = self.choose(now, bytes_max) else {
            self.update_window_timer(now);
            return None;
        };
        let is_new = range.start == self.nxt;
        let data = range.start.max(FIRST_BYTE)..range.end.min(self.buffer.end());
        // Retransmissions and window probes are not ECN-capable (RFC 3168, sections 6.1.5 and
        // 6.1.6).
        let is_ecn_capable = is_new && data.end > data.start && cause != Cause::WindowProbe;
        let next = Next {
            start: range.start,
            data_len: data.end.saturating_sub(data.start),
            has_syn: range.start == 0,
            has_fin: range.end > self.buffer.end() && range.start > 0,
            is_push: range.end >= self.buffer.end() && data.end > data.start,
            is_cwr: is_ecn_capable && std::mem::take(&mut self.ecn.is_cwr_due),
            ecn: self.codepoint().filter(|_| is_ecn_capable),
            transmission: self.transmission,
            is_probe: cause == Cause::PathProbe,
        };
        if next.data_len > 0 {
            self.buffer.pieces(data, pieces);
        }
        self.record(now, range, next.data_len, is_new, cause);
        Some(next)
    }

    fn choose(&mut self, now: Instant, bytes_max: u64) -> Option<(Range<u64>, Cause)> {
        if std::mem::take(&mut self.timers.is_window_probe_due)
            && let Some(probe) = self.window_probe()
        {
            return Some(probe);
        }
        if std::mem::take(&mut self.timers.is_probe_due)
            && let Some(range) = self.tail()
        {
            return Some((range, Cause::TailLossProbe));
        }
        if self.suspicion.is_some() {
            return self.next_of_suspicion(now).map(|range| (range, Cause::Timeout));
        }
        let window = self.window_left();
        let lost = self.first_lost(window, bytes_max);
        if lost.is_none()
            && self.path_mtu.is_some()
            && let Some(range) = self.path_probe(now, window)
        {
            return Some((range, Cause::PathProbe));
        }
        let range = lost.or_else(|| self.new_data(window, bytes_max))?;
        self.paced(now, range).map(|range| (range, Cause::Window))
    }

    /// Returns the range of a path probe with new data, if one is due.
    fn path_probe(&mut self, now: Instant, window: u64) -> Option<Range<u64>> {
        if !self.is_syn_acked() {
            return None;
        }
        let granted = self.buffer.end().min(self.window.edge()).saturating_sub(self.nxt);
        let len = self.probe_due(now, window, granted)?;
        Some(self.nxt..self.nxt + len)
    }

    /// Cuts `range` to the part that the pacer permits now.
    fn paced(&mut self, now: Instant, range: Range<u64>) -> Option<Range<u64>> {
        let rate = self.congestion.pacing_rate(&self.rtt);
        let (budget, len) = (self.pacer.budget(now, rate), range.end - range.start);
        if budget >= len {
            return Some(range);
        }
        let full = budget / self.segment * self.segment;
        if full == 0 {
            self.timers.release = Some(self.pacer.next_release(now, rate, self.segment.min(len)));
            return None;
        }
        Some(range.start..range.start + full)
    }

    fn first_lost(&mut self, window: u64, bytes_max: u64) -> Option<Range<u64>> {
        let run = *self.log.first_lost()?;
        // The first segment leaves even if nothing fits: the window of a sender without bytes in
        // flight is never closed.
        let is_first = self.log.in_flight() == 0;
        let room = if is_first || self.is_resend_due { window.max(self.segment) } else { window };
        let room = room.min(bytes_max.max(self.segment));
        // Beyond a window that has shrunk, single segments probe whether it opens (RFC 9293,
        // section 3.8.6).
        let room = match (run.start >= self.window.edge() && self.is_syn_acked(), is_first) {
            (false, _) => room,
            (true, true) => room.min(self.segment),
            (true, false) => 0,
        };
        let len = run.len();
        let len = if len <= room { len } else { room / self.segment * self.segment };
        // A FIN belongs to the last segment, and adds no bytes of data.
        (len > 0).then(|| run.start..run.start + len)
    }

    pub(super) fn new_data(&mut self, window: u64, bytes_max: u64) -> Option<Range<u64>> {
        if self.nxt == 0 {
            return Some(0..1);
        }
        if !self.is_syn_acked() {
            return None;
        }
        let (start, written) = (self.nxt, self.buffer.end());
        let granted = written.min(self.window.edge()).saturating_sub(start);
        let room = window.min(bytes_max);
        let full = granted.min(room) / self.segment * self.segment;
        let mut end = start + full;
        // The remaining data, less than a segment.
        let tail = granted - full.min(granted);
        if tail > 0 && tail < self.segment && tail <= room - full && self.may_send_small(start + full + tail, tail) {
            end += tail;
        }
        if self.is_finished && end == written && !self.is_fin_sent() {
            end += 1;
        }
        if end == start {
            self.note_limited(window, granted);
            return None;
        }
        Some(start..end)
    }

    /// Returns whether a segment of `len` bytes, which is not full, may end at `end` (RFC 9293,
    /// sections 3.7.4 and 3.8.6.2.1): it ends the data or is a large part of the peer's window, and
    /// Nagle's algorithm does not hold it back.
    fn may_send_small(&self, end: u64, len: u64) -> bool {
        let is_large = self.window.max() > 0 && len >= self.window.max() / 2;
        if end < self.buffer.end() && !is_large {
            return false;
        }
        let is_held = match self.nagle {
            Nagle::Off => false,
            Nagle::Rfc896 => self.una < end - len,
            // A full buffer ends at an arbitrary place, and more is written as soon as it has space
            // again.
            Nagle::Minshall => {
                let is_full = self.space_left() == 0 && !self.log.is_empty();
                !self.is_finished && (is_full || self.una < self.small_end)
            }
        };
        is_large || !is_held
    }

    /// Records that nothing is sent: if the window has space, the application or the peer's window
    /// is the limit.
    fn note_limited(&mut self, window: u64, granted: u64) {
        if window >= self.segment && granted < self.segment && self.log.lost() == 0 {
            self.delivery.on_app_limited(self.log.in_flight());
        }
    }

    /// Returns whether the peer's window permits sending any of the written data now.
    pub(super) fn is_granted(&self) -> bool {
        let granted = self.buffer.end().min(self.window.edge()).saturating_sub(self.nxt);
        granted >= self.segment || (granted > 0 && self.may_send_small(self.nxt + granted, granted))
    }

    /// Returns the data that a silly window permits, or the next byte beyond a closed one.
    fn window_probe(&self) -> Option<(Range<u64>, Cause)> {
        let (start, written) = (self.nxt, self.buffer.end());
        let granted = written.min(self.window.edge()).saturating_sub(start).min(self.segment);
        match granted {
            _ if start >= written => None,
            0 => Some((start..start + 1, Cause::WindowProbe)),
            _ => Some((start..start + granted, Cause::SillyWindow)),
        }
    }

    /// Returns the range of a tail loss probe: new data if there are any, otherwise the last
    /// segment (RFC 8985, section 7.3).
    fn tail(&mut self) -> Option<Range<u64>> {
        if let Some(range) = self.new_data(self.segment, self.segment) {
            return Some(range);
        }
        let last = self.log.runs().next_back()?;
        if last.state == RunState::Sacked {
            return None;
        }
        // The last segment of the run, as it was sent; a FIN adds no byte to it.
        let data_len = last.end.min(self.buffer.end()).saturating_sub(last.start);
        let range = last.start + data_len.saturating_sub(1) / self.segment * self.segment..last.end;
        // It leaves the bytes in flight without counting as lost, and is resent.
        self.log.lose_range(range.clone(), |_| {});
        Some(range)
    }

    fn record(&mut self, now: Instant, range: Range<u64>, data_len: u64, is_new: bool, cause: Cause) {
        let (transmission, len) = (self.transmission, range.end - range.start);
        self.transmission += 1;
        if cause == Cause::WindowProbe {
            // Most likely the peer drops it, so it counts as sent only once it is acknowledged.
            let is_repeated = self.timers.window_probe.as_ref().is_some_and(|probe| probe.position == range.start);
            let probe = WindowProbe { position: range.start, sent_at: now, is_repeated };
            self.timers.window_probe = Some(Box::new(probe));
            return;
        }
        let in_flight = self.log.in_flight() + len;
        let stamp = self.delivery.on_sent(now, len, in_flight);
        let is_limited = !matches!(cause, Cause::Window | Cause::PathProbe) || self.delivery.is_app_limited();
        if is_new {
            let run = Run {
                start: range.start,
                end: range.end,
                state: RunState::Outstanding,
                sent_at: now,
                transmission,
                is_retransmitted: false,
                is_limited,
                stamp,
            };
            self.log.push(run);
            self.nxt = range.end;
            if cause == Cause::PathProbe {
                self.on_probe_sent(transmission, data_len, range.end);
            } else if !data_len.is_multiple_of(self.segment) {
                self.small_end = range.end;
            }
            self.stats.bytes_sent += data_len;
        } else {
            self.log.resend(&range, |run| {
                (run.sent_at, run.transmission, run.stamp, run.is_limited) = (now, transmission, stamp, is_limited);
            });
            self.stats.bytes_resent += data_len;
            self.is_resend_due = false;
        }
        if cause == Cause::TailLossProbe {
            let probe = Probe { end: range.end, sent_at: now, is_repetition: !is_new };
            self.timers.probe = Some(Box::new(probe));
        }
        if let Some(reduction) = &mut self.reduction {
            reduction.on_sent(len);
        }
        self.congestion.on_sent(now, len, self.log.in_flight());
        self.pacer.on_sent(now, data_len);
        self.on_timed_sent(now);
    }

    /// Resends the SYN, which now answers the peer's.
    pub(crate) fn repeat_syn(&mut self) {
        self.log.lose_range(0..1, |_| {});
    }

    /// Returns whether the SYN was sent exactly once, and is not acknowledged.
    pub(crate) fn is_syn_sent_once(&self) -> bool {
        self.una == 0 && self.log.runs().next().is_some_and(|run| !run.is_retransmitted)
    }

    /// Resends outstanding data in smaller segments, since packets with more than `segment` bytes
    /// of data do not arrive; this counts as no loss.
    pub(crate) fn on_packet_too_big(&mut self, now: Instant, segment: u64, size: u64) {
        self.set_segment(segment);
        self.begin_search(size, Some(now));
        self.log.lose(|_| Judgement::Lost, |_| {});
        self.restart_timer(now);
    }

    /// Returns the position after the last one that the peer may have received.
    pub(crate) fn sent_end(&self) -> u64 {
        let is_probed = self.timers.window_probe.as_ref().is_some_and(|probe| probe.position == self.nxt);
        self.nxt + u64::from(is_probed)
    }

    /// Counts the byte beyond the window as sent, if the peer has accepted it. Returns true if it
    /// has.
    pub(super) fn adopt_probe(&mut self, ack: u64) -> bool {
        let Some(probe) = self.timers.window_probe.as_deref().filter(|_| ack > self.nxt) else { return false };
        let WindowProbe { position, sent_at, is_repeated } = *probe;
        let stamp = self.delivery.on_sent(sent_at, 1, self.log.in_flight() + 1);
        self.log.push(Run {
            start: position,
            end: position + 1,
            state: RunState::Outstanding,
            sent_at,
            transmission: self.transmission,
            is_retransmitted: is_repeated,
            is_limited: true,
            stamp,
        });
        (self.transmission, self.nxt) = (self.transmission + 1, position + 1);
        self.stats.bytes_sent += 1;
        self.timers.window_probe = None;
        true
    }

    /// Records that the plan `transmission` leaves now.
    pub(crate) fn handle_emitted(&mut self, now: Instant, transmission: u64) {
        self.log.set_sent_at(transmission, now);
    }

    /// Records that the plan was not and will not be sent: its contents are resent, and count as no
    /// loss.
    pub(crate) fn handle_not_emitted(&mut self, transmission: u64) {
        self.log.lose_plan(transmission);
    }
}
