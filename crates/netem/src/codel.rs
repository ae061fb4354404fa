//! CoDel: a queue that drops or marks packets when they wait too long for too long (RFC 8289).
//!
//! ```text
//!             waited >= target for an interval
//!   passing ───────────────────────────────────▶ dropping
//!           ◀───────────────────────────────────
//!             waited < target, or one packet left
//!
//!   dropping: one packet at once, the next after interval / sqrt(count)
//! ```
//!
//! All decisions are made when a packet leaves the queue (section 5.5). The byte limit of the queue
//! applies as well.

use units::{Duration, Instant};

use crate::packet::Packet;
use crate::queue::{Queue, Waiting};
use crate::stats::LinkStats;

/// Number of intervals without a drop after which the rate of the last dropping state is discarded
/// (RFC 8289, section 5.5).
const INTERVALS_REMEMBERED: u64 = 16;

/// The settings of CoDel. The default is that of RFC 8289: 5 ms and 100 ms, dropping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Acceptable standing queue delay; 5 to 10 % of the interval (RFC 8289, section 4). Above
    /// zero, at most the interval. Default: 5 ms.
    pub target: Duration,
    /// Time for which packets must wait longer than the target before the first drop; about the
    /// longest round trip of the flows (RFC 8289, section 4). Default: 100 ms.
    pub interval: Duration,
    /// Whether to mark packets that [support it](crate::Packet::mark_ce) instead of dropping them,
    /// as RFC 3168, section 5, permits. Default: false.
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

    /// Returns the time of the next drop after one at `at`: `at + interval / sqrt(count)` (RFC
    /// 8289, section 5.6). The result is computed in integer arithmetic, rounded down to the
    /// nanosecond, so that it is the same on every machine.
    fn control_law(&self, at: Instant, count: u64) -> Instant {
        let interval = u128::from(self.interval.as_nanos());
        let span = (interval * interval / u128::from(count.max(1))).isqrt();
        // At most the interval, so the cast is lossless.
        at + Duration::from_nanos(span as u64)
    }
}

/// The state of one queue (section 5).
#[derive(Clone, Debug, Default)]
pub(crate) struct Control {
    /// Time at which packets will have waited too long for an interval; `None` while they do not.
    first_above: Option<Instant>,
    /// Time of the next drop; outside the dropping state, the time at which the next drop would
    /// have followed.
    drop_next: Instant,
    /// Number of drops since this dropping state began, plus its initial count.
    count: u64,
    /// The initial count of the last dropping state.
    count_at_start: u64,
    dropping: bool,
    /// Size of the largest packet so far. It stands for the interface's MTU (section 5), which a
    /// link does not know.
    packet_bytes_max: u64,
}

/// A packet taken from the queue.
struct Dequeued<P> {
    waiting: Waiting<P>,
    /// Whether packets have waited longer than the target for an interval.
    may_drop: bool,
}

impl Control {
    /// Returns the next packet for the line, at the time it starts (section 5.5). May drop packets
    /// up to the whole queue.
    pub(crate) fn dequeue<P: Packet>(
        &mut self,
        now: Instant,
        settings: &CoDel,
        queue: &mut Queue<P>,
        stats: &mut LinkStats,
    ) -> Option<Waiting<P>> {
        let dequeued = self.take(now, settings, queue)?;
        if self.dropping {
            self.continue_dropping(now, settings, dequeued, queue, stats)
        } else if dequeued.may_drop {
            self.begin_dropping(now, settings, dequeued, queue, stats)
        } else {
            Some(dequeued.waiting)
        }
    }

    /// Drops one packet each time the control law requires it. After a pause several drops can be
    /// due at once.
    fn continue_dropping<P: Packet>(
        &mut self,
        now: Instant,
        settings: &CoDel,
        mut dequeued: Dequeued<P>,
        queue: &mut Queue<P>,
        stats: &mut LinkStats,
    ) -> Option<Waiting<P>> {
        self.dropping = dequeued.may_drop;
        while self.dropping && now >= self.drop_next {
            self.count += 1;
            if mark(settings, &mut dequeued.waiting.packet, stats) {
                self.drop_next = settings.control_law(self.drop_next, self.count);
                break;
            }
            stats.dropped_by_codel += 1;
            let next = self.take(now, settings, queue);
            self.dropping = next.as_ref().is_some_and(|next| next.may_drop);
            if self.dropping {
                self.drop_next = settings.control_law(self.drop_next, self.count);
            }
            dequeued = next?;
        }
        Some(dequeued.waiting)
    }

    /// Drops the first packet. If the last dropping state ended recently, starts near its drop
    /// rate.
    fn begin_dropping<P: Packet>(
        &mut self,
        now: Instant,
        settings: &CoDel,
        mut dequeued: Dequeued<P>,
        queue: &mut Queue<P>,
        stats: &mut LinkStats,
    ) -> Option<Waiting<P>> {
        let next = if mark(settings, &mut dequeued.waiting.packet, stats) {
            Some(dequeued)
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

    /// Takes a packet and checks its waiting time (section 5.6).
    fn take<P>(&mut self, now: Instant, settings: &CoDel, queue: &mut Queue<P>) -> Option<Dequeued<P>> {
        let Some(waiting) = queue.pop() else {
            self.first_above = None;
            return None;
        };
        self.packet_bytes_max = self.packet_bytes_max.max(waiting.line_bytes);
        let waited = now.saturating_since(waiting.since);
        // A single remaining packet is not a standing queue. Dropping it could leave the line idle.
        if waited < settings.target || queue.bytes() <= self.packet_bytes_max {
            self.first_above = None;
            return Some(Dequeued { waiting, may_drop: false });
        }
        let due = *self.first_above.get_or_insert(now + settings.interval);
        Some(Dequeued { waiting, may_drop: now >= due })
    }
}

fn mark<P: Packet>(settings: &CoDel, packet: &mut P, stats: &mut LinkStats) -> bool {
    let marked = settings.ecn && packet.mark_ce();
    stats.marked += u64::from(marked);
    marked
}

#[cfg(test)]
mod tests;
