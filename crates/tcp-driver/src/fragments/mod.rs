//! Fragments of IP packets (RFC 791, section 3.2; RFC 8200, section 4.5): [`Reassembler`] puts packets
//! together, [`split`] divides them.
//!
//! Other hosts decide what is kept, so everything is bounded: packets, their fragments, bytes, and time.
//! When a bound is reached, the oldest packet is given up: those who send whole packets are served
//! although others send halves.

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

/// Incomplete packets, at most.
pub const PACKETS_MAX: usize = 64;

/// Fragments of one packet, at most: those of the largest packet over links of 552 bytes.
pub const FRAGMENTS_MAX: usize = 128;

/// Bytes of all incomplete packets, at most: sixteen of the largest.
pub const BYTES_MAX: usize = 1 << 20;

/// How long a packet may take from its first fragment to arrive on (RFC 8200, section 4.5; RFC 1122,
/// section 3.3.2).
pub const TIME_MAX: Duration = Duration::from_secs(60);

/// The bytes that a fragment counts beside its own: where it is kept.
const OVERHEAD: usize = 64;

/// Fragments with the same key belong to one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    /// Of IPv4 (RFC 791, section 3.2); IPv6 tells it in the first fragment only.
    protocol: Option<u8>,
    id: u32,
}

/// A packet some of whose fragments have arrived.
#[derive(Debug)]
struct Partial {
    /// Distinguishes it from an earlier packet with the same key.
    number: u64,
    begun_at: Instant,
    /// By offset. Empty after an overlap: nothing of the packet is believed then (RFC 5722, section 4).
    pieces: BTreeMap<usize, Piece>,
    is_refused: bool,
    /// The length of the payload, once the last fragment is there.
    total: Option<usize>,
    received: usize,
    /// What it counts for the bound.
    cost: usize,
}

#[derive(Debug)]
struct Piece {
    /// The fragment with its headers, copied, so that it keeps no larger buffer alive.
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

/// What was done with fragments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets put together.
    pub whole: u64,
    /// Packets that were refused, because fragments overlapped or contradicted each other.
    pub refused: u64,
    /// Packets given up, because too many others were incomplete.
    pub evicted: u64,
    /// Packets given up, because fragments did not arrive.
    pub expired: u64,
}

/// Puts packets together from their fragments.
#[derive(Debug, Default)]
pub struct Reassembler {
    partials: BTreeMap<Key, Partial>,
    /// By age. Entries of packets that are gone are removed when they come to the front, or become many.
    order: VecDeque<(Key, u64)>,
    next_number: u64,
    bytes: usize,
    stats: Stats,
}

impl Reassembler {
    /// Takes a fragment: `packet`, which was parsed from `bytes`. Returns the whole packet if it was the
    /// last that was missing. Without options and extension headers before the fragment header, which
    /// were checked when the fragment was parsed.
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
        // The entries of complete packets.
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

    /// Gives up packets whose time is over. Calls `each` with the first fragment of each that has one: its
    /// sender is told (RFC 1122, section 3.3.2; RFC 8200, section 4.5).
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

    /// What was done.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Incomplete packets, and the bytes that they count.
    pub fn held(&self) -> (usize, usize) {
        (self.partials.len(), self.bytes)
    }

    fn partial(&self, key: &Key, number: u64) -> Option<&Partial> {
        self.partials.get(key).filter(|partial| partial.number == number)
    }

    fn remove(&mut self, key: &Key) -> Option<Partial> {
        let partial = self.partials.remove(key)?;
        self.bytes -= partial.cost;
        // The first entry is always of a packet that is kept.
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
    /// More are missing, or the piece was there.
    Kept,
    Complete,
    /// The packet contradicts itself.
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
        // The same fragment again is no overlap (RFC 8200, section 4.5).
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
        // A fragment without data in the middle says nothing, and costs memory.
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

    /// The packet. Returns `None` if its first fragment says something impossible, or marks
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
