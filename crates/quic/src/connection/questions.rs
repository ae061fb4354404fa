//! What a connection can be asked.

use std::sync::Arc;

use wire::quic::Side;

use super::Connection;
use crate::send::path::Addresses;
use crate::session::ExportError;
use crate::stats::{PathStats, Stats};

impl Connection {
    /// Whether [`poll_event`](Self::poll_event) has something to say.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Whether data of streams or frames of the protocol's wait to be sent, acknowledgements aside. Whether they may leave is another
    /// matter.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        !self.send.rests() && self.send.wants_to_send()
    }

    /// Bytes that congestion control lets be in flight now, over all paths that are open.
    pub fn window_bytes(&self) -> u64 {
        self.send.window_bytes()
    }

    /// Which role we play.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Our side of the handshake is complete and nobody has said goodbye.
    pub fn is_established(&self) -> bool {
        self.control.is_established()
    }

    /// The handshake goes on.
    pub fn is_handshaking(&self) -> bool {
        self.control.is_handshaking()
    }

    /// Nothing is left to do.
    pub fn is_closed(&self) -> bool {
        self.control.is_closed()
    }

    /// The ends of the path that answers soonest.
    pub fn addresses(&self) -> Addresses {
        self.send.path().addresses
    }

    /// Both sides speak multipath; known once the handshake is complete.
    pub fn is_multipath(&self) -> bool {
        self.control.is_multipath()
    }

    /// Every path at this moment, in the order in which they were opened.
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.send.path_stats()
    }

    /// The peer's certificate chain or raw public key, leaf first, as TLS has authenticated it; empty if it showed none, and
    /// until our side of the handshake is complete.
    pub fn peer_identity(&self) -> Arc<[Vec<u8>]> {
        self.control.peer_identity()
    }

    /// Keying material that both sides and nobody else can compute (RFC 8446, section 7.5).
    ///
    /// # Errors
    /// While the handshake is not complete.
    pub fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        self.control.session().export(label, context, out)
    }

    /// The state of the moment.
    pub fn stats(&self) -> Stats {
        let path = self.send.path();
        let (started_at, handshake_time) = self.control.times();
        Stats {
            send: self.send.stats(),
            receive: self.apart.as_ref().map_or_else(|| self.receive.stats(), |apart| apart.stats.clone()),
            round_trip: path.rtt.smoothed(),
            round_trip_min: path.rtt.min(),
            in_flight_bytes: path.in_flight,
            congestion: path.congestion.snapshot(),
            datagram_size: path.datagram_size,
            handshake_time,
            started_at,
            session: self.control.summary(),
            is_multipath: self.control.is_multipath(),
            paths: self.send.path_stats(),
        }
    }
}
