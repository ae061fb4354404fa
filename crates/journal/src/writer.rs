//! [`Writer`]: the entries of a connection, or of its detached receive half.

use std::fmt;
use std::sync::{Arc, Mutex};

use units::Instant;

use crate::format::{BLOCK_LEN_WANTED, ENTRY_LEN_MAX, Ending, Format, NANOS_MAX, put, put_time, tag};
use crate::out::{FLUSH_AFTER, Half, Out, PUT_LEN_MAX};
use crate::sink::JournalSink;

/// Writes the entries of a connection, or of its detached receive half, into their log.
pub struct Writer {
    /// The log, locked to copy new entries every 16 KiB or so. While the receive half is detached,
    /// it is also locked with every report and every batch of commands.
    out: Arc<Mutex<Out>>,
    half: Half,
    /// Whether the other half also writes: this one then passes on the entries of whole calls.
    is_shared: bool,
    /// Entries that were not flushed yet.
    block: Vec<u8>,
    /// Position of the last entry.
    entry_from: usize,
    /// Time of the last entry that has one, and of the last flush, in nanoseconds.
    last: u64,
    flushed_at: u64,
    /// Whether nothing more is written.
    has_ended: bool,
    /// Whether entries are held: see [`hold`](Self::hold).
    is_held: bool,
}

impl Writer {
    /// Begins the log of a connection, whose first entry `begin` writes after its tag.
    pub fn begin(now: Instant, format: Format, sink: Box<dyn JournalSink>, begin: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut block = vec![tag::BEGIN];
        begin(&mut block);
        Self {
            out: Arc::new(Mutex::new(Out::new(now, format, sink))),
            half: Half::Connection,
            is_shared: false,
            entry_from: block.len(),
            block,
            last: now.as_nanos().min(NANOS_MAX),
            flushed_at: now.as_nanos(),
            has_ended: false,
            is_held: false,
        }
    }

    /// Creates the writer of the receive half, which is now detached. It continues in the same log.
    pub fn detach(&mut self) -> Self {
        self.flush();
        self.is_shared = true;
        Self {
            out: Arc::clone(&self.out),
            half: Half::Receive,
            is_shared: true,
            block: Vec::new(),
            entry_from: 0,
            last: self.last,
            flushed_at: self.last,
            has_ended: self.has_ended,
            is_held: false,
        }
    }

    /// Records that the receive half is attached again, and its writer dropped.
    pub fn attach(&mut self) {
        self.is_shared = false;
    }

    /// Holds entries until [`release`](Self::release): a connection that may not come into being
    /// begins no log. If it ends before, or has more than a block of entries, there is no log.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Releases the entries, because the connection exists: they are passed on from now on.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Drops entries that were not flushed, and writes no end.
    pub fn forget(&mut self) {
        self.has_ended = true;
    }

    /// Returns the buffer for entries.
    pub fn entries(&mut self) -> &mut Vec<u8> {
        &mut self.block
    }

    /// Begins an entry.
    pub fn entry(&mut self, tag: u8) -> &mut Vec<u8> {
        self.block.push(tag);
        &mut self.block
    }

    /// Begins an entry with its time.
    pub fn timed(&mut self, tag: u8, now: Instant) -> &mut Vec<u8> {
        self.block.push(tag);
        put_time(&mut self.block, &mut self.last, now);
        &mut self.block
    }

    /// Begins the entries of a call. Passes on entries of earlier calls if they are due.
    pub fn begin_call(&mut self) {
        if self.is_shared && self.is_due() {
            self.flush();
        }
    }

    /// Completes an entry, together with entries that belong to it and precede it. Returns false if
    /// it was the last.
    pub fn complete(&mut self) -> bool {
        if self.block.len() - self.entry_from > ENTRY_LEN_MAX || self.block.len() > PUT_LEN_MAX {
            self.block.truncate(self.entry_from);
            self.end(Ending::TooLong);
            return false;
        }
        if self.is_held && self.block.len() >= BLOCK_LEN_WANTED {
            self.forget();
        }
        if !self.is_shared && !self.is_held && self.is_due() {
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

    /// Puts new entries into the log, ahead of all later entries of either half. Returns false if
    /// the journal has ended.
    pub fn flush(&mut self) -> bool {
        if !self.has_ended {
            // A sink that has panicked gets no more entries.
            let goes_on = self.out.lock().is_ok_and(|mut out| out.put(self.half, &mut self.block, self.last));
            self.has_ended = !goes_on;
        }
        self.block.clear();
        self.entry_from = 0;
        self.flushed_at = self.last;
        !self.has_ended
    }

    // ── Halves ───────────────────────────────────────────────────────────────────────────────────

    /// Records that the receive half is detached.
    pub fn detached(&mut self) {
        self.entry(tag::DETACHED);
    }

    /// Records that it is attached again.
    pub fn attached(&mut self, now: Instant) {
        self.timed(tag::ATTACHED, now);
    }

    /// Records that a message of this number passes to the other half: [`tag::GAVE_COMMANDS`] and
    /// [`tag::GAVE_REPORT`]. The log must have it before the message passes: see [`flush`](Self::flush).
    pub fn gave(&mut self, tag: u8, number: u64) {
        put(self.entry(tag), number);
    }

    /// Records that a message of this number was taken: [`tag::TOOK_COMMANDS`] and
    /// [`tag::TOOK_REPORT`].
    pub fn took(&mut self, tag: u8, now: Instant, number: u64) {
        put(self.timed(tag, now), number);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        match self.half {
            Half::Connection if self.is_held => {}
            Half::Connection => self.end(Ending::Dropped),
            // The connection writes the end.
            Half::Receive => drop(self.flush()),
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}
