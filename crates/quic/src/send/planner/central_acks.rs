//! Acknowledgements of all paths by one decision: where they leave, and all of them together.

use units::Instant;
use wire::quic::Space;

use super::{SendHalf, put_ack};
use crate::exchange::Exchange;
use crate::plan::Plan;
use crate::receive::Snapshot;
use crate::send::draft::Draft;
use crate::send::frames::SentFrame;
use crate::send::path::SendPath;
use crate::stats::PathState;

/// Another path takes the acknowledgements over only if its round trip is shorter than this part of the present one's: each
/// change makes the peer measure anew (multipath draft-21, section 5.3: estimates converge if the choice is stable).
const BETTER_NUMERATOR: u64 = 3;
const BETTER_DENOMINATOR: u64 = 4;

/// How good a path is for acknowledgements: the lower, the better.
type Rank = (bool, bool, bool, u64);

impl SendHalf {
    /// Where acknowledgements of all paths leave now, if anything can leave anywhere.
    ///
    /// They are not congestion controlled (RFC 9000, section 13.2), so a full window is no obstacle. The peer does not answer
    /// them either: a path on which nothing comes any more while others are heard is taken for cut long before it is silent.
    pub(super) fn choose_for_acks(&self, room: &dyn Fn(u16) -> usize) -> Option<usize> {
        let can_send =
            |path: &SendPath| path.is_open() && path.refused_until.is_none() && room(path.addresses.socket) > 0;
        let active = self.paths.iter().filter(|path| path.is_active());
        let heard_at = active.map(|path| path.heard_at).max().unwrap_or(Instant::ZERO);
        let rank = |path: &SendPath| -> Rank {
            let is_quiet = heard_at.saturating_since(path.heard_at) > path.rtt.pto_base();
            let is_limited = path.amplification_room() < path.datagram_size as u64;
            let is_unsure = path.is_doubted || is_quiet;
            (path.state != PathState::Active, is_limited, is_unsure, path.rtt.smoothed().as_nanos())
        };
        let usable = (0..self.paths.len()).filter(|at| can_send(&self.paths[*at]));
        let (at, best) = usable.map(|at| (at, rank(&self.paths[at]))).min_by_key(|(_, rank)| *rank)?;
        let present = self.acks_leave_at.filter(|at| self.paths.get(*at).is_some_and(can_send));
        let is_kept = present.filter(|at| {
            let kept = rank(&self.paths[*at]);
            (kept.0, kept.1, kept.2) == (best.0, best.1, best.2)
                && best.3.saturating_mul(BETTER_DENOMINATOR) >= kept.3.saturating_mul(BETTER_NUMERATOR)
        });
        Some(is_kept.unwrap_or(at))
    }

    /// Puts an acknowledgement of every path that has something pending into the packet, those that are due first: what finds no
    /// room stays due and leaves in the next one.
    #[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
    pub(super) fn put_all_acks(
        &self,
        now: Instant,
        at: usize,
        snapshot: &Snapshot,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
        exchange: &mut Exchange,
    ) {
        if self.acks_leave_at != Some(at) {
            return;
        }
        for is_due in [true, false] {
            for (path, ack) in snapshot.data_paths().filter(|(_, ack)| ack.is_pending() && ack.is_due() == is_due) {
                put_ack(now, Space::Data, path, true, ack, draft, plan, frames, exchange);
            }
        }
    }
}
