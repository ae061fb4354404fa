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
//! change: [`ScriptKeys`].
//!
//! Everything it writes is a [`Plan`], to be sealed by [`seal`](crate::seal::seal) wherever there is time.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use wire::quic::frame::{Frame, emit_ack, stream_header_len};
use wire::quic::{ConnectionId, PathId, SAMPLE_LEN, Space, StreamId, decode_number, emit_short, read_unprotected};

use crate::control::ids::LOCAL_ID_LEN;
use crate::plan::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Plan, Planned, PlannedPacket, PlannedRow};
use crate::range_set::RangeSet;
use crate::send::path::Addresses;
use crate::send::script::PathRemains;
use crate::session::{DirectionKeys, HeaderKey, Session, TAG_LEN};

/// Numbers of its packets always have four bytes: they decode however far the peer is behind.
const NUMBER_LEN: usize = 4;

/// Where the number of a packet for us lies.
const NUMBER_AT: usize = 1 + LOCAL_ID_LEN;

/// Where the sample of the header cipher lies (RFC 9001, section 5.4.2).
const SAMPLE_AT: usize = NUMBER_AT + 4;

/// Of the first byte of a packet with a long header.
const LONG_FORM: u8 = 0x80;

/// Ranges of one acknowledgement, so that it fits every datagram. A script that is not asked for one in time forgets the oldest:
/// what they hold counts as lost.
const RANGES_MAX: usize = 64;

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
    /// Key updates so far.
    phase: u64,
}

impl ScriptKeys {
    pub(crate) fn new(session: Box<dyn Session>, seal: DirectionKeys, phase: u64) -> Self {
        Self { session, seal, phase }
    }

    /// Gives a path that [lacks](ScriptedPeer::lacks_keys) keys those of the peer's phase. No path may be a whole phase behind the
    /// others: each carries some of what is sent in a phase.
    pub fn renew(&mut self, peer: &mut ScriptedPeer) {
        if !peer.lacks_keys() {
            return;
        }
        // The first path that hears of it makes them, the others get the same.
        if self.phase % 2 != peer.peer_phase % 2 {
            self.advance();
        }
        peer.take_keys(self);
    }

    /// Seals with the next keys from now on, on all paths, as RFC 9001, section 6.6, wants it before 2^23 packets of AES-GCM. False,
    /// and nothing changes, while the peer has not followed the last update on each of them; only what is
    /// [noted](ScriptedPeer::note_arrived) tells.
    pub fn update(&mut self, peers: &mut [&mut ScriptedPeer]) -> bool {
        let may = peers.iter().all(|peer| peer.phase == peer.peer_phase && peer.phase == self.phase);
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
    open_header: Arc<dyn HeaderKey>,
    seal: DirectionKeys,
    /// Key updates: those that the peer has made as far as this path has heard, and ours.
    peer_phase: u64,
    phase: u64,
    path: PathId,
    /// Acknowledgements name their path (multipath draft-21, section 2.3).
    is_multipath: bool,
    remote_id: ConnectionId,
    addresses: Addresses,
    next_number: u64,
    largest: Option<u64>,
    /// Numbers that arrived since the last acknowledgement, and how many they are.
    arrived: RangeSet,
    arrived_count: u64,
}

/// What the header of a packet says.
struct Header {
    number: u64,
    key_phase: bool,
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
            open_header,
            seal: keys.seal.clone(),
            peer_phase: keys.phase,
            phase: keys.phase,
            path: path.id,
            is_multipath,
            remote_id: path.remote_id,
            addresses: path.addresses,
            next_number: path.next_number,
            largest,
            arrived: RangeSet::new(),
            arrived_count: 0,
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

    /// Notes the datagrams of a batch, all `stride` bytes long but the last. They must come in the order in which they were
    /// numbered. Takes the protection off the first and the last header, and off the others only if a number between them is
    /// missing: senders leave some out, and acknowledging those is an error (RFC 9000, section 21.4).
    ///
    /// # Errors
    /// If something is no 1-RTT packet; nothing of the batch counts then.
    pub fn note_arrived(&mut self, batch: &[u8], stride: usize) -> Result<(), NotScripted> {
        let stride = stride.max(1);
        let count = batch.len().div_ceil(stride);
        let Some(last) = batch.chunks(stride).next_back() else { return Ok(()) };
        let first = self.header_of(&batch[..stride.min(batch.len())], self.largest)?;
        let last = self.header_of(last, Some(first.number))?;
        let is_whole = last.number.checked_sub(first.number) == Some(count as u64 - 1);
        if is_whole {
            self.arrived.insert(first.number..last.number + 1);
        } else {
            let mut known = self.largest;
            let mut numbers = Vec::with_capacity(count.min(PLAN_DATAGRAMS_MAX));
            for datagram in batch.chunks(stride) {
                let number = self.header_of(datagram, known)?.number;
                known = Some(number);
                numbers.push(number);
            }
            numbers.into_iter().for_each(|number| self.arrived.insert(number..number + 1));
        }
        self.arrived_count += count as u64;
        self.largest = self.largest.max(Some(last.number));
        while self.arrived.range_count() > RANGES_MAX
            && let Some(oldest) = self.arrived.first()
        {
            self.arrived.remove(oldest);
        }
        self.follow(last.key_phase);
        Ok(())
    }

    /// Packets noted since the last acknowledgement.
    pub fn unacknowledged(&self) -> u64 {
        self.arrived_count
    }

    fn header_of(&self, datagram: &[u8], largest: Option<u64>) -> Result<Header, NotScripted> {
        let sample = datagram.get(SAMPLE_AT..SAMPLE_AT + SAMPLE_LEN).ok_or(NotScripted)?;
        let mut first = datagram[0];
        if first & LONG_FORM != 0 {
            return Err(NotScripted);
        }
        let mut number = [0; 4];
        number.copy_from_slice(&datagram[NUMBER_AT..SAMPLE_AT]);
        self.open_header.unprotect(sample, &mut first, &mut number);
        let plain = read_unprotected(first, &number);
        let number = decode_number(largest, plain.truncated, plain.number_len);
        Ok(Header { number, key_phase: plain.key_phase })
    }

    // ── Key updates ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// The newest packet of the peer has this phase bit: if that is a new phase, ours follows before anything of it is
    /// acknowledged (RFC 9001, section 6.2).
    fn follow(&mut self, key_phase: bool) {
        if key_phase != (self.peer_phase % 2 == 1) {
            self.peer_phase += 1;
        }
    }

    /// The peer has updated its keys: [`ScriptKeys::renew`] is due before anything is planned.
    pub fn lacks_keys(&self) -> bool {
        self.phase < self.peer_phase
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
        if self.arrived.is_empty() {
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
        let ranges = std::mem::take(&mut self.arrived);
        self.arrived_count = 0;
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
            .field("largest", &self.largest)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
