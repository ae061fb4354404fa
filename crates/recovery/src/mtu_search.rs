//! Path MTU discovery by probes (RFC 4821, RFC 8899): finds the largest packet that a path carries.
//!
//! A probe is a packet of the size in question. If it is acknowledged, the path carries that size.
//! Its loss does not indicate congestion. Probes are sent only while data flows, because the size
//! matters only for data: the packets that follow soon show whether the probe was lost, and no
//! timer waits for it.

use units::{Duration, Instant};

/// Resolution of the search in bytes. Below the smallest common size any value is possible, because
/// tunnels take different amounts of it. The search ends when the size is known with this
/// resolution.
const RESOLUTION: usize = 16;

/// Number of lost probes after which a size has failed (RFC 8899, section 5.1.2: MAX_PROBES).
const TRIES: u8 = 3;

/// Time after which the search is repeated, because the route may have changed (RFC 8899, section
/// 5.1.1: PMTU_RAISE_TIMER).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);

/// The search for the datagram size of one path.
#[derive(Debug)]
pub struct MtuSearch {
    /// Sizes for which networks are built, ascending. Few paths have a size in between.
    common: &'static [usize],
    /// The largest size to try. There is no search if it is not above the size in use.
    max: usize,
    /// Size that the path carries.
    confirmed: usize,
    /// Smallest size that failed.
    failed: Option<usize>,
    /// Number of lost probes of the next size.
    lost: u8,
    /// Number and size of the probe in flight.
    probe: Option<(u64, usize)>,
    /// Size of a probe that did not leave.
    unsent: Option<usize>,
    /// Time until which the search is complete.
    complete_until: Option<Instant>,
}

impl MtuSearch {
    /// Creates a search from `base`, which the path is assumed to carry, to `max`. `common` holds
    /// the sizes for which networks are built, ascending. A search whose base is its maximum finds
    /// that size again after the path fell back.
    pub const fn new(base: usize, max: usize, common: &'static [usize]) -> Self {
        Self { common, max, confirmed: base, failed: None, lost: 0, probe: None, unsent: None, complete_until: None }
    }

    /// Limits the search, because the peer accepts no larger datagrams.
    pub fn limit(&mut self, max: usize) {
        self.max = self.max.min(max);
    }

    /// Returns the size of a probe that may be sent now.
    #[inline]
    pub fn due(&mut self, now: Instant) -> Option<usize> {
        if self.max <= self.confirmed || self.probe.is_some() {
            return None;
        }
        if self.complete_until.is_some_and(|until| until <= now) {
            (self.complete_until, self.failed) = (None, None);
        }
        if self.complete_until.is_some() {
            return None;
        }
        let next = self.next();
        if next.is_none() {
            self.complete_until = Some(now + RAISE_INTERVAL);
        }
        next
    }

    /// Returns the next size to try: the common ones in order, then bisection between a size that
    /// works and a common one that does not.
    fn next(&self) -> Option<usize> {
        let below = |size: &usize| *size <= self.max && self.failed.is_none_or(|failed| *size < failed);
        let mut candidates =
            self.common.iter().copied().chain([self.max]).filter(|size| *size > self.confirmed).filter(below);
        let common = candidates.next();
        if common.is_some() {
            return common;
        }
        let failed = self.failed.filter(|failed| self.common.first().is_some_and(|common| failed <= common))?;
        (failed - self.confirmed > RESOLUTION).then(|| (self.confirmed + failed) / 2)
    }

    /// Records that a probe was planned.
    pub fn on_planned(&mut self, number: u64, size: usize) {
        (self.probe, self.unsent) = (Some((number, size)), None);
    }

    /// Returns the number of the probe in flight.
    pub fn probe_number(&self) -> Option<u64> {
        self.probe.map(|(number, _)| number)
    }

    /// Returns whether this packet is the probe in flight.
    #[inline]
    pub fn is_probe(&self, number: u64) -> bool {
        self.probe.is_some_and(|(probe, _)| probe == number)
    }

    /// Records that the probe arrived. Returns the size that the path carries.
    pub fn on_acked(&mut self) -> Option<usize> {
        let (_, size) = self.probe.take()?;
        (self.confirmed, self.lost) = (size, 0);
        Some(size)
    }

