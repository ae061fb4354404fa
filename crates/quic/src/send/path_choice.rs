//! What the choice of a path for the next plan depends on, besides the paths themselves.

use scheduler::Scheduler;
use units::Instant;

use super::path::SendPath;
use super::views::Views;

/// The state of the choice.
#[derive(Default)]
pub(super) struct PathChoice {
    /// Created with the second path: with one path there is nothing to choose.
    pub(super) scheduler: Option<Box<dyn Scheduler>>,
    pub(super) views: Views,
    /// When the scheduler must be asked again.
    pub(super) deadline: Option<Instant>,
    /// With central acknowledgements: the index of the path that carries them, if any path can
    /// send.
    pub(super) ack_path: Option<usize>,
    /// Datagrams that are pinned to a path are next, before the data for which the scheduler chooses one.
    pub(super) is_turn_of_pinned: bool,
    /// The index of the path whose pinned datagrams are looked at first.
    pub(super) next_pinned: u32,
}

impl PathChoice {
    /// Forgets the deadline if it has passed.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.deadline = self.deadline.filter(|at| *at > now);
    }

    /// Nothing can leave now: check again when the full socket of one of these paths has been full for too
    /// long.
    pub(super) fn check_when_stuck<'a>(&mut self, now: Instant, paths: impl Iterator<Item = &'a SendPath>) {
        let stuck_at = paths.filter_map(SendPath::socket_stuck_at).filter(|at| *at > now).min();
        self.deadline = self.deadline.into_iter().chain(stuck_at).min();
    }
}
