//! A ring of bytes in words that two sides share: one writes, the other one reads.
//!
//! ```text
//!   writer: copy bytes in ─▶ count them as written ─▶ take the reader's sleep, wake it if there was one
//!   reader: see the count ─▶ copy bytes out ─▶ count them as read ─▶ take the writer's sleep
//! ```
//!
//! The counts run freely, so a full ring differs from an empty one. Each side keeps its own count and
//! only shows it to the other one. It reads the count of the other side once, and compares it with what
//! it saw before and with the length of the ring: a side that lies gets a [`Violation`], and cannot make
//! this side read or write elsewhere.
//!
//! A side that finds nothing to do announces that it sleeps, looks once more, and only then sleeps. The
//! other side publishes first and takes the announcement second. All changes of an announcement are
//! exchanges with acquire and release ordering, so they have one order, and no wake-up is lost. While
//! both sides are busy there is no system call. `tests/models.rs` explores every order of steps.

use crate::copy::{WORD_LEN, copy_in, copy_out};
use crate::primitives::{AtomicU64, Ordering};

/// Words with the state of a ring: four cache lines of 64 bytes, so that no side's line is changed by
/// the other one without need.
pub const CONTROL_WORDS: usize = 32;

/// The words of the state. The writer changes the first two, the reader its count; each announcement is
/// set by one side and taken by the other one.
const WRITTEN: usize = 0;
const STATE: usize = 1;
const WRITER_SLEEPS: usize = 8;
const READ: usize = 16;
const READER_SLEEPS: usize = 24;

/// Values of [`STATE`].
const OPEN: u64 = 0;
const FINISHED: u64 = 1;
const BROKEN: u64 = 2;
const VIOLATED: u64 = 3;

/// Words that both sides can read and change at any time.
pub trait SharedWords {
    /// All of them, always the same.
    fn words(&self) -> &[AtomicU64];
}

/// Where a ring lies among the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The first one of its [`CONTROL_WORDS`].
    pub control: usize,
    /// The first word of its bytes.
    pub data: usize,
    /// The number of its bytes: a power of two, and whole words.
    pub len: usize,
}

/// The other side has broken the rules: a count moved back or beyond the ring, or the state is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation;

/// Why the writer has ended a ring before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// The connection was broken elsewhere, or the writer gave it up.
    Broken,
    /// The other side had broken the rules.
    Violated,
}

/// What the reader finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// At least one byte.
    Bytes,
    /// Nothing yet.
    Nothing,
    /// Everything was read, and nothing follows.
    End,
    /// What is left counts no more.
    Reset(Reset),
}

/// The writing side of a ring.
#[derive(Debug)]
pub struct Producer<M> {
    side: Side<M>,
}

/// The reading side of a ring.
#[derive(Debug)]
pub struct Consumer<M> {
    side: Side<M>,
}

/// What both sides keep: where the ring lies, and both counts. The count of the other side is as it was
/// seen last: `written - read <= len`.
#[derive(Debug)]
struct Side<M> {
    memory: M,
    place: Place,
    written: u64,
    read: u64,
}

impl<M: SharedWords> Producer<M> {
    /// The writing side of a ring on which nothing was written.
    ///
    /// # Panics
    /// If the ring is not inside the words.
    pub fn new(memory: M, place: Place) -> Self {
        Self { side: Side::new(memory, place) }
    }

    /// As if `count` bytes had been written and read.
    #[cfg(test)]
    pub(crate) fn after(memory: M, place: Place, count: u64) -> Self {
        Self { side: Side::after(memory, place, WRITTEN, count) }
    }

