//! Central acknowledgements: one path carries the acknowledgements of all paths.

use units::Instant;
use wire::quic::{PathId, Space};

use super::{Pass, put_ack};
use crate::send::SendHalf;
use crate::send::draft::Draft;
use crate::send::frames::SentFrame;
use crate::send::path::SendPath;
use crate::stats::PathState;

/// Another path takes over the acknowledgements only if its round trip is shorter than this
/// fraction of the current one's: each change makes the peer measure anew (multipath draft-21,
/// section 5.3: estimates converge if the choice is stable).
const BETTER_NUMERATOR: u64 = 3;
const BETTER_DENOMINATOR: u64 = 4;

/// Suitability of a path for acknowledgements; the lowest is best.
type Rank = (bool, bool, bool, u64);

impl SendHalf {
    /// Chooses the path that carries the acknowledgements of all paths now; `None` if no path can
    /// send.
    ///
    /// Acknowledgements are not congestion controlled (RFC 9000, section 13.2), so a full window
    /// does not matter. The peer does not acknowledge them either, so a path on which nothing
    /// arrives while others receive counts as cut long before it is silent.
    pub(super) fn choose_ack_path(&self, pass: &Pass<'_>) -> Option<usize> {
        let can_send =
            |path: &SendPath| path.is_open() && path.link.refused_until.is_none() && pass.budget_of(path) > 0;
        let active = self.paths.iter().filter(|path| path.is_active());
        let received_at = active.map(|path| path.link.received_at).max().unwrap_or(Instant::ZERO);
        let rank = |path: &SendPath| -> Rank {
            let is_quiet = received_at.saturating_since(path.link.received_at) > path.recovery.rtt.pto_base();
            let is_limited = path.link.amplification_budget() < path.size.bytes() as u64;
            let is_unsure = path.recovery.suspicion.is_suspect || is_quiet;
            (path.phase.state != PathState::Active, is_limited, is_unsure, path.recovery.rtt.smoothed().as_nanos())
        };
        let usable = (0..self.paths.len()).filter(|at| can_send(&self.paths[*at]));
        let (at, best) = usable.map(|at| (at, rank(&self.paths[at]))).min_by_key(|(_, rank)| *rank)?;
        let present = self.choice.ack_path.filter(|at| self.paths.get(*at).is_some_and(can_send));
        let is_kept = present.filter(|at| {
            let kept = rank(&self.paths[*at]);
            (kept.0, kept.1, kept.2) == (best.0, best.1, best.2)
                && best.3.saturating_mul(BETTER_DENOMINATOR) >= kept.3.saturating_mul(BETTER_NUMERATOR)
        });
        Some(is_kept.unwrap_or(at))
    }

    /// Whether packets on the path at `at` carry the acknowledgements of `path`: on the chosen path those
    /// of all, except of a path whose address is being validated, which are sent there. Its peer may have
    /// left the former address on all paths at once and send on this one alone: then the others lead
    /// nowhere, and nothing shows that. The peer may hold back its PATH_RESPONSE until acknowledgements
    /// open its window (RFC 9000, section 8.2.2), so the validation must not be waited for.
    pub(super) fn carries_centrally(&self, at: usize, path: PathId) -> bool {
        let is_own = self.paths[at].id == path;
        let is_apart = |path: &SendPath| path.phase.state == PathState::Validating && path.link.refused_until.is_none();
        if self.path_of(path).is_some_and(is_apart) { is_own } else { self.choice.ack_path == Some(at) }
    }

    /// Puts the pending acknowledgements of all paths into the packet, those that are due first. An
    /// acknowledgement that does not fit stays due and leaves in the next packet.
    pub(super) fn put_all_acks(&self, pass: &mut Pass<'_>, draft: &mut Draft, frames: &mut Vec<SentFrame>) {
        let snapshot = pass.snapshot;
        for is_due in [true, false] {
            for (path, ack) in snapshot.data_paths().filter(|(_, ack)| ack.is_pending() && ack.is_due() == is_due) {
                if self.carries_centrally(pass.at, path) {
                    put_ack(pass, Space::Data, path, true, ack, draft, frames);
                }
            }
        }
    }
}
