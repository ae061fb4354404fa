//! Detection of a worker that hangs: the worker counts its turns, and its owner compares the count
//! with an earlier one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::{Duration, Instant};

/// The progress of a worker, shared with its owner.
#[derive(Debug, Default)]
pub struct Progress {
    turns: AtomicU64,
    /// Whether the owner has ended while the worker hung, so that its thread is not joined.
    is_join_skipped: AtomicBool,
}

impl Progress {
    /// Counts a turn.
    pub fn count_turn(&self) {
        // There is one writer, so a load and a store suffice.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Records that the owner ends while the worker hangs: its thread is not joined.
    pub fn skip_join(&self) {
        self.is_join_skipped.store(true, Ordering::Relaxed);
    }

    /// Returns whether the thread is not joined.
    pub fn is_join_skipped(&self) -> bool {
        self.is_join_skipped.load(Ordering::Relaxed)
    }
}

/// Time for which an owner waits for a turn of a worker that has work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HangLimit {
    /// Interval between two checks.
    pub(crate) interval: Duration,
    /// Number of consecutive checks without a turn between them after which the worker counts as
    /// hanging.
    pub(crate) misses_max: u32,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnCheck {
    /// The worker begins turns.
    Turns,
    /// It began no turn since the last check. The next check decides.
    Missed,
    /// It hangs.
    Hangs,
}

/// The owner's record of a worker's progress.
#[derive(Debug)]
pub(crate) struct Liveness {
    progress: Arc<Progress>,
    limit: HangLimit,
    turns_seen: u64,
    checked_at: Instant,
    misses: u32,
}

impl Liveness {
    pub(crate) fn new(progress: Arc<Progress>, limit: HangLimit, now: Instant) -> Self {
        Self { progress, limit, turns_seen: 0, checked_at: now, misses: 0 }
    }

    /// Restarts the check when the worker gets work after it had none: its time for a turn begins
    /// now.
    pub(crate) fn restart(&mut self, now: Instant) {
        (self.checked_at, self.misses) = (now, 0);
    }

    /// Returns the time of the next call of [`check`](Self::check).
    pub(crate) fn deadline(&self) -> Instant {
        self.checked_at + self.limit.interval
    }

    /// Compares the count of turns with that of the last check. Returns `None` if it is too early.
    /// Otherwise the caller wakes the worker, because a sleeping worker begins a turn when it is
    /// woken.
    pub(crate) fn check(&mut self, now: Instant) -> Option<TurnCheck> {
        if self.deadline() > now {
            return None;
        }
        let turns = self.progress.turns.load(Ordering::Relaxed);
        let does_turns = std::mem::replace(&mut self.turns_seen, turns) != turns;
        self.checked_at = now;
        self.misses = if does_turns { 0 } else { self.misses + 1 };
        Some(match self.misses {
            0 => TurnCheck::Turns,
            misses if misses < self.limit.misses_max => TurnCheck::Missed,
            _ => TurnCheck::Hangs,
        })
    }

    /// Handles the end of the owner: the thread of a worker that hangs is not joined.
    pub(crate) fn end(&self) {
        if self.misses >= self.limit.misses_max {
            self.progress.skip_join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(10);

    fn liveness(misses_max: u32) -> (Arc<Progress>, Liveness) {
        let progress = Arc::new(Progress::default());
        let limit = HangLimit { interval: EVERY, misses_max };
        (Arc::clone(&progress), Liveness::new(progress, limit, Instant::ZERO))
    }

    #[test]
    fn a_worker_hangs_after_the_limit_of_checks_without_a_turn() {
        let (progress, mut liveness) = liveness(2);
        let at = |checks: u64| Instant::ZERO + EVERY * checks;
        assert_eq!(liveness.check(at(0)), None, "too early");
        progress.count_turn();
        assert_eq!(liveness.check(at(1)), Some(TurnCheck::Turns));
        assert_eq!((liveness.check(at(1)), liveness.deadline()), (None, at(2)));
        assert_eq!(liveness.check(at(2)), Some(TurnCheck::Missed));
        progress.count_turn();
        assert_eq!(liveness.check(at(3)), Some(TurnCheck::Turns), "one miss is allowed");
        assert_eq!((liveness.check(at(4)), liveness.check(at(5))), (Some(TurnCheck::Missed), Some(TurnCheck::Hangs)));
        liveness.end();
        assert!(progress.is_join_skipped(), "its thread is not joined");
    }

    #[test]
    fn a_worker_that_had_no_work_has_time_for_its_first_turn() {
        let (progress, mut liveness) = liveness(1);
        let late = Instant::ZERO + EVERY * 100;
        liveness.restart(late);
        assert_eq!((liveness.check(late), liveness.check(late + EVERY)), (None, Some(TurnCheck::Hangs)));
        progress.count_turn();
        assert_eq!(liveness.check(late + EVERY * 2), Some(TurnCheck::Turns), "it responds again");
        liveness.end();
        assert!(!progress.is_join_skipped());
    }
}
