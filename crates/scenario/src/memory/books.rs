//! The books of one direction of a link: what was sent is accounted for, and so is the time that it spent there.

use netem::LinkStats;
use sim::Level;
use units::Instant;

use super::node::NodeTally;

/// What whoever sends and receives knows, to be held against what the link says of itself.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Packets handed to the link, and taken from it.
    sent: u64,
    taken: u64,
    /// As many as the link says it holds, over time.
    held: Level,
    /// When they came: those that stayed, and of these those that were taken. Sums of nanoseconds.
    came_ns: u128,
    taken_came_ns: u128,
    /// Nanoseconds that those taken spent there.
    spent_ns: u128,
}

impl Books {
    /// A packet was sent; `is_refused` if it found the link full.
    pub(super) fn on_sent(&mut self, now: Instant, held: usize, is_refused: bool) {
        self.sent += 1;
        if !is_refused {
            self.came_ns += u128::from(now.as_nanos());
        }
        self.on_looked(now, held);
    }

    /// A packet was taken that had come at `since`.
    pub(super) fn on_taken(&mut self, now: Instant, held: usize, since: Instant) {
        self.taken += 1;
        self.taken_came_ns += u128::from(since.as_nanos());
        self.spent_ns += u128::from(now.saturating_since(since).as_nanos());
        self.on_looked(now, held);
    }

    /// The link was asked.
    pub(super) fn on_looked(&mut self, now: Instant, held: usize) {
        if self.held.value() != held as u64 {
            self.held.set(now, held as u64);
        }
    }

    /// Holds these books against those of the link, which holds so many packets.
    ///
    /// # Errors
    /// What does not add up, in words.
    pub(super) fn check(&self, now: Instant, stats: &LinkStats, held: usize) -> Result<(), String> {
        if (stats.offered, stats.delivered) != (self.sent, self.taken) {
            let Self { sent, taken, .. } = self;
            return Err(format!(
                "{sent} packets were sent and {taken} taken, but it says {} and {}",
                stats.offered, stats.delivered
            ));
        }
        if stats.offered + stats.duplicated != stats.delivered + stats.gone() + held as u64 {
            return Err(format!("{held} packets are under way, which is not what is left of {stats:?}"));
        }
        // Little's law without its limit: exact at any moment. Where packets vanish on the way nobody knows for how long each of
        // them was there, and copies were sent by nobody.
        if stats.gone() == stats.overflowed && stats.duplicated == 0 {
            let under_way = held as u128 * u128::from(now.as_nanos()) + self.taken_came_ns;
            let one_by_one = (self.spent_ns + under_way).checked_sub(self.came_ns);
            let over_time = self.held.integral_at(now);
            if one_by_one != Some(over_time) {
                return Err(format!(
                    "its packets spent {one_by_one:?} ns there one by one, and {over_time} ns as their number over time"
                ));
            }
        }
        Ok(())
    }
}

/// Datagrams of a host that are on their way inside it: planned and not on a link, off a link and not at the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inside {
    pub(crate) unsent: u64,
    pub(crate) untaken: u64,
}

