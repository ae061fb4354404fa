//! The paths of the send half: opening, closing, and the detection of suspect and silent paths.
//!
//! ```text
//!   Validating ── an answer ──▶ Active ◀── an answer, an acknowledgement ── Silent
//!        │                        │ └──── nothing for a probe timeout ───────▶ │
//!        └────────────────────────┴── PATH_ABANDON, either way ──▶ Abandoned ◀─┘
//! ```

use units::{Duration, Instant};
use wire::quic::{ConnectionId, PathId, Side, Space};

use super::SendHalf;
use super::datagrams::DATAGRAMS_OF_PATH_MAX;
use super::frames::SentFrame;
use super::path::{SendPath, path_index};
use super::sent_log::{Content, Run};
use super::validation::{FIRST_INTERVAL, INTERVAL_MAX};
use crate::addresses::Addresses;
use crate::exchange::{Exchange, ToControl};
use crate::observed::PathMetrics;
use crate::spaces::DATA;
use crate::stats::{PathState, PathStats};

/// Time beyond a probe timeout before a path is silent: a peer with a busy processor responds this
/// much later, and an RTT estimate of a millisecond does not include that.
const SILENCE_MARGIN: Duration = Duration::from_millis(40);

/// Time beyond that before a path is suspect while other paths receive acknowledgements. The peer's
/// processor then is not the cause; the margin covers only that the peer reads several sockets in
/// turn.
const SUSPECT_MARGIN: Duration = Duration::from_millis(5);

/// How long nothing is sent on the only working path after the system refused to send on it.
const REFUSED_FOR: Duration = Duration::from_millis(50);

/// Runs remembered of a silent path. Their acknowledgement would show that the path works.
const SILENT_RUNS_MAX: usize = 64;

/// Evidence about the peer from all active paths together.
struct PeerLiveness {
    active_count: usize,
    /// About when the peer last sent a response, on any path. A busy peer is silent on all paths,
    /// but its last packets may still be in flight on a long one.
    last_sent_at: Instant,
}

impl SendHalf {
    /// The index of path `id`, if it exists.
    pub(crate) fn path_index(&self, id: PathId) -> Option<usize> {
        path_index(&self.paths, id)
    }

    /// The index of the packet number space `space` on the path at index `at`.
    pub(super) fn index_of(space: Space, at: usize) -> usize {
        if space == Space::Data { DATA + at } else { space.index() }
    }

    /// The index of the path with the lowest rank, for frames that may take any path.
    pub(super) fn best_path_index(&self) -> usize {
        let rank = |path: &SendPath| (path.phase.state.rank(), path.recovery.rtt.smoothed());
        (0..self.paths.len()).min_by_key(|at| rank(&self.paths[*at])).unwrap_or(0)
    }

    /// Opens a path. A client validates it; so does a server, whose sending is limited until then
    /// (RFC 9000, section 8).
    pub(super) fn open_path(
        &mut self,
        now: Instant,
        id: PathId,
        addresses: Addresses,
        remote_id: ConnectionId,
    ) -> &mut SendPath {
        debug_assert!(self.path_index(id).is_none(), "a path is opened once");
        let rng = self.randomness.of_path(id);
        let limited = self.side == Side::Server;
        let mut path = SendPath::new(id, addresses, remote_id, &self.config, !limited, &rng);
        path.limit_datagram_size(self.peer.udp_payload_size_max);
        path.phase.state = PathState::Validating;
        (path.recovery.acked_at, path.link.received_at) = (now, now);
        path.validation.start(now, FIRST_INTERVAL);
        self.paths.push(path);
        self.stats.paths_opened += 1;
        self.spaces.push_path();
        self.choice.scheduler.get_or_insert_with(|| self.config.build_scheduler());
        self.paths.last_mut().expect("it was added just now")
    }

