//! What control hands over when a script takes its place.

use super::Control;
use crate::open::PhaseRing;
use crate::session::Session;

/// What is left of control once nothing more is to be controlled.
pub(crate) struct ControlRemains {
    pub(crate) session: Box<dyn Session>,
    /// Opens the peer's 1-RTT packets.
    pub(crate) ring: PhaseRing,
    /// Key updates that both sides have made.
    pub(crate) phase: u64,
}

impl Control {
    /// True if no key update is under way, so that one number says in which phase both sides are.
    pub(crate) fn is_in_step(&self) -> bool {
        self.is_confirmed() && self.send_phase == self.receive_phase && self.ring.is_some()
    }

    /// The end of control; none if it is not [in step](Self::is_in_step).
    pub(crate) fn into_remains(self) -> Option<ControlRemains> {
        if !self.is_in_step() {
            return None;
        }
        Some(ControlRemains { session: self.session.into_inner(), ring: self.ring?, phase: self.send_phase })
    }
}
