//! Puts the items of each flow back in order, within bounds of time, number and bytes.
//!
//! ```text
//!  path 0   1  2     4  5  6           7
//!  path 1            3        lost?
//!                    ▲ held: nothing     after 7: both paths have passed the gap ─▶ lost
//! ```
//!
//! A sender puts the packets of one flow on several paths, whose delays differ. An item that arrives
//! before an earlier one is held until the earlier one has arrived, or cannot be expected any more:
//!
//! - Each path keeps its order, mostly. When every path in use has delivered a later item of the flow, the
//!   missing one is lost, unless it may be the first on a path that is open and was not used lately: then
//!   the wait is what the round trips of the paths differ by, and no less than a batch takes.
//! - If the flow keeps to one path, as its sender says, the missing one is lost at once.
//! - A path in use may stop. The missing item is waited for no longer than the spread of the paths' delays,
//!   which is measured: how late items were that filled a gap, or came after such a wait. A path that has let
//!   a wait run out is not in use until it delivers again, so that the next items do not wait for it.
//! - Too much is held.
//!
//! An item that arrives after its gap was given up is still delivered, late, and once.

use std::collections::{BTreeMap, VecDeque};

use units::{Duration, Instant};

use crate::item::{FLOWS_MAX, Item};

/// Items held over all flows, at most: 50 ms of 1500-byte packets at 1 Gb/s.
pub const HELD_ITEMS_MAX: usize = 4096;

/// Bytes held over all flows, at most.
pub const HELD_BYTES_MAX: usize = 8 << 20;

/// The wait for a missing item before the spread was measured, and the longest: more than paths differ
/// that are worth using together.
const WAIT_MAX: Duration = Duration::from_millis(200);
const WAIT_FIRST: Duration = Duration::from_millis(60);
/// The shortest wait: a batch of a path is received within it, and the batches of paths whose delays are
/// equal are received one after another.
const WAIT_MIN: Duration = Duration::from_millis(4);

/// The measured spread is the largest lateness of the last one to two of these periods.
const SPREAD_PERIOD: Duration = Duration::from_secs(2);

/// A path that has delivered nothing for this long is not in use. With much more, a loss is waited for as on
/// all paths while one of several is used.
const USED_FOR: Duration = Duration::from_secs(2);

/// Paths of a connection whose order is followed, at most. Those whose numbers are equal modulo this count as
/// one path.
const PATHS_MAX: usize = 16;

/// Items before the expected one whose delivery is remembered, so that none is delivered twice: as many as
/// may be held. Older ones are dropped.
const REMEMBERED: u32 = HELD_ITEMS_MAX as u32;

/// A larger jump ahead cannot be reordering.
const JUMP_MAX: u32 = 1 << 20;

/// Counters.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ResequencerStats {
    /// Items that had to wait for earlier ones.
    pub held: u64,
    /// Items that were given up, because every path had passed them.
    pub lost: u64,
    /// Items that were given up, because the wait was over or too much was held.
    pub expired: u64,
    /// Items that arrived after they were given up, and were delivered.
    pub late: u64,
    /// Items that arrived again or far too late, and were dropped.
    pub dropped: u64,
}

/// Puts items of one sender in order.
#[derive(Debug)]
pub struct Resequencer {
    flows: Vec<Flow>,
    /// When each path delivered last; zero if it never did.
    used_at: [Instant; PATHS_MAX],
    /// The longest wait for the first items of each path: what its round trip is longer than the shortest,
    /// or what a batch takes. None if it is not open.
    first_waits: [Option<Duration>; PATHS_MAX],
    /// Flows that hold items, by when the wait for the missing one ends.
    deadlines: BTreeMap<(Instant, u16), ()>,
    held_items: usize,
    held_bytes: usize,
    /// The largest lateness in the current period and in the one before.
    lateness: [Duration; 2],
    period_began: Instant,
    has_measured: bool,
    stats: ResequencerStats,
}

#[derive(Debug, Default)]
struct Flow {
    /// The sequence number that is expected next.
    next: u32,
    /// Which of the items before `next` were delivered.
    delivered: Delivered,
    /// Items after `next`, ascending.
    held: VecDeque<Held>,
    /// For each path the newest item that it has delivered.
    passed: Vec<Option<u32>>,
    deadline: Option<Instant>,
    /// The last gap that was given up because the wait was over.
    expired: Option<Gap>,
}

