//! Where the entries of a journal go: of a connection alone, or of both its halves while they are apart.
//!
//! Each half writes its own entries, and puts whole calls of them here before it gives the other half anything. So the order here
//! is one in which everything can happen again: what a half has taken was given before.

use units::Instant;
use wire::quic::put_varint;

use super::format::{BLOCK_LEN_MAX, BLOCK_LEN_WANTED, MAGIC, VERSION, tag};
use super::{Ending, HAND_OVER_AFTER, JournalSink, check_of};

/// Who writes entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// The connection: as a whole, or what is left of it while its receive half is elsewhere.
    Connection,
    /// The receive half, elsewhere.
    Receive,
}

impl Half {
    /// The entry that says whose those after it are.
    const fn tag(self) -> u8 {
        match self {
            Self::Connection => tag::OF_CONNECTION,
            Self::Receive => tag::OF_RECEIVE_HALF,
        }
    }

    /// Whose entries follow one of this tag, if it is one that says so.
    pub(crate) const fn of_tag(tag: u8) -> Option<Self> {
        match tag {
            tag::OF_CONNECTION => Some(Self::Connection),
            tag::OF_RECEIVE_HALF => Some(Self::Receive),
            _ => None,
        }
    }
}

/// What this adds to entries at most, bytes: whose they are, and an end.
const ADDED_LEN_MAX: usize = 3;

/// What may be put here at once, bytes.
pub(crate) const PUT_LEN_MAX: usize = BLOCK_LEN_MAX - ADDED_LEN_MAX;

/// The sink of a journal and the block that is filled for it.
pub(crate) struct Out {
    sink: Box<dyn JournalSink>,
    /// Entries that were not handed over yet.
    block: Vec<u8>,
    /// Whose entries came last.
    half: Half,
    /// What is handed over, kept for its memory.
    framed: Vec<u8>,
    /// The check of the block before.
    chain: u64,
    /// The time of the last entry that was handed over, nanoseconds.
    handed_over_at: u64,
    /// Nothing more is written.
    has_ended: bool,
}

impl Out {
    pub(crate) fn new(now: Instant, sink: Box<dyn JournalSink>) -> Self {
        let mut framed = MAGIC.to_vec();
        put_varint(&mut framed, VERSION);
        Self {
            sink,
            block: Vec::new(),
            half: Half::Connection,
            framed,
            chain: 0,
            handed_over_at: now.as_nanos(),
            has_ended: false,
        }
    }

    /// Takes whole calls of a half, the last of them of the time `last`, nanoseconds. False if nothing more is taken.
    pub(crate) fn put(&mut self, half: Half, entries: &mut Vec<u8>, last: u64) -> bool {
        debug_assert!(entries.len() <= PUT_LEN_MAX, "who writes looks at the length");
        if !self.has_ended && !entries.is_empty() {
            if self.block.len() + entries.len() > PUT_LEN_MAX {
                self.hand_over(last);
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
            let is_due = last.saturating_sub(self.handed_over_at) >= HAND_OVER_AFTER.as_nanos();
            if is_due || self.block.len() >= BLOCK_LEN_WANTED {
                self.hand_over(last);
            }
        }
        entries.clear();
        !self.has_ended
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self, ending: Ending, last: u64) {
        if !self.has_ended {
            self.block.extend_from_slice(&[tag::END, ending as u8]);
            self.hand_over(last);
            self.has_ended = true;
        }
    }

    /// Gives the sink what there is.
    fn hand_over(&mut self, last: u64) {
        self.chain = check_of(self.chain, &self.block);
        put_varint(&mut self.framed, self.block.len() as u64);
        self.framed.extend_from_slice(&self.chain.to_le_bytes());
        self.framed.extend_from_slice(&self.block);
        self.has_ended |= !self.sink.take(&self.framed);
        self.framed.clear();
        self.block.clear();
        self.handed_over_at = last;
    }
}
