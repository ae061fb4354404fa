//! A ring of bytes in shared words: one side writes, the other one reads.
//!
//! ```text
//!   writer: copy bytes in ─▶ count them as written ─▶ take the reader's sleep, wake it if there was one
//!   reader: see the count ─▶ copy bytes out ─▶ count them as read ─▶ take the writer's sleep
//! ```
//!
//! The counts are never reset, so a full ring differs from an empty one. Each side keeps its own
//! count and only publishes it to the other. It reads the count of the other side once, and checks
//! it against the previous value and the length of the ring: a side that lies causes a
//! [`Violation`], and cannot make this side read or write elsewhere.
//!
//! A side without work announces that it sleeps, checks once more, and only then sleeps. The other
//! side publishes first and then takes the announcement. All changes of an announcement are
//! exchanges with acquire and release ordering, so they have one order, and no wake-up is lost.
//! While both sides are busy there is no system call. `tests/models.rs` explores every order of
//! steps.

use crate::copy::{WORD_LEN, copy_in, copy_out};
use crate::primitives::{AtomicU64, Ordering};

/// Number of words for the state of a ring: four cache lines of 64 bytes, which keep the two sides
/// from changing each other's lines without need.
pub const CONTROL_WORDS: usize = 32;

/// Words of the state. The writer changes the first two, the reader its count; each announcement is
/// set by one side and taken by the other.
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
    /// Returns all words; the result never changes.
    fn words(&self) -> &[AtomicU64];
}

/// Location of a ring among the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index of the first of its [`CONTROL_WORDS`].
    pub control: usize,
    /// Index of the first word of its bytes.
    pub data: usize,
    /// Number of its bytes: a power of two, and whole words.
    pub len: usize,
}

/// The other side has broken the rules: a count moved back or beyond the ring, or the state is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation;

/// Reason why the writer has ended a ring early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// The connection was broken elsewhere, or the writer gave it up.
    Broken,
    /// The other side had broken the rules.
    Violated,
}

/// Result of a check for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// At least one byte.
    Bytes,
    /// No bytes yet.
    Nothing,
    /// Everything was read, and nothing follows.
    End,
    /// The writer has reset the ring; unread bytes no longer count.
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

/// State of both sides: the location of the ring, and both counts. The count of the other side is
/// the last one seen: `written - read <= len`.
#[derive(Debug)]
struct Side<M> {
    memory: M,
    place: Place,
    written: u64,
    read: u64,
}

impl<M: SharedWords> Producer<M> {
    /// Creates the writing side of an empty, unused ring.
    ///
    /// # Panics
    /// Panics if the ring is not inside the words.
    pub fn new(memory: M, place: Place) -> Self {
        Self { side: Side::new(memory, place) }
    }

    /// Creates the writing side of a ring on which `count` bytes were written and read before.
    #[cfg(test)]
    pub(crate) fn after(memory: M, place: Place, count: u64) -> Self {
        Self { side: Side::after(memory, place, WRITTEN, count) }
    }

    /// Copies the part of `bytes` that fits, and publishes it to the reader. Returns its length.
    ///
    /// # Errors
    /// Fails if the reader has broken the rules.
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

    /// Returns the number of bytes that fit now.
    ///
    /// # Errors
    /// Fails if the reader has broken the rules.
    pub fn space(&mut self) -> Result<usize, Violation> {
        let read = self.side.control(READ).load(Ordering::Acquire);
        let unread = self.side.written.wrapping_sub(read);
        if unread > self.side.written.wrapping_sub(self.side.read) {
            return Err(Violation);
        }
        self.side.read = read;
        Ok(self.side.place.len - self.side.known_unread())
    }

    /// Ends the data.
    pub fn finish(&mut self) {
        self.side.control(STATE).store(FINISHED, Ordering::Release);
    }

    /// Ends the ring early. The reader sees the reset before it reads the remaining data.
    pub fn reset(&mut self, reset: Reset) {
        let state = if reset == Reset::Broken { BROKEN } else { VIOLATED };
        self.side.control(STATE).store(state, Ordering::Release);
    }

    /// Returns whether the reader sleeps. If it does, only this caller must wake it. Call it after
    /// writing bytes, and after the end.
    #[must_use]
    pub fn takes_sleep(&self) -> bool {
        self.side.take(READER_SLEEPS)
    }

    /// Announces that the writer is about to sleep. It must check for space once more first.
    pub fn announce_sleep(&self) {
        self.side.announce(WRITER_SLEEPS);
    }

