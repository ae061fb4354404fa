//! Conservation checks: every datagram of one direction of a link is accounted for, and so is the
//! time that it spent there.

use netem::LinkStats;
use sim::Level;
use units::Instant;

/// The counts of sender and receiver, to be compared with the link's own counters.
#[derive(Debug, Default)]
pub(super) struct LinkAccounting {
    /// Packets offered to the link, and packets delivered by it.
    sent: u64,
    taken: u64,
    /// The number of packets in the link over time, as the link reports it.
    held: Level,
    /// Sums of arrival times: of accepted packets, and of delivered packets.
    arrival_ns_sum: u128,
    taken_arrival_ns_sum: u128,
    /// Sum of the times that delivered packets spent in the link.
    sojourn_ns_sum: u128,
}

impl LinkAccounting {
    /// Records a sent packet; `is_refused` if the queue was full.
    pub(super) fn on_sent(&mut self, now: Instant, held: usize, is_refused: bool) {
        self.sent += 1;
        if !is_refused {
            self.arrival_ns_sum += u128::from(now.as_nanos());
        }
        self.on_level(now, held);
    }

    /// Records a delivered packet that was sent at `since`.
    pub(super) fn on_taken(&mut self, now: Instant, held: usize, since: Instant) {
        self.taken += 1;
        self.taken_arrival_ns_sum += u128::from(since.as_nanos());
        self.sojourn_ns_sum += u128::from(now.saturating_since(since).as_nanos());
        self.on_level(now, held);
    }

    /// Records the number of packets in the link.
    pub(super) fn on_level(&mut self, now: Instant, held: usize) {
        if self.held.value() != held as u64 {
            self.held.set(now, held as u64);
        }
    }

    /// Compares these counts with the counters of the link, which holds `held` packets.
    ///
    /// # Errors
    /// Returns a description of the violation.
    pub(super) fn check(&self, now: Instant, stats: &LinkStats, held: usize) -> Result<(), String> {
        if (stats.offered, stats.delivered) != (self.sent, self.taken) {
            let Self { sent, taken, .. } = self;
            return Err(format!(
                "{sent} packets were sent and {taken} delivered, but the link counted {} and {}",
                stats.offered, stats.delivered
            ));
        }
        if stats.offered + stats.duplicated != stats.delivered + stats.undelivered() + held as u64 {
            return Err(format!("{held} packets are in flight, which does not match {stats:?}"));
        }
        // Little's law for a finite time, which is exact at any moment. It cannot be checked with
        // packets that vanish on the way, whose time in the link is unknown, or with duplicates.
        if stats.undelivered() == stats.overflowed && stats.duplicated == 0 {
            let under_way = held as u128 * u128::from(now.as_nanos()) + self.taken_arrival_ns_sum;
            let one_by_one = (self.sojourn_ns_sum + under_way).checked_sub(self.arrival_ns_sum);
            let over_time = self.held.integral_at(now);
            if one_by_one != Some(over_time) {
                return Err(format!(
                    "the sum of its packets' times is {one_by_one:?} ns, and the integral of their number is {over_time} ns"
                ));
            }
        }
        Ok(())
    }
}

/// Datagram counts of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostCounts {
    /// Datagrams planned, by the connection's count.
    pub(crate) planned: u64,
    /// Datagrams received.
    pub(crate) taken: u64,
    /// Datagrams received and counted by the connection, or belonging to no connection.
    pub(crate) accounted: u64,
}

/// Datagrams inside a host: planned but not sent to a link (`unsent`), or delivered by a link but
/// not passed to the connection (`untaken`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    pub(crate) unsent: u64,
    pub(crate) untaken: u64,
}

