//! The payload of a DATAGRAM frame: items, each a packet, segments of a super-packet, or a piece of a
//! packet. `docs/spec/tunnel.md` specifies the format.
//!
//! ```text
//!  byte  0      1..3   3..7       then, by kind
//!        flags  flow   sequence   [length 2]  packet: bytes
//!                                 [length 2]  segments: segment size 2, offset 2, headers, payload
//!                                 [length 2]  fragment: total 2, offset 2, bytes
//! ```

use bytes::{Buf, BufMut, Bytes};

/// Flows that a sender distinguishes, at most. An item with another number is malformed.
pub const FLOWS_MAX: u16 = 1024;

/// Bytes before the body of an item without its length.
pub const ITEM_HEADER_BYTES: usize = 7;
/// Bytes of the length, which an item has unless it is the last of its datagram.
pub const LENGTH_BYTES: usize = 2;
/// Bytes before the headers of segments, and before the bytes of a fragment.
pub const SPLIT_HEADER_BYTES: usize = 4;

const KIND_MASK: u8 = 0b0000_0011;
const KIND_PACKET: u8 = 0;
const KIND_SEGMENTS: u8 = 1;
const KIND_FRAGMENT: u8 = 2;
/// Nothing (since version 5): the rest of the datagram has no meaning.
const KIND_FILLING: u8 = 3;
/// The checksum of the transport is partial: its field has the sum of the pseudo-header.
const PARTIAL: u8 = 0b0000_0100;
/// The item has a length, and another item may follow.
const HAS_LENGTH: u8 = 0b0000_1000;
/// The flow keeps to one path (since version 3).
const PINNED: u8 = 0b0001_0000;
/// No other flag is defined: an item with one is malformed.
const KNOWN: u8 = KIND_MASK | PARTIAL | HAS_LENGTH | PINNED;

/// One item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The number of the flow, as its sender chose it.
    pub flow: u16,
    /// The position in the flow.
    pub sequence: u32,
    /// Whether the flow keeps to one path: an earlier item that has not arrived is lost.
    pub is_pinned: bool,
    /// What it carries.
    pub body: Body,
}

/// The content of an item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A whole IP packet.
    Packet {
        /// Whether its transport checksum is partial.
        is_partial: bool,
        /// The packet.
        packet: Bytes,
    },
    /// Some segments of a super-packet, whose checksum is partial: all its headers, and a part of its
    /// payload.
    Segments {
        /// Payload of each segment but the last, in bytes; not zero.
        segment: u16,
        /// Where the part begins in the payload of the whole, a multiple of `segment`.
        offset: u16,
        /// The headers of the whole, and the part.
        bytes: Bytes,
    },
    /// A piece of a packet that does not fit into a datagram.
    Fragment {
        /// Whether the packet's transport checksum is partial.
        is_partial: bool,
        /// The length of the packet.
        total: u16,
        /// Where the piece begins in it.
        offset: u16,
        /// The piece; not empty.
        bytes: Bytes,
    },
}

/// The bytes are not an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedItem;

/// The fields before an item's bytes, to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemHeader {
    /// As [`Item::flow`].
    pub flow: u16,
    /// As [`Item::sequence`].
    pub sequence: u32,
    /// As [`Item::is_pinned`].
    pub is_pinned: bool,
    /// The kind and its fields.
    pub kind: Kind,
}

/// The kind of an item, with its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "as the fields of `Body`")]
pub enum Kind {
    /// As [`Body::Packet`].
    Packet { is_partial: bool },
    /// As [`Body::Segments`].
    Segments { segment: u16, offset: u16 },
    /// As [`Body::Fragment`].
    Fragment { is_partial: bool, total: u16, offset: u16 },
}

impl ItemHeader {
    /// The length of the header with the length field, if `has_length`.
    #[must_use]
    pub const fn len(&self, has_length: bool) -> usize {
        let split = match self.kind {
            Kind::Packet { .. } => 0,
            Kind::Segments { .. } | Kind::Fragment { .. } => SPLIT_HEADER_BYTES,
        };
        ITEM_HEADER_BYTES + split + if has_length { LENGTH_BYTES } else { 0 }
    }

