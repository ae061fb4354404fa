//! Acknowledgements: delivered data, losses, and the limit on the bytes in flight.

use recovery::{AckEvent, LossEvent, SpuriousLossEvent};
use units::{Duration, Instant};
use wire::tcp::{AccEcn, SACK_BLOCKS_MAX};

use super::SendHalf;
use super::ack_info::AckInfo;
use super::log::{Judgement, Run, RunState};
use super::lost::Lost;
use super::prr::Prr;
use super::timers::Purpose;
use crate::config::LossRecovery;
use crate::position::FIRST_BYTE;

/// Number of acknowledgements without news that indicate a loss, if the peer has no SACK (RFC 5681,
/// section 3.2).
const DUPLICATE_ACKS_MAX: u32 = 3;

/// Data delivered by one acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    /// Bytes that were in flight.
    bytes: u64,
    /// Position after the last of them.
    pub(super) end: u64,
    /// Whether part of the data was sent only once.
    pub(super) has_original: bool,
    /// Bytes declared lost that have arrived, and when the last of them was sent.
    spurious: Option<(u64, Instant)>,
    /// Newest transmission: its number, its time, and whether sending was limited.
    newest: Option<(u64, Instant, bool)>,
    /// Send time of the newest run that was sent only once.
    rtt_from: Option<(u64, Instant)>,
    /// Whether part of the data was retransmitted. Data acknowledged because of a retransmission
    /// may have arrived long before.
    has_retransmission: bool,
}

impl Delivered {
    fn add(&mut self, run: &Run, echo: Option<Instant>) {
        // The timestamp shows whether the first transmission has arrived (RFC 3522, section 3.2).
        let is_original = run.is_retransmitted && echo.is_some_and(|echo| echo < run.sent_at);
        if run.state == RunState::Lost || is_original {
            let (bytes, at) = self.spurious.unwrap_or((0, run.sent_at));
            self.spurious = Some((bytes + run.len(), at.max(run.sent_at)));
        }
        if run.state == RunState::Lost {
            return;
        }
        self.bytes += run.len();
        self.end = self.end.max(run.end);
        self.has_retransmission |= run.is_retransmitted;
        self.has_original |= !run.is_retransmitted;
        if self.newest.is_none_or(|(number, ..)| run.transmission >= number) {
            self.newest = Some((run.transmission, run.sent_at, run.is_limited));
        }
        // Karn's algorithm (RFC 6298, section 3).
        if !run.is_retransmitted && self.rtt_from.is_none_or(|(number, _)| run.transmission >= number) {
            self.rtt_from = Some((run.transmission, run.sent_at));
        }
    }
}

impl SendHalf {
    /// Processes the acknowledgement in a segment. The caller has checked that it covers only data
    /// that were sent. Returns true if the application can write more.
    pub(crate) fn handle_ack(&mut self, now: Instant, info: &AckInfo) -> bool {
        let end = self.sent_end();
        let Some(ack) = self.space.position(info.ack, self.una).filter(|ack| *ack <= end) else { return false };
        let is_window_probe = self.adopt_probe(ack);
        let window_changed = self.window.update(info.seq, ack, info.window);
        let mut delivered = Delivered::default();
        let (una, sacked, left, lost) = (self.una, self.log.sacked(), self.left_bytes, self.stats.bytes_lost);
        if ack > self.una {
            if self.una == 0 {
                self.on_syn_acked(info.echo);
            }
            self.advance(now, ack, info.echo.filter(|_| !is_window_probe), &mut delivered);
        }
        let has_duplicate = self.take_sacks(now, ack, info, &mut delivered);
        let is_loss_confirmed = self.judge_timeout(now, ack > una, info.echo, &delivered);
        if has_duplicate {
            self.rack.on_duplicate_report(self.una, self.nxt);
        }
        // An acknowledgement caused by a second copy shows when that copy was sent, not how long
        // the first one took: the acknowledgement of the first was lost.
        let has_sample = !has_duplicate && self.sample_rtt(now, info, ack > una, &delivered);
        if !self.has_sack && self.recovery == LossRecovery::Selective {
            self.count_duplicate(now, ack.saturating_sub(una), info.is_bare && !window_changed);
        }
        self.on_probe_answer(now, info, ack, ack > una, has_duplicate);
        // Without SACK, data that overtook others prove nothing: the others may have arrived all
        // the same (RFC 8985, section 3, requirement 1).
        if self.has_sack && (ack > una || self.log.sacked() > sacked) {
            self.detect_losses(now);
        }
        let has_left = (self.una - una + self.log.sacked() + self.left_bytes).saturating_sub(sacked + left);
        if self.recovery_point.is_some_and(|point| self.una >= point) {
            self.end_recovery();
            self.rack.on_recovered();
        }
        if info.is_marked && self.ecn.is_on {
            self.on_marked(now, &delivered);
        }
        if let Some((ace, option)) = &info.ace {
            self.on_accurate_marks(now, *ace, option.as_ref(), &delivered);
        }
        self.update_congestion(now, &delivered, is_loss_confirmed);
        self.advance_reduction(has_left, ack > una && self.stats.bytes_lost == lost);
        if ack > una {
            // The timeout stays long until the next round-trip measurement: retransmitted data may
            // be acknowledged late each time (RFC 6298, section 5.7; Karn's algorithm).
            if has_sample || has_duplicate || una == 0 {
                self.timers.backoff = 0;
            }
            self.timers.unanswered = 0;
            self.tune_buffer();
            self.note_probe_acked();
            // RFC 6298, section 5.3.
            self.restart_timer(now);
        }
        self.update_window_timer(now);
        ack > una
    }

