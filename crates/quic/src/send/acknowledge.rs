//! Acknowledgements, losses, and the loss and probe timers (RFC 9002).

use std::ops::Range;

use recovery::{LossDetector, LossEvent, PersistentCongestion};
use units::{Duration, Instant};
use wire::quic::frame::EcnCounts;
use wire::quic::{MIN_INITIAL_SIZE, PathId, Side, Space};

use super::SendHalf;
use super::ecn::EcnReport;
use super::frames::SentFrame;
use super::path::{PathRecovery, Sampling, SendPath};
use super::sent_log::{Content, Run};
use super::space::LargestAcked;
use crate::earliest::Earliest;
use crate::error::TransportError;
use crate::event::Events;
use crate::exchange::{Exchange, ToReceive};
use crate::observed::{LossTrigger, LostPackets};
use crate::spaces::DATA;

/// Packets sent when a probe timeout fires (RFC 9002, section 6.2.4: one or two).
const PROBES_PER_TIMEOUT: u8 = 2;

/// Consecutive probe timeouts after which the datagram size becomes suspect.
const BLACK_HOLE_TIMEOUTS: u32 = 3;

/// One acknowledgement. Its ranges lie in the exchange, in ascending order.
pub(crate) struct Acknowledgement {
    pub(crate) space: Space,
    pub(crate) path: PathId,
    /// The path on which the acknowledgement arrived.
    pub(crate) via: PathId,
    pub(crate) delay: Duration,
    pub(crate) ranges: Range<usize>,
    /// The peer's ECN counts, if the frame has them.
    pub(crate) ecn: Option<EcnCounts>,
}

/// Totals over the packets that one acknowledgement newly acknowledged.
#[derive(Default)]
struct NewlyAcked {
    bytes: u64,
    packets: u64,
    eliciting: bool,
    newest: Option<(u64, Instant)>,
    /// Packets that count for ECN.
    ecn_packets: u64,
    /// The size of the largest newly acknowledged packet, bytes.
    largest_bytes: u16,
}

impl NewlyAcked {
    /// Adds packets, in ascending order of their numbers. Those before `ecn_from` do not count for ECN.
    fn add(&mut self, run: &Run, ecn_from: u64) {
        self.bytes += run.in_flight_bytes();
        self.packets += u64::from(run.count);
        self.ecn_packets += if run.first >= ecn_from { u64::from(run.count) } else { 0 };
        self.eliciting |= run.eliciting;
        self.largest_bytes = self.largest_bytes.max(run.size);
        self.newest = Some((run.end() - 1, run.sent_at));
    }
}

impl SendHalf {
    /// Processes an acknowledgement (RFC 9002, appendix A.7).
    pub(super) fn on_acknowledged(
        &mut self,
        now: Instant,
        ack: &Acknowledgement,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        // Acknowledgements of a path that is closed are ignored (multipath draft-21, section
        // 3.4.3).
        let Some(at) = self.path_index(ack.path) else { return Ok(()) };
        let index = Self::index_of(ack.space, at);
        let ranges = &exchange.ranges[ack.ranges.clone()];
        let space = &mut self.spaces[index];
        let LargestAcked { number: largest, is_newest, ack_only_sent_at } = space.take_ranges(ranges)?;

        let mut runs = std::mem::take(&mut self.scratch.runs);
        runs.clear();
        let mut newly = NewlyAcked::default();
        let PathRecovery { delivery, ecn, .. } = &mut self.paths[at].recovery;
        let ecn_from = if index >= DATA { ecn.from() } else { 0 };
        space.log.acknowledge(ranges, |run| {
            newly.add(&run, ecn_from);
            delivery.on_acked(now, &run.stamp, run.sent_at, run.end() - 1, run.in_flight_bytes());
            runs.push(run);
        });
        if index >= DATA && self.paths[at].recovery.reordering.has_lost() {
            let mut arrived = Vec::new();
            self.stats.packets_late += self.paths[at].recovery.on_acked_late(now, ranges, &mut arrived);
            for (id, range) in arrived {
                self.streams.on_acked(id, range, false, exchange, events);
            }
        }
        if let Some((number, sent_at)) = newly.newest {
            let path = &mut self.paths[at];
            path.recovery.in_flight -= newly.bytes;
            path.size.on_acked(newly.largest_bytes.into());
            // Only the largest acknowledged packet gives an RTT sample, if it is newly acknowledged,
            // and if one that is ack-eliciting is, too (RFC 9002, section 5.1).
            let largest_sent_at = if number == largest { Some(sent_at) } else { ack_only_sent_at };
            if let Some(sent_at) = largest_sent_at.filter(|_| newly.eliciting) {
                let sampling = self.sampling(ack);
                self.paths[at].recovery.take_round_trip(now, sent_at, &sampling);
                self.report_round_trip(exchange);
            }
            if ack.space == Space::Handshake {
                // A client acknowledges Handshake packets only after it received one from us, and a
                // server only after it validated our address.
                self.progress.peer_validated_us = true;
            }
            self.detect_lost(now, index);
            if is_newest {
                let is_mixed = index >= DATA && !self.off_paths.is_empty();
                let (space, path) = (&mut self.spaces[index], &mut self.paths[at]);
                let newly_acked = newly.ecn_packets;
                let report = EcnReport { counts: ack.ecn, newly_acked, sent: space.next_number, is_mixed };
                path.recovery.on_ecn_report(now, sent_at, &report, &mut space.ecn_reported);
            }
            self.on_newly_acked(now, index, sent_at, number, &newly);
            let next_number = self.spaces[DATA + at].next_number;
            self.paths[at].on_alive(now, next_number, exchange);
            if ack.space == Space::Data && number >= self.paths[at].numbers.phase_from {
                self.seal.on_phase_acked(exchange);
            }
        }
        for run in runs.drain(..) {
            self.on_run_acked(ack.space, index, run, exchange, events);
        }
        self.scratch.runs = runs;
        self.tune_buffer(events);
        Ok(())
    }

