//! An end of a connection that only pretends: it holds the keys and the numbers, and next to nothing is work for it.
//!
//! Document 000 measured one side of a connection on all processors of a machine, with the other side played by a driver in
//! memory that cost nothing. So does this: a real handshake makes a real connection, one end of which then becomes a
//! [`ScriptedPeer`] ([`Connection::into_script`](crate::Connection::into_script)). It knows which packets arrive by their
//! headers alone and acknowledges them; it seals stream data in advance. It decrypts no payload, keeps nothing for
//! retransmission and has no timers, so it needs a channel that loses and reorders nothing, and it is of no use to an
//! application: the peer can talk to it all day and is never understood.
//!
//! Each path of the connection becomes a script of its own, which may be on a processor of its own. What they share is when keys
//! change: [`ScriptKeys`]. What a path hears may be noted on yet another processor than the one that speaks: [`ScriptedEar`].
//! Whoever wants to know what the peer really sends opens it with a [`ScriptReader`].
//!
//! Everything it writes is a [`Plan`], to be sealed by [`seal`](crate::seal::seal) wherever there is time.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use wire::quic::frame::{Frame, emit_ack, stream_header_len};
use wire::quic::{ConnectionId, PathId, Space, StreamId, emit_short};

use crate::open::PhaseRing;
use crate::plan::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Plan, Planned, PlannedPacket, PlannedRow};
use crate::send::path::Addresses;
use crate::send::script::PathRemains;
use crate::session::{DirectionKeys, HeaderKey, Session, TAG_LEN};

mod ear;
mod reader;

pub use ear::ScriptedEar;
pub use reader::{ScriptReader, Unopened};

/// Numbers of its packets always have four bytes: they decode however far the peer is behind.
const NUMBER_LEN: usize = 4;

/// A datagram that no script understands: the handshake goes on, or it is for somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotScripted;

impl fmt::Display for NotScripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the script was sent something else than a 1-RTT packet")
    }
}

impl std::error::Error for NotScripted {}

/// The keys of all paths of one connection, and where the next ones come from.
pub struct ScriptKeys {
    session: Box<dyn Session>,
    seal: DirectionKeys,
    /// What the peer's packets are opened with, as of the beginning.
    ring: PhaseRing,
    /// Key updates so far.
    phase: u64,
}

impl ScriptKeys {
    pub(crate) fn new(session: Box<dyn Session>, seal: DirectionKeys, ring: PhaseRing, phase: u64) -> Self {
        Self { session, seal, ring, phase }
    }

    /// Gives a path that [lacks](ScriptedPeer::lacks_keys) keys those of the peer's phase. No path may be a whole phase behind the
    /// others: each carries some of what is sent in a phase.
    pub fn renew(&mut self, peer: &mut ScriptedPeer) {
        if !peer.lacks_keys() {
            return;
        }
        // The first path that hears of it makes them, the others get the same.
        if self.phase % 2 != peer.ear.peer_phase % 2 {
            self.advance();
        }
        peer.take_keys(self);
    }

    /// Seals with the next keys from now on, on all paths, as RFC 9001, section 6.6, wants it before 2^23 packets of AES-GCM. False,
    /// and nothing changes, while the peer has not followed the last update on each of them; only what is
    /// [noted](ScriptedPeer::note_arrived) tells.
    pub fn update(&mut self, peers: &mut [&mut ScriptedPeer]) -> bool {
        let may = peers.iter().all(|peer| peer.phase == peer.ear.peer_phase && peer.phase == self.phase);
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
    /// What arrived since the last acknowledgement.
    ear: ScriptedEar,
    seal: DirectionKeys,
    /// Our key updates.
    phase: u64,
    path: PathId,
    /// Acknowledgements name their path (multipath draft-21, section 2.3).
    is_multipath: bool,
    remote_id: ConnectionId,
    addresses: Addresses,
    next_number: u64,
}

impl ScriptedPeer {
    pub(crate) fn new(
        keys: &ScriptKeys,
        open_header: Arc<dyn HeaderKey>,
        path: PathRemains,
        is_multipath: bool,
        largest: Option<u64>,
    ) -> Self {
        Self {
            ear: ScriptedEar::new(open_header, keys.phase, largest),
            seal: keys.seal.clone(),
            phase: keys.phase,
            path: path.id,
            is_multipath,
            remote_id: path.remote_id,
            addresses: path.addresses,
            next_number: path.next_number,
        }
    }

    /// Which path of the connection this is.
    pub fn path(&self) -> PathId {
        self.path
    }

    /// The two ends of the path, as the connection knew them.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    fn take_keys(&mut self, keys: &ScriptKeys) {
        self.seal = keys.seal.clone();
        self.phase = keys.phase;
    }

    // ── What arrives ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Notes the datagrams of a batch: see [`ScriptedEar::note_arrived`].
    ///
    /// # Errors
    /// If something is no 1-RTT packet; nothing of the batch counts then.
    pub fn note_arrived(&mut self, batch: &[u8], stride: usize) -> Result<(), NotScripted> {
        self.ear.note_arrived(batch, stride)
    }

    /// Packets noted since the last acknowledgement.
    pub fn unacknowledged(&self) -> u64 {
        self.ear.unacknowledged()
    }

    /// Gives the ear away: from now on arrivals are noted with it, on whichever processor, and the script knows of them what it
    /// [hears](Self::hear). An ear that was given away before is deaf to what comes after.
    #[must_use]
    pub fn part_ear(&mut self) -> ScriptedEar {
        self.ear.part()
    }

    /// Takes over what an ear that was [given away](Self::part_ear) has noted since the last time; returns how many packets that
    /// is. [`lacks_keys`](Self::lacks_keys) may be true after it.
    pub fn hear(&mut self, ear: &mut ScriptedEar) -> u64 {
        self.ear.take_from(ear)
    }

