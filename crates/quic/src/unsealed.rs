//! The length-only stage: a plan on its way without being sealed, for simulations.
//!
//! Simulated links and processors need to know how long a datagram is and what it says, not its bytes. Bulk data are rows of
//! equal packets ([`Plan`]), and what a row says is known before it is sealed: numbers, stream, offsets, and where in the
//! application's chunks the payload lies. So a row is neither copied nor encrypted, opened nor parsed; its packets are absorbed as what
//! the open stage would have made of them, with the very bytes of the application as payload. All else (handshake,
//! acknowledgements, control frames, tails) is sealed as ever, and so is a packet of a row as soon as somebody needs its bytes: because
//! a link turns one of its bits around, or because it was sent with the keys of another phase.
//!
//! ```text
//!   plan ──▶ Unsealed ── datagram 0, 1, 2 … ──▶ simulated link ──▶ Connection::handle_unsealed
//!                └ seal_datagram ── bytes, where they matter ──▶ Connection::handle_datagrams
//! ```
//!
//! A connection comes out of it in the same state, whichever way its packets took: `crates/quic/tests/unsealed.rs`.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use wire::quic::frame::{emit_stream_header, stream_header_len};
use wire::quic::{ConnectionId, PathId, Space, emit_short};

use crate::open::{Opened, OpenedPacket, Record};
use crate::plan::{Piece, Plan, Planned, PlannedRow};
use crate::seal::{protect, seal_item};
use crate::session::TAG_LEN;
use crate::strip::Layout;

/// The datagrams of a plan, most of them not sealed. Kept by the caller and filled again once none of them is under way.
#[derive(Debug, Default)]
pub struct Unsealed {
    plan: Plan,
    places: Vec<Place>,
    sealed: Vec<u8>,
}

/// Where a datagram is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Packet `index` of the row that is this item of the plan.
    Row { item: u32, index: u32 },
    /// These bytes of `sealed`.
    Sealed { start: u32, end: u32, has_data: bool },
}

