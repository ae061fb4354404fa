//! Plans with several paths: frames bound to one path first, then the data for which the scheduler
//! chooses the path.

use scheduler::{Choice, PATHS_MAX, PathView, Scheduler, Straggler};
use units::{Duration, Instant};
use wire::quic::{PathId, Space};

use super::retransmit::Reason;
use super::{Pass, PlanScope, put_ack};
use crate::class::PathSet;
use crate::receive::acks::snapshot::Snapshot;
use crate::send::SendHalf;
use crate::send::draft::Draft;
use crate::send::frames::SentFrame;
use crate::send::path::{SendPath, SentRange};
use crate::send::resends;
use crate::send::sent_log::{RUNS_MAX, SentLog};
use crate::send::streams::SendStreams;
use crate::send::views::Views;
use crate::spaces::DATA;
use crate::stats::PathState;

/// Half-life of the excess of an unused path's round trip over its minimum. It is long, since each
/// wrong choice delays a message.
const ROUND_TRIP_HALF_LIFE: Duration = Duration::from_secs(4);

/// Bytes reinjected at a time on a path with nothing else to send: one batch.
const REINJECTED_BYTES_MAX: u64 = 64 * 1024;

impl SendHalf {
    /// Fills the plan when there are several paths.
    pub(super) fn plan_paths(&mut self, pass: &mut Pass<'_>) {
        let now = pass.now;
        self.choice.deadline = None;
        self.streams.begin_plan(now, None, || u64::MAX);
        let policy = self.config.policy;
        if policy.acknowledges_centrally() {
            self.choice.ack_path = self.choose_ack_path(pass);
        }
        if policy.resends_on_own_path() {
            resends::release_stalled(&mut self.paths, &mut self.streams, now, |path| pass.budget_of(path) > 0);
        }
        if self.plan_bound(pass) {
            return;
        }
        // Pinned datagrams and all other data take turns.
        if self.choice.is_turn_of_pinned && self.plan_pinned(pass) {
            return;
        }
        self.choice.is_turn_of_pinned = true;
        if self.streams.has_confined() {
            self.plan_confined(pass);
        } else {
            self.plan_chosen(pass, &[PathSet::ALL]);
        }
        if pass.is_empty() {
            self.plan_pinned(pass);
        }
        if pass.is_empty() && self.paths.iter().any(|path| path.pings.is_due) {
            self.plan_bound(pass);
        }
        if policy.resends_on_own_path() && pass.is_empty() {
            self.choice.check_when_stuck(now, self.paths.iter().filter(|path| !path.queues.resends.is_empty()));
        }
    }

    /// Fills the plan with what is bound to one path; false if there is nothing.
    fn plan_bound(&mut self, pass: &mut Pass<'_>) -> bool {
        let size_of_others = self.datagram_size_wanted();
        for at in 0..self.paths.len() {
            let path = &self.paths[at];
            let datagrams_max = pass.budget_of(path);
            if !path.is_open() || path.link.refused_until.is_some() || datagrams_max == 0 {
                continue;
            }
            pass.at = at;
            let probes = path.is_active() && self.spaces[DATA + at].probes_due > 0;
            if probes || path.validation.has_due() || path.pings.is_due || self.ack_demand(at, pass.snapshot).1 {
                let scope = if probes { PlanScope::Probes } else { PlanScope::PathBound };
                self.plan_data_on(pass, scope, datagrams_max);
            } else if path.is_active() && !path.queues.datagrams.is_empty() {
                self.plan_retransmissions(pass, Reason::Datagram, datagrams_max);
            } else if path.is_active() && !path.queues.resends.is_empty() {
                self.plan_retransmissions(pass, Reason::Resend, datagrams_max);
            } else if path.is_active() && !path.queues.copies.is_empty() {
                self.plan_retransmissions(pass, Reason::Copy, datagrams_max);
            } else if path.size.bytes() < size_of_others {
                // Few data follow that would show the loss of the probe: without them the path would look dead.
                self.paths[at].pings.is_due |= self.plan_mtu_probe(pass);
            }
            if !pass.is_empty() {
                return true;
            }
        }
        false
    }

