//! The open stage: turns protected packets into [`Opened`] ones, already parsed into records.
//!
//! It needs the keys and the largest number received so far in each space, never older than the
//! last acknowledgement sent (so that numbers decode exactly, RFC 9000, appendix A.3). It opens in
//! place. Payload is not copied; records refer to it by range.
//!
//! `opened` has the output, `keys` chooses the 1-RTT key of a packet, and `parse` makes the records.

pub(crate) mod early;
pub(crate) mod keys;
pub(crate) mod opened;
mod parse;

use wire::quic::{
    PacketType, Parsed, PathId, ProtectedHeader, SAMPLE_LEN, Space, Version, decode_number, destination, parse_packet,
    read_unprotected, sample_offset,
};

use self::keys::OneRttKeys;
pub use self::opened::Opened;
use self::opened::OpenedPacket;
use self::parse::parse_frames;
use crate::addresses::Addresses;
use crate::batch_meta::BatchMeta;
use crate::control::ids::{LOCAL_ID_LEN, ResetToken};
use crate::error::TransportError;
use crate::session::DirectionKeys;

/// A batch of datagrams on its way through the open stage. It has copies of keys and shares nothing
/// with its connection, so any processor can run it. The caller keeps it and has it filled again
/// and again: see [`Connection::begin_open`](crate::Connection::begin_open).
#[derive(Default)]
pub struct OpenJob {
    pub(crate) context: Option<OpenContext>,
    pub(crate) opened: Opened,
    pub(crate) addresses: Option<Addresses>,
    pub(crate) meta: Option<BatchMeta>,
    /// Bytes that arrived.
    pub(crate) len: u64,
}

impl OpenJob {
    /// Opens the datagrams in `data`, in place. Does nothing if there is nothing to open.
    pub fn open(&mut self, data: &mut [u8]) {
        let (Some(context), Some(meta)) = (&mut self.context, self.meta) else { return };
        let opened = &mut self.opened;
        opened.clear();
        opened.ecn = meta.ecn;
        let len = data.len();
        let mut datagram_at = 0;
        while datagram_at < len {
            let datagram_end = (datagram_at + meta.stride).min(len);
            let mut at = datagram_at;
            while at < datagram_end {
                let step = open_packet(context, &mut data[at..datagram_end], at, opened);
                if matches!(step.outcome, Outcome::NoKeys(_) | Outcome::Special) {
                    opened.dropped_count += 1;
                }
                if !matches!(step.outcome, Outcome::Opened) {
                    // Whatever its header says (RFC 9000, section 10.3). The attempt to open it has
                    // changed its head at most, and not its last bytes, where a packet has its tag.
                    opened.trailer = trailer_of(&data[datagram_at..datagram_end]).or(opened.trailer);
                }
                at += step.len.max(1);
            }
            datagram_at = datagram_end;
        }
    }

    /// Prepares it for `len` bytes of datagrams.
    pub(crate) fn prepare(&mut self, context: Option<OpenContext>, addresses: Addresses, meta: BatchMeta, len: usize) {
        self.clear();
        self.context = context;
        (self.addresses, self.meta, self.len) = (Some(addresses), Some(meta.checked()), len as u64);
    }

    /// Takes its context out, with a description of the batch; none if it was not prepared.
    /// `initial_limit` is the integrity limit of Initial packets.
    pub(crate) fn take_batch(&mut self, initial_limit: u64) -> Option<(OpenContext, Batch)> {
        let (context, addresses) = (self.context.take()?, self.addresses?);
        let integrity_limit = context.integrity_limit(&self.opened, initial_limit);
        let batch = Batch { path: context.path, addresses, len: self.len, integrity_limit };
        Some((context, batch))
    }

    /// The path of the datagrams; none if there is nothing to open.
    pub fn path(&self) -> Option<PathId> {
        self.context.as_ref().map(|context| context.path)
    }

    /// Drops the keys and the opened packets.
    pub fn clear(&mut self) {
        self.context = None;
        self.addresses = None;
        self.meta = None;
        self.opened.clear();
    }
}

