//! The paths of the send half: how they begin and end, and when one is taken for silent.
//!
//! ```text
//!   Validating ── an answer ──▶ Active ◀── an answer, an acknowledgement ── Silent
//!        │                        │ └──── nothing for a probe timeout ───────▶ │
//!        └────────────────────────┴── PATH_ABANDON, either way ──▶ Abandoned ◀─┘
//! ```

use units::{Duration, Instant, Rng};
use wire::quic::{ConnectionId, MIN_INITIAL_SIZE, PathId, Side, Space};

use super::SendHalf;
use super::frames::SentFrame;
use super::path::{Addresses, SendPath};
use super::sent_log::{Content, Run};
use super::validation::{ASK_AGAIN_MAX, FIRST_ASK_AGAIN};
use crate::exchange::{Exchange, ToControl};
use crate::spaces::DATA;
use crate::stats::{PathState, PathStats};

/// How much longer than a probe timeout a path may be silent: a peer whose processor is busy with something else answers
/// this much later, and round trips of a millisecond know nothing of that.
const SILENCE_MARGIN: Duration = Duration::from_millis(40);

/// How much longer than that a path may be silent while others are heard. The peer's processor is no excuse then; it takes what
/// has arrived on several sockets in turn, and that is all this allows for.
const DOUBT_MARGIN: Duration = Duration::from_millis(5);

/// Each doubt that proves vain doubles the margin, so often at most: then it is that of silence.
const DOUBTS_COUNTED_MAX: u8 = 3;

/// How long the only path that works is let be when the system refuses to send on it.
const REFUSED_FOR: Duration = Duration::from_millis(50);

/// Runs remembered of a path that does not answer: those whose acknowledgement would be good news.
const SILENT_RUNS_MAX: usize = 64;

/// What all active paths together say about the peer.
struct Others {
    active_count: usize,
    /// When the peer last said something, on any of them: a busy peer is silent everywhere, though its last words may still be
    /// on their way over a long path.
    spoken_at: Instant,
}

impl SendHalf {
    /// Where path `id` is, if it exists.
    pub(crate) fn place_of(&self, id: PathId) -> Option<usize> {
        if id == PathId::ZERO {
            return Some(0);
        }
        self.paths.iter().position(|path| path.id == id)
    }

    /// Where the packets of `space` on the path at `at` are numbered.
    pub(super) fn index_of(space: Space, at: usize) -> usize {
        if space == Space::Data { DATA + at } else { space.index() }
    }

    /// The path for what may go anywhere: the one that answers soonest.
    pub(super) fn best_place(&self) -> usize {
        let rank = |path: &SendPath| (path.state.rank(), path.rtt.smoothed());
        (0..self.paths.len()).min_by_key(|at| rank(&self.paths[*at])).unwrap_or(0)
    }

    /// Begins a path. A client asks whether it works; so does a server, which may send little before it knows (RFC 9000,
    /// section 8).
    pub(super) fn open_path(
        &mut self,
        now: Instant,
        id: PathId,
        addresses: Addresses,
        remote_id: ConnectionId,
    ) -> &mut SendPath {
        debug_assert!(self.place_of(id).is_none(), "a path is opened once");
        let rng = Rng::from_seed(self.seed).split(&format!("path {}", id.0));
        let limited = self.side == Side::Server;
        let mut path = SendPath::new(id, addresses, remote_id, &self.config, !limited, &rng);
        path.set_datagram_size(self.paths[0].datagram_size);
        path.state = PathState::Validating;
        (path.acked_at, path.heard_at) = (now, now);
        path.validation.start(now, FIRST_ASK_AGAIN);
        self.paths.push(path);
        self.spaces.push_path();
        self.scheduler.get_or_insert_with(|| self.config.build_scheduler());
        self.paths.last_mut().expect("it was added just now")
    }

    /// The peer asks whether a path works. The answer leaves there.
    pub(super) fn on_challenge(&mut self, now: Instant, id: PathId, data: [u8; 8]) {
        if let Some(at) = self.place_of(id)
            && self.paths[at].is_open()
        {
            let path = &mut self.paths[at];
            path.validation.queue_answer(data);
            path.validation.on_peer_heard(now);
        }
    }

