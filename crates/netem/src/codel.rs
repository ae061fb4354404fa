//! CoDel: a queue that drops, or marks, when packets have waited too long for too long (RFC 8289).
//!
//! ```text
//!              waited >= target for an interval
//!    passing ───────────────────────────────────▶ dropping: one now, the next after interval / sqrt(count)
//!            ◀───────────────────────────────────
//!              waited < target, or one packet left
//! ```
//!
//! Everything happens where a packet leaves the queue (section 5.5). The byte bound of the queue holds beside it.

use units::{Duration, Instant};

use crate::queue::{Queue, Waiting};
use crate::{LinkStats, Packet};

/// After this many intervals without a drop, the rate of the last dropping state says nothing any more (RFC 8289,
/// section 5.5).
const INTERVALS_REMEMBERED: u64 = 16;

/// The settings of CoDel. The default is that of RFC 8289: 5 ms and 100 ms, dropping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Waiting that is acceptable for good; 5 to 10 % of the interval (RFC 8289, section 4). Above zero, at most the
    /// interval. Default: 5 ms.
    pub target: Duration,
    /// For how long packets must wait longer than the target before the first drop; a round trip of the slowest flows
    /// (RFC 8289, section 4). Default: 100 ms.
    pub interval: Duration,
    /// Marks packets that [can be marked](crate::Packet::mark_ce) where it would drop them, as RFC 3168, section 5,
    /// allows. Default: false.
    pub ecn: bool,
}

impl Default for CoDel {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn: false }
    }
}

impl CoDel {
    pub(crate) fn is_valid(&self) -> bool {
        !self.target.is_zero() && self.target <= self.interval
    }

    /// When the next drop is due after one at `at`: `at + interval / sqrt(count)` (RFC 8289, section 5.6), rounded down to
    /// the nanosecond by integers, so that it is the same on every machine.
    fn control_law(&self, at: Instant, count: u64) -> Instant {
        let interval = u128::from(self.interval.as_nanos());
        let span = (interval * interval / u128::from(count.max(1))).isqrt();
        // At most the interval, which fits.
        at + Duration::from_nanos(span as u64)
    }
}

/// The state of one queue (section 5).
#[derive(Clone, Debug, Default)]
pub(crate) struct Control {
    /// When packets will have waited too long for an interval; `None` while they do not.
    first_above: Option<Instant>,
    /// When the next drop is due, or the one after the last dropping state was.
    drop_next: Instant,
    /// Drops since this dropping state began, and what it began with.
    count: u64,
    /// The count with which the last dropping state began.
    count_at_start: u64,
    dropping: bool,
    /// The largest packet so far. Stands for the interface's MTU (section 5), which a link does not know.
    packet_bytes_max: u64,
}

/// A packet taken from the queue.
struct Taken<P> {
    waiting: Waiting<P>,
    /// Packets have waited longer than the target for an interval.
    may_drop: bool,
}

impl Control {
    /// The next packet for the line, at the time it starts (section 5.5). It takes at most the whole queue.
    pub(crate) fn dequeue<P: Packet>(
        &mut self,
        now: Instant,
        settings: &CoDel,
        queue: &mut Queue<P>,
        stats: &mut LinkStats,
    ) -> Option<Waiting<P>> {
        let taken = self.take(now, settings, queue)?;
        if self.dropping {
            self.go_on_dropping(now, settings, taken, queue, stats)
        } else if taken.may_drop {
            self.begin_dropping(now, settings, taken, queue, stats)
        } else {
            Some(taken.waiting)
        }
    }

    /// Drops one packet whenever the control law is due. A backlog can make several due at once.
    fn go_on_dropping<P: Packet>(
        &mut self,
        now: Instant,
        settings: &CoDel,
        mut taken: Taken<P>,
        queue: &mut Queue<P>,
        stats: &mut LinkStats,
    ) -> Option<Waiting<P>> {
        self.dropping = taken.may_drop;
        while self.dropping && now >= self.drop_next {
            self.count += 1;
            if mark(settings, &mut taken.waiting.packet, stats) {
                self.drop_next = settings.control_law(self.drop_next, self.count);
                break;
            }
            stats.dropped_by_codel += 1;
            let next = self.take(now, settings, queue);
            self.dropping = next.as_ref().is_some_and(|next| next.may_drop);
            if self.dropping {
                self.drop_next = settings.control_law(self.drop_next, self.count);
            }
            taken = next?;
        }
        Some(taken.waiting)
    }

    /// Drops the first packet. If dropping ended lately, it begins near the rate that had been found then.
    fn begin_dropping<P: Packet>(
        &mut self,
        now: Instant,
        settings: &CoDel,
        mut taken: Taken<P>,
        queue: &mut Queue<P>,
        stats: &mut LinkStats,
    ) -> Option<Waiting<P>> {
        let next = if mark(settings, &mut taken.waiting.packet, stats) {
            Some(taken)
        } else {
            stats.dropped_by_codel += 1;
            self.take(now, settings, queue)
        };
        self.dropping = true;
        let drops = self.count - self.count_at_start;
        let lately = now.saturating_since(self.drop_next) < settings.interval * INTERVALS_REMEMBERED;
        self.count = if drops > 1 && lately { drops } else { 1 };
        self.count_at_start = self.count;
        self.drop_next = settings.control_law(now, self.count);
        next.map(|next| next.waiting)
    }

    /// Takes a packet and judges by its wait (section 5.6).
    fn take<P>(&mut self, now: Instant, settings: &CoDel, queue: &mut Queue<P>) -> Option<Taken<P>> {
        let Some(waiting) = queue.pop() else {
            self.first_above = None;
            return None;
        };
        self.packet_bytes_max = self.packet_bytes_max.max(waiting.line_bytes);
        let waited = now.saturating_since(waiting.since);
        // Never so eager that the line runs idle: what is no more than one packet is no standing queue.
        if waited < settings.target || queue.bytes() <= self.packet_bytes_max {
            self.first_above = None;
            return Some(Taken { waiting, may_drop: false });
        }
        let due = *self.first_above.get_or_insert(now + settings.interval);
        Some(Taken { waiting, may_drop: now >= due })
    }
}

fn mark<P: Packet>(settings: &CoDel, packet: &mut P, stats: &mut LinkStats) -> bool {
    let marked = settings.ecn && packet.mark_ce();
    stats.marked += u64::from(marked);
    marked
}

#[cfg(test)]
mod tests;
