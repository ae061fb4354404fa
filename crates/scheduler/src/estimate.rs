//! When would the next datagram arrive, path by path?
//!
//! ```text
//!   now ──wait──► may leave ──queue ahead of it──► on the wire ──half a round trip──► arrives
//!        window, pacer        bytes / rate          own bytes / rate
//! ```
//!
//! The queue is the part a round trip time tells too late: what was sent a moment ago has not been measured yet. So
//! each path has a [`LinkClock`]: the moment at which its bottleneck will have passed what was sent there. It is kept
//! between what the bytes in flight prove (more than `rate * min_rtt` of them must be queueing) and what they allow
//! (not more than all of them), so that neither a batch cut short nor a rate that was misjudged can carry it away.

use units::{Duration, Instant};

use crate::candidates::bits;
use crate::{PATHS_MAX, PathView, Straggler};

/// Bits per second times nanoseconds for a byte: the unit in which rate times time is whole.
pub(crate) const PARTS_PER_BYTE: u64 = 8_000_000_000;

/// Times and rates are capped here (13 days; 1 Pb/s), so that the product of two, summed over all paths, fits `u128`.
const CAP: u64 = 1 << 50;

/// Fraction bits of a [`Pace`]: `8 * 10^9 << 20` still fits `u64`, and at 100 Gb/s the rounding is one in 80,000.
const PACE_SHIFT: u32 = 20;

/// Nanoseconds a byte takes, in fixed point: one division for each path instead of one for each question.
#[derive(Debug, Clone, Copy)]
struct Pace(u64);

impl Pace {
    const fn of(path: &PathView) -> Self {
        // A path that moves nothing takes for ever, which the cap turns into 13 days.
        match (PARTS_PER_BYTE << PACE_SHIFT).checked_div(path.rate.as_bps()) {
            Some(nanos) => Self(nanos),
            None => Self(u64::MAX),
        }
    }

    const fn nanos(self, bytes: u64) -> u64 {
        let nanos = (bytes as u128 * self.0 as u128) >> PACE_SHIFT;
        if nanos > CAP as u128 { CAP } else { nanos as u64 }
    }
}

/// What the next datagram may expect of one path. Times in nanoseconds from now, at most [`CAP`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    /// Index of the path.
    pub(crate) index: usize,
    /// When the first bit of it could arrive: from here on, the path delivers at `rate_bps`.
    pub(crate) begins_ns: u64,
    /// When the whole datagram (or all that waits, if that is less) would have arrived.
    pub(crate) arrives_ns: u64,
    /// How long it then takes until the sender knows.
    pub(crate) back_ns: u64,
    /// Capacity in bits per second, at most [`CAP`].
    pub(crate) rate_bps: u64,
    pace: Pace,
}

impl Delivery {
    const NONE: Self = Self { index: 0, begins_ns: 0, arrives_ns: 0, back_ns: 0, rate_bps: 0, pace: Pace(0) };

    /// `clocks` must follow the paths; `bytes`: what is to be sent.
    fn of(now: Instant, index: usize, path: &PathView, clocks: &LinkClocks, bytes: u64) -> Self {
        let pace = Pace::of(path);
        let queue_ns = clocks.queue_ns(now, index, path, pace);
        let wait_ns = wait_ns(now, path, pace);
        let srtt_ns = path.srtt.as_nanos().min(CAP);
        let least_ns = path.min_rtt.as_nanos().min(srtt_ns);
        // Two answers, the later of which holds: what was measured (someone else's queue may be part of it), and what
        // follows from our own bytes. The wait and our queue pass at the same time.
        let measured_ns = wait_ns + srtt_ns / 2;
        let computed_ns = wait_ns.max(queue_ns) + least_ns / 2;
        let begins_ns = measured_ns.max(computed_ns).min(CAP);
        let arrives_ns = (begins_ns + pace.nanos(bytes.min(path.datagram_bytes))).min(CAP);
        Self { index, begins_ns, arrives_ns, back_ns: least_ns / 2, rate_bps: path.rate.as_bps().min(CAP), pace }
    }

    /// When the last of `bytes` would arrive if all were sent here.
    pub(crate) fn arrives_with_ns(&self, bytes: u64) -> u64 {
        (self.begins_ns + self.pace.nanos(bytes)).min(CAP)
    }
}