    /// How an RTT sample is taken from this acknowledgement.
    fn sampling(&self, ack: &Acknowledgement) -> Sampling {
        let max_ack_delay = self.frames.ack_frequency.max_ack_delay();
        let delay = if self.progress.is_confirmed { ack.delay.min(max_ack_delay) } else { ack.delay };
        let via = self.config.policy.acknowledges_centrally().then_some(ack.via);
        Sampling { delay, via, is_one_of_several: self.paths.len() > 1 }
    }

    /// Counts newly acknowledged packets, of which `number` is the newest, and passes them to the path's
    /// congestion control.
    fn on_newly_acked(&mut self, now: Instant, index: usize, newest_sent_at: Instant, number: u64, newly: &NewlyAcked) {
        let path = &mut self.paths[index.saturating_sub(DATA)];
        path.counts.bytes_acked += newly.bytes;
        path.counts.packets_acked += newly.packets;
        let round_ended = index >= DATA && number >= path.recovery.round_end;
        if round_ended {
            path.recovery.round_end = self.spaces[index].next_number;
        }
        path.recovery.on_newly_acked(now, newly.bytes, newest_sent_at, round_ended, self.streams.has_background());
        if self.progress.peer_validated_us {
            path.recovery.backoff.reset();
        }
        if self.progress.is_confirmed {
            self.frames.ack_frequency.tune_for(&self.paths, self.config.policy.acknowledges_centrally());
        }
    }

    /// Flow-control windows must cover the longest round trip.
    fn report_round_trip(&self, exchange: &mut Exchange) {
        if let [path] = &self.paths[..] {
            return exchange.to_receive.push_back(ToReceive::RoundTrip(path.recovery.rtt.smoothed()));
        }
        let active = self.paths.iter().filter(|path| path.is_active() && path.recovery.rtt.has_sample());
        if let Some(longest) = active.map(|path| path.recovery.rtt.smoothed()).max() {
            exchange.to_receive.push_back(ToReceive::RoundTrip(longest));
        }
    }

    fn on_run_acked(&mut self, space: Space, index: usize, run: Run, exchange: &mut Exchange, events: &mut Events) {
        self.stats.packets_acked += u64::from(run.count);
        if let Some((id, range)) = run.stream_range() {
            self.streams.on_acked(id, range, false, exchange, events);
            return;
        }
        let Content::Side(slot) = run.content else { return };
        if index >= DATA && self.paths[index - DATA].size.is_probe(run.first) {
            self.paths[index - DATA].on_mtu_probe_acked();
        }
        let mut frames = std::mem::take(&mut self.scratch.frames);
        self.spaces[index].log.take_frames(slot, &mut frames);
        for frame in frames.drain(..) {
            match frame {
                SentFrame::Crypto(range) => self.frames.crypto[space.index()].acknowledge(range),
                SentFrame::Stream { id, range, fin } => self.streams.on_acked(id, range, fin, exchange, events),
                SentFrame::ResetStream(id) => self.streams.on_reset_acked(id, exchange),
                SentFrame::Ack { path, largest } => Self::report_ack_floor(exchange, space, path, largest),
                SentFrame::AckFrequency { sequence } => self.frames.ack_frequency.on_acked(sequence),
                SentFrame::Responses(path) => {
                    if let Some(at) = self.path_index(path) {
                        let is_active = self.paths[at].is_active();
                        self.paths[at].validation.on_responses_acked(is_active);
                    }
                }
                _ => {}
            }
        }
        self.scratch.frames = frames;
    }