/// Compares the counts of a host with those of the links: datagrams offered by it, and delivered to
/// it.
///
/// # Errors
/// Returns a description of the violation.
pub(super) fn check_host_conservation(
    node: HostCounts,
    backlog: Backlog,
    sent: u64,
    arrived: u64,
) -> Result<(), String> {
    let HostCounts { planned, taken, accounted } = node;
    if planned != sent + backlog.unsent {
        return Err(format!("{planned} datagrams were planned, {sent} sent, and {} are not sent yet", backlog.unsent));
    }
    if arrived != taken + backlog.untaken {
        return Err(format!(
            "{arrived} datagrams arrived, {taken} were processed, and {} are waiting",
            backlog.untaken
        ));
    }
    if taken != accounted {
        return Err(format!("{taken} datagrams were processed, and {accounted} are accounted for"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use netem::{Link, LinkConfig};
    use units::{Duration, Rate, Ratio, Rng};

    use super::*;

    /// Sends eight packets at three times over a link, delivers those that arrive until `end`, and
    /// checks the counts. `lie` may falsify them first.
    fn checked(
        config: LinkConfig,
        end: Duration,
        lie: impl Fn(&mut LinkAccounting, &mut Link<Vec<u8>>),
    ) -> Result<(), String> {
        let (mut link, mut accounting) = (Link::new(config, Rng::from_seed(3)), LinkAccounting::default());
        let end = Instant::ZERO + end;
        for packet in 0..8_u64 {
            let now = Instant::ZERO + Duration::from_micros(300) * (packet / 3);
            let overflowed = link.stats().overflowed;
            link.send(now, [&now.as_nanos().to_le_bytes()[..], &[0; 992]].concat());
            accounting.on_sent(now, link.held(), link.stats().overflowed > overflowed);
        }
        while let Some(now) = link.poll_timeout().filter(|now| *now <= end) {
            while let Some(packet) = link.poll_deliver(now) {
                let since = Instant::from_nanos(u64::from_le_bytes(*packet.first_chunk().expect("eight bytes")));
                accounting.on_taken(now, link.held(), since);
            }
            accounting.on_level(now, link.held());
        }
        lie(&mut accounting, &mut link);
        accounting.check(end, link.stats(), link.held())
    }

    fn short() -> LinkConfig {
        let (rate, delay) = (Some(Rate::from_mbps(8)), Duration::from_millis(4));
        LinkConfig { rate, delay, queue_bytes: 3_000, ..LinkConfig::default() }
    }

    #[test]
    fn counts_are_conserved_with_packets_queued_in_flight_refused_and_lost() {
        for micros in [600, 1_000, 4_500, 5_000, 5_001, 7_777, 20_000] {
            let end = Duration::from_micros(micros);
            assert_eq!(checked(short(), end, |_, _| ()), Ok(()), "{micros} us");
            let third = Ratio::new(1, 3);
            let lossy = LinkConfig { loss: third, duplicate: third, ..short() };
            assert_eq!(checked(lossy, end, |_, _| ()), Ok(()), "{micros} us, lossy");
        }
    }

    #[test]
    fn an_unrecorded_delivery_is_detected() {
        let stolen = checked(short(), Duration::from_micros(4_900), |_, link| {
            assert!(link.poll_deliver(Instant::ZERO + Duration::from_micros(6_500)).is_some());
        });
        assert!(stolen.expect_err("one is missing").contains("delivered"));
    }

    #[test]
    fn a_delivery_one_nanosecond_early_violates_littles_law() {
        let early = checked(short(), Duration::from_millis(20), |accounting, _| accounting.sojourn_ns_sum -= 1);
        assert!(early.expect_err("a nanosecond is missing").contains("integral"));
    }

    #[test]
    fn a_host_that_loses_or_invents_datagrams_is_detected() {
        let node = HostCounts { planned: 9, taken: 7, accounted: 7 };
        let backlog = Backlog { unsent: 2, untaken: 1 };
        assert_eq!(check_host_conservation(node, backlog, 7, 8), Ok(()));
        for (node, sent, arrived) in [
            (node, 8, 8),
            (node, 7, 9),
            (HostCounts { planned: 8, ..node }, 7, 8),
            (HostCounts { accounted: 6, ..node }, 7, 8),
        ] {
            assert!(check_host_conservation(node, backlog, sent, arrived).is_err(), "{node:?}, {sent}, {arrived}");
        }
    }

    #[test]
    fn an_uncounted_loss_of_a_link_is_detected() {
        let (accounting, mut stats) =
            (LinkAccounting { sent: 3, taken: 1, ..LinkAccounting::default() }, LinkStats::default());
        (stats.offered, stats.delivered, stats.lost) = (3, 1, 1);
        assert_eq!(accounting.check(Instant::ZERO, &stats, 1), Ok(()));
        assert!(accounting.check(Instant::ZERO, &stats, 0).expect_err("one is missing").contains("in flight"));
    }
}
