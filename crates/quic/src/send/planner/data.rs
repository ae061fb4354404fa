//! The fast path: a batch of 1-RTT packets of one path.

use wire::quic::frame::Frame;
use wire::quic::{MIN_INITIAL_SIZE, PacketType, Space};

use super::{HeaderForm, LoggedPacket, Pass, PlanScope};
use crate::plan::PLAN_BYTES_MAX;
use crate::send::SendHalf;
use crate::send::draft::Draft;
use crate::send::frames::SentFrame;
use crate::send::path::AMPLIFICATION_BUDGET_MIN;
use crate::send::sent_log::RUNS_MAX;
use crate::spaces::DATA;

/// Bytes to an unvalidated address that only challenges use: three of about 40 bytes.
const CHALLENGES_RESERVE: u64 = 160;

impl SendHalf {
    /// Fills the plan with everything due on its path, or records that nothing is.
    pub(super) fn plan_data(&mut self, pass: &mut Pass<'_>, scope: PlanScope, datagrams_max: usize) {
        let at = pass.at;
        let has_data = scope != PlanScope::PathBound && self.has_anything_due();
        let has_bound =
            self.spaces[DATA + at].probes_due > 0 || self.paths[at].validation.has_due() || self.paths[at].pings.is_due;
        let (ack_pending, ack_due) = self.ack_demand(at, pass.snapshot);
        if !has_data && !ack_due && !has_bound {
            if scope == PlanScope::All {
                self.paths[at].on_nothing_due();
                // Streams blocked by a class become due by their own timer.
                self.found_nothing_due =
                    self.paths.len() == 1 && !self.streams.has_classes() && self.off_paths.is_empty();
            }
            return;
        }
        // Most endpoints search for no size: they are spared the call.
        let searches = scope.fills_window() && self.paths[at].size.search.is_some();
        if searches && self.plan_mtu_probe(pass) {
            return;
        }
        let (scope, budget) = self.limit_of_validation(at, scope);
        let mut size = self.segment_size(at, budget);
        pass.plan.segment_size = size;
        let mut bytes_left = self.paths[at].recovery.data_budget(pass.now, size, has_data);
        let form = self.header_form(at, Space::Data, datagrams_max as u64);
        // Acknowledgements leave in the first packet that is not part of a run.
        let mut has_acks = true;
        let limit = datagrams_max.min(PLAN_BYTES_MAX / size).max(1);
        while pass.plan.datagram_count < limit {
            let sent = pass.plan.size_bytes as u64;
            let has_window = bytes_left >= size as u64 && self.spaces[DATA + at].log.run_count() < RUNS_MAX;
            // Probes may exceed the congestion window (RFC 9002, section 7.5), and so may
            // challenges on a path that carries no data.
            let exceeds = !self.paths[at].is_active() && self.paths[at].validation.may_exceed_window();
            let challenges = self.paths[at].validation.has_due() && (has_window || exceeds);
            let probes = self.spaces[DATA + at].probes_due > 0;
            let pings = self.paths[at].pings.is_due && has_window;
            let may_elicit = (has_window && scope.fills_window()) || probes || challenges || pings;
            if !(may_elicit || ack_due && has_acks) || budget < sent + size as u64 {
                break;
            }
            if scope == PlanScope::All && has_window && self.is_bulk_due(at, ack_pending && has_acks) {
                let packets = (limit - pass.plan.datagram_count) as u64;
                let packets = packets.min(bytes_left / size as u64).min((budget - sent) / size as u64);
                let planned = self.plan_packet_run(pass, packets as u32, form);
                bytes_left -= u64::from(planned) * size as u64;
                if planned > 0 {
                    continue;
                }
            }
            if scope.fills_window() && has_window && self.is_datagram_run_due(at, scope) {
                // An acknowledgement that is due leaves in the last packet.
                let reserved = usize::from(ack_due && has_acks);
                let packets = (limit - pass.plan.datagram_count).saturating_sub(reserved);
                let packets = packets.min((bytes_left.min(budget - sent) / size as u64) as usize);
                let planned = self.plan_datagram_run(pass, packets, form);
                if planned > 0 {
                    size = pass.plan.segment_size;
                    bytes_left -= (planned * size) as u64;
                    continue;
                }
            }
            let packet_size = self.plan_data_packet(pass, scope, has_acks, may_elicit, form);
            has_acks = false;
            let Some(packet_size) = packet_size else { break };
            if scope == PlanScope::Probes && self.spaces[DATA + at].probes_due == 0 {
                break;
            }
            if challenges && !has_window {
                self.paths[at].validation.on_window_exceeded();
            }
            bytes_left = bytes_left.saturating_sub(packet_size as u64);
            if packet_size < size {
                break;
            }
        }
        if scope.fills_window() {
            // The plan ended for lack of data if more could have left.
            let mut is_over = pass.plan.datagram_count >= limit;
            if scope.has_streams() {
                is_over |= self.streams.finish_turn(pass.plan);
            }
            let path = &mut self.paths[at];
            path.recovery.note_app_limited(bytes_left >= size as u64 && !is_over, size, path.size.bytes());
        }
        self.settle_plan(pass);
    }