    /// Copies from `bytes` what fits and shows it to the reader. Returns how much that was.
    ///
    /// # Errors
    /// If the reader has broken the rules.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let len = self.side.place.len;
        let known = len - self.side.known_unread();
        let space = if known < bytes.len() { self.space()? } else { known };
        let bytes = &bytes[..bytes.len().min(space)];
        let at = self.side.offset(self.side.written);
        let (before_end, behind) = bytes.split_at(bytes.len().min(len - at));
        copy_in(self.side.data(), at, before_end);
        copy_in(self.side.data(), 0, behind);
        self.side.written = self.side.written.wrapping_add(bytes.len() as u64);
        self.side.control(WRITTEN).store(self.side.written, Ordering::Release);
        Ok(bytes.len())
    }

    /// Bytes that fit now.
    ///
    /// # Errors
    /// If the reader has broken the rules.
    pub fn space(&mut self) -> Result<usize, Violation> {
        let read = self.side.control(READ).load(Ordering::Acquire);
        let unread = self.side.written.wrapping_sub(read);
        if unread > self.side.written.wrapping_sub(self.side.read) {
            return Err(Violation);
        }
        self.side.read = read;
        Ok(self.side.place.len - self.side.known_unread())
    }

    /// Nothing follows.
    pub fn finish(&mut self) {
        self.side.control(STATE).store(FINISHED, Ordering::Release);
    }

    /// Ends the ring before its end. The reader learns of it before it reads what is left.
    pub fn reset(&mut self, reset: Reset) {
        let state = if reset == Reset::Broken { BROKEN } else { VIOLATED };
        self.side.control(STATE).store(state, Ordering::Release);
    }

    /// Whether the reader sleeps. Then the caller, and no other one, wakes it. To be called after bytes
    /// were written, and after the end.
    #[must_use]
    pub fn takes_sleep(&self) -> bool {
        self.side.take(READER_SLEEPS)
    }

    /// The writer is about to sleep. It looks for space once more before it does.
    pub fn announce_sleep(&self) {
        self.side.announce(WRITER_SLEEPS);
    }

    /// The sleep has ended, or did not begin.
    pub fn withdraw_sleep(&self) {
        self.side.take(WRITER_SLEEPS);
    }

    /// Sleeps in `sleep` if there is no space. None if there is.
    ///
    /// # Errors
    /// If the reader has broken the rules.
    pub fn sleep_unless_space<T>(&mut self, sleep: impl FnOnce() -> T) -> Result<Option<T>, Violation> {
        self.announce_sleep();
        let slept = self.space().map(|space| (space == 0).then(sleep));
        self.withdraw_sleep();
        slept
    }
}

impl<M: SharedWords> Consumer<M> {
    /// The reading side of a ring of which nothing was read.
    ///
    /// # Panics
    /// If the ring is not inside the words.
    pub fn new(memory: M, place: Place) -> Self {
        Self { side: Side::new(memory, place) }
    }

    /// As if `count` bytes had been written and read.
    #[cfg(test)]
    pub(crate) fn after(memory: M, place: Place, count: u64) -> Self {
        Self { side: Side::after(memory, place, READ, count) }
    }

    /// What there is to read.
    ///
    /// # Errors
    /// If the writer has broken the rules.
    pub fn look(&mut self) -> Result<Found, Violation> {
        // Before the count: everything that the writer wrote before it finished is counted then.
        let state = self.side.control(STATE).load(Ordering::Acquire);
        let nothing = match state {
            OPEN => Found::Nothing,
            FINISHED => Found::End,
            BROKEN => return Ok(Found::Reset(Reset::Broken)),
            VIOLATED => return Ok(Found::Reset(Reset::Violated)),
            _ => return Err(Violation),
        };
        Ok(if self.unread()? > 0 { Found::Bytes } else { nothing })
    }

