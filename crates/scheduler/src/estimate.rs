//! Estimates the arrival time of the next datagram on each path.
//!
//! ```text
//!   now ──wait──► may be sent ──queue ahead of it──► on the wire ──half a round trip──► arrives
//!        window, pacer           bytes / rate          own bytes / rate
//! ```
//!
//! The RTT reflects a queue too late: data sent a moment ago has not been measured yet. Therefore
//! each path has a [`LinkClock`] with the time at which its bottleneck will have transmitted
//! everything sent there. It is kept between two bounds from the bytes in flight: at least the
//! bytes in excess of the bandwidth-delay product must be queueing, and at most all of them can be.
//! Neither a truncated batch nor a wrong rate can make it drift.

use units::{Duration, Instant};

use crate::candidates::bits;
use crate::scheduler::PATHS_MAX;
use crate::view::{PathView, Straggler};

/// Parts per byte, in units of bits per second times nanoseconds, in which rate times time is an
/// integer.
pub(crate) const PARTS_PER_BYTE: u64 = 8_000_000_000;

/// Upper bound of times and rates (13 days; 1 Pb/s), so that their product, summed over all paths,
/// fits a `u128`.
const CAP: u64 = 1 << 50;

/// Fraction bits of a [`NanosPerByte`]: `8 * 10^9 << 20` still fits a `u64`, and at 100 Gb/s the
/// rounding error is one in 80,000.
const FRACTION_BITS: u32 = 20;

/// The transmission time of a byte in nanoseconds, in fixed point. It needs one division per path
/// instead of one per query.
#[derive(Debug, Clone, Copy)]
struct NanosPerByte(u64);

impl NanosPerByte {
    const fn of(path: &PathView) -> Self {
        // A rate of zero gives the maximum, which the cap limits to 13 days.
        match (PARTS_PER_BYTE << FRACTION_BITS).checked_div(path.rate.as_bps()) {
            Some(nanos) => Self(nanos),
            None => Self(u64::MAX),
        }
    }

    const fn nanos(self, bytes: u64) -> u64 {
        let nanos = (bytes as u128 * self.0 as u128) >> FRACTION_BITS;
        if nanos > CAP as u128 { CAP } else { nanos as u64 }
    }
}

/// The estimate for the next datagram on one path. Times are nanoseconds from now, at most [`CAP`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    /// Index of the path.
    pub(crate) index: usize,
    /// Arrival time of the first bit. From then on the path delivers at `rate_bps`.
    pub(crate) begins_ns: u64,
    /// Arrival time of the whole datagram, or of the backlog if that is less.
    pub(crate) arrives_ns: u64,
    /// Time from the arrival until the sender receives the acknowledgement.
    pub(crate) return_ns: u64,
    /// Capacity in bits per second, at most [`CAP`].
    pub(crate) rate_bps: u64,
    nanos_per_byte: NanosPerByte,
}

impl Delivery {
    const NONE: Self =
        Self { index: 0, begins_ns: 0, arrives_ns: 0, return_ns: 0, rate_bps: 0, nanos_per_byte: NanosPerByte(0) };

    /// Estimates the next delivery on `path`. `clocks` must be up to date with the paths; `bytes`
    /// is the amount to send.
    fn of(now: Instant, index: usize, path: &PathView, clocks: &LinkClocks, bytes: u64) -> Self {
        let nanos_per_byte = NanosPerByte::of(path);
        let queue_ns = clocks.queue_ns(now, index, path, nanos_per_byte);
        let wait_ns = wait_ns(now, path, nanos_per_byte);
        let srtt_ns = path.srtt.as_nanos().min(CAP);
        let least_ns = path.min_rtt.as_nanos().min(srtt_ns);
        // The later of two estimates holds: the measured one, which may include the queue of other
        // flows, and the one computed from our own bytes. The wait and our queue elapse at the same
        // time.
        let measured_ns = wait_ns + srtt_ns / 2;
        let computed_ns = wait_ns.max(queue_ns) + least_ns / 2;
        let begins_ns = measured_ns.max(computed_ns).min(CAP);
        let arrives_ns = (begins_ns + nanos_per_byte.nanos(bytes.min(path.datagram_bytes))).min(CAP);
        Self {
            index,
            begins_ns,
            arrives_ns,
            return_ns: least_ns / 2,
            rate_bps: path.rate.as_bps().min(CAP),
            nanos_per_byte,
        }
    }