    /// What may leave on the path at `at`, within `scope`: which frames, and how many bytes.
    ///
    /// After the handshake, the limit for an unvalidated address may be a few bytes, and only a packet of
    /// the peer raises it, which may have nothing to send. If such bytes carry data and are lost, nothing
    /// happens any more. So a challenge that fits no full datagram leaves alone, and everything else
    /// leaves room for challenges.
    fn limit_of_validation(&self, at: usize, scope: PlanScope) -> (PlanScope, u64) {
        let path = &self.paths[at];
        let budget = path.link.amplification_budget();
        if budget == u64::MAX || !self.progress.is_complete {
            return (scope, budget);
        }
        let full = MIN_INITIAL_SIZE as u64;
        let is_challenge_due = path.validation.has_due();
        if is_challenge_due && budget < full {
            return (PlanScope::PathBound, budget);
        }
        let rest = budget.saturating_sub(CHALLENGES_RESERVE);
        let rest = if is_challenge_due { rest.max(full) } else { rest };
        (scope, if rest < AMPLIFICATION_BUDGET_MIN { 0 } else { rest })
    }

    /// The size of a plan's datagrams, bytes, with a `budget` in bytes from the anti-amplification
    /// limit. Sending to an unvalidated address is limited: at most one challenge's datagram at a
    /// time.
    fn segment_size(&self, at: usize, budget: u64) -> usize {
        let size = self.paths[at].size.bytes();
        if budget == u64::MAX {
            return size;
        }
        size.min(MIN_INITIAL_SIZE).min(budget.max(AMPLIFICATION_BUDGET_MIN) as usize)
    }

    /// Reports a completed plan to the pacer and to the count of packets per key.
    pub(in crate::send) fn settle_plan(&mut self, pass: &mut Pass<'_>) {
        let (path, plan) = (&mut self.paths[pass.at], &mut *pass.plan);
        if plan.datagram_count > 0 {
            path.recovery.pacer.on_sent(pass.now, plan.size_bytes as u64);
            if plan.datagram_count == 1 {
                plan.segment_size = plan.size_bytes;
            }
        }
        self.seal.count_packets(plan.packet_count as u64, self.config.key_update_interval, pass.exchange);
    }

    /// Plans one packet. Returns its size, or `None` if no frame was due.
    pub(super) fn plan_data_packet(
        &mut self,
        pass: &mut Pass<'_>,
        scope: PlanScope,
        has_acks: bool,
        may_elicit: bool,
        form: HeaderForm,
    ) -> Option<usize> {
        let at = pass.at;
        if pass.is_empty() {
            // Only between plans: the packet numbers of a plan are consecutive.
            self.paths[pass.at].numbers.maybe_skip(&mut self.spaces[DATA + pass.at], &mut self.randomness.rng);
        }
        let fields = self.fields(at, PacketType::OneRtt, form, &[]);
        let mut draft = Draft::begin(pass.plan, &fields, pass.plan.segment_size)?;
        let mut frames = std::mem::take(&mut self.scratch.frames);
        let challenges = may_elicit && self.paths[at].validation.has_due();
        self.fill_data(pass, scope, has_acks, may_elicit, &mut draft, &mut frames);
        let plan = &mut *pass.plan;
        if draft.body_len == 0 {
            draft.abandon(plan);
            self.scratch.frames = frames;
            return None;
        }
        let (number, eliciting) = (draft.number, draft.eliciting);
        let pieces_to = plan.pieces.len();
        // Challenges and responses travel in full datagrams to show that the path carries them (RFC
        // 9000, section 8.2.1), unless the anti-amplification limit allows none.
        let is_expanded = challenges && plan.segment_size >= MIN_INITIAL_SIZE;
        let padding = if is_expanded { MIN_INITIAL_SIZE.saturating_sub(draft.size()) } else { 0 };
        let size = draft.finish(plan, &fields, padding, pieces_to);
        plan.size_bytes += size;
        plan.datagram_count += 1;
        plan.note_numbers(Space::Data, number, number);
        self.spaces[DATA + at].next_number += 1;
        let packet = LoggedPacket { space: Space::Data, number, size, eliciting, in_flight: eliciting };
        self.record(pass, packet, &mut frames);
        self.scratch.frames = frames;
        Some(size)
    }

    /// Fills a 1-RTT packet, the most urgent frames first; `has_acks` says whether acknowledgements are
    /// among them.
    pub(super) fn fill_data(
        &mut self,
        pass: &mut Pass<'_>,
        scope: PlanScope,
        has_acks: bool,
        may_elicit: bool,
        draft: &mut Draft,
        frames: &mut Vec<SentFrame>,
    ) {
        if has_acks {
            self.put_acks(pass, draft, frames);
        }
        let (at, plan) = (pass.at, &mut *pass.plan);
        if may_elicit {
            self.paths[at].fill_validation(&mut self.randomness.rng, draft, plan, frames);
            if scope != PlanScope::PathBound && self.has_control_due() {
                self.frames.fill_control(draft, plan, frames);
                self.frames.fill_credit(&mut self.streams, draft, plan, frames);
                let len_max = self.datagram_len_max().unwrap_or(0);
                let lost = self.datagrams.fill(len_max, &mut self.streams, draft, plan, frames);
                self.stats.datagrams_lost += lost;
            }
            if scope.has_streams() && self.progress.is_complete {
                self.streams.fill(draft, plan, frames);
            }
        }
        if draft.body_len > 0
            && !draft.eliciting
            && (may_elicit || !scope.fills_window())
            && self.paths[at].pings.is_due_after_ack_only()
            && draft.put(plan, &Frame::Ping)
        {
            frames.push(SentFrame::Ping);
        }
        if may_elicit {
            self.spaces[DATA + at].put_probe_ping(draft, plan, frames);
            if self.paths[at].pings.is_due && !draft.eliciting && draft.put(plan, &Frame::Ping) {
                frames.push(SentFrame::Ping);
            }
        }
        if draft.eliciting {
            self.paths[at].pings.on_eliciting();
        }
    }
}
