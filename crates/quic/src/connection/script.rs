//! Turning a connection into a script, for measurements of the other end.

use std::sync::Arc;

use wire::quic::Space;

use super::Connection;
use crate::script::{ScriptKeys, ScriptedPeer};

impl Connection {
    /// True if [`into_script`](Self::into_script) would succeed: the handshake is confirmed, there are `paths` paths and all of
    /// them work, both sides have heard all that was said, and no key update is under way.
    pub fn can_become_script(&mut self, paths: usize) -> bool {
        let has_answered = self.receive.snapshot().data_paths().all(|(_, ack)| !ack.is_pending() && !ack.is_due());
        let has_all = self.send.path_count() == paths;
        has_all && has_answered && self.control.is_in_step() && self.send.is_at_rest()
    }

    /// Ends this side's protocol and keeps what a script of `paths` paths needs to go on with the same peer: keys, and for each
    /// path its numbers, in the order in which the paths were opened. None unless it [can](Self::can_become_script).
    ///
    /// This is for measuring what the other side can do alone; see [`ScriptedPeer`].
    #[must_use]
    pub fn into_script(mut self, paths: usize) -> Option<(ScriptKeys, Vec<ScriptedPeer>)> {
        if !self.can_become_script(paths) {
            return None;
        }
        let is_multipath = self.control.is_multipath();
        let control = self.control.into_remains()?;
        let send = self.send.into_inner().into_remains()?;
        let open_header = Arc::clone(&control.ring.header);
        let keys = ScriptKeys::new(control.session, send.seal, control.ring, control.phase);
        let peer = |path: crate::send::script::PathRemains| {
            let largest = self.receive.largest(Space::Data, path.id);
            ScriptedPeer::new(&keys, Arc::clone(&open_header), path, is_multipath, largest)
        };
        let peers = send.paths.into_iter().map(peer).collect();
        Some((keys, peers))
    }
}