    /// An answer, which may come on any path (RFC 9000, section 8.2.3).
    pub(super) fn on_response(&mut self, now: Instant, data: [u8; 8], exchange: &mut Exchange) {
        let Some(at) = self.paths.iter().position(|path| path.validation.is_answer(&data)) else { return };
        let path = &mut self.paths[at];
        path.set_validated();
        path.former = None;
        if path.is_active() {
            // The only path, asked whether its new address works.
            path.validation.on_active();
        }
        if path.state == PathState::Validating {
            path.state = PathState::Silent;
        }
        self.on_sign_of_life(now, at, exchange);
    }

    /// What was sent on the path has arrived.
    pub(super) fn on_sign_of_life(&mut self, now: Instant, at: usize, exchange: &mut Exchange) {
        let path = &mut self.paths[at];
        if path.is_doubted {
            path.doubted_in_vain = (path.doubted_in_vain + 1).min(DOUBTS_COUNTED_MAX);
        }
        (path.acked_at, path.is_doubted) = (now, false);
        // A path that is new must answer itself: an acknowledgement may come from anywhere (RFC 9000, section 8.2.3).
        if path.state != PathState::Silent {
            return;
        }
        path.validation.on_active();
        path.refused_until = None;
        path.state = PathState::Active;
        path.backoff.reset();
        exchange.to_control.push_back(ToControl::PathState { path: path.id, state: PathState::Active });
    }

    /// When path `at` will be taken for silent: nothing has been acknowledged for a probe timeout though something is outstanding
    /// for as long. Only with another path to turn to; the last one has the timers of RFC 9002 alone.
    fn silence_deadline(&self, at: usize) -> Option<Instant> {
        let path = &self.paths[at];
        let sent_at = self.spaces[DATA + at].log.first_eliciting_sent_at()?;
        let patience = path.rtt.pto_base() + self.ack_frequency.max_ack_delay() + SILENCE_MARGIN;
        Some(sent_at.max(path.acked_at) + patience)
    }

    /// When path `at` will be doubted: its oldest packet should have been answered, and nothing at all was, for as long as round
    /// trips vary and answers may be held back; and other paths were heard meanwhile.
    fn doubt_deadline(&self, at: usize, others: &Others) -> Option<Instant> {
        let path = &self.paths[at];
        let sent_at = self.spaces[DATA + at].log.first_eliciting_sent_at()?;
        let margin = (DOUBT_MARGIN * (1 << path.doubted_in_vain)).min(SILENCE_MARGIN);
        let slack = path.rtt.pto_base() - path.rtt.smoothed() + self.ack_frequency.max_ack_delay() + margin;
        let are_heard = others.spoken_at >= path.spoken_at() + slack / 2;
        (are_heard && !path.is_doubted).then(|| (sent_at + path.rtt.smoothed()).max(path.acked_at) + slack)
    }

    /// When [`on_no_answer`](Self::on_no_answer) has something to do about path `at`.
    fn no_answer_deadline(&self, at: usize, others: &Others) -> Option<Instant> {
        if others.active_count < 2 || !self.paths[at].is_active() {
            return None;
        }
        self.doubt_deadline(at, others).into_iter().chain(self.silence_deadline(at)).min()
    }

    fn others(&self) -> Others {
        let active = self.paths.iter().filter(|path| path.is_active());
        active.fold(Others { active_count: 0, spoken_at: Instant::ZERO }, |others, path| Others {
            active_count: others.active_count + 1,
            spoken_at: others.spoken_at.max(path.spoken_at()),
        })
    }

    /// The path's silence has lasted: it is doubted at first, then taken for silent.
    fn on_no_answer(&mut self, now: Instant, at: usize, exchange: &mut Exchange) {
        if self.silence_deadline(at).is_some_and(|deadline| now < deadline) {
            // Others carry what the receiver would wait for. If it was only late, some of it arrives twice.
            self.paths[at].is_doubted = true;
            self.move_elsewhere(at, u64::MAX);
        } else {
            self.silence(now, at, exchange);
        }
    }

    /// The path does not answer: others carry what it was given, and it is asked whether it works again.
    pub(crate) fn silence(&mut self, now: Instant, at: usize, exchange: &mut Exchange) {
        let interval = self.paths[at].rtt.pto_base();
        let path = &mut self.paths[at];
        (path.state, path.is_doubted, path.doubted_in_vain) = (PathState::Silent, false, 0);
        path.counts.suspected += 1;
        path.release_at = None;
        path.copies = crate::queue::Queue::new();
        path.validation.start(now, interval);
        exchange.to_control.push_back(ToControl::PathState { path: path.id, state: PathState::Silent });
        self.spaces[DATA + at].probes_due = 0;
        self.move_content(at, u64::MAX);
        self.doubt_size(at);
    }