    /// Appends the header. `len` is the number of bytes that follow, for an item with a length.
    pub fn emit(&self, len: Option<u16>, out: &mut impl BufMut) {
        let flags = match self.kind {
            Kind::Packet { is_partial } => KIND_PACKET | if is_partial { PARTIAL } else { 0 },
            Kind::Segments { .. } => KIND_SEGMENTS | PARTIAL,
            Kind::Fragment { is_partial, .. } => KIND_FRAGMENT | if is_partial { PARTIAL } else { 0 },
        };
        let flags = flags | if self.is_pinned { PINNED } else { 0 };
        out.put_u8(flags | if len.is_some() { HAS_LENGTH } else { 0 });
        out.put_u16(self.flow);
        out.put_u32(self.sequence);
        if let Some(len) = len {
            out.put_u16(len);
        }
        match self.kind {
            Kind::Packet { .. } => {}
            Kind::Segments { segment: first, offset } | Kind::Fragment { total: first, offset, .. } => {
                out.put_u16(first);
                out.put_u16(offset);
            }
        }
    }
}

/// A datagram of `len` bytes that says nothing: it fills a path whose capacity is measured.
#[must_use]
pub fn filling(len: usize) -> Bytes {
    vec![KIND_FILLING; len].into()
}

/// Takes the first item of `datagram`; none if it is empty or filling. After an error the rest is not to be read.
///
/// # Errors
/// If the bytes are not an item.
pub fn take_item(datagram: &mut Bytes) -> Result<Option<Item>, MalformedItem> {
    let bytes: &[u8] = datagram;
    let Some(&flags) = bytes.first() else { return Ok(None) };
    if flags == KIND_FILLING {
        datagram.clear();
        return Ok(None);
    }
    let head = bytes.first_chunk::<ITEM_HEADER_BYTES>().ok_or(MalformedItem)?;
    let flow = u16::from_be_bytes([head[1], head[2]]);
    let sequence = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    let kind = flags & KIND_MASK;
    let is_partial = flags & PARTIAL != 0;
    if flags & !KNOWN != 0 || flow >= FLOWS_MAX || (kind == KIND_SEGMENTS && !is_partial) {
        return Err(MalformedItem);
    }
    let number = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (split_at, len) = match flags & HAS_LENGTH != 0 {
        true => (ITEM_HEADER_BYTES + LENGTH_BYTES, Some(usize::from(number(ITEM_HEADER_BYTES).ok_or(MalformedItem)?))),
        false => (ITEM_HEADER_BYTES, None),
    };
    let is_split = kind != KIND_PACKET;
    let start = split_at + if is_split { SPLIT_HEADER_BYTES } else { 0 };
    let end = len.map_or(bytes.len(), |len| start + len);
    if start >= end || end > bytes.len() {
        return Err(MalformedItem);
    }
    let split = || Some((number(split_at)?, number(split_at + 2)?));
    let fields = if is_split { split().ok_or(MalformedItem)? } else { (0, 0) };
    let mut body_bytes = datagram.split_to(end);
    body_bytes.advance(start);
    let body = match kind {
        KIND_PACKET => Body::Packet { is_partial, packet: body_bytes },
        KIND_SEGMENTS => {
            let (segment, offset) = fields;
            if segment == 0 || !offset.is_multiple_of(segment) {
                return Err(MalformedItem);
            }
            Body::Segments { segment, offset, bytes: body_bytes }
        }
        KIND_FRAGMENT => {
            let (total, offset) = fields;
            if usize::from(offset) + body_bytes.len() > usize::from(total) {
                return Err(MalformedItem);
            }
            Body::Fragment { is_partial, total, offset, bytes: body_bytes }
        }
        _ => return Err(MalformedItem),
    };
    Ok(Some(Item { flow, sequence, is_pinned: flags & PINNED != 0, body }))
}

impl Body {
    /// Bytes that it holds.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Packet { packet: bytes, .. } | Self::Segments { bytes, .. } | Self::Fragment { bytes, .. } => {
                bytes.len()
            }
        }
    }
}