    fn advance(&mut self, now: Instant, ack: u64, echo: Option<Instant>, delivered: &mut Delivered) {
        let (rack, delivery, min_rtt, una) = (&mut self.rack, &mut self.delivery, self.rtt.min(), self.una);
        let is_suspected = self.suspicion.is_some();
        self.log.acknowledge(ack, |run| {
            if run.state != RunState::Sacked {
                // The peer echoes the segment that filled the first hole (RFC 7323, section 4.3).
                let echo = echo.filter(|_| run.start == una);
                // While it is unknown whether a timeout was due to a delay, it is also unknown
                // which copy has arrived.
                let is_ambiguous = is_suspected || echo.is_some_and(|echo| echo < run.sent_at);
                rack.on_delivered(now, run, min_rtt, is_ambiguous);
                let echo = echo.filter(|_| !is_suspected);
                if run.state == RunState::Outstanding {
                    delivery.on_acked(now, &run.stamp, run.sent_at, run.transmission, run.len());
                }
                delivered.add(run, echo);
            }
        });
        self.stats.bytes_acked += ack.min(self.buffer.end()).saturating_sub(self.una.max(FIRST_BYTE));
        self.una = ack;
        self.buffer.release(ack);
    }

    /// Marks the data that the peer holds beyond a hole. Returns true if it reports data received
    /// twice (RFC 2883, section 4).
    fn take_sacks(&mut self, now: Instant, ack: u64, info: &AckInfo, delivered: &mut Delivered) -> bool {
        if !self.has_sack {
            return false;
        }
        let mut has_duplicate = false;
        let mut blocks = [None; SACK_BLOCKS_MAX];
        for (block, (start, end)) in blocks.iter_mut().zip(info.sack.iter()) {
            *block = self.space.position(start, self.una).zip(self.space.position(end, self.una));
        }
        // The first block may report data received twice: it lies below the acknowledgement or
        // within the second block.
        if let Some((start, end)) = blocks[0].filter(|(start, end)| start < end)
            && (end <= ack || blocks[1].is_some_and(|(from, to)| from <= start && end <= to))
        {
            (has_duplicate, blocks[0]) = (true, None);
        }
        // The latest block comes first. Earlier acknowledgements may be lost, and a lower block
        // that is new with it is no sign of reordering (RFC 8985, section 6.2, step 3: in ascending
        // order).
        blocks.sort_unstable();
        for (start, end) in blocks.into_iter().flatten() {
            if start < self.una || end > self.nxt || start >= end {
                continue;
            }
            let (unit, data_end) = (self.segment_in_flight(), self.buffer.end());
            let (rack, delivery, min_rtt) = (&mut self.rack, &mut self.delivery, self.rtt.min());
            self.log.sack(start..end, unit, data_end, |run| {
                // Beyond a hole, the peer echoes the segment before the hole, which tells nothing
                // about this run.
                rack.on_delivered(now, run, min_rtt, false);
                if run.state == RunState::Outstanding {
                    delivery.on_acked(now, &run.stamp, run.sent_at, run.transmission, run.len());
                }
                delivered.add(run, None);
            });
        }
        has_duplicate
    }

    /// Measures the round trip, if possible; returns whether it did.
    fn sample_rtt(&mut self, now: Instant, info: &AckInfo, has_advanced: bool, delivered: &Delivered) -> bool {
        let rtt_from = delivered.rtt_from.filter(|_| !delivered.has_retransmission);
        let sample = match (rtt_from, info.echo) {
            (Some((_, sent_at)), _) => now.saturating_since(sent_at),
            // Retransmitted data are measured by their timestamp (RFC 7323, section 4.1).
            (None, Some(echo)) if has_advanced => now.saturating_since(echo),
            _ => return false,
        };
        self.rtt.update(sample, Duration::ZERO);
        self.rto.on_sample(sample);
        true
    }

