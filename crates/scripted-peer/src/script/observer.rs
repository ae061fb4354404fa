//! Notes the packet numbers of arriving packets, from their headers alone.

use std::fmt;
use std::sync::Arc;

use quic::range_set::RangeSet;
use quic::session::HeaderKey;
use quic::{LOCAL_ID_LEN, PLAN_DATAGRAMS_MAX};
use wire::quic::{SAMPLE_LEN, decode_number, read_unprotected};

use super::NotScripted;

/// The offset of the packet number in a packet for us.
const NUMBER_AT: usize = 1 + LOCAL_ID_LEN;

/// The offset of the header protection sample (RFC 9001, section 5.4.2).
pub(super) const SAMPLE_AT: usize = NUMBER_AT + 4;

/// The bit of the first byte that marks a long header.
const LONG_FORM: u8 = 0x80;

/// Limit on the ranges of one acknowledgement, so that it fits every datagram. The oldest ranges
/// beyond that are dropped, and their packets count as lost.
const RANGES_MAX: usize = 64;

/// Notes which packets arrive on one path of a script, possibly on another processor than the
/// script itself ([`ScriptedPeer::detach_observer`](super::ScriptedPeer::detach_observer)). The two
/// share nothing: the script takes over the notes with
/// [`take_observed`](super::ScriptedPeer::take_observed).
pub struct AckObserver {
    open_header: Arc<dyn HeaderKey>,
    /// Key updates of the peer seen here.
    pub(super) peer_phase: u64,
    pub(super) largest: Option<u64>,
    /// Packet numbers that arrived since the last acknowledgement, and their count.
    pub(super) arrived: RangeSet,
    arrived_count: u64,
}

/// The fields of a packet header.
struct Header {
    number: u64,
    key_phase: bool,
}

impl AckObserver {
    pub(super) fn new(open_header: Arc<dyn HeaderKey>, peer_phase: u64, largest: Option<u64>) -> Self {
        Self { open_header, peer_phase, largest, arrived: RangeSet::new(), arrived_count: 0 }
    }

    /// Notes the datagrams of a batch, all `stride` bytes long except the last. They must arrive in
    /// the order of their numbers. Removes the protection of the first and the last header, and of
    /// the others only if a number between them is missing: senders skip some numbers, and
    /// acknowledging those is an error (RFC 9000, section 21.4).
    ///
    /// # Errors
    /// Fails if a datagram is no 1-RTT packet; nothing of the batch counts then.
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
        self.forget_oldest();
        self.follow(last.key_phase);
        Ok(())
    }

    /// Returns the number of packets noted since the last acknowledgement.
    pub fn unacknowledged(&self) -> u64 {
        self.arrived_count
    }

    /// Creates a second observer for packets that arrive from now on. Earlier notes stay here.
    pub(super) fn part(&mut self) -> Self {
        Self::new(Arc::clone(&self.open_header), self.peer_phase, self.largest)
    }

    /// Takes everything noted since the last call.
    pub(super) fn take(&mut self) -> RangeSet {
        self.arrived_count = 0;
        std::mem::take(&mut self.arrived)
    }

    /// Adds the notes of another observer of the same path since the last call; returns the number
    /// of packets.
    pub(super) fn take_from(&mut self, other: &mut Self) -> u64 {
        let count = std::mem::take(&mut other.arrived_count);
        if self.arrived.is_empty() {
            std::mem::swap(&mut self.arrived, &mut other.arrived);
        } else {
            other.take().iter().for_each(|range| self.arrived.insert(range));
            self.forget_oldest();
        }
        self.arrived_count += count;
        self.largest = self.largest.max(other.largest);
        self.peer_phase = self.peer_phase.max(other.peer_phase);
        count
    }

    fn forget_oldest(&mut self) {
        while self.arrived.range_count() > RANGES_MAX
            && let Some(oldest) = self.arrived.first()
        {
            self.arrived.remove(oldest);
        }
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

    /// Follows the phase bit of the peer's newest packet. If it shows a new phase, our phase
    /// follows before any packet of it is acknowledged (RFC 9001, section 6.2).
    fn follow(&mut self, key_phase: bool) {
        if key_phase != (self.peer_phase % 2 == 1) {
            self.peer_phase += 1;
        }
    }
}

impl fmt::Debug for AckObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckObserver")
            .field("largest", &self.largest)
            .field("arrived_count", &self.arrived_count)
            .field("peer_phase", &self.peer_phase)
            .finish_non_exhaustive()
    }
}
