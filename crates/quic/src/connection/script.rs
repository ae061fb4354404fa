//! Turning a connection into a script, for measurements of the other end.

use wire::quic::{PathId, Space};

use super::Connection;
use crate::script::ScriptedPeer;

impl Connection {
    /// True if [`into_script`](Self::into_script) would succeed: the handshake is confirmed, both sides have heard all that was
    /// said, multipath was not negotiated ([`max_paths`](crate::TransportConfig::max_paths) zero on one side), and no key update is
    /// under way.
    pub fn can_become_script(&mut self) -> bool {
        let acks = self.receive.snapshot().get(Space::Data, PathId::ZERO);
        let has_answered = !acks.pending && !acks.due;
        has_answered && self.control.is_in_step() && !self.control.is_multipath() && self.send.is_at_rest()
    }

    /// Ends this side's protocol and keeps what a script needs to go on with the same peer: keys and numbers. None unless it
    /// [can](Self::can_become_script).
    ///
    /// This is for measuring what the other side can do alone; see [`ScriptedPeer`].
    #[must_use]
    pub fn into_script(mut self) -> Option<ScriptedPeer> {
        if !self.can_become_script() {
            return None;
        }
        let largest = self.receive.largest(Space::Data, PathId::ZERO);
        let control = self.control.into_remains()?;
        Some(ScriptedPeer::new(control, self.send.into_remains()?, largest))
    }
}
