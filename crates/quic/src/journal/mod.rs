//! Journals: everything that went into a connection, written down, so that it can be made to happen again.
//!
//! A connection is serial and decides by nothing but its inputs, whatever threads carry out its stages. A journal holds these
//! inputs in their order, with their times, and a digest of each plan that came out. [`Replay`] makes another connection of the
//! same beginning, gives it the same inputs on one thread and compares: same inputs, same bytes.
//!
//! ```text
//!   live     calls ──▶ Connection ──▶ plans, events          Journal ──▶ JournalSink ──▶ file
//!              └─────────────┴──────────────┴─────────────────▶
//!   replay   file ──▶ Replay: entry ──▶ Connection ──▶ plans, events ──▶ equal?
//! ```
//!
//! What arrives is written down opened, and data of streams and datagrams only as how much of them there was: planning never
//! looks at payload, and a replay seals nothing. What TLS said is written down too. So a journal holds neither payload nor keys
//! of packets. It does reveal addresses, connection IDs, reset tokens, sizes and times; handle it as you would a capture of the
//! traffic.
//!
//! | file | what |
//! |---|---|
//! | `format` | constants, and the smallest parts of the format (`docs/spec/replay.md`) |
//! | `begin`, `records`, `session`, `outcome` | parts of entries: the beginning, opened packets, what TLS said, what came out |
//! | `write` | entries as they are written |
//! | `entry` | entries as they are read |
//! | `blocks` | a log's blocks, checked |
//! | `replay`, `apply` | making it happen again |
//! | `digest` | of plans and blocks |

mod apply;
mod begin;
mod blocks;
mod digest;
mod entry;
pub(crate) mod format;
pub(crate) mod outcome;
mod records;
mod replay;
pub(crate) mod session;
pub(crate) mod write;

use std::fmt;
use std::sync::Arc;

use units::{Duration, Instant};
use wire::quic::{Side, put_varint};

use crate::connection::ConnectionSeed;
use crate::send::path::Addresses;
use digest::Digest;
use format::{BLOCK_LEN_WANTED, ENTRY_LEN_MAX, tag};

pub use begin::{HELD_MAX, JournalHead};
pub use blocks::{JournalError, JournalErrorKind};
pub use entry::Entry;
pub use format::{MAGIC, VERSION};
pub use replay::{Difference, LogEnd, Replay, Step, Stopped};

/// What was written down is handed over after so long at the latest, if anything happens at all: little is lost with a process
/// that is killed, and a busy connection fills its blocks earlier anyway.
const HAND_OVER_AFTER: Duration = Duration::from_millis(100);

/// Takes a connection's journal, piece by piece.
pub trait JournalSink: Send {
    /// Takes the next bytes of the journal, which are whole blocks of it. Called by the connection's own processor, between
    /// two datagrams: it must not wait for anything.
    ///
    /// False ends the journal: nothing more is written down, and the connection goes on.
    fn take(&mut self, bytes: &[u8]) -> bool;
}

/// Where the journals of connections go: makes a sink for each, or none for one that is not to be written down.
#[derive(Clone)]
pub struct JournalSource(pub Arc<dyn Fn(Side) -> Option<Box<dyn JournalSink>> + Send + Sync>);

impl fmt::Debug for JournalSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalSource")
    }
}

/// Why a journal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The connection was let go.
    Dropped = 0,
    /// An entry would have been longer than any may be.
    TooLong = 1,
}

/// The journal of one connection while it is written.
pub(crate) struct Journal {
    sink: Box<dyn JournalSink>,
    /// Entries that were not handed over yet.
    block: Vec<u8>,
    /// Where the entry begins that was written last.
    entry_from: usize,
    /// What is handed over, kept for its memory.
    framed: Vec<u8>,
    /// The check of the block before.
    chain: u64,
    /// The time of the last entry that has one, and of the last that was handed over, nanoseconds.
    last: u64,
    handed_over_at: u64,
    /// Addresses that have a number.
    addresses: Vec<Addresses>,
    /// What each socket was said to have room for, during one call.
    rooms: Vec<(u16, usize)>,
    /// Nothing more is written.
    has_ended: bool,
}

/// The check of a block, which goes on from that of the one before: none can be changed, left out or moved by accident.
fn check_of(chain: u64, block: &[u8]) -> u64 {
    let mut digest = Digest::new(chain);
    digest.bytes(block);
    digest.finish()
}

impl Journal {
    /// Begins the journal of a connection; none if nobody wants it.
    pub(crate) fn begin(now: Instant, seed: &ConnectionSeed) -> Option<Box<Self>> {
        let sink = seed.config.journal.as_ref()?.0(seed.beginning.side)?;
        let mut journal = Box::new(Self {
            sink,
            block: Vec::new(),
            entry_from: 0,
            framed: Vec::new(),
            chain: 0,
            last: now.as_nanos().min(format::NANOS_MAX),
            handed_over_at: now.as_nanos(),
            addresses: Vec::new(),
            rooms: Vec::new(),
            has_ended: false,
        });
        journal.framed.extend_from_slice(&MAGIC);
        put_varint(&mut journal.framed, VERSION);
        journal.block.push(tag::BEGIN);
        begin::put_begin(&mut journal.block, now, seed);
        journal.entry_from = journal.block.len();
        Some(journal)
    }

    /// Writes no end: what has not been handed over never is.
    pub(crate) fn forget(&mut self) {
        self.has_ended = true;
    }

    /// An entry is complete, with what TLS said before it. False if it was the last.
    fn complete(&mut self) -> bool {
        if self.block.len() - self.entry_from > ENTRY_LEN_MAX {
            self.block.truncate(self.entry_from);
            self.end(Ending::TooLong);
            return false;
        }
        let is_due = self.last.saturating_sub(self.handed_over_at) >= HAND_OVER_AFTER.as_nanos();
        if is_due || self.block.len() >= BLOCK_LEN_WANTED {
            self.hand_over();
        }
        self.entry_from = self.block.len();
        !self.has_ended
    }

    fn end(&mut self, ending: Ending) {
        if !self.has_ended {
            self.block.extend_from_slice(&[tag::END, ending as u8]);
            self.hand_over();
            self.has_ended = true;
        }
    }

    /// Gives the sink what there is.
    fn hand_over(&mut self) {
        self.chain = check_of(self.chain, &self.block);
        put_varint(&mut self.framed, self.block.len() as u64);
        self.framed.extend_from_slice(&self.chain.to_le_bytes());
        self.framed.extend_from_slice(&self.block);
        self.has_ended |= !self.sink.take(&self.framed);
        self.framed.clear();
        self.block.clear();
        self.entry_from = 0;
        self.handed_over_at = self.last;
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end(Ending::Dropped);
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