    /// Returns the arrival time of the last byte if all `bytes` were sent on this path.
    pub(crate) fn arrives_with_ns(&self, bytes: u64) -> u64 {
        (self.begins_ns + self.nanos_per_byte.nanos(bytes)).min(CAP)
    }
}

/// Returns the time until window and pacer permit one datagram. A full socket is not counted: it
/// drains within microseconds, or the path becomes suspect.
fn wait_ns(now: Instant, path: &PathView, nanos_per_byte: NanosPerByte) -> u64 {
    let pacer_ns = path.release_at.saturating_since(now).as_nanos().min(CAP);
    if path.available_window() >= path.datagram_bytes {
        return pacer_ns;
    }
    if path.in_flight_bytes == 0 {
        // No acknowledgement can open this window.
        return CAP;
    }
    let excess = path.in_flight_bytes.saturating_add(path.datagram_bytes).saturating_sub(path.window_bytes);
    nanos_per_byte.nanos(excess).max(pacer_ns)
}

/// The deliveries of several paths, earliest first; equal times are ordered by index.
#[derive(Debug)]
pub(crate) struct Ranking {
    entries: [Delivery; PATHS_MAX],
    count: usize,
}

impl Ranking {
    /// Creates an empty ranking with space for every path.
    pub(crate) const fn new() -> Self {
        Self { entries: [Delivery::NONE; PATHS_MAX], count: 0 }
    }

    /// Ranks the paths in `mask` by the arrival time of the next of `ready_bytes`.
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

/// The time at which the bottleneck of one path will have transmitted everything that this
/// scheduler sent there.
#[derive(Debug, Clone, Copy)]
struct LinkClock {
    id: u32,
    free_at: Instant,
    grant: Grant,
}

/// Bytes permitted by the last choice. Pacer, window and socket may have prevented some of them, so
/// they count only once the bytes in flight have grown.
#[derive(Debug, Clone, Copy)]
struct Grant {
    granted_at: Instant,
    bytes: u64,
    in_flight_before: u64,
}

impl LinkClock {
    /// Creates the clock of a path on which nothing was sent.
    const fn idle(id: u32) -> Self {
        let grant = Grant { granted_at: Instant::ZERO, bytes: 0, in_flight_before: 0 };
        Self { id, free_at: Instant::ZERO, grant }
    }

    /// Counts the bytes sent of the last grant. An acknowledgement in between hides some of them;
    /// the bound from the bytes in flight then covers the rest of the queue.
    fn settle(&mut self, path: &PathView) {
        let grant = self.grant;
        if grant.bytes == 0 {
            return;
        }
        self.grant.bytes = 0;
        let sent_bytes = path.in_flight_bytes.saturating_sub(grant.in_flight_before).min(grant.bytes);
        self.free_at =
            self.free_at.max(grant.granted_at) + Duration::from_nanos(NanosPerByte::of(path).nanos(sent_bytes));
    }
}

/// One clock per path: first the clocks of the last call, in its order, then clocks of other known
/// paths. A call may show only some of the paths, and data sent on the others still queues there.
#[derive(Debug)]
pub(crate) struct LinkClocks {
    clocks: [LinkClock; PATHS_MAX],
    /// Number of clocks, including those not in the last call.
    count: usize,
}

impl LinkClocks {
    /// Creates an empty set of clocks.
    pub(crate) const fn new() -> Self {
        Self { clocks: [LinkClock::idle(0); PATHS_MAX], count: 0 }
    }