    /// Whether the writer has finished. There may be bytes to read.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.side.control(STATE).load(Ordering::Acquire) == FINISHED
    }

    /// Bytes that can be read now.
    ///
    /// # Errors
    /// If the writer has broken the rules.
    pub fn unread(&mut self) -> Result<usize, Violation> {
        let written = self.side.control(WRITTEN).load(Ordering::Acquire);
        let unread = written.wrapping_sub(self.side.read);
        if unread > self.side.place.len as u64 || unread < self.side.written.wrapping_sub(self.side.read) {
            return Err(Violation);
        }
        self.side.written = written;
        Ok(self.side.known_unread())
    }

    /// Copies what is there and fits to `bytes`, and gives its space back. Returns how much that was.
    ///
    /// # Errors
    /// If the writer has broken the rules.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Violation> {
        let known = self.side.known_unread();
        let unread = if known < bytes.len() { self.unread()? } else { known };
        let len = bytes.len().min(unread);
        let at = self.side.offset(self.side.read);
        let (before_end, behind) = bytes[..len].split_at_mut(len.min(self.side.place.len - at));
        copy_out(self.side.data(), at, before_end);
        copy_out(self.side.data(), 0, behind);
        self.side.read = self.side.read.wrapping_add(len as u64);
        // Also after the loads of the bytes: the writer overwrites them when it sees the count.
        self.side.control(READ).store(self.side.read, Ordering::Release);
        Ok(len)
    }

    /// Whether the writer sleeps, and half of the ring is free, so that it does not wake for each few
    /// bytes. Then the caller, and no other one, wakes it. To be called after bytes were read.
    #[must_use]
    pub fn takes_sleep(&self) -> bool {
        self.side.known_unread() <= self.side.place.len / 2 && self.side.take(WRITER_SLEEPS)
    }

    /// The reader is about to sleep. It looks once more before it does.
    pub fn announce_sleep(&self) {
        self.side.announce(READER_SLEEPS);
    }

    /// The sleep has ended, or did not begin.
    pub fn withdraw_sleep(&self) {
        self.side.take(READER_SLEEPS);
    }

    /// Sleeps in `sleep` if there is nothing to read. None if there is something.
    ///
    /// # Errors
    /// If the writer has broken the rules.
    pub fn sleep_unless_found<T>(&mut self, sleep: impl FnOnce() -> T) -> Result<Option<T>, Violation> {
        self.announce_sleep();
        let slept = self.look().map(|found| (found == Found::Nothing).then(sleep));
        self.withdraw_sleep();
        slept
    }
}

impl<M: SharedWords> Side<M> {
    fn new(memory: M, place: Place) -> Self {
        let Place { control, data, len } = place;
        assert!(len.is_power_of_two() && len >= WORD_LEN, "a ring of {len} bytes");
        let words = memory.words().len();
        assert!(control + READER_SLEEPS < words && data + len / WORD_LEN <= words, "{place:?} in {words} words");
        Self { memory, place, written: 0, read: 0 }
    }

    /// As if `count` bytes had been written and read. `shown` is the word where this side shows its count.
    #[cfg(test)]
    fn after(memory: M, place: Place, shown: usize, count: u64) -> Self {
        let side = Self { written: count, read: count, ..Self::new(memory, place) };
        side.control(shown).store(count, Ordering::Relaxed);
        side
    }

    fn control(&self, word: usize) -> &AtomicU64 {
        &self.memory.words()[self.place.control + word]
    }

    fn data(&self) -> &[AtomicU64] {
        &self.memory.words()[self.place.data..self.place.data + self.place.len / WORD_LEN]
    }

    /// Bytes that were written and not read yet, by the counts that this side knows.
    fn known_unread(&self) -> usize {
        self.written.wrapping_sub(self.read) as usize
    }

    /// Where the byte with this count lies.
    fn offset(&self, count: u64) -> usize {
        (count & (self.place.len as u64 - 1)) as usize
    }

    fn announce(&self, sleeps: usize) {
        self.control(sleeps).swap(1, Ordering::AcqRel);
    }

    /// Takes an announcement, of whatever value. With a plain store instead of the exchange, the next
    /// announcement would not see what the other side did meanwhile.
    fn take(&self, sleeps: usize) -> bool {
        self.control(sleeps).swap(0, Ordering::AcqRel) != 0
    }
}
