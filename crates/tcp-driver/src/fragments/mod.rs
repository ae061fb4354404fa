//! Fragments of IP packets (RFC 791, section 3.2; RFC 8200, section 4.5): [`Reassembler`]
//! reassembles packets, [`split`] divides them.
//!
//! Other hosts determine the fragments kept, so everything is bounded: packets, their fragments,
//! bytes, and time. At a limit, the oldest packet is given up: hosts that send whole packets are
//! served although others send parts.

pub(crate) mod host;
mod split;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use bytes::Bytes;
use units::{Duration, Ecn, Instant};
use wire::ip::{Header, Packet, Protocol};

pub use self::split::split;

/// Limit on incomplete packets.
pub const PACKETS_MAX: usize = 64;

/// Limit on fragments of one packet: those of the largest packet over links of 552 bytes.
pub const FRAGMENTS_MAX: usize = 128;

/// Limit on bytes of all incomplete packets: sixteen of the largest.
pub const BYTES_MAX: usize = 1 << 20;

/// Time limit of a packet from the arrival of its first fragment (RFC 8200, section 4.5; RFC 1122,
/// section 3.3.2).
pub const TIME_MAX: Duration = Duration::from_secs(60);

/// Accounted bytes of a fragment beside its own, for its bookkeeping.
const OVERHEAD: usize = 64;

/// Key shared by all fragments of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    /// Protocol for IPv4 (RFC 791, section 3.2); IPv6 has it only in the first fragment.
    protocol: Option<u8>,
    id: u32,
}

/// A packet with some of its fragments.
#[derive(Debug)]
struct Partial {
    /// Number that distinguishes it from an earlier packet with the same key.
    number: u64,
    begun_at: Instant,
    /// Fragments by offset. Empty after an overlap: then nothing of the packet is trusted (RFC
    /// 5722, section 4).
    pieces: BTreeMap<usize, Piece>,
    is_refused: bool,
    /// Length of the payload, once the last fragment has arrived.
    total: Option<usize>,
    received: usize,
    /// Its share of the byte limit.
    cost: usize,
}

#[derive(Debug)]
struct Piece {
    /// Copy of the fragment with its headers, so that it keeps no larger buffer alive.
    packet: Box<[u8]>,
    header_len: usize,
    ecn: Option<Ecn>,
}

impl Piece {
    fn payload(&self) -> &[u8] {
        &self.packet[self.header_len..]
    }

    const fn cost(&self) -> usize {
        self.packet.len() + OVERHEAD
    }
}

/// Reassembly counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets reassembled.
    pub whole: u64,
    /// Packets refused because fragments overlapped or contradicted each other.
    pub refused: u64,
    /// Packets given up because too many others were incomplete.
    pub evicted: u64,
    /// Packets given up because fragments did not arrive.
    pub expired: u64,
}

/// Reassembles packets from their fragments.
#[derive(Debug, Default)]
pub struct Reassembler {
    partials: BTreeMap<Key, Partial>,
    /// Packets by age. Entries of packets that are gone are removed when they reach the front, or
    /// become many.
    order: VecDeque<(Key, u64)>,
    next_number: u64,
    bytes: usize,
    stats: Stats,
}