/// An opened batch: its path, its origin and its size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) path: PathId,
    pub(crate) addresses: Addresses,
    /// Bytes that arrived.
    pub(crate) len: u64,
    /// Packets that may fail to authenticate: the limit of the AEAD.
    pub(crate) integrity_limit: u64,
}

/// The input of the open stage.
#[derive(Clone)]
pub(crate) struct OpenContext {
    pub(crate) local_id_len: usize,
    /// Initial and Handshake keys.
    pub(crate) levels: [Option<DirectionKeys>; 2],
    /// The version of these keys.
    pub(crate) version: Version,
    /// Initial keys of the other version, while the peer may use either (RFC 9369, section 4.1).
    pub(crate) other_initial: Option<DirectionKeys>,
    pub(crate) data: Option<OneRttKeys>,
    /// The largest number received, by space; of the data, on `path`.
    pub(crate) largest: [Option<u64>; 3],
    /// The path of the 1-RTT packets: that of the connection ID they are sent to (multipath
    /// draft-21, section 3.1).
    pub(crate) path: PathId,
    /// The highest path ID that the peer may name; none if multipath was not negotiated.
    pub(crate) max_path: Option<PathId>,
    /// Whether we have announced that we ignore the QUIC bit (RFC 9287).
    pub(crate) ignore_fixed_bit: bool,
}

impl OpenContext {
    /// The keys of long headers of `space` and `version`.
    fn level(&self, space: Space, version: Version) -> Option<&DirectionKeys> {
        if space == Space::Initial && version != self.version {
            return self.other_initial.as_ref();
        }
        self.levels[space.index()].as_ref()
    }

    /// How many packets may fail to authenticate: the negotiated AEAD's limit, once there are 1-RTT
    /// keys. The key is asked only if a packet of `opened` has failed.
    pub(crate) fn integrity_limit(&self, opened: &Opened, initial_limit: u64) -> u64 {
        if opened.unauthentic_count == 0 {
            return u64::MAX;
        }
        self.data.as_ref().map_or(initial_limit, |keys| keys.current.integrity_limit())
    }
}

/// The path of a datagram: that of the connection ID it is sent to. An unknown ID counts as one of
/// the first path.
pub(crate) fn path_of_datagram(datagram: &[u8], path_of_id: impl FnOnce(&[u8]) -> Option<PathId>) -> PathId {
    destination(datagram, LOCAL_ID_LEN).and_then(|destination| path_of_id(destination.dcid)).unwrap_or(PathId::ZERO)
}

/// A stateless reset has at least this many bytes (RFC 9000, section 10.3).
pub(crate) const RESET_LEN_MIN: usize = 21;

/// The last bytes of a datagram, if it may be a stateless reset.
pub(crate) fn trailer_of(datagram: &[u8]) -> Option<ResetToken> {
    datagram.last_chunk().copied().filter(|_| datagram.len() >= RESET_LEN_MIN)
}

/// The result for one packet.
pub(crate) enum Outcome {
    /// It is the last of [`Opened::packets`].
    Opened,
    /// Its keys were discarded, or have not arrived yet.
    NoKeys(Space),
    /// It did not authenticate, or is not for us. It was counted.
    Dropped,
    /// A Version Negotiation or Retry packet, for control.
    Special,
}

/// One step through a datagram.
pub(crate) struct Step {
    /// Bytes of the packet; the next one follows.
    pub(crate) len: usize,
    pub(crate) outcome: Outcome,
}

/// Opens the first packet of `bytes`, which lie at `base` in the buffer that records refer to.
pub(crate) fn open_packet(context: &mut OpenContext, bytes: &mut [u8], base: usize, opened: &mut Opened) -> Step {
    let header = match parse_packet(bytes, context.local_id_len) {
        Ok(Parsed::Protected(header)) => header,
        Ok(Parsed::VersionNegotiation { .. } | Parsed::Retry { .. }) => {
            return Step { len: bytes.len(), outcome: Outcome::Special };
        }
        Ok(Parsed::UnknownVersion { .. }) | Err(_) => {
            opened.dropped_count += 1;
            return Step { len: bytes.len(), outcome: Outcome::Dropped };
        }
    };
    let len = header.end;
    let outcome = open_protected(context, &header, &mut bytes[..len], base, opened);
    Step { len, outcome }
}

