//! The length-only stage: plans that are delivered without being sealed, for simulations.
//!
//! Simulated links and processors need the length and the content of a datagram, not its bytes.
//! Bulk data are packet runs ([`Plan`]), whose content is known before they are sealed: numbers,
//! stream, offsets, and the position of the payload in the application's chunks. So a run is
//! neither copied nor encrypted, opened nor parsed. Its packets are absorbed as the open stage
//! would return them, with the bytes of the application as payload. Everything else (handshake,
//! acknowledgements, control frames, tails) is sealed as usual, and so is a packet of a run whose
//! bytes are needed: because a link flips a bit, or because it was sent with the keys of another
//! phase.
//!
//! ```text
//!   plan ──▶ Unsealed ── datagram 0, 1, 2 … ──▶ simulated link ──▶ Connection::handle_unsealed
//!                └ seal_datagram ── bytes, where needed ──▶ Connection::handle_datagrams
//! ```
//!
//! The state of the connection is the same either way, as `crates/quic/tests/unsealed.rs` checks.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use wire::quic::{ConnectionId, PathId, Space, emit_short};

use crate::open::opened::{Opened, OpenedPacket, Record};
use crate::plan::{PacketRun, Piece, Plan, Planned, RunFrame};
use crate::seal::{protect, seal_item};
use crate::session::TAG_LEN;
use crate::strided_bytes::Layout;

/// The datagrams of a plan, most of them not sealed. The caller keeps it and fills it again once
/// none of them is in transit.
#[derive(Debug, Default)]
pub struct Unsealed {
    plan: Plan,
    places: Vec<Place>,
    sealed: Vec<u8>,
}

/// The position of a datagram.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Packet `index` of the run that is this item of the plan.
    InRun { item: u32, index: u32 },
    /// These bytes of `sealed`.
    Sealed { start: u32, end: u32, has_data: bool },
}

impl Unsealed {
    /// Without datagrams, to be filled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the content of `plan`, which gets the memory of an earlier one in exchange.
    pub fn fill(&mut self, plan: &mut Plan) {
        std::mem::swap(&mut self.plan, plan);
        plan.clear();
        self.place_datagrams();
    }

    /// As [`fill`](Self::fill), with a copy of `plan`. The payload is not copied.
    pub fn fill_from(&mut self, plan: &Plan) {
        self.plan.clone_from(plan);
        self.place_datagrams();
    }

    /// Finds the datagrams in the plan, and seals those that are not packets of a run of stream data.
    fn place_datagrams(&mut self) {
        self.places.clear();
        self.sealed.clear();
        let size = self.plan.segment_size;
        // Bytes of the datagram that is being filled, which began here in `sealed`.
        let (mut filled, mut start, mut has_data) = (0, 0, false);
        for (number, item) in (0_u32..).zip(&self.plan.items) {
            if let Planned::Run(run) = item
                && matches!(run.frame, RunFrame::Stream { .. })
                && filled == 0
                && run_packet_len(run) == size
            {
                self.places.extend((0..run.count).map(|index| Place::InRun { item: number, index }));
                continue;
            }
            let before = self.sealed.len();
            seal_item(&self.plan, item, &mut self.sealed);
            filled += self.sealed.len() - before;
            has_data |= self.plan.has_data(item);
            while filled >= size {
                self.places.push(Place::Sealed { start: start as u32, end: (start + size) as u32, has_data });
                (filled, start, has_data) = (filled - size, start + size, false);
            }
        }
        if filled > 0 {
            self.places.push(Place::Sealed { start: start as u32, end: (start + filled) as u32, has_data });
        }
        debug_assert_eq!(self.places.len(), self.plan.datagram_count, "a plan states its own size");
    }

    /// The path of all datagrams.
    pub fn path(&self) -> PathId {
        self.plan.path
    }

    /// How many datagrams there are.
    pub fn datagram_count(&self) -> usize {
        self.places.len()
    }