    /// A path does not answer, which may be because its datagrams are too large: a size that was never seen to arrive is not
    /// tried again (RFC 8899, section 4.3, on black holes).
    pub(super) fn doubt_size(&mut self, at: usize) {
        let path = &mut self.paths[at];
        let is_large = |size: usize| size > MIN_INITIAL_SIZE;
        let was_seen = std::mem::take(&mut path.carries_large);
        let is_tried = || self.spaces[DATA + at].log.iter().any(|run| is_large(usize::from(run.size)));
        if !was_seen && is_large(path.datagram_size) && is_tried() {
            tracing::debug!(path = %path.id, size = path.datagram_size, "datagrams of 1200 bytes from now on");
            path.set_datagram_size(MIN_INITIAL_SIZE);
        }
    }

    /// The system does not send on the path: as good as silent, if there is another that works. In any case it is let be for a
    /// while, so that the others have their turn; false if there are none.
    pub(crate) fn on_refused(&mut self, now: Instant, id: PathId, exchange: &mut Exchange) -> bool {
        let Some(at) = self.place_of(id) else { return false };
        let mut others = self.paths.iter().filter(|other| other.id != id && other.is_open()).peekable();
        let has_other = others.peek().is_some();
        if has_other {
            if others.any(SendPath::is_active) && self.paths[at].is_active() {
                self.silence(now, at, exchange);
            }
            // What could not leave would be due there again at once.
            let path = &mut self.paths[at];
            path.refused_until = Some(path.validation.timeout().unwrap_or(now + REFUSED_FOR));
        }
        has_other
    }

    /// The system takes no datagrams of this size there; false if they are as small as can be.
    pub(crate) fn on_too_large(&mut self, id: PathId) -> bool {
        let Some(at) = self.place_of(id) else { return false };
        let path = &mut self.paths[at];
        let is_large = path.datagram_size > MIN_INITIAL_SIZE;
        if is_large {
            path.set_datagram_size(MIN_INITIAL_SIZE);
        }
        is_large
    }

    /// Makes the content of the oldest packets outstanding on a path due again, for others to carry or, if only this path may
    /// carry it, for when it answers.
    pub(super) fn move_content(&mut self, at: usize, bytes: u64) {
        let mut runs = std::mem::take(&mut self.acked_runs);
        runs.clear();
        self.spaces[DATA + at].log.move_content(bytes, |_, _| true, |run| runs.push(*run));
        self.requeue_moved(at, runs);
    }

