//! One end of a connection as a script: it has the keys and the packet numbers, and does almost no
//! work.
//!
//! A real handshake makes a real connection, one end of which then becomes a [`ScriptedPeer`] for
//! each path ([`into_script`]). It reads the headers of arriving packets and acknowledges them; it
//! sends stream data that were sealed in advance. It decrypts no payload, keeps nothing for
//! retransmission and has no timers, so it needs a channel that neither loses nor reorders. It
//! ignores all requests of the other end.
//!
//! Each path is a separate script, which may run on a separate processor. The paths share
//! [`ScriptKeys`] for key updates. Packets of a path may be observed on another processor than the
//! one that sends ([`AckObserver`]). [`ScriptReader`] opens arriving packets, to check them.
//!
//! Everything a script sends is a [`Plan`], to be sealed by [`seal`](mod@quic::seal) on any
//! processor at any time.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use quic::dismantle::{DismantledPath, OpenKeys, PacketSettings, StreamData};
use quic::session::{DirectionKeys, HeaderKey, Session};
use quic::{Addresses, Connection, ConnectionId, PathId, Plan, StreamId};
use wire::quic::frame::{Frame, emit_ack};

mod observer;
mod reader;

pub use observer::AckObserver;
pub use reader::{ScriptReader, Unopened};

/// Ends `connection`'s protocol and continues it as a script of `paths` paths, in the order in
/// which these were opened. Returns `None` unless [`Connection::can_dismantle`].
#[must_use]
pub fn into_script(connection: Connection, paths: usize) -> Option<(ScriptKeys, Vec<ScriptedPeer>)> {
    let left = connection.dismantle(paths)?;
    let open_header = left.open.header();
    let keys = ScriptKeys { session: left.session, seal: left.seal, open: left.open, phase: left.phase };
    let peer = |path: DismantledPath| ScriptedPeer::new(&keys, Arc::clone(&open_header), path, left.is_multipath);
    let peers = left.paths.into_iter().map(peer).collect();
    Some((keys, peers))
}

/// A datagram that a script cannot process: part of a handshake, or of another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotScripted;

impl fmt::Display for NotScripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the script received something other than a 1-RTT packet")
    }
}

impl std::error::Error for NotScripted {}

/// The keys of all paths of one connection, and the source of later ones.
pub struct ScriptKeys {
    session: Box<dyn Session>,
    seal: DirectionKeys,
    /// Keys that open the peer's packets, as of the beginning.
    open: OpenKeys,
    /// Key updates so far.
    phase: u64,
}

impl ScriptKeys {
    /// Gives a path that [lacks](ScriptedPeer::lacks_keys) keys those of the peer's phase. No path
    /// may be a whole phase behind the others: each carries some packets of every phase.
    pub fn renew(&mut self, peer: &mut ScriptedPeer) {
        if !peer.lacks_keys() {
            return;
        }
        // The first path that requests them derives them; the others get the same.
        if self.phase % 2 != peer.observer.peer_phase % 2 {
            self.advance();
        }
        peer.take_keys(self);
    }

    /// Seals with the next keys from now on, on all paths, as RFC 9001, section 6.6, requires
    /// before 2^23 packets of AES-GCM. Returns false without effect while the peer has not followed
    /// the last update on each path; only [noted](ScriptedPeer::note_arrived) packets show that.
    pub fn update(&mut self, peers: &mut [&mut ScriptedPeer]) -> bool {
        let may = peers.iter().all(|peer| peer.phase == peer.observer.peer_phase && peer.phase == self.phase);
        if may {
            self.advance();
            peers.iter_mut().for_each(|peer| peer.take_keys(self));
        }
        may
    }

    fn advance(&mut self) {
        self.seal.packet = self.session.next_phase().seal;
        self.session.advance_phase();
        self.phase += 1;
    }
}

impl fmt::Debug for ScriptKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptKeys").field("phase", &self.phase).finish_non_exhaustive()
    }
}

/// One path of one end of a confirmed connection, as a script. See the [module](self).
pub struct ScriptedPeer {
    /// Observer of arriving packets.
    observer: AckObserver,
    seal: DirectionKeys,
    /// Number of our key updates.
    phase: u64,
    path: PathId,
    /// Whether acknowledgements name their path (multipath draft-21, section 2.3).
    is_multipath: bool,
    remote_id: ConnectionId,
    addresses: Addresses,
    next_number: u64,
}

impl ScriptedPeer {
    fn new(keys: &ScriptKeys, open_header: Arc<dyn HeaderKey>, path: DismantledPath, is_multipath: bool) -> Self {
        Self {
            observer: AckObserver::new(open_header, keys.phase, path.largest_received),
            seal: keys.seal.clone(),
            phase: keys.phase,
            path: path.id,
            is_multipath,
            remote_id: path.remote_id,
            addresses: path.addresses,
            next_number: path.next_number,
        }
    }