impl Reassembler {
    /// Takes the fragment `packet`, which was parsed from `bytes`. Returns the whole packet if that
    /// was the last missing one. It lacks options and extension headers before the fragment header,
    /// which were checked when the fragment was parsed.
    pub fn take(&mut self, now: Instant, packet: &Packet<'_>, bytes: &[u8]) -> Option<Bytes> {
        let fragment = packet.fragment?;
        let protocol = (!packet.is_ipv6()).then_some(packet.protocol.0);
        let (source, destination, id) = (packet.source, packet.destination, fragment.id);
        let key = Key { source, destination, protocol, id };
        let partial = self.partials.entry(key).or_insert_with(|| {
            self.next_number += 1;
            self.order.push_back((key, self.next_number));
            self.bytes += OVERHEAD;
            Partial::new(now, self.next_number)
        });
        let end = packet.header_len + packet.payload.len();
        let piece = Piece { packet: bytes[..end].into(), header_len: packet.header_len, ecn: packet.ecn };
        self.bytes -= partial.cost;
        let outcome = partial.add(fragment.offset, fragment.more, piece);
        self.bytes += partial.cost;
        match outcome {
            Added::Complete => {
                let partial = self.remove(&key)?;
                let whole = partial.whole(&key);
                let count = if whole.is_some() { &mut self.stats.whole } else { &mut self.stats.refused };
                *count += 1;
                return whole;
            }
            Added::Refused => self.stats.refused += 1,
            Added::Kept => {}
        }
        while self.bytes > BYTES_MAX || self.partials.len() > PACKETS_MAX {
            self.pop_oldest();
            self.stats.evicted += 1;
        }
        // Entries of complete packets.
        if self.order.len() > 2 * PACKETS_MAX {
            let partials = &self.partials;
            self.order.retain(|(key, number)| partials.get(key).is_some_and(|partial| partial.number == *number));
        }
        None
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) must be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let (key, number) = self.order.front()?;
        self.partial(key, *number).map(|oldest| oldest.begun_at + TIME_MAX)
    }

    /// Gives up packets that timed out. Calls `each` with the first fragment of each that has one,
    /// so that its sender can be notified (RFC 1122, section 3.3.2; RFC 8200, section 4.5).
    pub fn handle_timeout(&mut self, now: Instant, mut each: impl FnMut(&[u8])) {
        while self.poll_timeout().is_some_and(|at| at <= now) {
            self.stats.expired += 1;
            if let Some(partial) = self.pop_oldest()
                && let Some(first) = partial.pieces.get(&0)
            {
                each(&first.packet);
            }
        }
    }

    /// Returns the counters.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the number of incomplete packets, and their bytes against the limit.
    pub fn held(&self) -> (usize, usize) {
        (self.partials.len(), self.bytes)
    }

    fn partial(&self, key: &Key, number: u64) -> Option<&Partial> {
        self.partials.get(key).filter(|partial| partial.number == number)
    }

    fn remove(&mut self, key: &Key) -> Option<Partial> {
        let partial = self.partials.remove(key)?;
        self.bytes -= partial.cost;
        // The first entry always belongs to a packet being kept.
        while self.order.front().is_some_and(|(key, number)| self.partial(key, *number).is_none()) {
            self.order.pop_front();
        }
        Some(partial)
    }

    fn pop_oldest(&mut self) -> Option<Partial> {
        let (key, _) = *self.order.front()?;
        self.remove(&key)
    }
}

enum Added {
    /// More fragments are missing, or this one is a duplicate.
    Kept,
    Complete,
    /// The packet is contradictory.
    Refused,
}

impl Partial {
    const fn new(now: Instant, number: u64) -> Self {
        let pieces = BTreeMap::new();
        Self { number, begun_at: now, pieces, is_refused: false, total: None, received: 0, cost: OVERHEAD }
    }

    fn add(&mut self, offset: usize, more: bool, piece: Piece) -> Added {
        let len = piece.payload().len();
        if self.is_refused {
            return Added::Kept;
        }
        // A repeated fragment is no overlap (RFC 8200, section 4.5).
        if self.pieces.get(&offset).is_some_and(|there| there.payload() == piece.payload()) {
            return Added::Kept;
        }
        let end = offset + len;
        let reaches_in = self.pieces.range(..=offset).next_back().is_some_and(|(at, there)| {
            let there_end = at + there.payload().len();
            there_end > offset || *at == offset
        });
        let overlaps = reaches_in || self.pieces.range(offset..).next().is_some_and(|(at, _)| *at < end);
        let last_end = self.pieces.iter().next_back().map_or(0, |(at, there)| at + there.payload().len());
        let contradicts = match (self.total, more) {
            (Some(total), true) => end > total,
            (Some(total), false) => end != total,
            (None, true) => false,
            (None, false) => last_end > end,
        };
        // A fragment without data in the middle carries no information, but costs memory.
        let is_empty = len == 0 && more;
        if overlaps || contradicts || is_empty || self.pieces.len() >= FRAGMENTS_MAX {
            (self.pieces, self.is_refused, self.cost) = (BTreeMap::new(), true, OVERHEAD);
            return Added::Refused;
        }
        if !more {
            self.total = Some(end);
        }
        self.received += len;
        self.cost += piece.cost();
        self.pieces.insert(offset, piece);
        if self.total == Some(self.received) { Added::Complete } else { Added::Kept }
    }

    /// Returns the whole packet. Returns `None` if its first fragment is impossible, or marks
    /// contradict each other (RFC 3168, section 5.3).
    fn whole(&self, key: &Key) -> Option<Bytes> {
        let first = Packet::parse(&self.pieces.get(&0)?.packet).ok()?;
        let marks = |ecn| self.pieces.values().any(|piece| piece.ecn == ecn);
        let ecn = match (marks(Some(Ecn::Ce)), marks(None)) {
            (true, true) => return None,
            (true, false) => Some(Ecn::Ce),
            (false, _) => first.ecn,
        };
        let header = Header {
            source: key.source,
            destination: key.destination,
            protocol: Protocol(key.protocol.unwrap_or(first.protocol.0)),
            hop_limit: first.hop_limit,
            dscp: first.dscp,
            ecn,
            id: key.id as u16,
            may_fragment: first.may_fragment,
        };
        let mut bytes = Vec::with_capacity(header.len() + self.received);
        header.emit(self.received, &mut bytes);
        self.pieces.values().for_each(|piece| bytes.extend_from_slice(piece.payload()));
        Some(bytes.into())
    }
}
