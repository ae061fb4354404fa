//! Streams that may not take every path: one path choice for each set of permitted paths.
//!
//! A single choice for all streams would not do. If the next stream waits for its path, data that
//! may take another path must not wait with it; and a scheduler that saw paths which no data may
//! take would choose them.

use scheduler::Demand;
use units::Duration;

use super::Pass;
use crate::class::PathSet;
use crate::send::SendHalf;
use crate::send::frames::SentFrame;
use crate::send::path::SendPath;
use crate::send::sent_log::{Content, Run};
use crate::send::streams::SendStreams;

/// An application that keeps the queue of datagrams full goes on, and the queue is short on purpose. No
/// datagram waits for another one, so a slow path delays none but its own. So a path is used if it delivers
/// within about this time, although the fast paths alone would empty the queue before.
const DATAGRAMS_FOLLOW: Duration = Duration::from_millis(50);

impl SendHalf {
    /// Fills the plan when there are several paths and some streams may not take all of them.
    pub(super) fn plan_confined(&mut self, pass: &mut Pass<'_>) {
        let sets = self.path_sets_due();
        self.plan_chosen(pass, &sets);
        if !pass.is_empty() {
            return;
        }
        // Overdue data of certain paths may have been requeued meanwhile.
        let sets = self.path_sets_due();
        self.plan_chosen(pass, &sets);
    }

    /// The path sets that data wait for, the most urgent first. The set of all paths is always
    /// among them, at the end if need be: overdue data may be reinjected on a faster path although
    /// other data wait for their own paths, possibly without end.
    fn path_sets_due(&mut self) -> Vec<PathSet> {
        let mut sets = self.streams.ready_path_sets();
        if sets.is_empty() || (self.has_control_due() && !sets.contains(&PathSet::ALL)) {
            sets.push(PathSet::ALL);
        }
        let has_all = sets.contains(&PathSet::ALL);
        // A path that no data may take sends less than it could, so its rate says nothing about its
        // capacity.
        let is_idle =
            |path: &&mut SendPath| path.queues.resends.is_empty() && !sets.iter().any(|set| set.allows(path.id));
        for path in self.paths.iter_mut().filter(is_idle) {
            path.on_nothing_due();
        }
        if !has_all {
            sets.push(PathSet::ALL);
        }
        sets
    }

    /// The data waiting for these paths, as far as the choice of a path depends on it.
    pub(super) fn demand(&self, among: &PathSet) -> Demand {
        let ready_bytes = match (self.streams.has_confined(), among.is_all()) {
            (false, _) => self.streams.ready_bytes(),
            (true, _) => self.streams.ready_bytes_on(among),
        };
        let others = if among.is_all() { self.datagrams.bytes() + u64::from(self.has_control_due()) } else { 0 };
        let is_last = !self.streams.has_waiting_writers() && !self.are_datagrams_waiting();
        let following = if among.is_all() { self.following_datagram_bytes() } else { 0 };
        Demand { ready_bytes: ready_bytes + others + following, is_last }
    }

    /// Bytes of datagrams that follow those that wait, as far as the choice of a path depends on it.
    fn following_datagram_bytes(&self) -> u64 {
        if !self.are_datagrams_waiting() {
            return 0;
        }
        let rates = self.paths.iter().filter(|path| path.is_active()).map(|path| path.recovery.capacity());
        rates.fold(0, |sum, rate| sum + rate.bytes_in(DATAGRAMS_FOLLOW))
    }

    /// Whether another working path may carry the content of `run`, sent on the path at `at`.
    /// `frames` are the frames of a packet that the log keeps frame by frame.
    pub(in crate::send) fn may_go_elsewhere(
        streams: &SendStreams,
        paths: &[SendPath],
        at: usize,
        run: &Run,
        frames: &[SentFrame],
    ) -> bool {
        if !streams.has_confined() {
            return true;
        }
        let works =
            |(other, path): (usize, &SendPath)| other != at && path.is_active() && !path.recovery.suspicion.is_suspect;
        let others = || paths.iter().enumerate().filter(|pair| works(*pair)).map(|(_, path)| path.id);
        let is_free = |id| streams.allows_any(id, others());
        match run.content {
            Content::Stream { id, .. } => is_free(id),
            _ => frames.iter().all(|frame| !matches!(frame, SentFrame::Stream { id, .. } if !is_free(*id))),
        }
    }
}
