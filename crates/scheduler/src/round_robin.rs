//! In turn: the yardstick that any cleverness must beat.

use units::Instant;

use crate::candidates::{allowance, bits, candidates, next_release};
use crate::lowest_rtt::reinjects_from_suspect;
use crate::{Choice, Demand, PathView, Scheduler, Straggler};

/// Datagrams of one turn. One would be the purest, and cost a system call for each packet; a whole batch would put
/// every small transfer on a single path.
pub const TURN_DATAGRAMS: u64 = 8;

/// Takes the paths that may send in turn, by path ID, [`TURN_DATAGRAMS`] each. Sends stragglers again only from suspect
/// paths.
#[derive(Debug, Default, Clone, Copy)]
pub struct RoundRobin {
    last_id: Option<u32>,
}

impl RoundRobin {
    /// A scheduler whose first turn is the first path's.
    pub const fn new() -> Self {
        Self { last_id: None }
    }
}

impl Scheduler for RoundRobin {
    fn choose(&mut self, now: Instant, _demand: &Demand, paths: &[PathView]) -> Choice {
        let mask = candidates(now, paths);
        let ready = bits(mask).filter(|&index| paths[index].has_room_for_datagram(now));
        // Those after the last one first, then from the start again. By ID, because indices shift when paths go.
        match ready.min_by_key(|&index| (self.last_id.is_some_and(|last| paths[index].id <= last), paths[index].id)) {
            Some(index) => {
                let path = &paths[index];
                self.last_id = Some(path.id);
                let bytes_max = allowance(path, path.datagram_bytes.saturating_mul(TURN_DATAGRAMS));
                Choice::Send { path: index, bytes_max, copies: 0 }
            }
            None => Choice::Wait { until: next_release(now, paths, mask) },
        }
    }

    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
        reinjects_from_suspect(now, straggler, on, paths)
    }
}