/// Items that were missing: those from `first` on, before `end`.
#[derive(Debug, Clone, Copy)]
struct Gap {
    first: u32,
    end: u32,
    /// When the item after them arrived.
    began: Instant,
}

impl Gap {
    fn contains(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.first) < self.end.wrapping_sub(self.first)
    }
}

/// A bit for each remembered item, by its number modulo their count. Without memory until the first is
/// given up: then all before it were delivered.
#[derive(Debug, Default)]
struct Delivered(Vec<u64>);

impl Delivered {
    fn place(sequence: u32) -> (usize, u64) {
        let bit = sequence % REMEMBERED;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    fn set(&mut self, sequence: u32) {
        let (word, bit) = Self::place(sequence);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    /// `count` items from `first` on are given up.
    fn clear(&mut self, first: u32, count: u32) {
        if self.0.is_empty() {
            self.0 = vec![u64::MAX; REMEMBERED as usize / 64];
        }
        for index in 0..count.min(REMEMBERED) {
            let (word, bit) = Self::place(first.wrapping_add(index));
            self.0[word] &= !bit;
        }
    }

    fn has(&self, sequence: u32) -> bool {
        let (word, bit) = Self::place(sequence);
        self.0.get(word).is_none_or(|word| word & bit != 0)
    }
}

/// An item that waits for earlier ones.
#[derive(Debug)]
struct Held {
    since: Instant,
    item: Item,
}

impl Default for Resequencer {
    fn default() -> Self {
        Self::new()
    }
}

impl Resequencer {
    /// Expects the first item of each flow.
    #[must_use]
    pub fn new() -> Self {
        Self {
            flows: Vec::new(),
            used_at: [Instant::ZERO; PATHS_MAX],
            first_waits: [None; PATHS_MAX],
            deadlines: BTreeMap::new(),
            held_items: 0,
            held_bytes: 0,
            lateness: [Duration::ZERO; 2],
            period_began: Instant::ZERO,
            has_measured: false,
            stats: ResequencerStats::default(),
        }
    }

    /// Sets which paths the sender may use, with their round trips. Others count only once they deliver.
    pub fn set_open_paths(&mut self, round_trips: impl Iterator<Item = (usize, Duration)> + Clone) {
        let shortest = round_trips.clone().map(|(_, round_trip)| round_trip).min().unwrap_or(Duration::ZERO);
        self.first_waits = [None; PATHS_MAX];
        for (path, round_trip) in round_trips {
            let wait = round_trip.saturating_sub(shortest).clamp(WAIT_MIN, WAIT_FIRST);
            let first_wait = &mut self.first_waits[path % PATHS_MAX];
            *first_wait = (*first_wait).max(Some(wait));
        }
    }

    /// Takes an item that arrived on `path`, and passes to `deliver` those that are in order now.
    ///
    /// # Panics
    /// If the flow is not below [`FLOWS_MAX`].
    pub fn push(&mut self, now: Instant, path: usize, item: Item, deliver: &mut impl FnMut(Item)) {
        let number = item.flow;
        assert!(number < FLOWS_MAX, "items are parsed");
        if self.flows.len() <= usize::from(number) {
            self.flows.resize_with(usize::from(number) + 1, Flow::default);
        }
        let flow = &mut self.flows[usize::from(number)];
        let ahead = item.sequence.wrapping_sub(flow.next);
        flow.note_passed(path % PATHS_MAX, item.sequence);
        self.used_at[path % PATHS_MAX] = now;
        if ahead == 0 {
            flow.advance();
            let gap_began = flow.held.front().map(|held| held.since);
            deliver(item);
            let Some(gap_began) = gap_began else { return };
            self.note_lateness(now, now.saturating_since(gap_began));
        } else if ahead > u32::MAX / 2 {
            self.push_late(now, number, ahead.wrapping_neg(), item, deliver);
            return;
        } else if ahead > JUMP_MAX {
            self.jump(now, number, item, deliver);
            return;
        } else {
            let bytes = item.body.len_bytes();
            if !flow.hold(now, item) {
                self.stats.dropped += 1;
                return;
            }
            self.held_items += 1;
            self.held_bytes += bytes;
            self.stats.held += 1;
        }
        self.drain(now, number, deliver);
        while (self.held_items > HELD_ITEMS_MAX || self.held_bytes > HELD_BYTES_MAX)
            && let Some((&(_, oldest), ())) = self.deadlines.first_key_value()
        {
            self.skip_gap(now, oldest, deliver);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        self.deadlines.first_key_value().map(|(&(at, _), ())| at)
    }

    /// Delivers what waits for items whose time is over.
    pub fn handle_timeout(&mut self, now: Instant, deliver: &mut impl FnMut(Item)) {
        while let Some((&(at, flow), ())) = self.deadlines.first_key_value()
            && at <= now
        {
            self.note_stopped_paths(flow);
            self.skip_gap(now, flow, deliver);
        }
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> ResequencerStats {
        self.stats
    }

    /// Items held now.
    #[must_use]
    pub const fn held_items(&self) -> usize {
        self.held_items
    }

    /// How long an item is waited for that may be missing on a path in use.
    #[must_use]
    pub fn wait(&self) -> Duration {
        if !self.has_measured {
            return WAIT_FIRST;
        }
        let spread = self.lateness[0].max(self.lateness[1]);
        (spread + spread / 2).clamp(WAIT_MIN, WAIT_MAX)
    }

    fn note_lateness(&mut self, now: Instant, lateness: Duration) {
        if now.saturating_since(self.period_began) >= SPREAD_PERIOD {
            self.lateness = [Duration::ZERO, self.lateness[0]];
            self.period_began = now;
        }
        self.has_measured = true;
        self.lateness[0] = self.lateness[0].max(lateness);
    }

    /// An item `behind` before the expected one.
    fn push_late(&mut self, now: Instant, number: u16, behind: u32, item: Item, deliver: &mut impl FnMut(Item)) {
        let flow = &mut self.flows[usize::from(number)];
        let sequence = flow.next.wrapping_sub(behind);
        if !flow.deliver_late(behind) {
            self.stats.dropped += 1;
            return;
        }
        self.stats.late += 1;
        deliver(item);
        // It was waited for too briefly. One that every path had passed was given up for that, whatever the wait.
        if let Some(gap) = flow.expired.filter(|gap| gap.contains(sequence)) {
            self.note_lateness(now, now.saturating_since(gap.began));
        }
    }

    /// An item so far ahead that the sender has lost count of this flow, or began again.
    fn jump(&mut self, now: Instant, number: u16, item: Item, deliver: &mut impl FnMut(Item)) {
        let flow = &mut self.flows[usize::from(number)];
        for Held { item, .. } in std::mem::take(&mut flow.held) {
            self.held_items -= 1;
            self.held_bytes -= item.body.len_bytes();
            deliver(item);
        }
        self.stats.expired += 1;
        (flow.next, flow.delivered) = (item.sequence, Delivered::default());
        flow.advance();
        deliver(item);
        self.set_deadline(now, number);
    }

    /// Delivers the items of a flow that are in order, and gives up gaps that every path has passed.
    fn drain(&mut self, now: Instant, number: u16, deliver: &mut impl FnMut(Item)) {
        loop {
            let flow = &mut self.flows[usize::from(number)];
            while flow.gap() == Some(0) {
                let Held { item, .. } = flow.held.pop_front().expect("it was just looked at");
                self.held_items -= 1;
                self.held_bytes -= item.body.len_bytes();
                flow.advance();
                deliver(item);
            }
            let Some(gap) = flow.gap() else { break };
            if self.wait_for_gap(now, number).is_some() {
                break;
            }
            self.stats.lost += u64::from(gap);
            self.flows[usize::from(number)].skip(gap);
        }
        self.set_deadline(now, number);
    }

    /// The paths that might have filled the first gap of a flow are not in use until they deliver again.
    fn note_stopped_paths(&mut self, number: u16) {
        let flow = &self.flows[usize::from(number)];
        let Some(Held { item, .. }) = flow.held.front() else { return };
        for (path, used_at) in self.used_at.iter_mut().enumerate() {
            if !flow.has_passed(path, item.sequence) {
                *used_at = Instant::ZERO;
            }
        }
    }

    /// Gives up the first gap of a flow.
    fn skip_gap(&mut self, now: Instant, number: u16, deliver: &mut impl FnMut(Item)) {
        let flow = &mut self.flows[usize::from(number)];
        let Some(held) = flow.held.front() else { return self.drain(now, number, deliver) };
        let gap = Gap { first: flow.next, end: held.item.sequence, began: held.since };
        let count = gap.end.wrapping_sub(gap.first);
        flow.expired = Some(gap);
        self.stats.expired += u64::from(count);
        flow.skip(count);
        self.drain(now, number, deliver);
    }

    /// How long the items before the first one held of a flow are waited for. None if every path that may bring
    /// them has delivered a later one, if the flow keeps to one path, or if none is held.
    fn wait_for_gap(&self, now: Instant, number: u16) -> Option<Duration> {
        let flow = &self.flows[usize::from(number)];
        let Held { item, .. } = flow.held.front()?;
        if item.is_pinned {
            return None;
        }
        let after = item.sequence;
        let waits = self.used_at.iter().zip(&self.first_waits).enumerate();
        let waits = waits.filter(|(path, _)| !flow.has_passed(*path, after));
        waits.filter_map(|(_, (at, first_wait))| if is_used(now, *at) { Some(self.wait()) } else { *first_wait }).max()
    }

    fn set_deadline(&mut self, now: Instant, number: u16) {
        let wait = self.wait_for_gap(now, number);
        let flow = &mut self.flows[usize::from(number)];
        // From when the item after the gap arrived.
        let deadline = flow.held.front().zip(wait).map(|(held, wait)| held.since + wait);
        if flow.deadline == deadline {
            return;
        }
        if let Some(old) = flow.deadline {
            self.deadlines.remove(&(old, number));
        }
        if let Some(new) = deadline {
            self.deadlines.insert((new, number), ());
        }
        flow.deadline = deadline;
    }
}

impl Flow {
    /// The item that was expected is delivered.
    fn advance(&mut self) {
        self.delivered.set(self.next);
        self.next = self.next.wrapping_add(1);
    }

    /// Gives up `count` items.
    fn skip(&mut self, count: u32) {
        self.delivered.clear(self.next, count);
        self.next = self.next.wrapping_add(count);
    }

    /// How many items are missing before the first that is held.
    fn gap(&self) -> Option<u32> {
        self.held.front().map(|held| held.item.sequence.wrapping_sub(self.next))
    }

    /// Holds an item; false if it is held already. The search begins at the newest, where most belong.
    fn hold(&mut self, now: Instant, item: Item) -> bool {
        let (next, ahead) = (self.next, item.sequence.wrapping_sub(self.next));
        let before = |held: &Held| held.item.sequence.wrapping_sub(next);
        let at = match self.held.back().map(before) {
            Some(last) if last >= ahead => match self.held.binary_search_by_key(&ahead, before) {
                Ok(_) => return false,
                Err(at) => at,
            },
            _ => self.held.len(),
        };
        self.held.insert(at, Held { since: now, item });
        true
    }

    /// Whether the item `behind` before the next one may be delivered late; notes that it was.
    fn deliver_late(&mut self, behind: u32) -> bool {
        let sequence = self.next.wrapping_sub(behind);
        if behind > REMEMBERED || self.delivered.has(sequence) {
            return false;
        }
        self.delivered.set(sequence);
        true
    }

    fn note_passed(&mut self, path: usize, sequence: u32) {
        if self.passed.len() <= path {
            self.passed.resize(path + 1, None);
        }
        let newest = &mut self.passed[path];
        if newest.is_none_or(|newest| sequence.wrapping_sub(newest) <= u32::MAX / 2) {
            *newest = Some(sequence);
        }
    }

    /// Whether `path` has delivered this item or a later one.
    fn has_passed(&self, path: usize, sequence: u32) -> bool {
        let newest = self.passed.get(path).copied().flatten();
        newest.is_some_and(|newest| newest.wrapping_sub(sequence) <= u32::MAX / 2)
    }
}

/// Whether a path that delivered last at `at` is in use.
fn is_used(now: Instant, at: Instant) -> bool {
    at > Instant::ZERO && now.saturating_since(at) < USED_FOR
}

#[cfg(test)]
mod tests;
