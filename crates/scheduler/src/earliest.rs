//! Earliest delivery: each packet goes to the path on which it is expected to arrive first. A
//! slower path is used only while that makes the whole backlog arrive earlier.

use units::Instant;

use crate::candidates::{batch_bytes, bits, candidates, next_release, sendable_bytes};
use crate::estimate::{Delivery, LinkClocks, PARTS_PER_BYTE, Ranking, copy_is_earlier};
use crate::scheduler::{Choice, Scheduler};
use crate::view::{Demand, PathView, Straggler};

/// Datagrams in flight on a path without an RTT sample, while there is bulk data. This is enough
/// for an RTT sample and a first rate, and few enough to be resent if the path does not work.
pub const MEASURE_DATAGRAMS: u64 = 4;

/// The backlog, in datagrams, above which unmeasured paths are probed with data. At most one in a
/// hundred of these datagrams is sent on an unmeasured path.
pub const BULK_DATAGRAMS: u64 = 100 * MEASURE_DATAGRAMS;

/// The default strategy: earliest delivery of each packet, and earliest completion of the backlog.
///
/// The paths are ordered by the expected arrival of the next datagram (`estimate.rs` computes it).
/// The first path gets the datagram if it may send now. Otherwise the next path gets it, but only
/// if the faster paths together would not have delivered the whole backlog by the time the datagram
/// arrives. With bulk data every path is used. For a small message or the tail of a transfer, slow
/// paths stay empty and the scheduler waits for the fast one: for its pacer, or for an
/// acknowledgement.
///
/// **More data to follow.** If [`Demand::is_last`] is false, a buffer or the receiver's
/// flow-control credit is full, and every acknowledgement brings more data. The backlog is then the
/// ready bytes plus the bytes in flight, which approximates the size of that buffer or credit. A
/// slow path is used if its datagram arrives and is acknowledged before the fast paths have sent
/// that much; otherwise the fast paths would stall and wait for it. With buffers that cover the
/// bandwidth-delay products, all paths are filled. With a buffer that is too small for a slow path,
/// an ordered stream keeps the speed of the fast paths.
///
/// **Batch size.** A full batch if the choice stays optimal for that long. Near the tail, the
/// path's share of the backlog, divided so that all paths in use finish at the same time.
///
/// **Unmeasured paths.** With bulk data, [`MEASURE_DATAGRAMS`] are sent on each path without an RTT
/// sample. Otherwise such a path is used only if no eligible path has a sample.
#[derive(Debug)]
pub struct EarliestDelivery {
    clocks: LinkClocks,
    ranking: Ranking,
}

impl EarliestDelivery {
    /// Creates a scheduler without path state.
    pub const fn new() -> Self {
        Self { clocks: LinkClocks::new(), ranking: Ranking::new() }
    }

    /// Returns all eligible paths, earliest delivery first.
    pub(crate) fn rank(&mut self, now: Instant, ready_bytes: u64, paths: &[PathView], mask: u32) -> &[Delivery] {
        self.clocks.follow(paths);
        self.ranking.rank(now, &self.clocks, paths, mask, ready_bytes)
    }

    /// Records that up to `bytes` may be sent now on each of the paths in `mask`.
    pub(crate) fn on_grant(&mut self, now: Instant, bytes: u64, paths: &[PathView], mask: u32) {
        for index in bits(mask) {
            self.clocks.on_grant(now, index, &paths[index], bytes);
        }
    }

    fn decide(&mut self, now: Instant, demand: &Demand, paths: &[PathView]) -> Choice {
        self.clocks.follow(paths);
        let eligible = candidates(now, paths);
        let measured = bits(eligible).filter(|&index| paths[index].is_measured()).fold(0, |mask, i| mask | 1 << i);
        let mut mask = eligible;
        if measured != 0 && measured != eligible {
            if let Some(choice) = measure(now, demand, paths, eligible & !measured) {
                return choice;
            }
            mask = measured;
        }
        let backlog = backlog_bytes(demand, paths, mask);
        let ranked = self.ranking.rank(now, &self.clocks, paths, mask, demand.ready_bytes);
        let plan = Plan::of(backlog, demand.is_last, ranked);
        let used = &ranked[..plan.used_count];
        let ready = used.iter().find(|delivery| paths[delivery.index].permits_datagram(now));
        match ready {
            Some(delivery) => {
                let path = &paths[delivery.index];
                let bytes_max = sendable_bytes(path, plan.share_bytes(delivery, batch_bytes(path)));
                Choice::Send { path: delivery.index, bytes_max, copies: 0 }
            }
            None => {
                let waited_for = used.iter().fold(0, |mask, delivery| mask | 1 << delivery.index);
                Choice::Wait { until: next_release(now, paths, waited_for) }
            }
        }
    }
}

