//! Redundant transmission: all stream data on several paths at once, so that no failure of a path
//! delays it. DATAGRAM frames are sent once, because the receiver could not distinguish copies from
//! originals.

use units::Instant;

use crate::candidates::{batch_bytes, candidates, next_release, sendable_bytes};
use crate::earliest::EarliestDelivery;
use crate::lowest_rtt::reinjects_from_suspect;
use crate::scheduler::{Choice, PATHS_MAX, Scheduler};
use crate::view::{Demand, PathView, Straggler};

/// A scheduler that sends on the path with the earliest delivery that may send now, with copies on
/// the next ones.
///
/// If fewer paths than wanted may send, there are fewer copies: waiting for the slowest would slow
/// down the others. Reinjects only from suspect paths, because everything else has copies already.
#[derive(Debug)]
pub struct Redundant {
    wanted_count: usize,
    order: EarliestDelivery,
}

impl Redundant {
    /// Sends each packet on `copies` paths, including the first; 0 counts as 1, and more than
    /// [`PATHS_MAX`] counts as [`PATHS_MAX`].
    pub fn new(copies: u8) -> Self {
        Self { wanted_count: usize::from(copies).clamp(1, PATHS_MAX), order: EarliestDelivery::new() }
    }
}

impl Scheduler for Redundant {
    fn choose(&mut self, now: Instant, demand: &Demand, paths: &[PathView]) -> Choice {
        let mask = candidates(now, paths);
        let wanted_count = self.wanted_count;
        let ranked = self.order.rank(now, demand.ready_bytes, paths, mask);
        let ready = ranked.iter().map(|delivery| delivery.index).filter(|&i| paths[i].permits_datagram(now));
        let mut chosen: Option<(usize, u64)> = None;
        let mut copies = 0u32;
        for index in ready.take(wanted_count) {
            let path = &paths[index];
            match &mut chosen {
                None => chosen = Some((index, sendable_bytes(path, batch_bytes(path)))),
                Some((first, bytes_max)) => {
                    // The copies must fit the smallest of the windows.
                    if path.available_window() < paths[*first].datagram_bytes {
                        continue;
                    }
                    *bytes_max = sendable_bytes(&paths[*first], (*bytes_max).min(path.available_window()));
                    copies |= 1 << index;
                }
            }
        }
        let Some((path, bytes_max)) = chosen else {
            return Choice::Wait { until: next_release(now, paths, mask) };
        };
        self.order.on_grant(now, bytes_max.min(demand.ready_bytes), paths, copies | 1 << path);
        Choice::Send { path, bytes_max, copies }
    }

    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
        reinjects_from_suspect(now, straggler, on, paths)
    }
}
