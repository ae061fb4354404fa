//! The random decisions of the send half.

use units::Rng;
use wire::quic::{PathId, Space};

/// The generator, and a seed for what must not depend on when it is decided.
#[derive(Debug)]
pub(super) struct Randomness {
    /// Drawn from only for packets that certainly leave, so that polling for plans without data
    /// does not change the sequence.
    pub(super) rng: Rng,
    /// Seed of decisions that must not depend on when they are taken: those of paths and greased
    /// bits.
    seed: u64,
}

impl Randomness {
    pub(super) fn new(rng: Rng) -> Self {
        Self { seed: rng.split("paths and grease").next_u64(), rng }
    }

    /// The generator of one path.
    pub(super) fn of_path(&self, id: PathId) -> Rng {
        Rng::from_seed(self.seed).split(&format!("path {}", id.0))
    }

    /// A random QUIC bit (RFC 9287): a function of the path and the first packet number, so that polling
    /// for a plan without data does not change the bit of the plan that follows.
    pub(super) fn greased_bit(&self, path: PathId, space: Space, number: u64) -> bool {
        // After 2^32 packets the bits repeat those of another path, which is harmless.
        let of_path = (space.index() as u64) << 62 ^ u64::from(path.0) << 32;
        Rng::from_seed(self.seed ^ of_path ^ number).next_u64() & 1 == 0
    }
}