    /// Fills the plan with datagrams that are pinned to one path; false if there are none. They take the
    /// place of those that take any path.
    fn plan_pinned(&mut self, pass: &mut Pass<'_>) -> bool {
        self.choice.is_turn_of_pinned = false;
        let (first, count) = (self.choice.next_pinned as usize, self.paths.len());
        for at in (0..count).map(|step| (first + step) % count) {
            let path = &mut self.paths[at];
            let can_send = path.is_active() && !path.recovery.suspicion.is_suspect && path.link.refused_until.is_none();
            if path.queues.pinned.is_empty() || !can_send {
                continue;
            }
            let datagrams_max = pass.budget_of(path);
            if datagrams_max == 0 {
                continue;
            }
            pass.at = at;
            std::mem::swap(&mut self.datagrams, &mut path.queues.pinned);
            self.plan_data_on(pass, PlanScope::NoStreams, datagrams_max);
            self.datagrams.on_planned(pass.now);
            std::mem::swap(&mut self.datagrams, &mut self.paths[at].queues.pinned);
            if !pass.is_empty() {
                self.choice.next_pinned = at as u32 + 1;
                return true;
            }
        }
        false
    }

    /// Fills the plan with data of the first of these path sets that can send, on the path that the
    /// scheduler chooses from the set.
    pub(super) fn plan_chosen(&mut self, pass: &mut Pass<'_>, sets: &[PathSet]) {
        let Some(mut scheduler) = self.choice.scheduler.take() else { return };
        let mut views = std::mem::take(&mut self.choice.views);
        for set in sets {
            let Some((at, bytes_max, copies)) = self.choose(pass, set, &mut *scheduler, &mut views) else {
                continue;
            };
            let path = &self.paths[at];
            let datagrams = usize::try_from(bytes_max).unwrap_or(usize::MAX) / path.size.bytes();
            let datagrams_max = pass.budget_of(path).min(datagrams).max(1);
            pass.at = at;
            self.plan_data_on(pass, PlanScope::All, datagrams_max);
            if copies != 0
                && let Some((first, last)) = pass.plan.numbers[Space::Data.index()]
            {
                let sent = sent_ranges(&self.spaces[DATA + at].log, first, last);
                debug_assert!(
                    views.path_indices.iter().enumerate().all(|(index, of)| *of != at || copies >> index & 1 == 0),
                    "a copy goes to another path"
                );
                queue_copies(&sent, &mut self.paths, &self.streams, &views, copies);
            }
            if !pass.is_empty() {
                break;
            }
        }
        self.choice.scheduler = Some(scheduler);
        self.choice.views = views;
    }

    /// Makes a plan for one of several paths.
    fn plan_data_on(&mut self, pass: &mut Pass<'_>, scope: PlanScope, datagrams_max: usize) {
        let path = &mut self.paths[pass.at];
        self.streams.begin_plan(pass.now, Some(path.id), || path.background_budget());
        self.plan_data(pass, scope, datagrams_max);
        self.streams.end_plan();
    }

