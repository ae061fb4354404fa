//! A hierarchical timing wheel with exact deadlines.
//!
//! A deadline is a 64-bit number, read as eleven digits in base 64. A level of the wheel represents
//! a digit and has a slot for each value. An entry is on the level of the highest digit in which
//! its deadline differs from the *pivot*, in the slot of its own digit there:
//!
//! ```text
//!   level 10 … 5     4      3      2       1      0
//!   slot of  1 s   17 ms  262 us  4.1 us  64 ns  1 ns      a level has 64 of them
//! ```
//!
//! The pivot is no later than any deadline. Entries of a lower level are therefore earlier than
//! those of a higher one, and the earliest is in the first used slot of the lowest used level: two
//! bit scans find it. When the time of that slot has come and it holds several entries, the pivot
//! moves into it, and its entries move to lower levels, which are empty.
//!
//! The last level has the resolution of the clock, so no comparison is needed to order timers that
//! fire together. Equal deadlines keep the order in which they were armed, because they share a
//! slot at any time. This costs almost nothing: a slot with one entry, the usual case for pacing,
//! fires from the level that it is on.
//!
//! Arming, moving and disarming take constant time. An entry moves to a lower level at most ten
//! times between arming and firing, and most are rearmed before the first time. One call may have
//! to move all entries.

use units::Instant;

/// Number of bits of a digit. Six, so that one machine word holds a bit for each slot of a level.
pub(super) const DIGIT_BITS: u32 = 6;

/// Number of slots of a level.
pub(super) const SLOTS: usize = 1 << DIGIT_BITS;

/// Number of levels, enough for every deadline.
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;

/// Marker for no entry. Slabs have fewer keys.
pub(super) const NIL: u32 = u32::MAX;

/// Place of an entry that is not armed.
const NOWHERE: u16 = u16::MAX;

const _: () = assert!(SLOTS == u64::BITS as usize, "the slots of a level fit one word");
const _: () = assert!(LEVELS <= u16::BITS as usize, "the levels fit one word");
const _: () = assert!(LEVELS * SLOTS < NOWHERE as usize, "places fit their integer type");

/// A set of timers with at most one deadline for each key. Keys are small numbers that are reused,
/// such as those of a slab: memory is 24 bytes for each key up to the largest, and 12 KiB.
#[derive(Debug)]
pub struct Timers {
    pub(super) entries: Vec<Entry>,
    /// The slots of all levels, `SLOTS` for each.
    pub(super) slots: Box<[Slot]>,
    /// Bit sets of the slots of each level that have entries.
    pub(super) used: [u64; LEVELS],
    /// Bit set of the levels that have entries.
    pub(super) levels: u16,
    /// Reference for the places of entries. Never later than `floor`.
    pub(super) pivot: u64,
    /// Time before which all deadlines have fired. Never later than a deadline, because earlier
    /// deadlines are replaced by it.
    pub(super) floor: u64,
}

/// The deadline of a key, linked to those in the same slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) deadline: u64,
    pub(super) next: u32,
    pub(super) prev: u32,
    /// Index of its slot.
    pub(super) place: u16,
}

/// A slot: entries in the order in which they were armed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// A time no later than any deadline in the slot, and within the slot's span. It is the
    /// earliest deadline, until that entry is removed while several others remain.
    pub(super) bound: u64,
}

const UNARMED: Entry = Entry { deadline: 0, next: NIL, prev: NIL, place: NOWHERE };

const EMPTY: Slot = Slot { head: NIL, tail: NIL, bound: 0 };

impl Default for Timers {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            slots: vec![EMPTY; LEVELS * SLOTS].into_boxed_slice(),
            used: [0; LEVELS],
            levels: 0,
            pivot: 0,
            floor: 0,
        }
    }
}

impl Timers {
    /// Replaces the deadline `old` of `key`, which the caller remembers, by `new`; equal deadlines
    /// change nothing. [`Instant::FAR_FUTURE`] means no deadline. A deadline that has passed is due
    /// at once, after those that are due already.
    pub fn replace(&mut self, key: u32, old: Option<Instant>, new: Option<Instant>) {
        if old == new {
            return;
        }
        debug_assert_eq!(self.is_armed(key), old.is_some_and(|at| at != Instant::FAR_FUTURE), "the caller remembers");
        self.disarm(key);
        if let Some(at) = new
            && at != Instant::FAR_FUTURE
        {
            self.arm(key, at);
        }
    }