    /// Counts duplicate acknowledgements (RFC 5681, section 3.2, and RFC 6582, section 3.2): three
    /// in a row mean that the first segment is lost, and each one in a recovery that ends before
    /// the recovery point means that the next one is.
    fn count_duplicate(&mut self, now: Instant, advanced: u64, may_be_duplicate: bool) {
        if advanced > 0 {
            self.duplicate_acks = 0;
            self.left_bytes = self.left_bytes.saturating_sub(advanced.saturating_sub(self.segment));
            if self.is_fast_recovery && self.recovery_point.is_some_and(|point| self.una < point) {
                self.lose_first(now);
            }
        } else if may_be_duplicate && !self.log.is_empty() {
            self.duplicate_acks += 1;
            // Each stands for a segment that has left the network (RFC 6582, section 3.2, step 3);
            // at most for those outstanding, whatever the peer says.
            let left_max = self.recovery_point.unwrap_or(self.nxt) - self.una;
            self.left_bytes = (self.left_bytes + self.segment).min(left_max);
            if self.duplicate_acks == DUPLICATE_ACKS_MAX && !self.is_recovering() {
                self.is_fast_recovery = true;
                self.lose_first(now);
            }
        }
    }

    fn lose_first(&mut self, now: Instant) {
        let (mut lost, probe) = (Lost::default(), self.probe_number());
        let (delivery, probe) = (&mut self.delivery, probe);
        self.log.lose_range(self.una..self.una + self.segment, |run| Self::count_lost(run, probe, &mut lost, delivery));
        self.on_lost(now, &lost, false);
        // It leaves regardless of the window (RFC 5681, section 3.2, step 3).
        self.is_resend_due = true;
    }

    /// Finds losses by time, and sets the timer for possible further ones (RFC 8985, section 6.2,
    /// step 5).
    pub(super) fn detect_losses(&mut self, now: Instant) {
        let sacked_segments = self.log.sacked() / self.segment;
        let window = self.rack.window(self.rtt.min(), self.rtt.smoothed(), self.is_recovering(), sacked_segments);
        let (mut lost, mut next) = (Lost::default(), None::<Instant>);
        let probe = self.probe_number();
        let (rack, delivery) = (&self.rack, &mut self.delivery);
        let judge = |run: &Run| match rack.lost_at(run, window) {
            Some(at) if at <= now => Judgement::Lost,
            Some(at) => {
                next = Some(next.map_or(at, |next| next.min(at)));
                Judgement::Kept
            }
            // Original transmissions are in order, and retransmissions were sent after them.
            None if !run.is_retransmitted => Judgement::NoneFollows,
            None => Judgement::Kept,
        };
        self.log.lose(judge, |run| Self::count_lost(run, probe, &mut lost, delivery));
        self.timers.set_reordering(next);
        self.on_lost(now, &lost, false);
    }

    pub(super) fn end_recovery(&mut self) {
        self.recovery_point = None;
        (self.is_fast_recovery, self.is_resend_due, self.left_bytes) = (false, false, 0);
    }

    /// Reports losses to the congestion controller and begins a recovery.
    pub(super) fn on_lost(&mut self, now: Instant, lost: &Lost, is_persistent: bool) {
        if lost.has_probe {
            self.on_probe_lost();
        }
        let Some(newest_lost_sent_at) = lost.newest_sent_at else { return };
        self.stats.bytes_lost += lost.bytes;
        if self.recovery_point.is_none() {
            // The first one leaves regardless of the window (RFC 6675, section 5, step 4.3).
            (self.recovery_point, self.is_resend_due) = (Some(self.nxt), true);
        }
        self.reduce(&LossEvent {
            now,
            newest_lost_sent_at,
            bytes: lost.bytes,
            in_flight: self.log.in_flight(),
            persistent: is_persistent,
            ecn: false,
        });
        for sample in &lost.samples {
            self.congestion.on_run_lost(now, sample);
        }
        // The peer is notified of the reduction also if its cause is a loss (RFC 3168, section
        // 6.1.2).
        self.ecn.is_cwr_due = self.ecn.is_on && self.ecn.accurate.is_none();
    }

    /// Processes the number of marked packets, if the acknowledgement advances: one that was
    /// overtaken has an older number (RFC 9768, section 3.2.2.5.2).
    fn on_accurate_marks(&mut self, now: Instant, ace: u8, option: Option<&AccEcn>, delivered: &Delivered) {
        let Some(marks) = self.ecn.accurate.as_mut().filter(|_| delivered.bytes > 0) else { return };
        let packets = delivered.bytes.div_ceil(self.segment);
        let marked = marks.on_ack(ace, option, packets, self.segment);
        self.congestion.on_ecn_report(packets, marked);
        self.stats.packets_marked += marked;
        if marked > 0 {
            self.on_marked(now, delivered);
        }
    }