    /// Asks the scheduler which of these paths the data take. Returns the path's index, the number
    /// of bytes, and the paths that carry copies.
    fn choose(
        &mut self,
        pass: &Pass<'_>,
        among: &PathSet,
        scheduler: &mut dyn Scheduler,
        views: &mut Views,
    ) -> Option<(usize, u64, u32)> {
        let now = pass.now;
        views.clear();
        let demand = self.demand(among);
        let is_background = self.streams.has_only_background();
        let carries = |path: &SendPath| path.is_choosable() && among.allows(path.id);
        let carrying = self.paths.iter_mut().enumerate().filter(|(_, path)| carries(path));
        for (at, path) in carrying.take(PATHS_MAX) {
            let is_writable = pass.budget_of(path) > 0;
            path.link.note_writable(now, is_writable);
            let can_remember = self.spaces[DATA + at].log.run_count() < RUNS_MAX;
            let accepts_datagrams = is_writable && can_remember && path.link.refused_until.is_none();
            let release_at = path.recovery.batch_release(now, path.size.bytes(), demand.ready_bytes);
            let mut view = path.view(now, accepts_datagrams, release_at);
            if is_background {
                view.window_bytes =
                    view.window_bytes.min(view.in_flight_bytes.saturating_add(path.background_budget()));
            }
            views.push(at, view);
        }
        if views.path_indices.is_empty() && !among.is_all() {
            // None of these paths is usable. The scheduler is not asked, since it would drop its
            // state of the other paths.
            return None;
        }
        if !self.has_due_on(among) && !self.reinject(now, among, scheduler, views) {
            if self.has_anything_due() {
                // Of another path set.
                return None;
            }
            // A path with retransmissions or datagrams of its own is blocked by its window or its pacer.
            let has_own = |path: &SendPath| !path.queues.resends.is_empty() || !path.queues.pinned.is_empty();
            for path in self.paths.iter_mut().filter(|path| !has_own(path)) {
                path.on_nothing_due();
            }
            return None;
        }
        match scheduler.choose(now, &self.demand(among), &views.views) {
            Choice::Send { path, bytes_max, copies } => Some((views.path_indices[path], bytes_max, copies)),
            Choice::Wait { until } => {
                // The scheduler does not wait for a socket that stays full.
                let socket_stuck_at = self.paths.iter().filter_map(SendPath::socket_stuck_at).filter(|at| *at > now);
                self.choice.deadline = socket_stuck_at.chain(until).chain(self.choice.deadline).min();
                // A path that could send and does not gives no information about its capacity. If it looks
                // slow because of an old round trip, a new one shows whether it helps.
                for (at, view) in views.iter() {
                    let path = &mut self.paths[at];
                    path.recovery.set_app_limited(view.may_send(now), path.size.bytes());
                    if view.may_send(now) {
                        path.measure_if_idle(now);
                    }
                }
                None
            }
        }
    }