    /// Declares packets lost, informs the congestion controller, and queues their content for
    /// retransmission.
    fn detect_lost(&mut self, now: Instant, index: usize) {
        let space = &mut self.spaces[index];
        let Some(largest) = space.largest_acked else { return };
        let path = &mut self.paths[index.saturating_sub(DATA)];
        let detector = path.recovery.reordering.detector(largest, now, &path.recovery.rtt);
        let mut lost: Vec<Run> = Vec::new();
        space.loss_time = space.log.detect_lost(&detector, largest, |run| lost.push(run));
        if index >= DATA
            && let Some(position) = lost.iter().position(|run| path.size.is_probe(run.first))
        {
            // No sign of congestion (RFC 9000, section 14.4).
            let probe = lost.remove(position);
            path.recovery.in_flight -= probe.in_flight_bytes();
            path.size.search.as_mut().expect("it has sent a probe").on_lost();
            self.requeue(Space::Data, index, probe);
        }
        let Some(newest) = lost.last() else { return };

        let path = &mut self.paths[index.saturating_sub(DATA)];
        let bytes: u64 = lost.iter().map(Run::in_flight_bytes).sum();
        path.recovery.in_flight -= bytes;
        let persistent = is_congestion_persistent(&lost, path, self.frames.ack_frequency.max_ack_delay());
        if persistent {
            // The minimum may belong to a route that is gone (RFC 9002, section 5.2).
            path.recovery.rtt.forget_min();
        }
        path.recovery.congestion.on_loss(&LossEvent {
            now,
            newest_lost_sent_at: newest.sent_at,
            bytes,
            in_flight: path.recovery.in_flight,
            persistent,
            ecn: false,
        });
        for run in &lost {
            let sample = path.recovery.delivery.on_lost(&run.stamp, run.first..run.end(), run.in_flight_bytes());
            path.recovery.congestion.on_run_lost(now, &sample);
        }
        let wire_space = if index < DATA { Space::ALL[index] } else { Space::Data };
        if let Some(losses) = &mut self.observed_losses {
            let path = self.paths[index.saturating_sub(DATA)].id;
            losses.0.extend(lost.iter().map(|run| observed_loss(path, wire_space, &detector, run)));
        }
        if index >= DATA && lost.iter().any(|run| usize::from(run.size) > MIN_INITIAL_SIZE) {
            self.paths[index - DATA].on_large_loss();
        }
        for run in lost {
            self.paths[index.saturating_sub(DATA)].counts.packets_lost += u64::from(run.count);
            self.stats.packets_lost += u64::from(run.count);
            self.stats.bytes_lost += u64::from(run.size) * u64::from(run.count);
            if index >= DATA {
                self.paths[index - DATA].recovery.reordering.on_lost(run);
            }
            self.requeue(wire_space, index, run);
        }
    }

    /// Queues the content of packets that did not arrive for retransmission.
    pub(super) fn requeue(&mut self, space: Space, index: usize, run: Run) {
        if let Some((id, range)) = run.stream_range() {
            if !run.moved {
                self.requeue_stream(index, id, range, false);
            }
            return;
        }
        if run.content == Content::Datagram {
            self.stats.datagrams_lost += u64::from(run.count);
        }
        let Content::Side(slot) = run.content else { return };
        let mut frames = std::mem::take(&mut self.scratch.frames);
        self.spaces[index].log.take_frames(slot, &mut frames);
        for frame in frames.drain(..) {
            match frame {
                // A lost PATH_RESPONSE may leave the peer unable to send another challenge (RFC
                // 9000, section 8.2.1), so the path is challenged from this side.
                SentFrame::Responses(path) => {
                    if let Some(at) = self.path_index(path).filter(|at| self.paths[*at].is_open()) {
                        self.paths[at].validation.request_challenge();
                    }
                }
                SentFrame::Datagram => self.stats.datagrams_lost += 1,
                _ if run.moved => {}
                SentFrame::Stream { id, range, fin } => self.requeue_stream(index, id, range, fin),
                frame => self.frames.requeue(space, frame, &mut self.streams, &self.paths),
            }
        }
        self.scratch.frames = frames;
    }