    /// Reduces the window for a mark, at most once in a round trip (RFC 3168, section 6.1.2).
    fn on_marked(&mut self, now: Instant, delivered: &Delivered) {
        if self.una <= self.ecn.answered_until {
            return;
        }
        let Some((_, sent_at, _)) = delivered.newest else { return };
        self.ecn.answered_until = self.nxt;
        self.ecn.is_cwr_due = self.ecn.accurate.is_none();
        self.stats.marks += 1;
        self.reduce(&LossEvent {
            now,
            newest_lost_sent_at: sent_at,
            bytes: 0,
            in_flight: self.log.in_flight(),
            persistent: false,
            ecn: true,
        });
    }

    /// Reports a loss or a mark to the controller. If it reduces its window, the bytes in flight
    /// shrink with the acknowledgements (RFC 9937, section 6).
    fn reduce(&mut self, event: &LossEvent) {
        let before = self.congestion.window();
        self.congestion.on_loss(event);
        let target = self.congestion.window();
        if target < before && !self.congestion.is_model_based() {
            let flight = (self.nxt - self.una).saturating_sub(self.log.sacked() + self.left_bytes);
            self.reduction = Some(Box::new(Prr::new(flight, target, self.nxt)));
        }
    }

    /// Advances the reduction by `bytes` that have left the network. `is_safe`: in order, and
    /// without a sign of further losses.
    pub(super) fn advance_reduction(&mut self, bytes: u64, is_safe: bool) {
        let (in_flight, segment) = (self.flight(), self.segment);
        let Some(reduction) = &mut self.reduction else { return };
        if self.una >= reduction.until() {
            self.reduction = None;
        } else {
            reduction.on_delivered(bytes, in_flight, is_safe, segment);
        }
    }

    /// Reports delivered data to the controller; `is_loss_confirmed`: a timeout turned out to be
    /// due to losses. These data were sent before the window was reduced, so they do not let it
    /// grow.
    fn update_congestion(&mut self, now: Instant, delivered: &Delivered, is_loss_confirmed: bool) {
        if let Some((bytes, newest_sent_at)) = delivered.spurious {
            self.stats.bytes_lost_spuriously += bytes;
            let before = self.congestion.window();
            self.congestion.on_spurious_loss(&SpuriousLossEvent { now, newest_sent_at, bytes });
            if self.congestion.window() > before {
                // The reduction is undone.
                self.reduction = None;
            }
        }
        let rate = self.delivery.take_sample(&self.rtt);
        let Some((_, newest_sent_at, is_limited)) = delivered.newest else { return };
        let round_ended = self.una >= self.round_end;
        if round_ended {
            self.round_end = self.nxt;
        }
        // A window at least half in use may double (RFC 7661, section 4.3: it is validated).
        // Otherwise a sender at its start, or after a pause, would lose a round trip.
        let in_use = self.log.in_flight() + delivered.bytes;
        let is_validated = self.congestion.in_slow_start() && 2 * in_use >= self.congestion.window();
        // The window of the controller is not in use until the first window has reached it.
        let is_first = self.first_window < u64::MAX && self.una > FIRST_BYTE;
        if is_first {
            let grown = self.first_window + delivered.bytes;
            self.first_window = if grown < self.congestion.window() { grown } else { u64::MAX };
        }
        let event = AckEvent {
            now,
            bytes: delivered.bytes,
            newest_sent_at,
            in_flight: self.log.in_flight(),
            app_limited: is_first || is_loss_confirmed || (is_limited && !is_validated),
            round_ended,
            latest_rtt: self.rtt.latest(),
            rate,
        };
        self.congestion.on_ack(&event, &self.rtt);
    }

    /// Determines whether a tail loss probe has repaired a loss (RFC 8985, section 7.4.2): it has
    /// if the peer acknowledges data sent after it without first reporting a duplicate of the
    /// probe.
    fn on_probe_answer(&mut self, now: Instant, info: &AckInfo, ack: u64, has_advanced: bool, has_duplicate: bool) {
        let Some(probe) = self.timers.probe.as_deref().copied().filter(|probe| ack >= probe.end) else { return };
        // Without a duplicate report, an acknowledgement without news is that of the second copy.
        let is_repeated = !has_advanced && info.is_bare && info.sack.is_empty();
        if !probe.is_repetition || has_duplicate || is_repeated {
            self.timers.probe = None;
        } else if ack > probe.end {
            self.timers.probe = None;
            let lost = Lost { bytes: self.segment, newest_sent_at: Some(probe.sent_at), ..Lost::default() };
            self.on_lost(now, &lost, false);
        }
    }

    pub(super) fn restart_timer(&mut self, now: Instant) {
        if self.log.is_empty() {
            self.timers.stop();
        } else if self.may_probe() {
            self.timers.start(Purpose::Probe, now + self.probe_timeout());
        } else {
            self.timers.start(Purpose::Retransmit, now + self.timers.backed_off(self.rto()));
        }
    }
}
