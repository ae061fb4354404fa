//! One generator per fault, so that enabling or increasing one fault does not shift the draws of
//! another.

use units::Rng;

use crate::bursts::Bursts;

#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) loss: Rng,
    pub(crate) bursts: Bursts,
    pub(crate) duplicate: Rng,
    pub(crate) corrupt: Rng,
    /// Generator for the position of the corruption: the packet type decides how many draws it
    /// takes.
    pub(crate) corrupt_where: Rng,
    pub(crate) reorder: Rng,
    pub(crate) jitter: Rng,
}

impl Faults {
    pub(crate) fn new(rng: &Rng) -> Self {
        Self {
            loss: rng.split("loss"),
            bursts: Bursts::new(rng),
            duplicate: rng.split("duplicate"),
            corrupt: rng.split("corrupt"),
            corrupt_where: rng.split("corrupt where"),
            reorder: rng.split("reorder"),
            jitter: rng.split("jitter"),
        }
    }
}
