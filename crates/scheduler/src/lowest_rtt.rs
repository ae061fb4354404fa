//! Lowest RTT first: the default of most multipath transports.

use units::Instant;

use crate::candidates::{batch_bytes, bits, candidates, next_release, sendable_bytes};
use crate::scheduler::{Choice, Scheduler};
use crate::view::{Demand, PathView, Straggler};

/// A scheduler that fills the path with the lowest smoothed RTT, then the next. It never waits
/// while an eligible path may send, so the tail of a transfer may be sent on a slow path. It
/// reinjects only from suspect paths.
#[derive(Debug, Default, Clone, Copy)]
pub struct LowestRtt;

impl Scheduler for LowestRtt {
    fn choose(&mut self, now: Instant, _demand: &Demand, paths: &[PathView]) -> Choice {
        let mask = candidates(now, paths);
        let ready = bits(mask).filter(|&index| paths[index].permits_datagram(now));
        match ready.min_by_key(|&index| paths[index].srtt) {
            Some(index) => {
                let path = &paths[index];
                Choice::Send { path: index, bytes_max: sendable_bytes(path, batch_bytes(path)), copies: 0 }
            }
            None => Choice::Wait { until: next_release(now, paths, mask) },
        }
    }

    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
        reinjects_from_suspect(now, straggler, on, paths)
    }
}

/// Returns whether `straggler` is on a suspect path and `on` is an eligible path that may send: the
/// rule of strategies without arrival estimates.
pub(crate) fn reinjects_from_suspect(now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
    let is_stuck = paths.get(straggler.path).is_some_and(|path| path.is_suspect);
    let is_ready = bits(candidates(now, paths)).any(|index| index == on && paths[index].may_send(now));
    is_stuck && is_ready && on != straggler.path
}