    /// When [`SendHalf::on_timeout`] must run.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let mut earliest = Earliest::default();
        self.spaces.for_each(|space| earliest.note(space.loss_time));
        for path in &self.paths {
            earliest.note(path.recovery.release_at);
        }
        // The loss timer takes precedence over the probe timer (RFC 9002, section 6.2.1).
        earliest.note(self.probe_deadline().map(|(at, _, _)| at));
        earliest.note(self.streams.rate_limit_deadline());
        earliest.note(self.blocked_deadline());
        earliest.note(self.path_timeout());
        earliest.get()
    }

    /// When to probe, on which path and in which space (RFC 9002, appendix A.8). The loss timer of
    /// a path takes precedence over its probe timer (section 6.2.1).
    fn probe_deadline(&self) -> Option<(Instant, usize, Space)> {
        if self.closing.is_begun() {
            return None;
        }
        let mut first: Option<(Instant, usize, Space)> = None;
        for at in 0..self.paths.len() {
            if let Some(deadline) = self.probe_deadline_of(at)
                && first.is_none_or(|first| deadline.0 < first.0)
            {
                first = Some(deadline);
            }
        }
        first
    }

    /// When to probe on the path at index `at`.
    fn probe_deadline_of(&self, at: usize) -> Option<(Instant, usize, Space)> {
        let path = &self.paths[at];
        // The handshake spaces belong to the first path; most connections have discarded them.
        let spaces = if at == 0 && self.spaces.has_handshake() { &Space::ALL[..] } else { &[Space::Data][..] };
        for space in spaces {
            let space = &self.spaces[Self::index_of(*space, at)];
            // Probes that wait for space in the socket need no timer: it would fire again and again
            // without effect.
            if space.loss_time.is_some() || space.probes_due > 0 {
                return None;
            }
        }
        // Nothing can be sent until the peer sends something. A path under validation has a timer
        // of its own.
        if !path.is_active() || path.link.amplification_budget() == 0 {
            return None;
        }
        let mut first: Option<(Instant, usize, Space)> = None;
        for &space in spaces {
            if space == Space::Data && !self.progress.is_confirmed {
                continue;
            }
            let Some(sent_at) = self.last_eliciting_or_waiting(space, at) else { continue };
            let delay = if space == Space::Data { self.frames.ack_frequency.max_ack_delay() } else { Duration::ZERO };
            let deadline = sent_at + path.recovery.backoff.interval(&path.recovery.rtt, delay);
            if first.is_none_or(|first| deadline < first.0) {
                first = Some((deadline, at, space));
            }
        }
        first.or_else(|| self.client_probe_deadline(at))
    }

    /// Since when a probe of `space` counts: since the last packet that elicits an acknowledgement. With
    /// none in flight, handshake data may wait: the system has refused to send them, and 1-RTT data,
    /// which the peer cannot acknowledge before, may have filled the window since. Only a probe, which
    /// the window does not block (RFC 9002, section 7.5), can carry them.
    fn last_eliciting_or_waiting(&self, space: Space, at: usize) -> Option<Instant> {
        let last = self.spaces[Self::index_of(space, at)].log.last_eliciting_sent_at();
        let waits = || {
            let has_keys = space != Space::Data && self.seal.has(space);
            has_keys && self.frames.has_crypto(space)
        };
        last.or_else(|| waits().then_some(self.paths[at].recovery.probe_anchor))
    }

    /// A client probes even with nothing in flight: the server may be blocked by its
    /// anti-amplification limit (RFC 9002, section 6.2.2.1).
    fn client_probe_deadline(&self, at: usize) -> Option<(Instant, usize, Space)> {
        if at > 0 || self.side != Side::Client || self.progress.peer_validated_us {
            return None;
        }
        let space = if self.seal.has(Space::Handshake) { Space::Handshake } else { Space::Initial };
        if !self.seal.has(space) {
            return None;
        }
        let path = &self.paths[at];
        Some((
            path.recovery.probe_anchor + path.recovery.backoff.interval(&path.recovery.rtt, Duration::ZERO),
            at,
            space,
        ))
    }

    /// Runs the timers that are due at `now`. An early call has no effect.
    pub(crate) fn on_timeout(&mut self, now: Instant, exchange: &mut Exchange) {
        for path in &mut self.paths {
            if path.recovery.release_at.is_some_and(|at| at <= now) {
                path.recovery.release_at = None;
            }
        }
        self.streams.on_rate_limit_timeout(now);
        if self.blocked_deadline().is_some_and(|at| at <= now) {
            self.streams.repeat_blocked();
        }
        // The paths on which packets were declared lost in this call.
        let mut lost_on = 0_u64;
        for index in 0..self.spaces.count() {
            if self.spaces[index].loss_time.is_some_and(|at| at <= now) {
                self.detect_lost(now, index);
                let at = index.saturating_sub(DATA);
                self.paths[at].recovery.suspicion.end_without_evidence(&self.spaces[DATA + at].log);
                lost_on |= 1 << index.saturating_sub(DATA).min(63);
            }
        }
        self.on_path_timeout(now, exchange);
        // The packets just declared lost may be all that the probe was for.
        if let Some((due_at, at, space)) = self.probe_deadline()
            && due_at <= now
            && lost_on >> at.min(63) & 1 == 0
        {
            self.probe(now, at, space);
        }
    }

    /// Schedules probes that carry the oldest outstanding content (RFC 9002, section 6.2.4).
    fn probe(&mut self, now: Instant, at: usize, space: Space) {
        let index = Self::index_of(space, at);
        self.paths[at].recovery.backoff.on_expired();
        let timeouts = self.paths[at].recovery.backoff.count();
        if self.progress.is_confirmed {
            self.paths[at].recovery.ecn.on_timeouts(timeouts);
        } else {
            self.paths[at].recovery.ecn.on_handshake_timeout();
        }
        if timeouts >= BLACK_HOLE_TIMEOUTS {
            // Handshake packets do not count: a slow handshake would cost the configured size.
            self.paths[at].suspect_datagram_size(&self.spaces[DATA + at].log);
        }
        self.stats.probe_timeouts += 1;
        self.paths[at].recovery.probe_anchor = now;
        self.spaces[index].probes_due = PROBES_PER_TIMEOUT;
        let oldest: Vec<Run> = self.spaces[index]
            .log
            .iter()
            .filter(|run| run.eliciting && !run.moved)
            .take(usize::from(PROBES_PER_TIMEOUT))
            .copied()
            .collect();
        for run in oldest {
            match run.content {
                Content::Stream { id, offset, stride } => {
                    let packets = u64::from(run.count.min(u32::from(PROBES_PER_TIMEOUT)));
                    self.streams.on_lost(id, offset..offset + u64::from(stride) * packets, false);
                }
                Content::Side(slot) => {
                    let frames = self.spaces[index].log.frames(slot).to_vec();
                    for frame in frames.into_iter().filter(|frame| *frame != SentFrame::Datagram) {
                        self.frames.requeue(space, frame, &mut self.streams, &self.paths);
                    }
                }
                Content::Nothing | Content::Datagram => {}
            }
        }
    }
}

/// Whether the loss of these packets of a path establishes persistent congestion (RFC 9002, section 7.6).
fn is_congestion_persistent(lost: &[Run], path: &SendPath, max_ack_delay: Duration) -> bool {
    let mut persistent = PersistentCongestion::new(path.recovery.first_rtt_sample_at);
    let mut next_number = None;
    for run in lost {
        // A gap between lost packets was acknowledged or is a skipped number. Skipped numbers are
        // rare, so both count as acknowledged.
        if next_number.is_some_and(|next| next != run.first) {
            persistent.on_acked();
        }
        next_number = Some(run.end());
        if run.eliciting {
            persistent.on_lost(run.sent_at);
        }
    }
    persistent.is_established(&path.recovery.rtt, max_ack_delay)
}

/// What an observer is told of packets that `detector` has declared lost.
fn observed_loss(path: PathId, space: Space, detector: &LossDetector, run: &Run) -> LostPackets {
    let trigger = if detector.lost_through().is_some_and(|last| run.end() - 1 <= last) {
        LossTrigger::PacketThreshold
    } else {
        LossTrigger::TimeThreshold
    };
    LostPackets { path, space, first: run.first, count: run.count, size_bytes: run.size, trigger }
}
