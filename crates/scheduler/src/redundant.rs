//! All stream data on several paths at once: capacity spent on not waiting for the path that fails. Datagrams go once: nobody
//! could tell them from their copies.

use units::Instant;

use crate::candidates::{allowance, batch_bytes, candidates, next_release};
use crate::lowest_rtt::reinjects_from_suspect;
use crate::{Choice, Demand, EarliestDelivery, PATHS_MAX, PathView, Scheduler, Straggler};

/// The path of the earliest delivery that may send now, and copies on the next ones.
///
/// If fewer than the wanted number of paths may send, there are fewer copies: waiting for the slowest of them would
/// give up the speed of the others. Sends stragglers again only from suspect paths; everything else is there twice
/// already.
#[derive(Debug)]
pub struct Redundant {
    wanted_count: usize,
    order: EarliestDelivery,
}

impl Redundant {
    /// Each packet on `copies` paths, the first one included; 0 counts as 1, and more than [`PATHS_MAX`] as that many.
    pub fn new(copies: u8) -> Self {
        Self { wanted_count: usize::from(copies).clamp(1, PATHS_MAX), order: EarliestDelivery::new() }
    }
}

impl Scheduler for Redundant {
    fn choose(&mut self, now: Instant, demand: &Demand, paths: &[PathView]) -> Choice {
        let mask = candidates(now, paths);
        let wanted_count = self.wanted_count;
        let ranked = self.order.rank(now, demand.ready_bytes, paths, mask);
        let ready = ranked.iter().map(|delivery| delivery.index).filter(|&i| paths[i].has_room_for_datagram(now));
        let mut chosen: Option<(usize, u64)> = None;
        let mut copies = 0u32;
        for index in ready.take(wanted_count) {
            let path = &paths[index];
            match &mut chosen {
                None => chosen = Some((index, allowance(path, batch_bytes(path)))),
                Some((first, bytes_max)) => {
                    // The copies must fit where they go: no more than the narrowest of the windows.
                    if path.window_room() < paths[*first].datagram_bytes {
                        continue;
                    }
                    *bytes_max = allowance(&paths[*first], (*bytes_max).min(path.window_room()));
                    copies |= 1 << index;
                }
            }
        }
        let Some((path, bytes_max)) = chosen else {
            return Choice::Wait { until: next_release(now, paths, mask) };
        };
        self.order.on_promise(now, bytes_max.min(demand.ready_bytes), paths, copies | 1 << path);
        Choice::Send { path, bytes_max, copies }
    }

    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
        reinjects_from_suspect(now, straggler, on, paths)
    }
}