    /// Withdraws the announcement after the sleep, or instead of it.
    pub fn withdraw_sleep(&self) {
        self.side.take(WRITER_SLEEPS);
    }

    /// Calls `sleep` if there is no space. Returns `None` if there is space.
    ///
    /// # Errors
    /// Fails if the reader has broken the rules.
    pub fn sleep_unless_space<T>(&mut self, sleep: impl FnOnce() -> T) -> Result<Option<T>, Violation> {
        self.announce_sleep();
        let slept = self.space().map(|space| (space == 0).then(sleep));
        self.withdraw_sleep();
        slept
    }
}

impl<M: SharedWords> Consumer<M> {
    /// Creates the reading side of an empty, unused ring.
    ///
    /// # Panics
    /// Panics if the ring is not inside the words.
    pub fn new(memory: M, place: Place) -> Self {
        Self { side: Side::new(memory, place) }
    }

    /// Creates the reading side of a ring on which `count` bytes were written and read before.
    #[cfg(test)]
    pub(crate) fn after(memory: M, place: Place, count: u64) -> Self {
        Self { side: Side::after(memory, place, READ, count) }
    }

    /// Checks for data to read.
    ///
    /// # Errors
    /// Fails if the writer has broken the rules.
    pub fn look(&mut self) -> Result<Found, Violation> {
        // The state is loaded before the count, so that everything written before the end is
        // counted.
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

    /// Returns whether the writer has finished. There may still be bytes to read.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.side.control(STATE).load(Ordering::Acquire) == FINISHED
    }

    /// Returns the number of bytes that can be read now.
    ///
    /// # Errors
    /// Fails if the writer has broken the rules.
    pub fn unread(&mut self) -> Result<usize, Violation> {
        let written = self.side.control(WRITTEN).load(Ordering::Acquire);
        let unread = written.wrapping_sub(self.side.read);
        if unread > self.side.place.len as u64 || unread < self.side.written.wrapping_sub(self.side.read) {
            return Err(Violation);
        }
        self.side.written = written;
        Ok(self.side.known_unread())
    }

    /// Copies the available bytes that fit to `bytes`, and releases their space. Returns their
    /// number.
    ///
    /// # Errors
    /// Fails if the writer has broken the rules.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Violation> {
        let known = self.side.known_unread();
        let unread = if known < bytes.len() { self.unread()? } else { known };
        let len = bytes.len().min(unread);
        let at = self.side.offset(self.side.read);
        let (before_end, behind) = bytes[..len].split_at_mut(len.min(self.side.place.len - at));
        copy_out(self.side.data(), at, before_end);
        copy_out(self.side.data(), 0, behind);
        self.side.read = self.side.read.wrapping_add(len as u64);
        // The store comes after the loads of the bytes, too: the writer overwrites them when it
        // sees the count.
        self.side.control(READ).store(self.side.read, Ordering::Release);
        Ok(len)
    }

    /// Returns whether the writer sleeps, and half of the ring is free, so that it does not wake
    /// for every few bytes. If it returns true, only this caller must wake the writer. Call it
    /// after reading bytes.
    #[must_use]
    pub fn takes_sleep(&self) -> bool {
        self.side.known_unread() <= self.side.place.len / 2 && self.side.take(WRITER_SLEEPS)
    }

    /// Announces that the reader is about to sleep. It must check once more first.
    pub fn announce_sleep(&self) {
        self.side.announce(READER_SLEEPS);
    }

    /// Withdraws the announcement after the sleep, or instead of it.
    pub fn withdraw_sleep(&self) {
        self.side.take(READER_SLEEPS);
    }

    /// Calls `sleep` if there is nothing to read. Returns `None` if there is data.
    ///
    /// # Errors
    /// Fails if the writer has broken the rules.
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

    /// Creates a side of a ring on which `count` bytes were written and read before. `shown` is the
    /// word to which this side publishes its count.
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

    /// Returns the number of bytes written and not read yet, by the counts that this side knows.
    fn known_unread(&self) -> usize {
        self.written.wrapping_sub(self.read) as usize
    }

    /// Returns the offset of the byte with this count.
    fn offset(&self, count: u64) -> usize {
        (count & (self.place.len as u64 - 1)) as usize
    }

    fn announce(&self, sleeps: usize) {
        self.control(sleeps).swap(1, Ordering::AcqRel);
    }

    /// Takes an announcement, whatever its value. With a plain store instead of the exchange, the
    /// next announcement would not see the other side's actions in between.
    fn take(&self, sleeps: usize) -> bool {
        self.control(sleeps).swap(0, Ordering::AcqRel) != 0
    }
}