    /// The peer sent a PATH_RESPONSE, which may arrive on any path (RFC 9000, section 8.2.3).
    pub(super) fn on_response(&mut self, now: Instant, data: [u8; 8], exchange: &mut Exchange) {
        let Some(at) = self.paths.iter().position(|path| path.validation.is_response(&data)) else {
            return self.on_response_elsewhere(now, data, exchange);
        };
        let path = &mut self.paths[at];
        let proves_size = path.validation.proves_size(&data);
        path.link.set_validated();
        path.link.former = None;
        if path.is_active() {
            // The only path, whose new address is under validation.
            path.validation.on_active();
        }
        if path.phase.state == PathState::Validating {
            path.phase.state = PathState::Silent;
        }
        self.report_validated(at, exchange);
        let path = &mut self.paths[at];
        path.on_alive(now, self.spaces[DATA + at].next_number, exchange);
        if !proves_size {
            path.validation.start_expanded(now);
        }
    }

    /// When the path at `at` becomes silent: packets have been outstanding for a probe timeout and
    /// nothing was acknowledged. Applies only if another path works; the last one has the timers of
    /// RFC 9002 alone.
    fn silence_deadline(&self, at: usize) -> Option<Instant> {
        let path = &self.paths[at];
        let sent_at = self.spaces[DATA + at].log.first_eliciting_sent_at()?;
        let timeout = path.recovery.rtt.pto_base() + self.frames.ack_frequency.max_ack_delay() + SILENCE_MARGIN;
        Some(sent_at.max(path.recovery.acked_at) + timeout)
    }

    /// When the path at `at` becomes suspect: its oldest packet should have been acknowledged,
    /// nothing was for as long as the RTT varies and acknowledgements may be delayed, and other
    /// paths received some meanwhile.
    fn suspect_deadline(&self, at: usize, liveness: &PeerLiveness) -> Option<Instant> {
        let path = &self.paths[at];
        let sent_at = self.spaces[DATA + at].log.first_eliciting_sent_at()?;
        let margin = (SUSPECT_MARGIN * (1 << path.recovery.suspicion.false_count)).min(SILENCE_MARGIN);
        let slack = path.recovery.rtt.pto_base() - path.recovery.rtt.smoothed()
            + self.frames.ack_frequency.max_ack_delay()
            + margin;
        let others_respond = liveness.last_sent_at >= path.recovery.last_sent_at() + slack / 2;
        (others_respond && !path.recovery.suspicion.is_suspect)
            .then(|| (sent_at + path.recovery.rtt.smoothed()).max(path.recovery.acked_at) + slack)
    }

    /// When [`on_no_response`](Self::on_no_response) must run for the path at `at`.
    fn no_response_deadline(&self, at: usize, liveness: &PeerLiveness) -> Option<Instant> {
        if liveness.active_count < 2 || !self.paths[at].is_active() {
            return None;
        }
        self.suspect_deadline(at, liveness).into_iter().chain(self.silence_deadline(at)).min()
    }

    fn liveness(&self) -> PeerLiveness {
        let active = self.paths.iter().filter(|path| path.is_active());
        active.fold(PeerLiveness { active_count: 0, last_sent_at: Instant::ZERO }, |liveness, path| PeerLiveness {
            active_count: liveness.active_count + 1,
            last_sent_at: liveness.last_sent_at.max(path.recovery.last_sent_at()),
        })
    }

    /// The no-response timer of the path expired: an active path becomes suspect first, then
    /// silent.
    fn on_no_response(&mut self, now: Instant, at: usize, exchange: &mut Exchange) {
        if self.silence_deadline(at).is_some_and(|deadline| now < deadline) {
            // Other paths carry the data that the receiver waits for. If the path is only late,
            // some data arrive twice.
            let path = &mut self.paths[at];
            tracing::debug!(path = %path.id, "a path is suspect: only other paths receive acknowledgements");
            path.recovery.suspicion.is_suspect = true;
            path.counts.suspicions += 1;
            self.move_elsewhere(at, u64::MAX);
        } else {
            self.silence(now, at, "acknowledgements are overdue", exchange);
        }
    }