/// Time until window and pacer let one datagram go. A full socket is not counted: it empties within microseconds, or
/// the path falls suspect.
fn wait_ns(now: Instant, path: &PathView, pace: Pace) -> u64 {
    let pacer_ns = path.release_at.saturating_since(now).as_nanos().min(CAP);
    if path.window_room() >= path.datagram_bytes {
        return pacer_ns;
    }
    if path.in_flight_bytes == 0 {
        // No acknowledgement can ever open this window.
        return CAP;
    }
    let excess = path.in_flight_bytes.saturating_add(path.datagram_bytes).saturating_sub(path.window_bytes);
    pace.nanos(excess).max(pacer_ns)
}

/// The deliveries of several paths, earliest first; at equal times in order of the index.
#[derive(Debug)]
pub(crate) struct Ranking {
    entries: [Delivery; PATHS_MAX],
    count: usize,
}

impl Ranking {
    /// Room for every path, and nothing in it.
    pub(crate) const fn new() -> Self {
        Self { entries: [Delivery::NONE; PATHS_MAX], count: 0 }
    }

    /// Ranks the paths whose bit is set in `mask` by when the next of `ready_bytes` would arrive.
    pub(crate) fn rank(
        &mut self,
        now: Instant,
        clocks: &LinkClocks,
        paths: &[PathView],
        mask: u32,
        ready_bytes: u64,
    ) -> &[Delivery] {
        self.count = 0;
        for index in bits(mask) {
            let Some(path) = paths.get(index) else { break };
            let delivery = Delivery::of(now, index, path, clocks, ready_bytes);
            let mut slot = self.count;
            while slot > 0 && self.entries[slot - 1].arrives_ns > delivery.arrives_ns {
                self.entries[slot] = self.entries[slot - 1];
                slot -= 1;
            }
            self.entries[slot] = delivery;
            self.count += 1;
        }
        &self.entries[..self.count]
    }
}

/// When the bottleneck of one path will have passed what this scheduler put there.
#[derive(Debug, Clone, Copy)]
struct LinkClock {
    id: u32,
    free_at: Instant,
    promise: Promise,
}

/// Bytes that the last answer allowed. Pacer, window and socket may have cut them short, so they count only once the
/// bytes in flight have grown by them.
#[derive(Debug, Clone, Copy)]
struct Promise {
    made_at: Instant,
    bytes: u64,
    in_flight_before: u64,
}

impl LinkClock {
    /// A path on which nothing was sent.
    const fn idle(id: u32) -> Self {
        let promise = Promise { made_at: Instant::ZERO, bytes: 0, in_flight_before: 0 };
        Self { id, free_at: Instant::ZERO, promise }
    }

    /// Counts what was sent of the last promise. An acknowledgement in between hides some of it; what then still queues
    /// is proven by the bytes in flight.
    fn settle(&mut self, path: &PathView) {
        let promise = self.promise;
        if promise.bytes == 0 {
            return;
        }
        self.promise.bytes = 0;
        let sent_bytes = path.in_flight_bytes.saturating_sub(promise.in_flight_before).min(promise.bytes);
        self.free_at = self.free_at.max(promise.made_at) + Duration::from_nanos(Pace::of(path).nanos(sent_bytes));
    }
}

/// One clock for each path: first those last seen, in their order, then others that were seen before. A question may show only some of
/// the paths, and what was sent on the others still queues there.
#[derive(Debug)]
pub(crate) struct LinkClocks {
    clocks: [LinkClock; PATHS_MAX],
    /// How many there are, with those not seen last.
    count: usize,
}

impl LinkClocks {
    /// No path seen yet.
    pub(crate) const fn new() -> Self {
        Self { clocks: [LinkClock::idle(0); PATHS_MAX], count: 0 }
    }

