//! Calls that change nothing.

use std::sync::Arc;

use wire::quic::Side;

use super::Connection;
use crate::addresses::Addresses;
use crate::control::paths::open::PathWait;
use crate::observed::PathMetrics;
use crate::session::ExportError;
use crate::stats::{PathStats, Stats};

impl Connection {
    /// Bytes that congestion control allows in flight now, over all open paths.
    pub fn window_bytes(&self) -> u64 {
        self.send.window_bytes()
    }

    /// Our role.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Our side of the handshake is complete and neither side has closed.
    pub fn is_established(&self) -> bool {
        self.control.is_established()
    }

    /// The handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.control.is_handshaking()
    }

    /// The connection is over and can be dropped.
    pub fn is_closed(&self) -> bool {
        self.control.is_closed()
    }

    /// The addresses of the path with the shortest round trip.
    pub fn addresses(&self) -> Addresses {
        self.send.path().link.addresses
    }

    /// Multipath was negotiated; known once the handshake is complete.
    pub fn is_multipath(&self) -> bool {
        self.control.is_multipath()
    }

    /// The reason why the path requested last waits. `None` if every requested path was opened.
    pub fn path_wait(&self) -> Option<PathWait> {
        self.control.path_wait()
    }

    /// Every path at this moment, in the order in which they were opened.
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.send.path_stats()
    }

    /// The recovery state of every path, in the order in which they were opened. For a replay.
    pub(crate) fn path_metrics(&self) -> Vec<PathMetrics> {
        self.send.path_metrics()
    }

    /// The peer's certificate chain or raw public key, leaf first, as authenticated by TLS; empty
    /// if there is none, and until our side of the handshake is complete.
    pub fn peer_identity(&self) -> Arc<[Vec<u8>]> {
        self.control.peer_identity()
    }

    /// Keying material that only the two sides can compute (RFC 8446, section 7.5).
    ///
    /// # Errors
    /// While the handshake is not complete.
    pub fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        self.control.session().export(label, context, out)
    }

    /// The present state.
    pub fn stats(&self) -> Stats {
        let path = self.send.path();
        let (started_at, handshake_time) = self.control.times();
        Stats {
            send: self.send.stats(),
            receive: self
                .detached
                .as_ref()
                .map_or_else(|| self.receive.half.stats(), |detached| detached.stats.clone()),
            round_trip: path.recovery.rtt.smoothed(),
            round_trip_min: path.recovery.rtt.min(),
            in_flight_bytes: path.recovery.in_flight,
            congestion: path.recovery.congestion.snapshot(),
            datagram_size: path.size.bytes(),
            handshake_time,
            started_at,
            session: self.control.summary(),
            is_multipath: self.control.is_multipath(),
            paths: self.send.path_stats(),
        }
    }
}