impl Default for EarliestDelivery {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheduler for EarliestDelivery {
    fn choose(&mut self, now: Instant, demand: &Demand, paths: &[PathView]) -> Choice {
        let choice = self.decide(now, demand, paths);
        if let Choice::Send { path, bytes_max, .. } = choice {
            self.clocks.on_grant(now, path, &paths[path], bytes_max.min(demand.ready_bytes));
        }
        choice
    }

    /// Returns true if the copy would arrive before the original is expected, or if the original is
    /// overdue or on a suspect path.
    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
        self.clocks.follow(paths);
        let (Some(original), Some(copy)) = (paths.get(straggler.path), paths.get(on)) else { return false };
        let is_eligible = bits(candidates(now, paths)).any(|index| index == on);
        if on == straggler.path || !is_eligible || !copy.may_send(now) {
            return false;
        }
        let reinjects = original.is_suspect || copy_is_earlier(now, straggler, on, paths, &self.clocks);
        if reinjects {
            self.clocks.on_grant(now, on, copy, straggler.bytes);
        }
        reinjects
    }
}

/// Returns a few datagrams on the first path of `unmeasured` that may send and does not have them
/// in flight yet.
fn measure(now: Instant, demand: &Demand, paths: &[PathView], unmeasured: u32) -> Option<Choice> {
    bits(unmeasured).find_map(|index| {
        let path = &paths[index];
        let is_bulk = !demand.is_last || demand.ready_bytes >= path.datagram_bytes.saturating_mul(BULK_DATAGRAMS);
        let wanted = path.datagram_bytes.saturating_mul(MEASURE_DATAGRAMS).saturating_sub(path.in_flight_bytes);
        let is_due = demand.ready_bytes > 0 && is_bulk && wanted >= path.datagram_bytes;
        (is_due && path.permits_datagram(now)).then(|| Choice::Send {
            path: index,
            bytes_max: sendable_bytes(path, wanted),
            copies: 0,
        })
    })
}

/// Returns the backlog. [`EarliestDelivery`] explains its meaning if more data follows.
fn backlog_bytes(demand: &Demand, paths: &[PathView], mask: u32) -> u64 {
    if demand.is_last {
        return demand.ready_bytes;
    }
    bits(mask).fold(demand.ready_bytes, |sum, index| sum.saturating_add(paths[index].in_flight_bytes))
}

/// Divides the backlog over the set of paths that delivers it earliest, so that all of them finish
/// at the same time.
///
/// If the demand is last: `n` paths, each delivering at `rate` from `begins` on, have delivered the
/// backlog at the time `t` at which the sum of `rate * (t - begins)` equals it. Another path helps
/// if a datagram on it arrives no later than `t`.
///
/// If more data follows, the backlog is a buffer that is refilled continuously, and `t` is the time
/// at which `n` paths have sent its size: the sum of `rate * t`. Another path helps if the sender
/// receives the acknowledgement of its datagram by then.
struct Plan {
    used_count: usize,
    is_last: bool,
    backlog_parts: u128,
    rates: u128,
    rates_by_begins: u128,
}

impl Plan {
    fn of(backlog: u64, is_last: bool, ranked: &[Delivery]) -> Self {
        let backlog_parts = u128::from(backlog) * u128::from(PARTS_PER_BYTE);
        let mut plan = Self { used_count: 0, is_last, backlog_parts, rates: 0, rates_by_begins: 0 };
        for delivery in ranked {
            // The first path is always used; its rate is not part of the sums yet.
            if plan.used_count > 0 && plan.is_over_at(delivery.arrives_ns + plan.return_ns(delivery)) {
                break;
            }
            plan.used_count += 1;
            plan.rates += u128::from(delivery.rate_bps);
            if is_last {
                plan.rates_by_begins += u128::from(delivery.rate_bps) * u128::from(delivery.begins_ns);
            }
        }
        plan
    }

    /// Returns the time after the arrival that counts: the return path of the acknowledgement, if
    /// more data follows.
    const fn return_ns(&self, delivery: &Delivery) -> u64 {
        if self.is_last { 0 } else { delivery.return_ns }
    }

    /// Returns whether `t` is earlier than `at_ns`.
    const fn is_over_at(&self, at_ns: u64) -> bool {
        self.rates * at_ns as u128 > self.backlog_parts + self.rates_by_begins
    }

    /// Returns the share of `delivery`'s path, at most `bytes_max`.
    fn share_bytes(&self, delivery: &Delivery, bytes_max: u64) -> u64 {
        let at_ns = delivery.arrives_with_ns(bytes_max) + self.return_ns(delivery);
        if self.used_count == 1 || self.rates == 0 || !self.is_over_at(at_ns) {
            return bytes_max;
        }
        let over_ns = (self.backlog_parts + self.rates_by_begins) / self.rates;
        let span_ns = over_ns.saturating_sub(u128::from(delivery.begins_ns + self.return_ns(delivery)));
        let bytes = span_ns * u128::from(delivery.rate_bps) / u128::from(PARTS_PER_BYTE);
        u64::try_from(bytes).map_or(bytes_max, |bytes| bytes.min(bytes_max))
    }
}
