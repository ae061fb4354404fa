//! [`TimeWaits`]: connections in TIME-WAIT, which answer repeated segments for a while (RFC 9293,
//! section 3.6.1).

use std::collections::BTreeSet;

use tcp::{Arrival, Plan, TimeWait, Tuple};
use units::Instant;

use crate::table::Table;

/// Remaining state of ended connections. Bounded: beyond the limit, the connection that expires
/// first is forgotten.
#[derive(Debug)]
pub(crate) struct TimeWaits {
    by_tuple: Table<TimeWait>,
    /// Connections by expiry.
    ends: BTreeSet<(Instant, Tuple)>,
    max: usize,
}

impl TimeWaits {
    /// Creates a table for `max` connections.
    pub(crate) fn new(key: [u8; 16], max: usize) -> Self {
        Self { by_tuple: Table::new(key), ends: BTreeSet::new(), max }
    }

    pub(crate) fn get(&self, tuple: &Tuple) -> Option<&TimeWait> {
        self.by_tuple.get(tuple)
    }

    pub(crate) fn contains(&self, tuple: &Tuple) -> bool {
        self.by_tuple.contains(tuple)
    }

    /// Keeps a connection; returns the one forgotten in exchange.
    pub(crate) fn keep(&mut self, time_wait: TimeWait) -> Option<Tuple> {
        self.end(time_wait.tuple());
        let is_full = self.by_tuple.len() >= self.max;
        let forgotten = if is_full { self.ends.pop_first().map(|(_, first)| first) } else { None };
        if let Some(first) = &forgotten {
            self.by_tuple.remove(first);
        }
        self.ends.insert((time_wait.until(), *time_wait.tuple()));
        self.by_tuple.insert(*time_wait.tuple(), time_wait);
        forgotten
    }

    /// Removes the connection that a new one replaces.
    pub(crate) fn end(&mut self, tuple: &Tuple) {
        if let Some(time_wait) = self.by_tuple.remove(tuple) {
            self.ends.remove(&(time_wait.until(), *tuple));
        }
    }