impl Unsealed {
    /// Nothing, to be filled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over what `plan` holds, and gives it memory of an earlier one in exchange.
    pub fn fill(&mut self, plan: &mut Plan) {
        std::mem::swap(&mut self.plan, plan);
        plan.clear();
        self.places.clear();
        self.sealed.clear();
        let size = self.plan.segment_size;
        // Bytes of the datagram that is being filled, which began here in `sealed`.
        let (mut filled, mut start, mut has_data) = (0, 0, false);
        for (number, item) in (0_u32..).zip(&self.plan.items) {
            if let Planned::Row(row) = item
                && filled == 0
                && row_packet_len(row) == size
            {
                self.places.extend((0..row.count).map(|index| Place::Row { item: number, index }));
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

    /// The path that all of it travels on.
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
            Place::Row { .. } => self.plan.segment_size,
            Place::Sealed { start, end, .. } => (end - start) as usize,
        }
    }

    /// True if a datagram has bytes: it is no packet of a row.
    pub fn is_sealed(&self, datagram: usize) -> bool {
        matches!(self.places[datagram], Place::Sealed { .. })
    }

    /// True if a datagram has payload: bytes of a stream, a datagram or the handshake, and not only what the protocol says itself.
    pub fn has_data(&self, datagram: usize) -> bool {
        matches!(self.places[datagram], Place::Row { .. } | Place::Sealed { has_data: true, .. })
    }

    /// The bytes of application data in a datagram of a row; of another one its length, which may be more.
    pub fn data_len_bytes(&self, datagram: usize) -> usize {
        match self.places[datagram] {
            Place::Row { item, .. } => self.row(item).stride as usize,
            Place::Sealed { start, end, .. } => (end - start) as usize,
        }
    }

    /// Appends the bytes of a datagram, as [`seal`](crate::seal::seal) would have made them.
    ///
    /// # Panics
    /// If there is no such datagram.
    pub fn seal_datagram(&self, datagram: usize, out: &mut Vec<u8>) {
        match self.places[datagram] {
            Place::Sealed { start, end, .. } => out.extend_from_slice(&self.sealed[start as usize..end as usize]),
            Place::Row { item, index } => self.seal_of_row(self.row(item), index, out),
        }
    }

    /// Appends those bytes of a datagram that there are without sealing it: all of one that has bytes; of a packet of a row its header and
    /// that of its frame, neither protected, so that number and offset can be read. For whoever looks on.
    ///
    /// # Panics
    /// If there is no such datagram.
    pub fn known_bytes(&self, datagram: usize, out: &mut Vec<u8>) {
        match self.places[datagram] {
            Place::Sealed { .. } => self.seal_datagram(datagram, out),
            Place::Row { item, index } => {
                self.headers_of_row(self.row(item), index, out);
            }
        }
    }

    /// The connection ID that a datagram of a row is sent to; none of one that has bytes.
    ///
    /// # Panics
    /// If there is no such datagram.
    pub fn destination(&self, datagram: usize) -> Option<&ConnectionId> {
        match self.places[datagram] {
            Place::Row { item, .. } => Some(&self.row(item).dcid),
            Place::Sealed { .. } => None,
        }
    }

    /// The phase bit of these datagrams, if all of them are packets of one row.
    pub(crate) fn phase_of(&self, datagrams: Range<usize>) -> Option<bool> {
        let Place::Row { item: first, .. } = self.places[datagrams.start] else { return None };
        let Place::Row { item: last, .. } = self.places[datagrams.end - 1] else { return None };
        (first == last).then(|| self.row(first).key_phase)
    }

    /// Makes of the first of these datagrams, which are packets of one row, and of as many after it as lie in the same chunk, what the
    /// open stage would make of them. Returns the memory in which the payload lies, and how many they are.
    pub(crate) fn open_group(&self, datagrams: Range<usize>, opened: &mut Opened) -> (Cow<'_, Bytes>, usize) {
        let Place::Row { item, index } = self.places[datagrams.start] else {
            unreachable!("asked of packets of a row only");
        };
        let row = self.row(item);
        let stride = row.stride as usize;
        let (piece, skip) = self.piece_at(row, index as usize * stride);
        let left = piece.len as usize - skip;
        let (buffer, start, count) = if left >= stride {
            let source = &self.plan.chunks[piece.chunk as usize];
            (Cow::Borrowed(source), piece.start as usize + skip, datagrams.len().min(left / stride))
        } else {
            let mut payload = BytesMut::with_capacity(stride);
            self.copy_payload(row, index, |part| payload.extend_from_slice(part));
            (Cow::Owned(payload.freeze()), 0, 1)
        };
        opened.clear();
        opened.packets.push(OpenedPacket {
            space: Space::Data,
            path: self.plan.path,
            number: row.number + u64::from(index),
            count: count as u32,
            records: 0..1,
            eliciting: true,
            phase_advanced: false,
            error: None,
        });
        let data = Layout { start, step: stride, len: stride, count };
        let offset = row.offset + u64::from(index) * u64::from(row.stride);
        opened.records.push(Record::Stream { id: row.id, offset, fin: false, data });
        (buffer, count)
    }

    fn row(&self, item: u32) -> &PlannedRow {
        match &self.plan.items[item as usize] {
            Planned::Row(row) => row,
            Planned::Packet(_) => unreachable!("places name rows"),
        }
    }

    /// The piece in which byte `at` of a row's payload lies, and how many bytes of the piece are before it.
    fn piece_at(&self, row: &PlannedRow, at: usize) -> (&Piece, usize) {
        let mut skip = at;
        for piece in &self.plan.pieces[row.pieces_from as usize..row.pieces_to as usize] {
            if skip < piece.len as usize {
                return (piece, skip);
            }
            skip -= piece.len as usize;
        }
        unreachable!("a row has the payload of all its packets");
    }

    fn copy_payload(&self, row: &PlannedRow, index: u32, mut take: impl FnMut(&[u8])) {
        let (mut at, mut missing) = (index as usize * row.stride as usize, row.stride as usize);
        while missing > 0 {
            let (piece, skip) = self.piece_at(row, at);
            let bytes = &self.plan.bytes_of(piece)[skip..];
            let len = missing.min(bytes.len());
            take(&bytes[..len]);
            at += len;
            missing -= len;
        }
    }

    /// What is before the payload of a packet of a row, not protected. Returns where the packet number is.
    fn headers_of_row(&self, row: &PlannedRow, index: u32, out: &mut Vec<u8>) -> usize {
        let number = row.number + u64::from(index);
        let number_len = usize::from(row.number_len);
        let number_at = emit_short(&row.dcid, number, number_len, row.key_phase, false, row.fixed_bit, out);
        let offset = row.offset + u64::from(index) * u64::from(row.stride);
        emit_stream_header(row.id, offset, row.stride as usize, false, true, out);
        number_at
    }

    fn seal_of_row(&self, row: &PlannedRow, index: u32, out: &mut Vec<u8>) {
        let (start, number) = (out.len(), row.number + u64::from(index));
        let number_len = usize::from(row.number_len);
        let number_at = self.headers_of_row(row, index, out);
        self.copy_payload(row, index, |part| out.extend_from_slice(part));
        let keys = self.plan.keys_of(Space::Data);
        protect(keys, self.plan.path, number, row.number_len, number_at + number_len, start, out);
    }
}

impl Plan {
    fn has_data(&self, item: &Planned) -> bool {
        match item {
            Planned::Row(_) => true,
            Planned::Packet(packet) => {
                let pieces = &self.pieces[packet.pieces_from as usize..packet.pieces_to as usize];
                pieces.iter().any(|piece| piece.chunk != Piece::HEAD)
            }
        }
    }
}

/// The length of each packet of a row, in bytes.
fn row_packet_len(row: &PlannedRow) -> usize {
    let header_len = stream_header_len(row.id, row.offset, 0, true);
    1 + row.dcid.len() + usize::from(row.number_len) + header_len + row.stride as usize + TAG_LEN
}
