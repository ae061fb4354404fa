//! The parts of control that a scripted peer continues with: see the module
//! [`dismantle`](crate::dismantle).

use super::Control;
use crate::open::keys::OneRttKeys;
use crate::session::Session;

/// The parts of control that outlive it.
pub(crate) struct ControlParts {
    pub(crate) session: Box<dyn Session>,
    /// Opens the peer's 1-RTT packets.
    pub(crate) one_rtt: OneRttKeys,
    /// Key updates that both sides have made.
    pub(crate) phase: u64,
}

impl Control {
    /// True if no key update is under way, so that both sides are in the same phase.
    pub(crate) fn is_in_step(&self) -> bool {
        self.is_confirmed() && self.keys.is_in_step() && self.keys.one_rtt().is_some()
    }

    /// The end of control; none if it is not [in step](Self::is_in_step).
    pub(crate) fn into_remains(self) -> Option<ControlParts> {
        if !self.is_in_step() {
            return None;
        }
        let (one_rtt, phase) = self.keys.into_remains()?;
        Some(ControlParts { session: self.session.into_inner(), one_rtt, phase })
    }
}
