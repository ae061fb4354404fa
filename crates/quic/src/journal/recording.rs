//! A journal that is being written.

use std::fmt;
use std::sync::{Arc, Mutex};

use units::Instant;

use super::begin;
use super::format::{BLOCK_LEN_WANTED, ENTRY_LEN_MAX, Ending, NANOS_MAX, tag};
use super::out::{FLUSH_AFTER, Half, Out, PUT_LEN_MAX};
use crate::addresses::Addresses;
use crate::seed::ConnectionSeed;

/// The journal of a connection that is being written, or of its detached receive half.
pub(crate) struct Journal {
    /// Locked to copy new entries, every 16 KiB or so. While the receive half is detached, also
    /// with every report and every batch of commands.
    pub(super) out: Arc<Mutex<Out>>,
    pub(super) half: Half,
    /// The other half writes, too: this one passes on the entries of whole calls.
    pub(super) is_shared: bool,
    /// Entries that were not flushed yet.
    pub(super) block: Vec<u8>,
    /// The position of the last entry.
    pub(super) entry_from: usize,
    /// The time of the last entry that has one, and that of the last flush, in nanoseconds.
    pub(super) last: u64,
    pub(super) flushed_at: u64,
    /// Addresses that have a number.
    pub(super) addresses: Vec<Addresses>,
    /// The number of datagrams that each socket accepts during one call.
    pub(super) socket_budgets: Vec<(u16, usize)>,
    /// Nothing more is written.
    pub(super) has_ended: bool,
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
            last: now.as_nanos().min(NANOS_MAX),
            flushed_at: now.as_nanos(),
            addresses: Vec::new(),
            socket_budgets: Vec::new(),
            has_ended: false,
        });
        journal.block.push(tag::BEGIN);
        begin::put_begin(&mut journal.block, now, seed);
        journal.entry_from = journal.block.len();
        Some(journal)
    }

    /// The journal of the receive half, which is detached now. It continues in the same log.
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
            socket_budgets: Vec::new(),
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
    pub(super) fn complete(&mut self) -> bool {
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

    pub(super) fn is_due(&self) -> bool {
        let waited = self.last.saturating_sub(self.flushed_at);
        waited >= FLUSH_AFTER.as_nanos() || self.block.len() >= BLOCK_LEN_WANTED
    }

    pub(super) fn end(&mut self, ending: Ending) {
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
