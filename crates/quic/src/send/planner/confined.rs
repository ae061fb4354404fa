//! Streams that may not take every path: a choice of a path for each of the sets of paths they name.
//!
//! One choice for all of them would not do. If the stream whose turn it is waits for its path, what may go elsewhere must not wait
//! with it; and a scheduler that sees paths which nothing may take would choose them.

use scheduler::Demand;
use units::Instant;

use super::SendHalf;
use crate::class::PathSet;
use crate::exchange::Exchange;
use crate::plan::Plan;
use crate::receive::Snapshot;
use crate::send::frames::SentFrame;
use crate::send::path::SendPath;
use crate::send::sent_log::{Content, Run};
use crate::send::streams::SendStreams;

impl SendHalf {
    /// Fills `plan` for one of several paths that not every stream may take, and says for which.
    pub(super) fn plan_confined(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        room: &dyn Fn(u16) -> usize,
        plan: &mut Plan,
        exchange: &mut Exchange,
    ) -> usize {
        let sets = self.path_sets_due();
        let at = self.plan_chosen(now, &sets, snapshot, room, plan, exchange);
        if !plan.items.is_empty() {
            return at;
        }
        // Something late may have become due again meanwhile, for certain paths.
        let sets = self.path_sets_due();
        self.plan_chosen(now, &sets, snapshot, room, plan, exchange)
    }

    /// The sets of paths that something waits for, the most urgent first. All paths are among them, if only as the last: something
    /// late may get another chance on a faster one although others wait for paths of theirs, perhaps for ever.
    fn path_sets_due(&mut self) -> Vec<PathSet> {
        let mut sets = self.streams.ready_path_sets();
        if sets.is_empty() || (self.has_control_due() && !sets.contains(&PathSet::ALL)) {
            sets.push(PathSet::ALL);
        }
        let has_all = sets.contains(&PathSet::ALL);
        // A path that nothing may take sends less than it could, and says nothing about what it can carry.
        let is_idle = |path: &&mut SendPath| path.resends.is_empty() && !sets.iter().any(|set| set.allows(path.id));
        for path in self.paths.iter_mut().filter(is_idle) {
            path.set_app_limited(true);
            path.release_at = None;
        }
        if !has_all {
            sets.push(PathSet::ALL);
        }
        sets
    }

    /// What waits to be sent on these paths, as far as the choice of one of them depends on it.
    pub(super) fn demand(&self, among: &PathSet) -> Demand {
        let ready_bytes = match (self.streams.has_confined(), among.is_all()) {
            (false, _) => self.streams.ready_bytes(),
            (true, _) => self.streams.ready_bytes_on(among),
        };
        let others = if among.is_all() { self.datagram_bytes + u64::from(self.has_control_due()) } else { 0 };
        Demand { ready_bytes: ready_bytes + others, is_last: !self.streams.has_waiting_writers() }
    }

    /// Whether the content of `run` on the path at `at` may be carried by another path that works; `frames` are those of a packet
    /// that is remembered frame by frame.
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
        let works = |(other, path): (usize, &SendPath)| other != at && path.is_active() && !path.is_doubted;
        let others = || paths.iter().enumerate().filter(|pair| works(*pair)).map(|(_, path)| path.id);
        let is_free = |id| streams.allows_any(id, others());
        match run.content {
            Content::Stream { id, .. } => is_free(id),
            _ => frames.iter().all(|frame| !matches!(frame, SentFrame::Stream { id, .. } if !is_free(*id))),
        }
    }
}