    /// Brings the clocks into the order of `paths` and up to date. A path that comes starts idle; one that is not shown keeps its
    /// clock behind the others, as long as there is room.
    pub(crate) fn follow(&mut self, paths: &[PathView]) {
        let shown = paths.len().min(PATHS_MAX);
        let is_same = shown <= self.count && self.clocks.iter().zip(paths).all(|(clock, path)| clock.id == path.id);
        if !is_same {
            let old = self.clocks;
            let known = &old[..self.count];
            for (clock, path) in self.clocks.iter_mut().zip(paths) {
                let kept = known.iter().find(|known| known.id == path.id);
                *clock = kept.copied().unwrap_or(LinkClock::idle(path.id));
            }
            self.count = shown;
            let hidden = known.iter().filter(|known| paths.iter().all(|path| path.id != known.id));
            for (clock, known) in self.clocks[shown..].iter_mut().zip(hidden) {
                *clock = *known;
                self.count += 1;
            }
        }
        for (clock, path) in self.clocks.iter_mut().zip(paths) {
            clock.settle(path);
        }
    }

    /// Time until the queue ahead of a new datagram on `path` is gone.
    fn queue_ns(&self, now: Instant, index: usize, path: &PathView, pace: Pace) -> u64 {
        let kept = self.clocks.get(index).map_or(Instant::ZERO, |clock| clock.free_at);
        let flight_ns = pace.nanos(path.in_flight_bytes);
        let round_trip = if path.is_measured() { path.min_rtt } else { path.srtt };
        let proven_ns = flight_ns.saturating_sub(round_trip.as_nanos());
        kept.saturating_since(now).as_nanos().clamp(proven_ns, flight_ns)
    }

    /// Up to `bytes` may be sent on `path` now.
    pub(crate) fn on_promise(&mut self, now: Instant, index: usize, path: &PathView, bytes: u64) {
        if let Some(clock) = self.clocks.get_mut(index) {
            clock.promise = Promise { made_at: now, bytes, in_flight_before: path.in_flight_bytes };
        }
    }
}

/// Whether a copy of `straggler` sent on `paths[on]` now would reach the receiver before the original is expected
/// there, or the original is overdue.
pub(crate) fn copy_is_earlier(
    now: Instant,
    straggler: &Straggler,
    on: usize,
    paths: &[PathView],
    clocks: &LinkClocks,
) -> bool {
    let (original, copy) = (&paths[straggler.path], &paths[on]);
    // Past the time by which even a late acknowledgement comes (RFC 9002, section 6.2.1, without the peer's delay).
    if now >= straggler.sent_at + original.srtt + (original.rttvar * 4).max(GRANULARITY) {
        return true;
    }
    let delivery = Delivery::of(now, on, copy, clocks, straggler.bytes);
    // Earlier by the copy's own time on the wire: a copy is not free, it delays what comes to be sent next.
    let arrives_ns = delivery.arrives_with_ns(straggler.bytes.saturating_mul(2));
    now + Duration::from_nanos(arrives_ns) < straggler.sent_at + original.srtt / 2
}

/// Timers are not finer (RFC 9002, section 6.1.2, kGranularity).
const GRANULARITY: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::path;

    #[test]
    fn a_path_that_is_not_shown_keeps_its_clock() {
        let now = Instant::from_nanos(1_000_000_000);
        let (mut fast, slow) = (path(3, 10, 100), path(7, 40, 10));
        let mut clocks = LinkClocks::new();
        clocks.follow(&[slow, fast]);
        clocks.on_promise(now, 1, &fast, 50_000);
        fast.in_flight_bytes = 50_000;
        clocks.follow(&[slow, fast]);
        let queue_ns = clocks.queue_ns(now, 1, &fast, Pace::of(&fast));
        assert!(queue_ns > 3_900_000, "50 kB at 100 Mb/s: {queue_ns}");

        // Somebody asks about the other path alone, then about both again, in another order and with a new one.
        clocks.follow(&[slow]);
        let new = path(9, 5, 50);
        clocks.follow(&[fast, new, slow]);
        assert_eq!(clocks.queue_ns(now, 0, &fast, Pace::of(&fast)), queue_ns);
        assert_eq!(clocks.queue_ns(now, 1, &new, Pace::of(&new)), 0);
    }

    #[test]
    fn more_paths_than_there_is_room_for_push_out_those_not_shown() {
        let mut clocks = LinkClocks::new();
        let paths: Vec<PathView> = (0..3 * PATHS_MAX as u32).map(|id| path(id, 10, 100)).collect();
        for shown in paths.chunks(PATHS_MAX) {
            clocks.follow(shown);
            clocks.follow(&shown[..1]);
            assert_eq!((clocks.count, clocks.clocks[0].id), (PATHS_MAX, shown[0].id));
        }
    }
}
