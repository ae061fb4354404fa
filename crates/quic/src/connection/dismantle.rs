//! Dismantling a connection, for measurements of the other end.

use wire::quic::Space;

use super::Connection;
use crate::dismantle::{Dismantled, DismantledPath, OpenKeys};

impl Connection {
    /// True if [`dismantle`](Self::dismantle) would succeed: the handshake is confirmed, there are
    /// `paths` paths and all of them work, nothing is unacknowledged on either side, and no key
    /// update is under way.
    #[doc(hidden)]
    pub fn can_dismantle(&mut self, paths: usize) -> bool {
        let has_answered = self.receive.half.snapshot().data_paths().all(|(_, ack)| !ack.is_pending() && !ack.is_due());
        let has_all = self.send.path_count() == paths;
        has_all && has_answered && self.control.is_in_step() && self.send.is_at_rest()
    }

    /// Ends this side's protocol and returns what is needed to continue with the same peer on
    /// `paths` paths: keys, and for each path its numbers, in the order in which the paths were
    /// opened. None unless it [can](Self::can_dismantle).
    ///
    /// This is for measuring the other side alone: see the module
    /// [`dismantle`](crate::dismantle).
    #[doc(hidden)]
    #[must_use]
    pub fn dismantle(mut self, paths: usize) -> Option<Dismantled> {
        if !self.can_dismantle(paths) {
            return None;
        }
        let is_multipath = self.control.is_multipath();
        let control = self.control.into_remains()?;
        let send = self.send.into_inner().into_remains()?;
        let paths = send.paths.into_iter().map(|path| DismantledPath {
            id: path.id,
            remote_id: path.remote_id,
            addresses: path.addresses,
            next_number: path.next_number,
            largest_received: self.receive.half.largest(Space::Data, path.id),
        });
        Some(Dismantled {
            session: control.session,
            seal: send.seal,
            open: OpenKeys(control.one_rtt),
            phase: control.phase,
            is_multipath,
            paths: paths.collect(),
        })
    }
}
