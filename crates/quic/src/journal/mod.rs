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
//! | `out` | where they go, from one half of a connection or from both |
//! | `entry` | entries as they are read |
//! | `blocks` | a log's blocks, checked |
//! | `replay`, `apply`, `halves` | making it happen again |
//! | `digest` | of plans and blocks |

mod apply;
mod begin;
mod blocks;
mod digest;
mod entry;
pub(crate) mod format;
mod halves;
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
    /// two datagrams, or by that of its receive half, and never by both at a time: it must not wait for anything.
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

/// The journal of one connection while it is written, or of one half of it while both are apart.
pub(crate) struct Journal {
    /// Locked for a copy of what was written since the last time, every 16 KiB or so; while there are two halves, also whenever
    /// one gives the other something.
    out: Arc<Mutex<Out>>,
    half: Half,
    /// The other half writes, too: what this one hands over are whole calls.
    is_shared: bool,
    /// Entries that were not handed over yet.
    block: Vec<u8>,
    /// Where the entry begins that was written last.
    entry_from: usize,
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
            out: Arc::new(Mutex::new(Out::new(now, sink))),
            half: Half::Connection,
            is_shared: false,
            block: Vec::new(),
            entry_from: 0,
            last: now.as_nanos().min(format::NANOS_MAX),
            handed_over_at: now.as_nanos(),
            addresses: Vec::new(),
            rooms: Vec::new(),
            has_ended: false,
        });
        journal.block.push(tag::BEGIN);
        begin::put_begin(&mut journal.block, now, seed);
        journal.entry_from = journal.block.len();
        Some(journal)
    }

    /// Of the receive half, which parts now: it goes on in the same log.
    pub(crate) fn part(&mut self) -> Box<Self> {
        self.hand_over();
        self.is_shared = true;
        Box::new(Self {
            out: Arc::clone(&self.out),
            half: Half::Receive,
            is_shared: true,
            block: Vec::new(),
            entry_from: 0,
            last: self.last,
            handed_over_at: self.last,
            addresses: Vec::new(),
            rooms: Vec::new(),
            has_ended: self.has_ended,
        })
    }

    /// The receive half is back, and its journal is gone.
    pub(crate) fn rejoin(&mut self) {
        self.is_shared = false;
    }

    /// Writes no end: what has not been handed over never is.
    pub(crate) fn forget(&mut self) {
        self.has_ended = true;
    }

    /// An entry is complete, with what TLS said before it. False if it was the last.
    fn complete(&mut self) -> bool {
        if self.block.len() - self.entry_from > ENTRY_LEN_MAX || self.block.len() > PUT_LEN_MAX {
            self.block.truncate(self.entry_from);
            self.end(Ending::TooLong);
            return false;
        }
        if !self.is_shared && self.is_due() {
            self.hand_over();
        }
        self.entry_from = self.block.len();
        !self.has_ended
    }

    fn is_due(&self) -> bool {
        let waited = self.last.saturating_sub(self.handed_over_at);
        waited >= HAND_OVER_AFTER.as_nanos() || self.block.len() >= BLOCK_LEN_WANTED
    }

    fn end(&mut self, ending: Ending) {
        if self.hand_over()
            && let Ok(mut out) = self.out.lock()
        {
            out.end(ending, self.last);
        }
        self.has_ended = true;
    }

    /// Puts what was written into the log, before whatever is put there later, by whichever half. False if the journal is over.
    pub(crate) fn hand_over(&mut self) -> bool {
        if !self.has_ended {
            // A sink that has panicked takes no more.
            let goes_on = self.out.lock().is_ok_and(|mut out| out.put(self.half, &mut self.block, self.last));
            self.has_ended = !goes_on;
        }
        self.block.clear();
        self.entry_from = 0;
        self.handed_over_at = self.last;
        !self.has_ended
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        match self.half {
            Half::Connection => self.end(Ending::Dropped),
            // The connection has the last word.
            Half::Receive => drop(self.hand_over()),
        }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
