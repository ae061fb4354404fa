//! [`Meters`]: the rate of a peer, in both directions.

use std::sync::Arc;

use net::MonotonicClock;
use tunnel::meter::{Meter, Turn};
use units::Rate;

/// The meters of a peer, which its packets and its terminated connections share.
#[derive(Debug)]
pub struct Meters {
    /// The clock of the meters.
    pub(crate) clock: MonotonicClock,
    /// Of what goes to the peer.
    pub(crate) outward: Option<Arc<Meter>>,
    /// Of what comes from it.
    pub(crate) inward: Option<Arc<Meter>>,
}

impl Meters {
    /// Of an end that keeps to `rate`, if there is one. If it `polices`, it holds the peer to the rate, too.
    pub fn new(clock: MonotonicClock, rate: Option<Rate>, polices: bool) -> Self {
        let outward = rate.map(|rate| Arc::new(Meter::sender(rate)));
        let inward = rate.filter(|_| polices).map(|rate| Arc::new(Meter::receiver(rate)));
        Self { clock, outward, inward }
    }

    /// The places of one more sender, and of what comes from its other end.
    pub(crate) fn turns(&self) -> (Option<Turn>, Option<Turn>) {
        let turn = |meter: &Option<Arc<Meter>>| meter.as_ref().map(|meter| Turn::new(Arc::clone(meter)));
        (turn(&self.outward), turn(&self.inward))
    }
}