    /// The path becomes silent: other paths carry its in-flight data, and it is challenged until it
    /// responds. `cause` is for the log.
    fn silence(&mut self, now: Instant, at: usize, cause: &str, exchange: &mut Exchange) {
        let interval = self.paths[at].recovery.rtt.pto_base();
        let path = &mut self.paths[at];
        (path.phase.state, path.recovery.suspicion.is_suspect, path.recovery.suspicion.false_count) =
            (PathState::Silent, false, 0);
        path.counts.silences += 1;
        tracing::debug!(path = %path.id, cause, "a path is silent");
        path.recovery.release_at = None;
        path.queues.drop_urgent();
        path.validation.start(now, interval);
        exchange.to_control.push_back(ToControl::PathState { path: path.id, state: PathState::Silent });
        self.spaces[DATA + at].probes_due = 0;
        let pinned = &mut self.paths[at].queues.pinned;
        self.stats.datagrams_lost += self.datagrams.take_over(pinned, self.config.datagram_send_buffer);
        self.move_content(at, u64::MAX);
        self.paths[at].suspect_datagram_size(&self.spaces[DATA + at].log);
    }

    /// The system refused to send on the path. It becomes silent if another path works. In any case
    /// nothing is sent on it for a while; returns false if there is no other path.
    pub(crate) fn on_refused(&mut self, now: Instant, id: PathId, exchange: &mut Exchange) -> bool {
        let Some(at) = self.path_index(id) else { return false };
        let mut others = self.paths.iter().filter(|other| other.id != id && other.is_open()).peekable();
        let has_other = others.peek().is_some();
        if has_other {
            if others.any(SendPath::is_active) && self.paths[at].is_active() {
                self.silence(now, at, "nothing can be sent on it", exchange);
            }
            // Data bound to this path would be due on it again at once.
            let path = &mut self.paths[at];
            path.link.refused_until = Some(path.validation.timeout().unwrap_or(now + REFUSED_FOR));
        }
        has_other
    }

    /// The system accepts no datagrams of this size on the path; returns false if they already have
    /// the minimum size.
    pub(crate) fn on_too_large(&mut self, id: PathId) -> bool {
        let Some(at) = self.path_index(id) else { return false };
        self.paths[at].on_too_large()
    }

    /// Requeues the content of the oldest packets outstanding on a path, for other paths to carry
    /// or, if only this path may carry it, for when it responds.
    pub(super) fn move_content(&mut self, at: usize, bytes: u64) {
        let mut runs = std::mem::take(&mut self.scratch.runs);
        runs.clear();
        self.spaces[DATA + at].log.move_content(bytes, |_, _| true, |run| runs.push(*run));
        self.requeue_moved(at, runs);
    }

    /// As [`move_content`](Self::move_content), but leaves content that no other path may carry,
    /// which would return to this path.
    pub(super) fn move_elsewhere(&mut self, at: usize, bytes: u64) {
        let mut runs = std::mem::take(&mut self.scratch.runs);
        runs.clear();
        let (streams, paths) = (&self.streams, &self.paths[..]);
        let moves = |run: &Run, frames: &[SentFrame]| Self::may_go_elsewhere(streams, paths, at, run, frames);
        self.spaces[DATA + at].log.move_content(bytes, moves, |run| runs.push(*run));
        self.requeue_moved(at, runs);
    }

    fn requeue_moved(&mut self, at: usize, mut runs: Vec<Run>) {
        for run in runs.drain(..) {
            if let Some((id, range)) = run.stream_range() {
                self.streams.on_lost(id, range, false);
            } else if let Content::Side(_) = run.content {
                let frames = self.spaces[DATA + at].log.frames_of(&run).to_vec();
                // DATAGRAM frames are not retransmitted, and are not lost yet either.
                for frame in frames.into_iter().filter(|frame| *frame != SentFrame::Datagram) {
                    self.frames.requeue(Space::Data, frame, &mut self.streams, &self.paths);
                }
            }
        }
        self.scratch.runs = runs;
    }

