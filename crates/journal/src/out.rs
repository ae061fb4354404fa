//! The log of a connection, to which a detached receive half also writes.
//!
//! Each half writes its entries here, in whole calls, before it passes anything to the other half.
//! The log therefore has an order in which everything can be replayed: an item is given before it
//! is taken.

use units::{Duration, Instant};
use wire::quic::put_varint;

use crate::digest::check_of;
use crate::format::{BLOCK_LEN_MAX, BLOCK_LEN_WANTED, Ending, Format, tag};
use crate::sink::JournalSink;

/// Time after which entries are passed to the sink at the latest, if another entry follows: little
/// is lost when the process is killed. A busy connection fills its blocks earlier.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_millis(100);

/// The writer of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The connection: as a whole, or the rest of it while its receive half is detached.
    Connection,
    /// The detached receive half.
    Receive,
}

impl Half {
    /// Returns the tag of the entry that names the writer of the entries after it.
    const fn tag(self) -> u8 {
        match self {
            Self::Connection => tag::OF_CONNECTION,
            Self::Receive => tag::OF_RECEIVE_HALF,
        }
    }

    /// Returns the writer named by an entry of this tag, if it is such an entry.
    pub const fn of_tag(tag: u8) -> Option<Self> {
        match tag {
            tag::OF_CONNECTION => Some(Self::Connection),
            tag::OF_RECEIVE_HALF => Some(Self::Receive),
            _ => None,
        }
    }
}

/// Maximum number of bytes that this type adds to entries: their writer, and an end.
const ADDED_LEN_MAX: usize = 3;

/// Maximum number of bytes that may be put here at once.
pub(crate) const PUT_LEN_MAX: usize = BLOCK_LEN_MAX - ADDED_LEN_MAX;

/// The sink of a journal and the block that is filled for it.
pub(crate) struct Out {
    sink: Box<dyn JournalSink>,
    /// Entries that were not passed to the sink yet.
    block: Vec<u8>,
    /// The writer of the last entries.
    half: Half,
    /// Bytes for the sink, kept to reuse their memory.
    framed: Vec<u8>,
    /// Check of the previous block.
    chain: u64,
    /// Time of the last entry that was passed to the sink, in nanoseconds.
    flushed_at: u64,
    /// Whether nothing more is written.
    has_ended: bool,
}

impl Out {
    pub(crate) fn new(now: Instant, format: Format, sink: Box<dyn JournalSink>) -> Self {
        let mut framed = format.magic.to_vec();
        put_varint(&mut framed, format.version);
        Self {
            sink,
            block: Vec::new(),
            half: Half::Connection,
            framed,
            chain: 0,
            flushed_at: now.as_nanos(),
            has_ended: false,
        }
    }

    /// Takes the entries of whole calls of a half; `last` is the time of the last one in
    /// nanoseconds. Returns false if no more are accepted.
    pub(crate) fn put(&mut self, half: Half, entries: &mut Vec<u8>, last: u64) -> bool {
        debug_assert!(entries.len() <= PUT_LEN_MAX, "the writer checks the length");
        if !self.has_ended && !entries.is_empty() {
            if self.block.len() + entries.len() > PUT_LEN_MAX {
                self.flush(last);
            }
            if self.half != half {
                self.block.push(half.tag());
                self.half = half;
            }
            if self.block.is_empty() {
                std::mem::swap(&mut self.block, entries);
            } else {
                self.block.append(entries);
            }
            let is_due = last.saturating_sub(self.flushed_at) >= FLUSH_AFTER.as_nanos();
            if is_due || self.block.len() >= BLOCK_LEN_WANTED {
                self.flush(last);
            }
        }
        entries.clear();
        !self.has_ended
    }

    /// Ends the log.
    pub(crate) fn end(&mut self, ending: Ending, last: u64) {
        if !self.has_ended {
            self.block.extend_from_slice(&[tag::END, ending as u8]);
            self.flush(last);
            self.has_ended = true;
        }
    }

    /// Passes all entries to the sink.
    fn flush(&mut self, last: u64) {
        self.chain = check_of(self.chain, &self.block);
        put_varint(&mut self.framed, self.block.len() as u64);
        self.framed.extend_from_slice(&self.chain.to_le_bytes());
        self.framed.extend_from_slice(&self.block);
        self.has_ended |= !self.sink.take(&self.framed);
        self.framed.clear();
        self.block.clear();
        self.flushed_at = last;
    }
}