/// Holds what a host says against what links say: datagrams they got from it, and that arrived for it.
///
/// # Errors
/// What does not add up, in words.
pub(super) fn check_host(node: NodeTally, inside: Inside, sent: u64, arrived: u64) -> Result<(), String> {
    let NodeTally { planned, taken, accounted } = node;
    if planned != sent + inside.unsent {
        return Err(format!("{planned} datagrams were planned, {sent} sent, and {} are on their way", inside.unsent));
    }
    if arrived != taken + inside.untaken {
        return Err(format!("{arrived} datagrams arrived, {taken} were taken, and {} were not", inside.untaken));
    }
    if taken != accounted {
        return Err(format!("{taken} datagrams were taken, and {accounted} are accounted for"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use netem::{Link, LinkConfig};
    use units::{Duration, Rate, Ratio, Rng};

    use super::*;

    /// A link with a short queue, eight packets in three moments, and what was taken of them until `end`. `lie` may spoil the books.
    fn checked(config: LinkConfig, end: Duration, lie: impl Fn(&mut Books, &mut Link<Vec<u8>>)) -> Result<(), String> {
        let (mut link, mut books) = (Link::new(config, Rng::from_seed(3)), Books::default());
        let end = Instant::ZERO + end;
        for packet in 0..8_u64 {
            let now = Instant::ZERO + Duration::from_micros(300) * (packet / 3);
            let overflowed = link.stats().overflowed;
            link.send(now, [&now.as_nanos().to_le_bytes()[..], &[0; 992]].concat());
            books.on_sent(now, link.held(), link.stats().overflowed > overflowed);
        }
        while let Some(now) = link.poll_timeout().filter(|now| *now <= end) {
            while let Some(packet) = link.poll_deliver(now) {
                let since = Instant::from_nanos(u64::from_le_bytes(*packet.first_chunk().expect("eight bytes")));
                books.on_taken(now, link.held(), since);
            }
            books.on_looked(now, link.held());
        }
        lie(&mut books, &mut link);
        books.check(end, link.stats(), link.held())
    }

    fn short() -> LinkConfig {
        let (rate, delay) = (Some(Rate::from_mbps(8)), Duration::from_millis(4));
        LinkConfig { rate, delay, queue_bytes: 3_000, ..LinkConfig::default() }
    }

    #[test]
    fn books_add_up_at_any_moment_with_packets_waiting_under_way_refused_and_lost() {
        for micros in [600, 1_000, 4_500, 5_000, 5_001, 7_777, 20_000] {
            let end = Duration::from_micros(micros);
            assert_eq!(checked(short(), end, |_, _| ()), Ok(()), "{micros} us");
            let third = Ratio::new(1, 3);
            let lossy = LinkConfig { loss: third, duplicate: third, ..short() };
            assert_eq!(checked(lossy, end, |_, _| ()), Ok(()), "{micros} us, lossy");
        }
    }

    #[test]
    fn a_packet_that_is_taken_aside_is_missed() {
        let stolen = checked(short(), Duration::from_micros(4_900), |_, link| {
            assert!(link.poll_deliver(Instant::ZERO + Duration::from_micros(6_500)).is_some());
        });
        assert!(stolen.expect_err("one is missing").contains("taken"));
    }

    #[test]
    fn a_packet_that_comes_a_nanosecond_early_breaks_littles_law() {
        let early = checked(short(), Duration::from_millis(20), |books, _| books.spent_ns -= 1);
        assert!(early.expect_err("a nanosecond is missing").contains("one by one"));
    }

    #[test]
    fn a_host_that_loses_or_invents_datagrams_is_noticed() {
        let node = NodeTally { planned: 9, taken: 7, accounted: 7 };
        let inside = Inside { unsent: 2, untaken: 1 };
        assert_eq!(check_host(node, inside, 7, 8), Ok(()));
        for (node, sent, arrived) in [
            (node, 8, 8),
            (node, 7, 9),
            (NodeTally { planned: 8, ..node }, 7, 8),
            (NodeTally { accounted: 6, ..node }, 7, 8),
        ] {
            assert!(check_host(node, inside, sent, arrived).is_err(), "{node:?}, {sent}, {arrived}");
        }
    }

    #[test]
    fn a_link_that_forgets_a_loss_is_noticed() {
        let (books, mut stats) = (Books { sent: 3, taken: 1, ..Books::default() }, LinkStats::default());
        (stats.offered, stats.delivered, stats.lost) = (3, 1, 1);
        assert_eq!(books.check(Instant::ZERO, &stats, 1), Ok(()));
        assert!(books.check(Instant::ZERO, &stats, 0).expect_err("one is nowhere").contains("under way"));
    }
}