    /// Nothing more is sent on the path; its outstanding data go to other paths.
    pub(super) fn abandon_path(&mut self, id: PathId, exchange: &mut Exchange) {
        let Some(at) = self.path_index(id) else { return };
        let path = &mut self.paths[at];
        path.phase.state = PathState::Abandoned;
        path.recovery.release_at = None;
        path.validation.stop();
        path.queues.drop_urgent();
        self.off_paths.forget_path(id);
        let pinned = &mut self.paths[at].queues.pinned;
        self.stats.datagrams_lost += self.datagrams.take_over(pinned, self.config.datagram_send_buffer);
        self.forget_sent(at, 0);
        (self.spaces[DATA + at].probes_due, self.spaces[DATA + at].loss_time) = (0, None);
        exchange.to_control.push_back(ToControl::RemoteIdsChanged);
    }

    /// Both sides have closed the path; nothing more is expected for it.
    pub(super) fn forget_path(&mut self, id: PathId, exchange: &mut Exchange) {
        // The first path keeps its index: its packet number space began with the connection.
        let Some(at) = self.path_index(id).filter(|at| *at > 0) else { return };
        self.paths[at].queues.release_resends(&mut self.streams);
        self.paths.remove(at);
        self.spaces.remove_path(at);
        exchange.to_control.push_back(ToControl::RemoteIdsChanged);
        if self.paths.len() == 1 {
            // With one path, its losses and those of the connection are the same.
            self.paths[0].queues.release_resends(&mut self.streams);
            // Nor is there a choice of paths for datagrams.
            let pinned = &mut self.paths[0].queues.pinned;
            self.stats.datagrams_lost += self.datagrams.take_over(pinned, self.config.datagram_send_buffer);
            while let Some(data) = self.paths[0].queues.datagrams.pop_front() {
                self.datagrams.push_first(data, DATAGRAMS_OF_PATH_MAX);
            }
        }
    }

    /// Drops a path's sent log except for the newest `keep` runs. Content that no other path
    /// carries yet becomes due.
    pub(super) fn forget_sent(&mut self, at: usize, keep: usize) {
        let mut runs: Vec<Run> = Vec::new();
        self.spaces[DATA + at].log.forget_oldest(keep, |run| runs.push(run));
        for run in runs {
            self.paths[at].size.cancel_probe(run.first);
            self.paths[at].recovery.in_flight -= run.in_flight_bytes();
            self.requeue(Space::Data, DATA + at, run);
        }
    }

    /// When [`on_path_timeout`](Self::on_path_timeout) must run.
    pub(super) fn path_timeout(&self) -> Option<Instant> {
        if self.paths.len() == 1 {
            let of_path = self.paths[0].validation.timeout();
            return of_path.into_iter().chain(self.off_paths.timeout()).min();
        }
        let liveness = self.liveness();
        let paths = (0..self.paths.len()).filter(|at| self.paths[*at].is_open());
        let deadlines = paths.flat_map(|at| {
            let path = &self.paths[at];
            let deadline = self.no_response_deadline(at, &liveness);
            [path.validation.timeout(), path.link.refused_until, deadline, self.keep_alive_at(path)]
        });
        deadlines.chain([self.choice.deadline, self.off_paths.timeout()]).flatten().min()
    }

    /// When a path that carries nothing needs a PING: routers on the way forget it otherwise, and the keep-alive of
    /// the connection leaves on one path alone. Only with several paths.
    fn keep_alive_at(&self, path: &SendPath) -> Option<Instant> {
        let is_idle = path.is_active() && path.recovery.in_flight == 0 && !path.pings.is_due;
        self.config
            .keep_alive
            .filter(|_| is_idle && self.progress.is_confirmed)
            .map(|after| path.recovery.probe_anchor + after)
    }