    /// Records that the probe was lost.
    pub fn on_lost(&mut self) {
        let Some((_, size)) = self.probe.take() else { return };
        self.lost += 1;
        if self.lost >= TRIES {
            self.fail(size);
        }
    }

    fn fail(&mut self, size: usize) {
        (self.failed, self.lost) = (Some(size), 0);
    }

    /// Records that packets from this number on did not leave, which may include the probe.
    pub fn on_unsent(&mut self, first: u64) {
        let is_probe = self.is_probe(first);
        self.unsent = if is_probe { self.probe.take().map(|(_, size)| size) } else { None };
    }

    /// Records that the system accepts no datagrams of this size. Returns false if that was not a
    /// probe.
    pub fn on_too_large(&mut self) -> bool {
        let size = self.unsent.take();
        size.inspect(|size| self.fail(*size)).is_some()
    }

    /// Forgets the probe in flight, whose fate is unknown.
    pub fn cancel(&mut self) {
        self.probe = None;
    }

    /// Pauses the search, because the path is known to carry no more for now: it continues at the
    /// time of the next repetition.
    pub fn pause(&mut self, now: Instant) {
        self.complete_until = Some(now + RAISE_INTERVAL);
    }

    /// Restarts the search, because the path now carries at most `base` or leads elsewhere.
    pub fn restart(&mut self, base: usize) {
        *self = Self::new(base, self.max, self.common);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: [usize; 4] = [1452, 1472, 8952, 8972];

    /// Returns the sizes that a search tries on a path that carries `mtu` bytes, and the one it
    /// finds.
    fn search(max: usize, mtu: usize) -> (Vec<usize>, usize) {
        let mut search = MtuSearch::new(1200, max, &COMMON);
        let mut tried = Vec::new();
        while let Some(size) = search.due(Instant::ZERO) {
            if tried.last() != Some(&size) {
                tried.push(size);
            }
            search.on_planned(7, size);
            assert!(search.is_probe(7) && search.due(Instant::ZERO).is_none(), "one probe at a time");
            if size <= mtu {
                assert_eq!(search.on_acked(), Some(size));
            } else {
                search.on_lost();
            }
        }
        (tried, search.confirmed)
    }

    #[test]
    fn common_sizes_are_found_with_few_probes() {
        assert_eq!(search(65_000, 1472), (vec![1452, 1472, 8952], 1472));
        assert_eq!(search(8972, 8972), (vec![1452, 1472, 8952, 8972], 8972));
        assert_eq!(search(65_000, 65_507).1, 65_000);
        assert_eq!(search(1460, 9000), (vec![1452, 1460], 1460), "the peer's limit is tried");
        assert_eq!(search(1200, 9000), (vec![], 1200), "nothing to find");
    }

    #[test]
    fn sizes_of_tunnels_are_found_to_a_few_bytes() {
        for mtu in 1200..1452 {
            let (tried, found) = search(8972, mtu);
            assert!(found <= mtu && mtu - found <= RESOLUTION && tried.len() <= 6, "{mtu}: {found} by {tried:?}");
        }
    }

    #[test]
    fn a_size_fails_after_three_losses_or_when_the_system_refuses_it() {
        let mut search = MtuSearch::new(1200, 1452, &COMMON);
        for _ in 0..2 {
            search.on_planned(1, 1452);
            search.on_lost();
            assert_eq!(search.due(Instant::ZERO), Some(1452));
        }
        search.on_planned(2, 1452);
        search.on_unsent(2);
        assert!(search.on_too_large());
        assert_eq!(search.due(Instant::ZERO), Some(1326));
        search.on_planned(3, 1326);
        search.on_unsent(3);
        search.on_unsent(4);
        assert!(!search.on_too_large(), "that was another datagram");
    }

    #[test]
    fn the_search_is_repeated_later() {
        let mut search = MtuSearch::new(1452, 1472, &COMMON);
        for _ in 0..3 {
            search.on_planned(1, 1472);
            search.on_lost();
        }
        assert_eq!(search.due(Instant::ZERO), None);
        assert_eq!(search.due(Instant::ZERO + (RAISE_INTERVAL - Duration::from_nanos(1))), None);
        assert_eq!(search.due(Instant::ZERO + RAISE_INTERVAL), Some(1472));
    }
}
