//! The paths of a peer, as the thread that receives from it has seen them: the thread of a driver cannot ask for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use net::MonotonicClock;
use quic_endpoint::{PathState, PathStats};
use tunnel::PathView;
use tunnel::path_choice::PathUse;
use units::{Duration, Instant};

/// What paths are used for is looked at while packets come. Later than this, nothing uses them.
const USES_MAX_AGE: Duration = Duration::from_secs(2);

/// Phases of controllers that have not found the capacity of their path.
const SLOW_STARTS: [&str; 3] = ["startup", "slow_start", "conservative_slow_start"];

/// The paths that work, and what they are used for.
#[derive(Debug)]
pub struct PathViews {
    clock: MonotonicClock,
    views: Mutex<Vec<PathView>>,
    /// Changes each time they are set.
    version: AtomicU64,
    /// Since when.
    uses: Mutex<(Instant, Vec<PathUse>)>,
}

impl Default for PathViews {
    fn default() -> Self {
        let uses = Mutex::new((Instant::ZERO, Vec::new()));
        Self { clock: MonotonicClock::start(), views: Mutex::default(), version: AtomicU64::new(0), uses }
    }
}

impl PathViews {
    /// The paths are these now.
    pub(crate) fn set(&self, paths: &[PathStats]) {
        *self.views.lock().unwrap_or_else(PoisonError::into_inner) = path_views(paths);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The paths, unless they are those of this version still, which becomes theirs.
    pub(crate) fn newer(&self, version: &mut u64) -> Option<Vec<PathView>> {
        let now = self.version.load(Ordering::Acquire);
        if now == *version {
            return None;
        }
        *version = now;
        Some(self.views.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The paths are used for this.
    pub(crate) fn set_uses(&self, uses: Vec<PathUse>) {
        *self.uses.lock().unwrap_or_else(PoisonError::into_inner) = (self.clock.now(), uses);
    }

    /// What the paths are used for, if flows keep to one each.
    pub fn uses(&self) -> Vec<PathUse> {
        let (since, uses) = &*self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = self.clock.now().saturating_since(*since) > USES_MAX_AGE;
        if is_old { Vec::new() } else { uses.clone() }
    }
}

/// The paths that work.
pub(crate) fn path_views(paths: &[PathStats]) -> Vec<PathView> {
    let working = paths.iter().filter(|path| path.state == PathState::Active && !path.is_backup);
    let view = |path: &PathStats| PathView {
        id: path.id.0,
        round_trip: path.round_trip,
        // Before the end of slow start, the estimate says little.
        rate: Some(path.capacity).filter(|rate| !rate.is_zero() && !SLOW_STARTS.contains(&path.congestion.phase)),
        at_least: path.capacity,
        packets: (path.packets_sent, path.packets_lost),
    };
    working.map(view).collect()
}