    /// Repeats unanswered challenges, keeps paths alive, and finds paths that became suspect or silent.
    pub(super) fn on_path_timeout(&mut self, now: Instant, exchange: &mut Exchange) {
        self.choice.on_timeout(now);
        for at in 0..self.paths.len() {
            if self.paths[at].link.refused_until.is_some_and(|until| until <= now) {
                self.paths[at].link.refused_until = None;
            }
            if self.paths.len() > 1 && self.keep_alive_at(&self.paths[at]).is_some_and(|due| due <= now) {
                self.paths[at].pings.is_due = true;
            }
            if self.paths[at].validation.on_timeout(now, self.side) {
                let path = &mut self.paths[at];
                if path.validation.awaits_response() {
                    path.recovery.ecn.on_timeouts(path.validation.unanswered().into());
                }
                self.maybe_move_back(now, at, exchange);
                match self.paths[at].phase.state {
                    // Only challenges were sent there. Their loss says nothing about the capacity
                    // of the path, so no congestion controller is notified.
                    PathState::Validating => self.forget_sent(at, 0),
                    // Data that were sent there because no other path could send go to other paths,
                    // too.
                    PathState::Silent => {
                        self.move_content(at, u64::MAX);
                        self.forget_sent(at, SILENT_RUNS_MAX);
                    }
                    PathState::Active | PathState::Abandoned => {}
                }
            }
            if self.no_response_deadline(at, &self.liveness()).is_some_and(|deadline| deadline <= now) {
                self.on_no_response(now, at, exchange);
            }
        }
        self.off_paths.on_timeout(now, &self.paths, exchange);
    }

    /// Sets the status that the peer is asked to use for a path. The frame is repeated after a
    /// loss.
    pub(crate) fn set_backup(&mut self, id: PathId, is_backup: bool) -> Option<u64> {
        let at = self.path_index(id)?;
        Some(self.paths[at].phase.set_backup(is_backup))
    }

    /// The longest probe timeout of all open paths, the unit of the connection's own timers
    /// (multipath draft-21, sections 2.5 and 2.6).
    pub(crate) fn pto_interval(&self) -> Duration {
        let open = self.paths.iter().filter(|path| path.is_open());
        let longest = open.map(|path| path.recovery.rtt.pto_base()).max().unwrap_or(INTERVAL_MAX);
        longest + self.frames.ack_frequency.max_ack_delay()
    }

    /// Statistics of all paths.
    /// The recovery state of every path, for the log of a replay.
    pub(crate) fn path_metrics(&self) -> Vec<PathMetrics> {
        let metrics = |(stats, path): (PathStats, &SendPath)| PathMetrics {
            stats,
            round_trip_latest: path.recovery.rtt.latest(),
            round_trip_variation: path.recovery.rtt.variance(),
            has_round_trip: path.recovery.rtt.has_sample(),
            pacing_rate: path.recovery.congestion.pacing_rate(&path.recovery.rtt),
            probe_timeouts: path.recovery.backoff.count(),
            is_suspect: path.recovery.suspicion.is_suspect,
        };
        self.path_stats().into_iter().zip(&self.paths).map(metrics).collect()
    }

    pub(crate) fn path_stats(&self) -> Vec<PathStats> {
        let stats = |path: &SendPath| {
            let (bytes_received, bytes_sent) = path.link.volume();
            PathStats {
                id: path.id,
                addresses: path.link.addresses,
                state: path.phase.state,
                is_backup: path.phase.is_anyones_backup(),
                round_trip: path.recovery.rtt.smoothed(),
                round_trip_min: path.recovery.rtt.min(),
                capacity: path.recovery.capacity(),
                in_flight_bytes: path.recovery.in_flight,
                congestion: path.recovery.congestion.snapshot(),
                datagram_size: path.size.bytes(),
                packets_sent: path.counts.packets_sent,
                packets_acked: path.counts.packets_acked,
                packets_lost: path.counts.packets_lost,
                ecn: path.recovery.ecn.state(),
                packets_marked: path.recovery.ecn.ce_packets,
                bytes_resent: path.counts.bytes_resent,
                bytes_sent,
                bytes_acked: path.counts.bytes_acked,
                bytes_received,
                silences: path.counts.silences,
                suspicions: path.counts.suspicions,
                false_suspicions: path.counts.false_suspicions,
            }
        };
        self.paths.iter().map(stats).collect()
    }
}

impl PathState {
    /// Preference for frames that may take any path; the lowest is best.
    fn rank(self) -> u8 {
        match self {
            Self::Active => 0,
            Self::Silent => 1,
            Self::Validating => 2,
            Self::Abandoned => 3,
        }
    }
}
