//! Journals: all inputs of a connection, recorded for a replay.
//!
//! A connection is a deterministic function of its inputs, whatever threads run its stages. A
//! journal contains these inputs in their order, with their times, and a digest of each plan that
//! came out. [`Replay`] makes another connection with the same initial values, passes it the same
//! inputs on one thread and compares the output.
//!
//! ```text
//!   live     calls ──▶ Connection ──▶ plans, events          Journal ──▶ JournalSink ──▶ file
//!              └─────────────┴──────────────┴─────────────────▶
//!   replay   file ──▶ Replay: entry ──▶ Connection ──▶ plans, events ──▶ equal?
//! ```
//!
//! Arriving packets are recorded opened, with the length of stream and datagram payload only:
//! planning never reads payload, and a replay seals nothing. The output of TLS is recorded, too. So
//! a journal contains neither payload nor packet protection keys. It does reveal addresses,
//! connection IDs, reset tokens, sizes and times; handle it like a packet capture.
//!
//! | file | content |
//! |---|---|
//! | `format` | constants, and the smallest parts of the format (`docs/spec/replay.md`) |
//! | `begin`, `records`, `session`, `outcome` | parts of entries: the first entry, opened packets, output of TLS, output of the connection |
//! | `write`, `entry` | writing and reading entries |
//! | `out` | the log of a connection, to which both its halves may write |
//! | `blocks` | the blocks of a log, checked |
//! | `replay`, `apply`, `detached` | the replay |
//! | `digest` | of plans and blocks |

mod apply;
mod begin;
mod blocks;
mod detached;
mod digest;
mod entry;
pub(crate) mod format;
mod out;
pub(crate) mod outcome;
mod records;
mod replay;
pub(crate) mod session;
pub(crate) mod write;

use std::fmt;
use std::sync::{Arc, Mutex};

use units::{Duration, Instant};
use wire::quic::Side;

use crate::connection::ConnectionSeed;
use crate::send::path::Addresses;
use digest::Digest;
use format::{BLOCK_LEN_WANTED, ENTRY_LEN_MAX, tag};
use out::{Half, Out, PUT_LEN_MAX};

pub use begin::{JournalHead, UNREAD_MAX};
pub use blocks::{JournalError, JournalErrorKind};
pub use entry::Entry;
pub use format::{MAGIC, VERSION};
pub use replay::{Difference, LogEnd, Replay, Step, Stopped};

/// Entries are passed to the sink after this time at the latest, if another entry follows: little
/// is lost when the process is killed. A busy connection fills its blocks earlier.
const FLUSH_AFTER: Duration = Duration::from_millis(100);

/// Takes the journal of a connection, block by block.
pub trait JournalSink: Send {
    /// Takes the next bytes of the journal, which are whole blocks. Called on the processor of the
    /// connection, between two datagrams, or on that of its detached receive half, and never on
    /// both at a time. It must not block.
    ///
    /// False ends the journal: nothing more is recorded, and the connection continues.
    fn take(&mut self, bytes: &[u8]) -> bool;
}

/// Makes the journal sink of each connection, or none for a connection that is not to be recorded.
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
    /// The connection was dropped.
    Dropped = 0,
    /// An entry would have exceeded the longest length.
    TooLong = 1,
}

/// The journal of a connection that is being written, or of its detached receive half.
pub(crate) struct Journal {
    /// Locked to copy new entries, every 16 KiB or so. While the receive half is detached, also
    /// with every report and every batch of commands.
    out: Arc<Mutex<Out>>,
    half: Half,
    /// The other half writes, too: this one passes on the entries of whole calls.
    is_shared: bool,
    /// Entries that were not flushed yet.
    block: Vec<u8>,
    /// The position of the last entry.
    entry_from: usize,
    /// The time of the last entry that has one, and that of the last flush, in nanoseconds.
    last: u64,
    flushed_at: u64,
    /// Addresses that have a number.
    addresses: Vec<Addresses>,
    /// The room of each socket during one call.
    rooms: Vec<(u16, usize)>,
    /// Nothing more is written.
    has_ended: bool,
}

/// The check of a block, seeded with that of the block before: it detects changed, missing and
/// moved blocks.
fn check_of(chain: u64, block: &[u8]) -> u64 {
    let mut digest = Digest::new(chain);
    digest.bytes(block);
    digest.finish()
}

impl Journal {
    /// Begins the journal of a connection, if one is wanted.
    pub(crate) fn begin(now: Instant, seed: &ConnectionSeed) -> Option<Box<Self>> {
        let sink = seed.config.journal.as_ref()?.0(seed.control.side)?;
        let mut journal = Box::new(Self {
            out: Arc::new(Mutex::new(Out::new(now, sink))),
            half: Half::Connection,
            is_shared: false,
            block: Vec::new(),
            entry_from: 0,
            last: now.as_nanos().min(format::NANOS_MAX),
            flushed_at: now.as_nanos(),
            addresses: Vec::new(),
            rooms: Vec::new(),
            has_ended: false,
        });
        journal.block.push(tag::BEGIN);
        begin::put_begin(&mut journal.block, now, seed);
        journal.entry_from = journal.block.len();
        Some(journal)
    }

    /// The journal of the receive half, which is detached now. It goes on in the same log.
    pub(crate) fn detach(&mut self) -> Box<Self> {
        self.flush();
        self.is_shared = true;
        Box::new(Self {
            out: Arc::clone(&self.out),
            half: Half::Receive,
            is_shared: true,
            block: Vec::new(),
            entry_from: 0,
            last: self.last,
            flushed_at: self.last,
            addresses: Vec::new(),
            rooms: Vec::new(),
            has_ended: self.has_ended,
        })
    }

    /// The receive half is attached again, and its journal is dropped.
    pub(crate) fn attach(&mut self) {
        self.is_shared = false;
    }

    /// Drops entries that were not flushed and writes no end.
    pub(crate) fn forget(&mut self) {
        self.has_ended = true;
    }

    /// An entry is complete, with the TLS entries before it. False if it was the last.
    fn complete(&mut self) -> bool {
        if self.block.len() - self.entry_from > ENTRY_LEN_MAX || self.block.len() > PUT_LEN_MAX {
            self.block.truncate(self.entry_from);
            self.end(Ending::TooLong);
            return false;
        }
        if !self.is_shared && self.is_due() {
            self.flush();
        }
        self.entry_from = self.block.len();
        !self.has_ended
    }

    fn is_due(&self) -> bool {
        let waited = self.last.saturating_sub(self.flushed_at);
        waited >= FLUSH_AFTER.as_nanos() || self.block.len() >= BLOCK_LEN_WANTED
    }

    fn end(&mut self, ending: Ending) {
        if self.flush()
            && let Ok(mut out) = self.out.lock()
        {
            out.end(ending, self.last);
        }
        self.has_ended = true;
    }

    /// Puts new entries into the log, ahead of all that either half puts there later. False if the
    /// journal is over.
    pub(crate) fn flush(&mut self) -> bool {
        if !self.has_ended {
            // A sink that has panicked gets no more.
            let goes_on = self.out.lock().is_ok_and(|mut out| out.put(self.half, &mut self.block, self.last));
            self.has_ended = !goes_on;
        }
        self.block.clear();
        self.entry_from = 0;
        self.flushed_at = self.last;
        !self.has_ended
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        match self.half {
            Half::Connection => self.end(Ending::Dropped),
            // The connection writes the end.
            Half::Receive => drop(self.flush()),
        }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
