//! Round robin: the baseline for the other strategies.

use units::Instant;

use crate::candidates::{bits, candidates, next_release, sendable_bytes};
use crate::lowest_rtt::reinjects_from_suspect;
use crate::scheduler::{Choice, Scheduler};
use crate::view::{Demand, PathView, Straggler};

/// Datagrams per turn. One would cost a system call per packet; a whole batch would put every small
/// transfer on a single path.
pub const TURN_DATAGRAMS: u64 = 8;

/// A scheduler that uses the paths that may send in turn, by path ID, with [`TURN_DATAGRAMS`] each.
/// It reinjects only from suspect paths.
#[derive(Debug, Default, Clone, Copy)]
pub struct RoundRobin {
    last_id: Option<u32>,
}

impl RoundRobin {
    /// Creates a scheduler that starts with the first path.
    pub const fn new() -> Self {
        Self { last_id: None }
    }
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, now: Instant, _demand: &Demand, paths: &[PathView]) -> Choice {
        let mask = candidates(now, paths);
        let ready = bits(mask).filter(|&index| paths[index].permits_datagram(now));
        // The paths after the last one come first, then those from the start. The order is by ID,
        // because indices shift when paths are removed.
        match ready.min_by_key(|&index| (self.last_id.is_some_and(|last| paths[index].id <= last), paths[index].id)) {
            Some(index) => {
                let path = &paths[index];
                self.last_id = Some(path.id);
                let bytes_max = sendable_bytes(path, path.datagram_bytes.saturating_mul(TURN_DATAGRAMS));
                Choice::Send { path: index, bytes_max, copies: 0 }
            }
            None => Choice::Wait { until: next_release(now, paths, mask) },
        }
    }

    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
        reinjects_from_suspect(now, straggler, on, paths)
    }
}