    /// Fills `plan` with the answer to a segment; returns `Some(false)` if there is none, and
    /// `None` if the segment belongs to no connection in TIME-WAIT.
    pub(crate) fn handle_segment(&mut self, now: Instant, arrival: &Arrival, plan: &mut Plan) -> Option<bool> {
        let time_wait = self.by_tuple.get_mut(&arrival.tuple)?;
        let before = time_wait.until();
        let has_answer = time_wait.handle_segment(now, arrival, plan);
        let until = time_wait.until();
        if until != before {
            self.ends.remove(&(before, arrival.tuple));
            self.ends.insert((until, arrival.tuple));
        }
        Some(has_answer)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// Removes the next connection that has expired.
    pub(crate) fn pop_ended(&mut self, now: Instant) -> Option<Tuple> {
        let (_, tuple) = self.ends.first().copied().filter(|(until, _)| *until <= now)?;
        self.ends.pop_first();
        self.by_tuple.remove(&tuple);
        Some(tuple)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tcp::{Connection, State, SuperPacket, TcpConfig};
    use units::{Duration, Seq32};

    use super::*;

    const REMOTE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 80);

    /// Returns the segments that `from` sends now.
    fn sent(now: Instant, from: &mut Connection) -> Vec<Arrival> {
        let (mut plan, mut packet, mut all) = (Plan::default(), SuperPacket::default(), Vec::new());
        while from.poll_plan(now, 1, &mut plan) {
            plan.seal(&mut packet);
            packet.packets(|packet| {
                let packet = bytes::Bytes::copy_from_slice(packet);
                all.push(Arrival::open(&packet, None, false).expect("a segment"));
            });
        }
        all
    }

    /// Returns the remains of a connection from `port` that was opened and closed at `now`, and the
    /// last segment of its peer.
    fn ended(now: Instant, port: u16) -> (TimeWait, Arrival) {
        let local = SocketAddr::new(std::net::Ipv4Addr::new(10, 0, 0, 1).into(), port);
        let tuple = Tuple { local, remote: REMOTE };
        let config = std::sync::Arc::new(TcpConfig::default());
        let mut one = Connection::connect(now, config.clone(), tuple, Seq32::new(7), 0);
        let syn = sent(now, &mut one).remove(0);
        let mut other = Connection::accept(now, config, &syn, Seq32::new(9), 0);
        one.finish();
        other.finish();
        let mut last = syn;
        for _ in 0..6 {
            for arrival in sent(now, &mut other) {
                if arrival.header.flags.contains(wire::tcp::Flags::FIN) {
                    last = arrival.clone();
                }
                one.handle_segment(now, arrival);
            }
            // The side that closes first is in TIME-WAIT then.
            sent(now, &mut one).into_iter().for_each(|arrival| other.handle_segment(now, arrival));
        }
        assert_eq!(one.state(), State::TimeWait);
        (one.time_wait().expect("it is in TIME-WAIT"), last)
    }

    fn end_until(waits: &mut TimeWaits, now: Instant) {
        while waits.pop_ended(now).is_some() {}
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn beyond_the_limit_the_one_that_ends_first_is_forgotten() {
        let mut waits = TimeWaits::new([3; 16], 100);
        let all: Vec<_> = (0..300).map(|number| ended(at(number), 1000 + number as u16).0).collect();
        let tuples: Vec<_> = all.iter().map(|time_wait| *time_wait.tuple()).collect();
        for (count, time_wait) in all.into_iter().enumerate() {
            waits.keep(time_wait);
            assert_eq!(waits.by_tuple.len(), (count + 1).min(100));
            assert_eq!(waits.ends.len(), waits.by_tuple.len());
        }
        assert!(!waits.contains(&tuples[199]) && waits.contains(&tuples[200]));
        // After a minute each is forgotten, and nothing is left.
        assert_eq!(waits.poll_timeout(), Some(at(260)));
        end_until(&mut waits, at(260));
        assert_eq!(waits.by_tuple.len(), 99);
        end_until(&mut waits, at(400));
        assert_eq!((waits.by_tuple.len(), waits.ends.len(), waits.poll_timeout()), (0, 0, None));
    }

    #[test]
    fn a_repeated_end_begins_the_time_anew_and_a_successor_takes_its_place() {
        let mut waits = TimeWaits::new([3; 16], 10);
        let (time_wait, last) = ended(at(0), 1000);
        let tuple = *time_wait.tuple();
        waits.keep(time_wait);
        let mut plan = Plan::default();
        assert_eq!(waits.handle_segment(at(50), &last, &mut plan), Some(true));
        assert_eq!(waits.poll_timeout(), Some(at(110)));
        end_until(&mut waits, at(60));
        assert!(waits.contains(&tuple));
        // The next connection of the same ports ends, too.
        let (next, _) = ended(at(100), 1000);
        waits.keep(next);
        assert_eq!((waits.by_tuple.len(), waits.ends.len(), waits.poll_timeout()), (1, 1, Some(at(160))));
        waits.end(&tuple);
        assert_eq!((waits.ends.len(), waits.handle_segment(at(101), &last, &mut plan)), (0, None));
    }

    #[test]
    fn a_reset_with_the_next_number_ends_it_at_once() {
        let mut waits = TimeWaits::new([3; 16], 10);
        let (time_wait, last) = ended(at(0), 1000);
        let tuple = *time_wait.tuple();
        waits.keep(time_wait);
        let mut plan = Plan::default();
        // The peer's FIN has the preceding number.
        for (step, is_ended) in [(0, false), (2, false), (1, true)] {
            let mut reset = last.clone();
            (reset.header.seq, reset.header.flags) = (last.header.seq + step, wire::tcp::Flags::RST);
            assert_eq!(waits.handle_segment(at(5), &reset, &mut plan), Some(false));
            end_until(&mut waits, at(5));
            assert_eq!(waits.contains(&tuple), !is_ended, "{step}");
        }
        assert_eq!((waits.ends.len(), waits.poll_timeout()), (0, None));
    }
}