    /// The length of a datagram, in bytes of UDP payload.
    pub fn len_bytes(&self, datagram: usize) -> usize {
        match self.places[datagram] {
            Place::InRun { .. } => self.plan.segment_size,
            Place::Sealed { start, end, .. } => (end - start) as usize,
        }
    }

    /// True if a datagram has bytes: it is not a packet of a run.
    pub fn is_sealed(&self, datagram: usize) -> bool {
        matches!(self.places[datagram], Place::Sealed { .. })
    }

    /// The bytes of a datagram; none of a packet of a run.
    ///
    /// # Panics
    /// If there is no such datagram.
    pub fn sealed_bytes(&self, datagram: usize) -> Option<&[u8]> {
        match self.places[datagram] {
            Place::InRun { .. } => None,
            Place::Sealed { start, end, .. } => Some(&self.sealed[start as usize..end as usize]),
        }
    }

    /// True if a datagram has payload: bytes of a stream, a datagram or the handshake, and not only
    /// control frames.
    pub fn has_data(&self, datagram: usize) -> bool {
        matches!(self.places[datagram], Place::InRun { .. } | Place::Sealed { has_data: true, .. })
    }

    /// The bytes of application data in a datagram of a run; of another one its length, which may
    /// be more.
    pub fn data_len_bytes(&self, datagram: usize) -> usize {
        match self.places[datagram] {
            Place::InRun { item, .. } => self.run(item).stride as usize,
            Place::Sealed { start, end, .. } => (end - start) as usize,
        }
    }

    /// Appends the bytes of a datagram, as [`seal`](crate::seal::seal) makes them.
    ///
    /// # Panics
    /// If there is no such datagram.
    pub fn seal_datagram(&self, datagram: usize, out: &mut Vec<u8>) {
        match self.places[datagram] {
            Place::Sealed { start, end, .. } => out.extend_from_slice(&self.sealed[start as usize..end as usize]),
            Place::InRun { item, index } => self.seal_of_run(self.run(item), index, out),
        }
    }

    /// Appends the bytes of a datagram that are known without sealing it: all of one that has
    /// bytes; of a packet of a run its header and that of its frame, without protection, so that
    /// number and offset can be read. For observers.
    ///
    /// # Panics
    /// If there is no such datagram.
    pub fn known_bytes(&self, datagram: usize, out: &mut Vec<u8>) {
        match self.places[datagram] {
            Place::Sealed { .. } => self.seal_datagram(datagram, out),
            Place::InRun { item, index } => {
                self.headers_of_run(self.run(item), index, out);
            }
        }
    }

    /// The connection ID that a datagram of a run is sent to; none for one that has bytes.
    ///
    /// # Panics
    /// If there is no such datagram.
    pub fn destination(&self, datagram: usize) -> Option<&ConnectionId> {
        match self.places[datagram] {
            Place::InRun { item, .. } => Some(&self.run(item).dcid),
            Place::Sealed { .. } => None,
        }
    }

    /// The phase bit of these datagrams, if all of them are packets of one run.
    pub(crate) fn phase_of(&self, datagrams: Range<usize>) -> Option<bool> {
        let Place::InRun { item: first, .. } = self.places[datagrams.start] else { return None };
        let Place::InRun { item: last, .. } = self.places[datagrams.end - 1] else { return None };
        (first == last).then(|| self.run(first).key_phase)
    }