    /// Returns the time of the next call of [`pop_due`](Self::pop_due): no later than the earliest
    /// deadline, and later than the last call that found nothing due. It may be too early once
    /// after an earlier deadline was replaced; that call then finds the exact time.
    pub fn next(&self) -> Option<Instant> {
        self.first().map(|index| Instant::from_nanos(self.slots[index].bound))
    }

    /// Removes and returns one key whose deadline has come: the earliest deadline first, and of
    /// equal ones the first that was armed.
    pub fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let now = now.as_nanos();
        while let Some(index) = self.first()
            && self.slots[index].bound <= now
        {
            let Slot { head, tail, bound } = self.slots[index];
            // On level 0, and for a single entry, the bound is the deadline of the first entry.
            if index < SLOTS || head == tail {
                (self.pivot, self.floor) = (bound, bound);
                self.disarm(head);
                return Some(head);
            }
            self.spread(index);
        }
        self.floor = self.floor.max(now);
        None
    }

    fn is_armed(&self, key: u32) -> bool {
        self.entries.get(key as usize).is_some_and(|entry| entry.place != NOWHERE)
    }

    /// Returns the slot with the earliest deadline.
    fn first(&self) -> Option<usize> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some(level * SLOTS + self.used[level].trailing_zeros() as usize)
    }

    fn arm(&mut self, key: u32, at: Instant) {
        if self.entries.len() <= key as usize {
            self.entries.resize(key as usize + 1, UNARMED);
        }
        self.entries[key as usize].deadline = at.as_nanos().max(self.floor);
        self.link(key);
    }

    /// Adds an entry at the end of the slot of its deadline.
    fn link(&mut self, key: u32) {
        let deadline = self.entries[key as usize].deadline;
        debug_assert!(deadline >= self.pivot, "a deadline before the pivot is out of order");
        let difference = deadline ^ self.pivot;
        let level = (difference.checked_ilog2().unwrap_or(0) / DIGIT_BITS) as usize;
        let digit = (deadline >> (level as u32 * DIGIT_BITS)) as usize % SLOTS;
        let index = level * SLOTS + digit;
        let slot = &mut self.slots[index];
        let prev = std::mem::replace(&mut slot.tail, key);
        if prev == NIL {
            slot.head = key;
            slot.bound = deadline;
            self.used[level] |= 1 << digit;
            self.levels |= 1 << level;
        } else {
            slot.bound = slot.bound.min(deadline);
            self.entries[prev as usize].next = key;
        }
        self.entries[key as usize] = Entry { deadline, next: NIL, prev, place: index as u16 };
    }

    fn disarm(&mut self, key: u32) {
        let Some(entry) = self.entries.get_mut(key as usize) else { return };
        let Entry { next, prev, place, .. } = std::mem::replace(entry, UNARMED);
        if place == NOWHERE {
            return;
        }
        let slot = &mut self.slots[place as usize];
        match prev {
            NIL => slot.head = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NIL => slot.tail = prev,
            next => self.entries[next as usize].prev = prev,
        }
        if slot.head == NIL {
            self.mark_empty(place as usize);
        } else if slot.head == slot.tail {
            slot.bound = self.entries[slot.head as usize].deadline;
        }
    }

    fn mark_empty(&mut self, index: usize) {
        let level = index / SLOTS;
        self.used[level] &= !(1 << (index % SLOTS));
        if self.used[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Moves the pivot into the first slot and its entries, in their order, to lower levels.
    fn spread(&mut self, index: usize) {
        let Slot { head, bound, .. } = std::mem::replace(&mut self.slots[index], EMPTY);
        self.mark_empty(index);
        self.pivot = bound;
        let mut key = head;
        while key != NIL {
            let next = self.entries[key as usize].next;
            self.link(key);
            key = next;
        }
    }
}
