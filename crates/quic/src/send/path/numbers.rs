//! Packet numbers of one path: which are skipped, and where the key phase began.

use units::Rng;

use crate::send::space::SendSpace;

/// The mean number of packets between two skipped numbers.
const SKIP_INTERVAL: u64 = 1 << 12;

/// What a path decides about its packet numbers. Its [`SendSpace`] holds those that were sent.
#[derive(Debug)]
pub(crate) struct PathNumbers {
    /// The next packet number to skip.
    next_skip: u64,
    /// The first packet number of the current key phase.
    pub(crate) phase_from: u64,
}

impl PathNumbers {
    pub(super) fn new() -> Self {
        Self { next_skip: SKIP_INTERVAL, phase_from: 0 }
    }

    /// Skips the next packet number of the path's space if it is time.
    #[inline]
    pub(crate) fn maybe_skip(&mut self, space: &mut SendSpace, rng: &mut Rng) {
        if space.next_number >= self.next_skip {
            space.skip_number();
            self.next_skip = space.next_number + SKIP_INTERVAL / 2 + rng.below(SKIP_INTERVAL);
        }
    }
}