    /// Orders the clocks as in `paths` and updates them. A new path starts idle; a path that is not
    /// in `paths` keeps its clock after the others while there is space.
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

    /// Returns the time until the queue ahead of a new datagram on `path` has drained.
    fn queue_ns(&self, now: Instant, index: usize, path: &PathView, nanos_per_byte: NanosPerByte) -> u64 {
        let kept = self.clocks.get(index).map_or(Instant::ZERO, |clock| clock.free_at);
        let flight_ns = nanos_per_byte.nanos(path.in_flight_bytes);
        let round_trip = if path.is_measured() { path.min_rtt } else { path.srtt };
        let proven_ns = flight_ns.saturating_sub(round_trip.as_nanos());
        kept.saturating_since(now).as_nanos().clamp(proven_ns, flight_ns)
    }

    /// Records that up to `bytes` may be sent on `path` now.
    pub(crate) fn on_grant(&mut self, now: Instant, index: usize, path: &PathView, bytes: u64) {
        if let Some(clock) = self.clocks.get_mut(index) {
            clock.grant = Grant { granted_at: now, bytes, in_flight_before: path.in_flight_bytes };
        }
    }
}

/// Returns whether a copy of `straggler` sent on `paths[on]` now would arrive before the original
/// is expected, or the original is overdue.
pub(crate) fn copy_is_earlier(
    now: Instant,
    straggler: &Straggler,
    on: usize,
    paths: &[PathView],
    clocks: &LinkClocks,
) -> bool {
    let (original, copy) = (&paths[straggler.path], &paths[on]);
    // This is later than even a delayed acknowledgement (RFC 9002, section 6.2.1, without the
    // peer's delay).
    if now >= straggler.sent_at + original.srtt + (original.rttvar * 4).max(GRANULARITY) {
        return true;
    }
    let delivery = Delivery::of(now, on, copy, clocks, straggler.bytes);
    // The transmission time of the copy counts twice: a copy is not free, because it delays later
    // data.
    let arrives_ns = delivery.arrives_with_ns(straggler.bytes.saturating_mul(2));
    now + Duration::from_nanos(arrives_ns) < straggler.sent_at + original.srtt / 2
}

/// Timer granularity (RFC 9002, section 6.1.2, kGranularity).
const GRANULARITY: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::path;

    #[test]
    fn a_path_missing_from_one_call_keeps_its_clock() {
        let now = Instant::from_nanos(1_000_000_000);
        let (mut fast, slow) = (path(3, 10, 100), path(7, 40, 10));
        let mut clocks = LinkClocks::new();
        clocks.follow(&[slow, fast]);
        clocks.on_grant(now, 1, &fast, 50_000);
        fast.in_flight_bytes = 50_000;
        clocks.follow(&[slow, fast]);
        let queue_ns = clocks.queue_ns(now, 1, &fast, NanosPerByte::of(&fast));
        assert!(queue_ns > 3_900_000, "50 kB at 100 Mb/s: {queue_ns}");

        // A query about the other path alone, then about both in another order together with a new
        // one.
        clocks.follow(&[slow]);
        let new = path(9, 5, 50);
        clocks.follow(&[fast, new, slow]);
        assert_eq!(clocks.queue_ns(now, 0, &fast, NanosPerByte::of(&fast)), queue_ns);
        assert_eq!(clocks.queue_ns(now, 1, &new, NanosPerByte::of(&new)), 0);
    }

    #[test]
    fn excess_paths_replace_clocks_of_paths_not_in_the_call() {
        let mut clocks = LinkClocks::new();
        let paths: Vec<PathView> = (0..3 * PATHS_MAX as u32).map(|id| path(id, 10, 100)).collect();
        for shown in paths.chunks(PATHS_MAX) {
            clocks.follow(shown);
            clocks.follow(&shown[..1]);
            assert_eq!((clocks.count, clocks.clocks[0].id), (PATHS_MAX, shown[0].id));
        }
    }
}