    /// No new data are due, so the receiver waits only for data in flight: reinjects the oldest of
    /// them on a faster path, if the scheduler expects an earlier arrival there. Returns true if
    /// something is due now.
    fn reinject(&mut self, now: Instant, among: &PathSet, scheduler: &mut dyn Scheduler, views: &Views) -> bool {
        for (from, &at) in views.path_indices.iter().enumerate() {
            let Some(oldest) = self.spaces[DATA + at].log.first_not_moved() else { continue };
            let bytes = u64::from(oldest.size) * u64::from(oldest.count);
            let straggler = Straggler { path: from, sent_at: oldest.sent_at, bytes };
            let mut others = views.views.iter().enumerate().filter(|(on, view)| *on != from && view.may_send(now));
            if others.any(|(on, _)| scheduler.reinjects(now, &straggler, on, &views.views)) {
                self.move_elsewhere(at, REINJECTED_BYTES_MAX);
                if self.has_due_on(among) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether acknowledgements may be added to packets on the path at `at`, and whether one is due
    /// there now.
    pub(super) fn ack_demand(&self, at: usize, snapshot: &Snapshot) -> (bool, bool) {
        let own = snapshot.get(Space::Data, self.paths[at].id);
        if self.paths.len() == 1 {
            return (own.is_pending(), own.is_due());
        }
        if self.config.policy.acknowledges_centrally() {
            let carried = snapshot.data_paths().filter(|(path, _)| self.carries_centrally(at, *path));
            return carried.fold((false, false), |(is_pending, is_due), (_, ack)| {
                (is_pending || ack.is_pending(), is_due || ack.is_due())
            });
        }
        let is_relay = self.paths[at].is_active() && at == self.best_path_index();
        let foreign = is_relay
            && snapshot
                .data_paths()
                .any(|(path, ack)| ack.is_due() && path != self.paths[at].id && !self.acknowledges_itself(path));
        let is_own = self.carries_own_acks(at);
        ((own.is_pending() && is_own) || foreign, (own.is_due() && is_own) || foreign)
    }

    /// Whether acknowledgements of a path's packets leave on it: not on a silent path while another
    /// can carry them.
    fn carries_own_acks(&self, at: usize) -> bool {
        self.paths[at].phase.state != PathState::Silent || !self.paths.iter().any(SendPath::is_active)
    }

    /// Whether the packets of `path` are acknowledged on that path. The multipath draft leaves the
    /// choice open (draft-21, section 5.3): the path itself, so that an RTT sample covers one path,
    /// unless nothing can be sent on it.
    fn acknowledges_itself(&self, path: PathId) -> bool {
        let can_send = |path: &SendPath| {
            matches!(path.phase.state, PathState::Active | PathState::Validating) && path.link.refused_until.is_none()
        };
        self.path_index(path).is_some_and(|at| can_send(&self.paths[at]))
    }

    /// Adds acknowledgements to the first packet of a plan.
    pub(super) fn put_acks(&self, pass: &mut Pass<'_>, draft: &mut Draft, frames: &mut Vec<SentFrame>) {
        if self.paths.len() > 1 && self.config.policy.acknowledges_centrally() {
            return self.put_all_acks(pass, draft, frames);
        }
        let (at, snapshot) = (pass.at, pass.snapshot);
        let id = self.paths[at].id;
        let own = snapshot.get(Space::Data, id);
        if own.is_pending() && self.carries_own_acks(at) {
            put_ack(pass, Space::Data, id, self.progress.is_multipath, own, draft, frames);
        }
        if self.paths.len() > 1 && self.paths[at].is_active() && at == self.best_path_index() {
            for (path, ack) in snapshot.data_paths() {
                if ack.is_due() && path != id && !self.acknowledges_itself(path) {
                    put_ack(pass, Space::Data, path, true, ack, draft, frames);
                }
            }
        }
    }
}

/// The stream data in packets `first` to `last`, the newest of the log.
fn sent_ranges(log: &SentLog, first: u64, last: u64) -> Vec<SentRange> {
    let mut sent: Vec<SentRange> = Vec::new();
    for run in log.iter().rev().take_while(|run| run.first >= first).filter(|run| run.first <= last) {
        if let Some((id, range)) = run.stream_range() {
            sent.push(SentRange { id, range, fin: false });
        }
        for frame in log.frames_of(run) {
            if let SentFrame::Stream { id, range, fin } = frame {
                sent.push(SentRange { id: *id, range: range.clone(), fin: *fin });
            }
        }
    }
    sent.reverse();
    sent
}

/// Queues copies of data just planned on the other paths that `copies` names.
fn queue_copies(sent: &[SentRange], paths: &mut [SendPath], streams: &SendStreams, views: &Views, copies: u32) {
    for (_, at) in views.path_indices.iter().enumerate().filter(|(index, _)| copies >> index & 1 == 1) {
        let SendPath { id, queues, .. } = &mut paths[*at];
        for copy in sent.iter().filter(|copy| streams.allows(copy.id, *id)) {
            queues.queue_copy(copy);
        }
    }
}

impl SendPath {
    /// Whether the scheduler sees the path. It sees a silent one as suspect, for data that no other
    /// path can carry.
    fn is_choosable(&self) -> bool {
        matches!(self.phase.state, PathState::Active | PathState::Silent)
    }

    /// The smoothed round trip, whose excess over the minimum decays while the path is unused.
    /// Otherwise a path that was slow for a moment would never be tried again.
    fn expected_round_trip(&self, now: Instant) -> Duration {
        let smoothed = self.recovery.rtt.smoothed();
        if self.recovery.in_flight > 0 || !self.recovery.rtt.has_sample() {
            return smoothed;
        }
        let halvings = now.saturating_since(self.recovery.acked_at).as_nanos() / ROUND_TRIP_HALF_LIFE.as_nanos();
        let least = self.recovery.rtt.min().min(smoothed);
        least + Duration::from_nanos((smoothed - least).as_nanos() >> halvings.min(63))
    }

    /// The scheduler's view of the path, whose pacer releases data at `release_at`.
    fn view(&self, now: Instant, accepts_datagrams: bool, release_at: Instant) -> PathView {
        let datagram_bytes = self.size.bytes() as u64;
        let measured = self.recovery.rtt.has_sample();
        PathView {
            id: self.id.0,
            is_backup: self.phase.is_anyones_backup(),
            is_suspect: self.phase.state == PathState::Silent
                || self.recovery.suspicion.is_suspect
                || self.socket_stuck_at().is_some_and(|at| at <= now),
            srtt: self.expected_round_trip(now),
            rttvar: self.recovery.rtt.variance(),
            min_rtt: if measured { self.recovery.rtt.min() } else { Duration::ZERO },
            window_bytes: self.recovery.congestion.window(),
            in_flight_bytes: self.recovery.in_flight,
            rate: self.recovery.capacity(),
            release_at,
            accepts_datagrams,
            datagram_bytes,
        }
    }
}