    /// Fills `opened` as the open stage would: with the first of these datagrams, which are packets
    /// of one run, and those after it whose payload is in the same chunk. Returns the memory of the
    /// payload, and how many datagrams they are.
    pub(crate) fn open_group(&self, datagrams: Range<usize>, opened: &mut Opened) -> (Cow<'_, Bytes>, usize) {
        let Place::InRun { item, index } = self.places[datagrams.start] else {
            unreachable!("called for packets of a run only");
        };
        let run = self.run(item);
        let stride = run.stride as usize;
        let (piece, skip) = self.piece_at(run, index as usize * stride);
        let left = piece.len as usize - skip;
        let (buffer, start, count) = if left >= stride {
            let source = &self.plan.chunks[piece.chunk as usize];
            (Cow::Borrowed(source), piece.start as usize + skip, datagrams.len().min(left / stride))
        } else {
            let mut payload = BytesMut::with_capacity(stride);
            self.copy_payload(run, index, |part| payload.extend_from_slice(part));
            (Cow::Owned(payload.freeze()), 0, 1)
        };
        opened.clear();
        opened.packets.push(OpenedPacket {
            space: Space::Data,
            path: self.plan.path,
            number: run.number + u64::from(index),
            count: count as u32,
            records: 0..1,
            eliciting: true,
            phase_advanced: false,
            error: None,
        });
        let data = Layout { start, step: stride, len: stride, count };
        let RunFrame::Stream { id, offset } = run.frame else { unreachable!("other runs are sealed") };
        let offset = offset + u64::from(index) * u64::from(run.stride);
        opened.records.push(Record::Stream { id, offset, fin: false, data });
        (buffer, count)
    }

    fn run(&self, item: u32) -> &PacketRun {
        match &self.plan.items[item as usize] {
            Planned::Run(run) => run,
            Planned::Packet(_) => unreachable!("positions name runs"),
        }
    }

    /// The piece that contains byte `at` of a run's payload, and how many bytes of the piece are
    /// before it.
    fn piece_at(&self, run: &PacketRun, at: usize) -> (&Piece, usize) {
        let mut skip = at;
        for piece in &self.plan.pieces[run.pieces_from as usize..run.pieces_to as usize] {
            if skip < piece.len as usize {
                return (piece, skip);
            }
            skip -= piece.len as usize;
        }
        unreachable!("a run has the payload of all its packets");
    }

    fn copy_payload(&self, run: &PacketRun, index: u32, mut take: impl FnMut(&[u8])) {
        let (mut at, mut missing) = (index as usize * run.stride as usize, run.stride as usize);
        while missing > 0 {
            let (piece, skip) = self.piece_at(run, at);
            let bytes = &self.plan.bytes_of(piece)[skip..];
            let len = missing.min(bytes.len());
            take(&bytes[..len]);
            at += len;
            missing -= len;
        }
    }

    /// Appends the headers of a packet of a run, without protection. Returns the position of the
    /// packet number.
    fn headers_of_run(&self, run: &PacketRun, index: u32, out: &mut Vec<u8>) -> usize {
        let number = run.number + u64::from(index);
        let number_len = usize::from(run.number_len);
        let number_at = emit_short(&run.dcid, number, number_len, run.key_phase, false, run.fixed_bit, out);
        run.frame.emit_header(u64::from(index), run.stride, out);
        number_at
    }

    fn seal_of_run(&self, run: &PacketRun, index: u32, out: &mut Vec<u8>) {
        let (start, number) = (out.len(), run.number + u64::from(index));
        let number_len = usize::from(run.number_len);
        let number_at = self.headers_of_run(run, index, out);
        self.copy_payload(run, index, |part| out.extend_from_slice(part));
        let keys = self.plan.keys_of(Space::Data);
        protect(keys, self.plan.path, number, run.number_len, number_at + number_len, start, out);
    }
}

impl Plan {
    fn has_data(&self, item: &Planned) -> bool {
        match item {
            Planned::Run(_) => true,
            Planned::Packet(packet) => {
                let pieces = &self.pieces[packet.pieces_from as usize..packet.pieces_to as usize];
                pieces.iter().any(|piece| piece.chunk != Piece::HEAD)
            }
        }
    }
}

/// The length of each packet of a run, in bytes.
fn run_packet_len(run: &PacketRun) -> usize {
    1 + run.dcid.len() + usize::from(run.number_len) + run.frame.header_len() + run.stride as usize + TAG_LEN
}
