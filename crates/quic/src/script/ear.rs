//! What a script hears: the numbers of packets, by their headers alone.

use std::fmt;
use std::sync::Arc;

use wire::quic::{SAMPLE_LEN, decode_number, read_unprotected};

use super::NotScripted;
use crate::control::ids::LOCAL_ID_LEN;
use crate::plan::PLAN_DATAGRAMS_MAX;
use crate::range_set::RangeSet;
use crate::session::HeaderKey;

/// Where the number of a packet for us lies.
const NUMBER_AT: usize = 1 + LOCAL_ID_LEN;

/// Where the sample of the header cipher lies (RFC 9001, section 5.4.2).
pub(super) const SAMPLE_AT: usize = NUMBER_AT + 4;

/// Of the first byte of a packet with a long header.
const LONG_FORM: u8 = 0x80;

/// Ranges of one acknowledgement, so that it fits every datagram. A script that is not asked for one in time forgets the oldest:
/// what they hold counts as lost.
const RANGES_MAX: usize = 64;

/// Notes which packets arrive on one path of a script, perhaps on another processor than the script itself
/// ([`ScriptedPeer::part_ear`](super::ScriptedPeer::part_ear)). The two share nothing: the script takes over what was noted with
/// [`hear`](super::ScriptedPeer::hear).
pub struct ScriptedEar {
    open_header: Arc<dyn HeaderKey>,
    /// Key updates that the peer has made as far as was heard here.
    pub(super) peer_phase: u64,
    pub(super) largest: Option<u64>,
    /// Numbers that arrived since the last acknowledgement, and how many they are.
    pub(super) arrived: RangeSet,
    arrived_count: u64,
}

/// What the header of a packet says.
struct Header {
    number: u64,
    key_phase: bool,
}

impl ScriptedEar {
    pub(super) fn new(open_header: Arc<dyn HeaderKey>, peer_phase: u64, largest: Option<u64>) -> Self {
        Self { open_header, peer_phase, largest, arrived: RangeSet::new(), arrived_count: 0 }
    }

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
        self.forget_oldest();
        self.follow(last.key_phase);
        Ok(())
    }

    /// Packets noted since the last acknowledgement.
    pub fn unacknowledged(&self) -> u64 {
        self.arrived_count
    }

    /// What was noted so far stays here, what comes is for the other one.
    pub(super) fn part(&mut self) -> Self {
        Self::new(Arc::clone(&self.open_header), self.peer_phase, self.largest)
    }

    /// Everything that was noted since the last time.
    pub(super) fn take(&mut self) -> RangeSet {
        self.arrived_count = 0;
        std::mem::take(&mut self.arrived)
    }

    /// Adds what another ear of the same path has noted since the last time; how many packets that is.
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

    /// The newest packet of the peer has this phase bit: if that is a new phase, ours follows before anything of it is
    /// acknowledged (RFC 9001, section 6.2).
    fn follow(&mut self, key_phase: bool) {
        if key_phase != (self.peer_phase % 2 == 1) {
            self.peer_phase += 1;
        }
    }
}

impl fmt::Debug for ScriptedEar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedEar")
            .field("largest", &self.largest)
            .field("arrived_count", &self.arrived_count)
            .field("peer_phase", &self.peer_phase)
            .finish_non_exhaustive()
    }
}
