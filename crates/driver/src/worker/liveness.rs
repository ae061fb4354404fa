//! Detecting a worker that hangs: it counts its turns, and its owner compares the count with an
//! earlier one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use units::{Duration, Instant};

/// What a worker and its owner share about its progress.
#[derive(Debug, Default)]
pub struct Progress {
    turns: AtomicU64,
    /// The owner has ended and found the worker hanging: its thread is not waited for.
    is_join_skipped: AtomicBool,
}

impl Progress {
    /// Another turn begins.
    pub fn count_turn(&self) {
        // One writer: a load and a store do.
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The owner ends and does not wait for a worker that hangs.
    pub fn skip_join(&self) {
        self.is_join_skipped.store(true, Ordering::Relaxed);
    }

    /// The owner has ended and does not wait.
    pub fn is_join_skipped(&self) -> bool {
        self.is_join_skipped.load(Ordering::Relaxed)
    }
}

/// How long an owner waits for a turn of a worker that has work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HangLimit {
    /// The time between two looks at the count.
    pub(crate) interval: Duration,
    /// So many looks in a row without a turn between them mean that the worker hangs.
    pub(crate) misses_max: u32,
}

/// What a look at the count of turns shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnCheck {
    /// The worker does turns.
    Turns,
    /// It did none since the last look. The next look decides.
    Missed,
    /// It hangs.
    Hangs,
}

/// The owner's view of a worker's progress.
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

    /// The worker gets work after it had none: it has time for a turn from now on.
    pub(crate) fn restart(&mut self, now: Instant) {
        (self.checked_at, self.misses) = (now, 0);
    }

    /// When [`check`](Self::check) has something to see.
    pub(crate) fn deadline(&self) -> Instant {
        self.checked_at + self.limit.interval
    }

    /// Looks at the count; none if it is too early for that. The caller then wakes the worker,
    /// because one that sleeps does a turn when it is woken.
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

    /// The owner ends: a worker that hangs is not waited for.
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
    fn a_worker_hangs_after_as_many_looks_without_a_turn_as_its_owner_is_patient() {
        let (progress, mut liveness) = liveness(2);
        let at = |looks: u64| Instant::ZERO + EVERY * looks;
        assert_eq!(liveness.check(at(0)), None, "too early");
        progress.count_turn();
        assert_eq!(liveness.check(at(1)), Some(TurnCheck::Turns));
        assert_eq!((liveness.check(at(1)), liveness.deadline()), (None, at(2)));
        assert_eq!(liveness.check(at(2)), Some(TurnCheck::Missed));
        progress.count_turn();
        assert_eq!(liveness.check(at(3)), Some(TurnCheck::Turns), "one miss is forgiven");
        assert_eq!((liveness.check(at(4)), liveness.check(at(5))), (Some(TurnCheck::Missed), Some(TurnCheck::Hangs)));
        liveness.end();
        assert!(progress.is_join_skipped(), "its thread is not waited for");
    }

    #[test]
    fn a_worker_that_had_no_work_has_time_for_its_first_turn() {
        let (progress, mut liveness) = liveness(1);
        let late = Instant::ZERO + EVERY * 100;
        liveness.restart(late);
        assert_eq!((liveness.check(late), liveness.check(late + EVERY)), (None, Some(TurnCheck::Hangs)));
        progress.count_turn();
        assert_eq!(liveness.check(late + EVERY * 2), Some(TurnCheck::Turns), "it is back");
        liveness.end();
        assert!(!progress.is_join_skipped());
    }
}
