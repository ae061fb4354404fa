//! The paths of the send half: how they begin and end, and when one is taken for silent.
//!
//! ```text
//!   Validating ── an answer ──▶ Active ◀── an answer, an acknowledgement ── Silent
//!        │                        │ └──── nothing for a probe timeout ───────▶ │
//!        └────────────────────────┴── PATH_ABANDON, either way ──▶ Abandoned ◀─┘
//! ```

use units::{Duration, Instant};
use wire::quic::{ConnectionId, PathId, Space};

use super::SendHalf;
use super::path::{Addresses, SendPath};
use super::sent_log::{Content, Run};
use super::validation::ASK_AGAIN_MAX;
use crate::exchange::{Exchange, ToControl};
use crate::spaces::DATA;
use crate::stats::{PathState, PathStats};

/// The first questions to a path of which nothing is known follow each other after this long.
const FIRST_ASK_AGAIN: Duration = Duration::from_millis(250);

/// How much longer than a probe timeout a path may be silent: a peer whose processor is busy with something else answers
/// this much later, and round trips of a millisecond know nothing of that.
const SILENCE_MARGIN: Duration = Duration::from_millis(40);

/// Runs remembered of a path that does not answer: those whose acknowledgement would be good news.
const SILENT_RUNS_MAX: usize = 64;

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
        let rng = self.rng.split(&format!("path {}", id.0));
        let limited = self.side == wire::quic::Side::Server;
        let mut path = SendPath::new(id, addresses, remote_id, &self.config, !limited, &rng);
        path.set_datagram_size(self.paths[0].datagram_size);
        path.state = PathState::Validating;
        path.acked_at = now;
        path.validation.start(now, FIRST_ASK_AGAIN);
        self.paths.push(path);
        self.spaces.push_path();
        self.scheduler.get_or_insert_with(|| self.config.build_scheduler());
        self.paths.last_mut().expect("it was added just now")
    }

    /// The peer asks whether a path works. The answer leaves there.
    pub(super) fn on_challenge(&mut self, id: PathId, data: [u8; 8]) {
        if let Some(at) = self.place_of(id)
            && self.paths[at].is_open()
        {
            self.paths[at].validation.queue_answer(data);
        }
    }

    /// An answer, which may come on any path (RFC 9000, section 8.2.3).
    pub(super) fn on_response(&mut self, now: Instant, data: [u8; 8], exchange: &mut Exchange) {
        let Some(at) = self.paths.iter().position(|path| path.validation.is_answer(&data)) else { return };
        let path = &mut self.paths[at];
        path.set_validated();
        if path.state == PathState::Validating {
            path.state = PathState::Silent;
        }
        self.on_sign_of_life(now, at, exchange);
    }

    /// What was sent on the path has arrived.
    pub(super) fn on_sign_of_life(&mut self, now: Instant, at: usize, exchange: &mut Exchange) {
        let path = &mut self.paths[at];
        path.acked_at = now;
        // A path that is new must answer itself: an acknowledgement may come from anywhere (RFC 9000, section 8.2.3).
        if path.state != PathState::Silent {
            return;
        }
        path.validation.on_active();
        path.is_refused = false;
        path.state = PathState::Active;
        path.backoff.reset();
        exchange.to_control.push_back(ToControl::PathState { path: path.id, state: PathState::Active });
    }

    /// When the path will be taken for silent: nothing has been acknowledged for a probe timeout though something is
    /// outstanding for as long. Only with another path to turn to; the last one has the timers of RFC 9002 alone.
    fn silence_deadline(&self, at: usize) -> Option<Instant> {
        let path = &self.paths[at];
        if self.paths.len() == 1 || !path.is_active() {
            return None;
        }
        let sent_at = self.spaces[DATA + at].log.first_eliciting_sent_at()?;
        let has_other = self.paths.iter().any(|other| other.id != path.id && other.is_active());
        let patience = path.rtt.pto_base() + self.ack_frequency.max_ack_delay() + SILENCE_MARGIN;
        has_other.then(|| sent_at.max(path.acked_at) + patience)
    }

    /// The path does not answer: others carry what it was given, and it is asked whether it works again.
    pub(crate) fn silence(&mut self, now: Instant, at: usize, exchange: &mut Exchange) {
        let interval = self.paths[at].rtt.pto_base();
        let path = &mut self.paths[at];
        path.state = PathState::Silent;
        path.counts.suspected += 1;
        path.release_at = None;
        path.validation.start(now, interval);
        exchange.to_control.push_back(ToControl::PathState { path: path.id, state: PathState::Silent });
        self.spaces[DATA + at].probes_due = 0;
        self.move_content(at, u64::MAX);
    }

    /// The system does not send on the path: as good as silent, if there is another.
    pub(crate) fn on_refused(&mut self, now: Instant, id: PathId, exchange: &mut Exchange) -> bool {
        let Some(at) = self.place_of(id) else { return false };
        let has_other = self.paths.iter().any(|other| other.id != id && other.is_active());
        if has_other && self.paths[at].is_active() {
            self.silence(now, at, exchange);
        }
        // Otherwise what could not leave would be due there again at once.
        self.paths[at].is_refused = has_other && self.paths[at].validation.timeout().is_some();
        has_other
    }

    /// Makes the content of the oldest packets outstanding on a path due again, for others to carry.
    pub(super) fn move_content(&mut self, at: usize, bytes: u64) {
        let mut runs = std::mem::take(&mut self.acked_runs);
        runs.clear();
        self.spaces[DATA + at].log.move_content(bytes, |run| runs.push(*run));
        for run in runs.drain(..) {
            if let Some((id, range)) = run.stream_range() {
                self.streams.on_lost(id, range, false);
            } else if let Content::Side(_) = run.content {
                for frame in self.spaces[DATA + at].log.frames_of(&run).to_vec() {
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
        self.paths.remove(at);
        self.spaces.remove_path(at);
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
        let paths = (0..self.paths.len()).filter(|at| self.paths[*at].is_open());
        let deadlines = paths.flat_map(|at| [self.paths[at].validation.timeout(), self.silence_deadline(at)]);
        deadlines.chain([self.ask_again_at]).flatten().min()
    }

    /// Asks those again that did not answer, and finds those that have fallen silent.
    pub(super) fn on_path_timeout(&mut self, now: Instant, exchange: &mut Exchange) {
        if self.ask_again_at.is_some_and(|at| at <= now) {
            self.ask_again_at = None;
        }
        for at in 0..self.paths.len() {
            if self.paths[at].validation.on_timeout(now) {
                self.paths[at].is_refused = false;
                match self.paths[at].state {
                    // Nothing but questions went there. That they had no answer says nothing about how much the path carries
                    // once it works, so no controller hears of it.
                    PathState::Validating => self.forget_sent(at, 0),
                    PathState::Silent => self.forget_sent(at, SILENT_RUNS_MAX),
                    PathState::Active | PathState::Abandoned => {}
                }
            }
            if self.silence_deadline(at).is_some_and(|deadline| deadline <= now) {
                self.silence(now, at, exchange);
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