/// Whether this side takes packets of this kind at all.
fn may_be_opened(context: &OpenContext, header: &ProtectedHeader) -> bool {
    if header.ty == PacketType::ZeroRtt || (!header.fixed_bit && !context.ignore_fixed_bit) {
        return false;
    }
    // Handshake packets have the negotiated version; it is known when there are keys for them (RFC
    // 9369, section 4.1).
    header.ty.space() != Space::Handshake || header.version == context.version || context.levels[1].is_none()
}

fn open_protected(
    context: &mut OpenContext,
    header: &ProtectedHeader,
    bytes: &mut [u8],
    base: usize,
    opened: &mut Opened,
) -> Outcome {
    if !may_be_opened(context, header) {
        opened.dropped_count += 1;
        return Outcome::Dropped;
    }
    let space = header.ty.space();
    let header_key = match space {
        Space::Data => context.data.as_ref().map(|one_rtt| &one_rtt.header),
        _ => context.level(space, header.version).map(|keys| &keys.header),
    };
    let Some(header_key) = header_key else { return Outcome::NoKeys(space) };

    let sample_at = sample_offset(header.number_offset);
    let (head, sample) = bytes.split_at_mut(sample_at);
    let (first, rest) = head.split_at_mut(1);
    header_key.unprotect(&sample[..SAMPLE_LEN], &mut first[0], &mut rest[header.number_offset - 1..]);
    let plain = read_unprotected(bytes[0], &bytes[header.number_offset..sample_at]);
    let number = decode_number(context.largest[space.index()], plain.truncated, plain.number_len);
    let payload_at = header.number_offset + plain.number_len;
    let (header_bytes, payload) = bytes.split_at_mut(payload_at);

    // Path IDs are part of the nonce of 1-RTT packets (multipath draft-21, section 2.4); the first
    // path's is zero.
    let path = if space == Space::Data { context.path } else { PathId::ZERO };
    let keys = (space, header.version, path);
    let opens = open_payload(context, keys, plain.key_phase, number, header_bytes, payload);
    let Some((plain_len, advances)) = opens else {
        opened.unauthentic_count += 1;
        return Outcome::Dropped;
    };
    let largest = &mut context.largest[space.index()];
    *largest = (*largest).max(Some(number));

    if advances && let Some(one_rtt) = &context.data {
        opened.epoch = one_rtt.epoch;
    }
    let at = base + payload_at;
    if space == Space::Data
        && plain.reserved_ok
        && !advances
        && opened.extend_run(path, number, &payload[..plain_len], at)
    {
        return Outcome::Opened;
    }
    let records_from = opened.records.len();
    let parsed = parse_frames(&payload[..plain_len], header.ty, at, context.max_path, opened);
    let (eliciting, error) = match parsed {
        _ if !plain.reserved_ok => (false, Some(TransportError::violation("reserved header bits are set"))),
        Ok(eliciting) => (eliciting, None),
        Err(error) => (false, Some(error)),
    };
    opened.packets.push(OpenedPacket {
        space,
        path,
        number,
        count: 1,
        records: records_from..opened.records.len(),
        eliciting,
        phase_advanced: advances,
        error,
    });
    Outcome::Opened
}

/// Opens the payload of a packet without header protection. Returns its length, and whether the
/// packet shows that the peer has updated its keys.
fn open_payload(
    context: &mut OpenContext,
    (space, version, path): (Space, Version, PathId),
    phase: bool,
    number: u64,
    header: &[u8],
    payload: &mut [u8],
) -> Option<(usize, bool)> {
    if space != Space::Data {
        let key = &context.level(space, version)?.packet;
        return key.open(path, number, header, payload).ok().map(|len| (len, false));
    }
    let one_rtt = context.data.as_mut()?;
    let (len, advances) = one_rtt.open(path, phase, number, header, payload)?;
    one_rtt.note(advances, number, phase);
    Some((len, advances))
}