    /// As [`move_content`](Self::move_content), but leaves what no other path may carry: it would go again where it went.
    pub(super) fn move_elsewhere(&mut self, at: usize, bytes: u64) {
        let mut runs = std::mem::take(&mut self.acked_runs);
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
                // Datagrams are not repeated, and are not lost yet either.
                for frame in frames.into_iter().filter(|frame| *frame != SentFrame::Datagram) {
                    self.requeue_frame(Space::Data, frame);
                }
            }
        }
        self.acked_runs = runs;
    }

    /// Nothing more is sent on the path; what is outstanding there goes elsewhere.
    pub(super) fn abandon_path(&mut self, id: PathId) {
        let Some(at) = self.place_of(id) else { return };
        let path = &mut self.paths[at];
        path.state = PathState::Abandoned;
        path.release_at = None;
        path.validation.stop();
        path.copies = crate::queue::Queue::new();
        self.forget_sent(at, 0);
        (self.spaces[DATA + at].probes_due, self.spaces[DATA + at].loss_time) = (0, None);
    }

    /// The path is over for both sides, and nothing about it is expected any more.
    pub(super) fn forget_path(&mut self, id: PathId) {
        // The first path keeps its place: its number space began with the connection.
        let Some(at) = self.place_of(id).filter(|at| *at > 0) else { return };
        self.share_resends(at);
        self.paths.remove(at);
        self.spaces.remove_path(at);
        if self.paths.len() == 1 {
            // One path makes no difference between its own losses and all.
            self.share_resends(0);
        }
    }

    /// Forgets what was sent on a path but the newest `keep` runs; what nobody carries yet becomes due.
    fn forget_sent(&mut self, at: usize, keep: usize) {
        let mut runs: Vec<Run> = Vec::new();
        self.spaces[DATA + at].log.forget_oldest(keep, |run| runs.push(run));
        for run in runs {
            self.paths[at].in_flight -= run.in_flight_bytes();
            self.requeue(Space::Data, DATA + at, run);
        }
    }

    /// When [`on_path_timeout`](Self::on_path_timeout) has something to do.
    pub(super) fn path_timeout(&self) -> Option<Instant> {
        if self.paths.len() == 1 {
            return self.paths[0].validation.timeout();
        }
        let others = self.others();
        let paths = (0..self.paths.len()).filter(|at| self.paths[*at].is_open());
        let deadlines = paths.flat_map(|at| {
            let path = &self.paths[at];
            [path.validation.timeout(), path.refused_until, self.no_answer_deadline(at, &others)]
        });
        deadlines.chain([self.ask_again_at]).flatten().min()
    }

    /// Asks those again that did not answer, and finds those that have fallen silent.
    pub(super) fn on_path_timeout(&mut self, now: Instant, exchange: &mut Exchange) {
        if self.ask_again_at.is_some_and(|at| at <= now) {
            self.ask_again_at = None;
        }
        for at in 0..self.paths.len() {
            if self.paths[at].refused_until.is_some_and(|until| until <= now) {
                self.paths[at].refused_until = None;
            }
            if self.paths[at].validation.on_timeout(now, self.side) {
                self.maybe_move_back(now, at);
                match self.paths[at].state {
                    // Nothing but questions went there. That they had no answer says nothing about how much the path carries
                    // once it works, so no controller hears of it.
                    PathState::Validating => self.forget_sent(at, 0),
                    // What was sent there because every other way was shut goes elsewhere, too.
                    PathState::Silent => {
                        self.move_content(at, u64::MAX);
                        self.forget_sent(at, SILENT_RUNS_MAX);
                    }
                    PathState::Active | PathState::Abandoned => {}
                }
            }
            if self.no_answer_deadline(at, &self.others()).is_some_and(|deadline| deadline <= now) {
                self.on_no_answer(now, at, exchange);
            }
        }
    }

    /// Says what the peer is asked to use a path for, again and again if it changes.
    pub(crate) fn set_backup(&mut self, id: PathId, is_backup: bool) -> Option<u64> {
        let at = self.place_of(id)?;
        let path = &mut self.paths[at];
        path.is_backup = is_backup;
        path.status_sequence += 1;
        Some(path.status_sequence)
    }

    /// The longest probe timeout of all open paths: what the connection's own timers count in (multipath draft-21, sections
    /// 2.5 and 2.6).
    pub(crate) fn pto_interval(&self) -> Duration {
        let open = self.paths.iter().filter(|path| path.is_open());
        let longest = open.map(|path| path.rtt.pto_base()).max().unwrap_or(ASK_AGAIN_MAX);
        longest + self.ack_frequency.max_ack_delay()
    }

    /// Every path at this moment.
    pub(crate) fn path_stats(&self) -> Vec<PathStats> {
        let stats = |path: &SendPath| {
            let (bytes_received, bytes_sent) = path.volume();
            PathStats {
                id: path.id,
                addresses: path.addresses,
                state: path.state,
                is_backup: path.is_backup || path.is_peers_backup,
                round_trip: path.rtt.smoothed(),
                round_trip_min: path.rtt.min(),
                in_flight_bytes: path.in_flight,
                congestion: path.congestion.snapshot(),
                datagram_size: path.datagram_size,
                packets_sent: path.counts.packets_sent,
                packets_acked: path.counts.packets_acked,
                packets_lost: path.counts.packets_lost,
                bytes_resent: path.counts.bytes_resent,
                bytes_sent,
                bytes_acked: path.counts.bytes_acked,
                bytes_received,
                silences: path.counts.suspected,
            }
        };
        self.paths.iter().map(stats).collect()
    }
}

impl PathState {
    /// The lower, the better for what may go anywhere.
    fn rank(self) -> u8 {
        match self {
            Self::Active => 0,
            Self::Silent => 1,
            Self::Validating => 2,
            Self::Abandoned => 3,
        }
    }
}