    // ── Key updates ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// The peer has updated its keys: [`ScriptKeys::renew`] is due before anything is planned.
    pub fn lacks_keys(&self) -> bool {
        self.phase < self.ear.peer_phase
    }

    // ── What is said ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Leaves out the next number for a packet that is made later, by one of the methods that end in `_as`.
    pub fn reserve_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Fills `plan` with an acknowledgement of all that was [noted](Self::note_arrived) since the last one; false if that is
    /// nothing.
    pub fn plan_ack(&mut self, plan: &mut Plan) -> bool {
        if self.ear.arrived.is_empty() {
            return false;
        }
        let number = self.reserve_number();
        self.plan_ack_as(number, plan);
        true
    }

    /// As [`plan_ack`](Self::plan_ack), under a [reserved](Self::reserve_number) number; a bare PING if nothing was noted, so that
    /// the number is used.
    pub fn plan_ack_as(&mut self, number: u64, plan: &mut Plan) {
        let named = self.is_multipath.then_some(self.path);
        let ranges = self.ear.take();
        self.plan_packet(number, plan, |out| {
            if ranges.is_empty() {
                Frame::Ping.emit(out);
            } else {
                emit_ack(named, 0, ranges.iter().rev().map(|range| range.start..=range.end - 1), None, out);
            }
        });
    }

    /// Fills `plan` with a wish to be acknowledged once in `packets` packets or `delay_us` microseconds
    /// (draft-ietf-quic-ack-frequency-14), as our own send half would say it.
    pub fn plan_ack_frequency(&mut self, packets: u64, delay_us: u64, plan: &mut Plan) {
        let number = self.reserve_number();
        let frame = Frame::AckFrequency {
            sequence: 0,
            ack_eliciting_threshold: packets.saturating_sub(1),
            requested_max_ack_delay: delay_us,
            reordering_threshold: 1,
        };
        self.plan_packet(number, plan, |out| frame.emit(out));
    }

    /// Fills `plan` with a row of at most `packets` full datagrams of `size` bytes, which hold bytes of stream `id` from
    /// `offset` on: the bytes at stream offset n are those of `pattern` at n modulo its length. Returns how many bytes of the
    /// stream that are. The row is shorter where the frame's header would grow.
    ///
    /// # Panics
    /// If `pattern` is empty, `packets` is zero, or `size` holds no byte of data.
    pub fn plan_data(
        &mut self,
        id: StreamId,
        offset: u64,
        packets: usize,
        size: usize,
        pattern: &Bytes,
        plan: &mut Plan,
    ) -> u64 {
        let header_len = stream_header_len(id, offset, 0, true);
        let overhead = TAG_LEN + 1 + self.remote_id.len() + NUMBER_LEN + header_len;
        assert!(packets > 0 && size > overhead && !pattern.is_empty(), "a row holds data");
        let stride = (size - overhead) as u64;
        let max = packets.min(PLAN_DATAGRAMS_MAX).min((PLAN_BYTES_MAX / size).max(1)) as u64;
        let is_uniform = |count: &u64| stream_header_len(id, offset + (count - 1) * stride, 0, true) == header_len;
        let count = (1..=max).rev().find(is_uniform).unwrap_or(1);
        self.begin(plan, size);
        let mut at = (offset % pattern.len() as u64) as usize;
        let mut missing = (count * stride) as usize;
        while missing > 0 {
            let len = missing.min(pattern.len() - at);
            plan.push_chunk_piece(pattern, at, len);
            missing -= len;
            at = 0;
        }
        plan.items.push(Planned::Row(PlannedRow {
            number: self.next_number,
            count: count as u32,
            number_len: NUMBER_LEN as u8,
            key_phase: self.phase % 2 == 1,
            fixed_bit: true,
            dcid: self.remote_id,
            id,
            offset,
            stride: stride as u32,
            pieces_from: 0,
            pieces_to: plan.pieces.len() as u32,
        }));
        plan.packet_count = count as usize;
        plan.datagram_count = count as usize;
        plan.size_bytes = count as usize * size;
        plan.note_numbers(Space::Data, self.next_number, self.next_number + count - 1);
        self.next_number += count;
        count * stride
    }

    fn begin(&self, plan: &mut Plan, size: usize) {
        plan.clear();
        plan.path = self.path;
        plan.addresses = Some(self.addresses);
        plan.segment_size = size;
        plan.keys[Space::Data.index()] = Some(self.seal.clone());
    }

    /// One packet with the frames that `put` writes.
    fn plan_packet(&self, number: u64, plan: &mut Plan, put: impl FnOnce(&mut Vec<u8>)) {
        self.begin(plan, 0);
        emit_short(&self.remote_id, number, NUMBER_LEN, self.phase % 2 == 1, false, true, &mut plan.head);
        let header_len = plan.head.len();
        put(&mut plan.head);
        plan.push_head_piece(0, true);
        plan.items.push(Planned::Packet(PlannedPacket {
            space: Space::Data,
            number,
            number_len: NUMBER_LEN as u8,
            header_len: header_len as u16,
            pieces_from: 0,
            pieces_to: 1,
            padding: 0,
        }));
        plan.packet_count = 1;
        plan.datagram_count = 1;
        plan.size_bytes = plan.head.len() + TAG_LEN;
        plan.segment_size = plan.size_bytes;
        plan.note_numbers(Space::Data, number, number);
    }
}

impl fmt::Debug for ScriptedPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedPeer")
            .field("path", &self.path)
            .field("next_number", &self.next_number)
            .field("ear", &self.ear)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
