//! Each packet where it is expected to arrive first; a slower path only while that makes the whole arrive earlier.

use units::Instant;

use crate::candidates::{allowance, batch_bytes, bits, candidates, next_release};
use crate::estimate::{Delivery, LinkClocks, PARTS_PER_BYTE, Ranking, copy_is_earlier};
use crate::{Choice, Demand, PathView, Scheduler, Straggler};

/// A path not yet measured gets this many datagrams in flight while there is bulk: enough for a round trip time and a
/// first rate, few enough to be sent again should the path be useless.
pub const MEASURE_DATAGRAMS: u64 = 4;

/// Bulk, as far as measuring goes: at least this many datagrams wait, so that at most one in a hundred of them leaves
/// on a path of which nothing is known.
pub const BULK_DATAGRAMS: u64 = 100 * MEASURE_DATAGRAMS;

/// The default strategy: earliest delivery, and earliest completion of all that waits.
///
/// The paths are ordered by when the next datagram would arrive there (`estimate.rs` says how that is computed).
/// The first one gets it if it may send now. If it may not, the next one is asked, and so on: it gets the datagram only
/// if the faster ones together would not be done with everything that waits by the time the datagram arrives. So with
/// bulk every path is filled, and for a small message or the tail of a transfer slow paths stay empty and the fast one
/// is waited for: until its pacer lets go, or until an acknowledgement comes.
///
/// **What follows.** If [`Demand::is_last`] is false, a buffer or the receiver's credit is full, and every
/// acknowledgement brings more. Then everything that waits is taken to be the bytes ready *and* those in flight: the
/// size of that buffer or credit, as far as it can be seen from here. A slow path is used if its datagram arrives, and
/// the sender knows, before the fast ones have sent that much: otherwise they would come to a halt and wait for it.
/// With buffers that cover the paths all are filled; with a buffer too small for a slow path, an ordered stream keeps
/// the speed of the fast ones.
///
/// **How much.** All of a batch if the choice stays right for that long; near the tail, this path's part of what waits,
/// divided so that all paths in use finish together.
///
/// **Not yet measured.** With bulk, [`MEASURE_DATAGRAMS`] are sent on each path that has no round trip time yet; apart
/// from these it is used only if no path in question has one.
#[derive(Debug)]
pub struct EarliestDelivery {
    clocks: LinkClocks,
    ranking: Ranking,
}

impl EarliestDelivery {
    /// A scheduler that has seen no path yet.
    pub const fn new() -> Self {
        Self { clocks: LinkClocks::new(), ranking: Ranking::new() }
    }

    /// All paths in question, earliest delivery first.
    pub(crate) fn rank(&mut self, now: Instant, ready_bytes: u64, paths: &[PathView], mask: u32) -> &[Delivery] {
        self.clocks.follow(paths);
        self.ranking.rank(now, &self.clocks, paths, mask, ready_bytes)
    }

    /// Up to `bytes` may be sent now on each of the paths in `mask`.
    pub(crate) fn on_promise(&mut self, now: Instant, bytes: u64, paths: &[PathView], mask: u32) {
        for index in bits(mask) {
            self.clocks.on_promise(now, index, &paths[index], bytes);
        }
    }

    fn decide(&mut self, now: Instant, demand: &Demand, paths: &[PathView]) -> Choice {
        self.clocks.follow(paths);
        let in_question = candidates(now, paths);
        let measured = bits(in_question).filter(|&index| paths[index].is_measured()).fold(0, |mask, i| mask | 1 << i);
        let mut mask = in_question;
        if measured != 0 && measured != in_question {
            if let Some(choice) = measure(now, demand, paths, in_question & !measured) {
                return choice;
            }
            mask = measured;
        }
        let backlog = backlog_bytes(demand, paths, mask);
        let ranked = self.ranking.rank(now, &self.clocks, paths, mask, demand.ready_bytes);
        let plan = Plan::of(backlog, demand.is_last, ranked);
        let used = &ranked[..plan.used_count];
        let ready = used.iter().find(|delivery| paths[delivery.index].has_room_for_datagram(now));
        match ready {
            Some(delivery) => {
                let path = &paths[delivery.index];
                let bytes_max = allowance(path, plan.share_bytes(delivery, batch_bytes(path)));
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
            self.clocks.on_promise(now, path, &paths[path], bytes_max.min(demand.ready_bytes));
        }
        choice
    }

    /// Yes if the copy would arrive before the original is expected, or the original is overdue or on a suspect path.
    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
        self.clocks.follow(paths);
        let (Some(original), Some(copy)) = (paths.get(straggler.path), paths.get(on)) else { return false };
        let is_in_question = bits(candidates(now, paths)).any(|index| index == on);
        if on == straggler.path || !is_in_question || !copy.may_send(now) {
            return false;
        }
        let reinjects = original.is_suspect || copy_is_earlier(now, straggler, on, paths, &self.clocks);
        if reinjects {
            self.clocks.on_promise(now, on, copy, straggler.bytes);
        }
        reinjects
    }
}

/// A few datagrams on the first path of `unmeasured` that may send and has not got them yet.
fn measure(now: Instant, demand: &Demand, paths: &[PathView], unmeasured: u32) -> Option<Choice> {
    bits(unmeasured).find_map(|index| {
        let path = &paths[index];
        let is_bulk = !demand.is_last || demand.ready_bytes >= path.datagram_bytes.saturating_mul(BULK_DATAGRAMS);
        let wanted = path.datagram_bytes.saturating_mul(MEASURE_DATAGRAMS).saturating_sub(path.in_flight_bytes);
        let is_due = demand.ready_bytes > 0 && is_bulk && wanted >= path.datagram_bytes;
        (is_due && path.has_room_for_datagram(now)).then(|| Choice::Send {
            path: index,
            bytes_max: allowance(path, wanted),
            copies: 0,
        })
    })
}

/// Everything that waits; what that means if more will follow stands at [`EarliestDelivery`].
fn backlog_bytes(demand: &Demand, paths: &[PathView], mask: u32) -> u64 {
    if demand.is_last {
        return demand.ready_bytes;
    }
    bits(mask).fold(demand.ready_bytes, |sum, index| sum.saturating_add(paths[index].in_flight_bytes))
}

/// Everything that waits, divided over the paths that make it arrive earliest: all of them finish together.
///
/// If the demand is last: `n` paths, delivering `rate` from `begins` on, have brought all of it at the time `t` at
/// which the sum of `rate * (t - begins)` is the backlog. One more path helps if a datagram there arrives no later than
/// `t`.
///
/// If more follows, the backlog is a buffer that goes round, and `t` is when `n` paths have sent as much as it holds:
/// the sum of `rate * t`. One more path helps if by then the sender knows that the datagram has arrived.
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
            // The first path is always in use: its own rate is no part of the sums yet.
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

    /// What counts beyond the arrival: if more follows, the way back to the sender.
    const fn return_ns(&self, delivery: &Delivery) -> u64 {
        if self.is_last { 0 } else { delivery.back_ns }
    }

    /// Whether `t` is earlier than `at_ns`.
    const fn is_over_at(&self, at_ns: u64) -> bool {
        self.rates * at_ns as u128 > self.backlog_parts + self.rates_by_begins
    }

    /// The part of `delivery`'s path, at most `bytes_max`.
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