    /// Returns the path of the connection that this script continues.
    pub fn path(&self) -> PathId {
        self.path
    }

    /// Returns the two ends of the path, as the connection knew them.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    fn take_keys(&mut self, keys: &ScriptKeys) {
        self.seal = keys.seal.clone();
        self.phase = keys.phase;
    }

    // ── Receiving ────────────────────────────────────────────────────────────────────────────────

    /// Notes the datagrams of a batch: see [`AckObserver::note_arrived`].
    ///
    /// # Errors
    /// Fails if a datagram is no 1-RTT packet; nothing of the batch counts then.
    pub fn note_arrived(&mut self, batch: &[u8], stride: usize) -> Result<(), NotScripted> {
        self.observer.note_arrived(batch, stride)
    }

    /// Returns the number of packets noted since the last acknowledgement.
    pub fn unacknowledged(&self) -> u64 {
        self.observer.unacknowledged()
    }

    /// Detaches the observer: from now on it notes arrivals, on any processor, and the script gets
    /// them by [taking them over](Self::take_observed). An observer detached earlier notes no later
    /// packets.
    #[must_use]
    pub fn detach_observer(&mut self) -> AckObserver {
        self.observer.part()
    }

    /// Takes over the notes of a [detached](Self::detach_observer) observer since the last call;
    /// returns the number of packets. [`lacks_keys`](Self::lacks_keys) may be true after it.
    pub fn take_observed(&mut self, observer: &mut AckObserver) -> u64 {
        self.observer.take_from(observer)
    }

    // ── Key updates ──────────────────────────────────────────────────────────────────────────────

    /// Returns whether the peer has updated its keys: if so, call [`ScriptKeys::renew`] before
    /// planning anything.
    pub fn lacks_keys(&self) -> bool {
        self.phase < self.observer.peer_phase
    }

    // ── Sending ──────────────────────────────────────────────────────────────────────────────────

    /// Reserves the next packet number for [`plan_ack_as`](Self::plan_ack_as).
    pub fn reserve_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Fills `plan` with an acknowledgement of all packets [noted](Self::note_arrived) since the
    /// last one; returns false if there are none.
    pub fn plan_ack(&mut self, plan: &mut Plan) -> bool {
        if self.observer.arrived.is_empty() {
            return false;
        }
        let number = self.reserve_number();
        self.plan_ack_as(number, plan);
        true
    }

    /// Does the same as [`plan_ack`](Self::plan_ack) with a [reserved](Self::reserve_number) packet
    /// number; plans a bare PING if nothing was noted, so that the number is used.
    pub fn plan_ack_as(&mut self, number: u64, plan: &mut Plan) {
        let named = self.is_multipath.then_some(self.path);
        let ranges = self.observer.take();
        self.packets().plan_packet(number, plan, |out| {
            if ranges.is_empty() {
                Frame::Ping.emit(out);
            } else {
                emit_ack(named, 0, ranges.iter().rev().map(|range| range.start..=range.end - 1), None, out);
            }
        });
    }

    /// Fills `plan` with an ACK_FREQUENCY frame that requests one acknowledgement per `packets`
    /// packets or `delay_us` microseconds (draft-ietf-quic-ack-frequency-14), as our own send half
    /// would.
    pub fn plan_ack_frequency(&mut self, packets: u64, delay_us: u64, plan: &mut Plan) {
        let number = self.reserve_number();
        let frame = Frame::AckFrequency {
            sequence: 0,
            ack_eliciting_threshold: packets.saturating_sub(1),
            requested_max_ack_delay: delay_us,
            reordering_threshold: 1,
        };
        self.packets().plan_packet(number, plan, |out| frame.emit(out));
    }

    /// Fills `plan` with a run of at most `packets` full datagrams of `size` bytes, which hold
    /// bytes of stream `id` from `offset` on: the bytes at stream offset n are those of `pattern`
    /// at n modulo its length. Returns the number of stream bytes. The run is shorter where the
    /// frame's header would grow.
    ///
    /// # Panics
    /// Panics if `pattern` is empty, `packets` is zero, or `size` holds no byte of data.
    pub fn plan_data(
        &mut self,
        id: StreamId,
        offset: u64,
        packets: usize,
        size: usize,
        pattern: &Bytes,
        plan: &mut Plan,
    ) -> u64 {
        let data = StreamData { id, offset, packets, size, pattern };
        let (count, bytes) = self.packets().plan_data(self.next_number, &data, plan);
        self.next_number += count;
        bytes
    }

    fn packets(&self) -> PacketSettings<'_> {
        PacketSettings {
            path: self.path,
            addresses: self.addresses,
            remote_id: self.remote_id,
            seal: &self.seal,
            key_phase: self.phase % 2 == 1,
        }
    }
}

impl fmt::Debug for ScriptedPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedPeer")
            .field("path", &self.path)
            .field("next_number", &self.next_number)
            .field("observer", &self.observer)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
