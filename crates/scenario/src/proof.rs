//! Proof that a fault had an effect: the packets that it affected, by the link's own counters.
//!
//! | fault | packets that count |
//! |---|---|
//! | `state = "silent"` | vanished |
//! | `state = "held"` | offered while the line was stopped |
//! | `loss`, `bursts`, `duplicate`, `corrupt`, `reorder` above zero | lost, lost in bursts, duplicated, corrupted, reordered |
//! | anything else: another rate, delay or jitter, an impairment that ends, `state = "up"` | carried under the new setting |
//!
//! A fault that changes several settings must affect packets through each of them. Its count is the
//! smallest of theirs.

use netem::{Change, LineState, LinkStats};
use units::{Duration, Instant};

use crate::faults::{Occurrence, occurrences};
use crate::model::Scenario;
use crate::outcome::FaultOutcome;

/// Returns the number of packets that `change` affected between two samples of the counters of one
/// direction.
fn packets_affected(change: &Change, before: &LinkStats, after: &LinkStats) -> u64 {
    let count: fn(&LinkStats) -> u64 = match change {
        Change::State(LineState::Silent) => |stats| stats.vanished,
        Change::State(LineState::Held) => |stats| stats.offered,
        Change::Loss(loss) if !loss.is_zero() => |stats| stats.lost,
        Change::BurstLoss(Some(_)) => |stats| stats.lost_in_bursts,
        Change::Duplicate(share) if !share.is_zero() => |stats| stats.duplicated,
        Change::Corrupt(share) if !share.is_zero() => |stats| stats.corrupted,
        Change::Reorder(share, _) if !share.is_zero() => |stats| stats.reordered,
        _ => |stats| stats.carried,
    };
    count(after).saturating_sub(count(before))
}

/// Samples the counters at the beginning and the end of every occurrence of a fault.
#[derive(Debug)]
pub struct Proof {
    /// The times at which a fault begins or ends, the next one last.
    edges: Vec<(Instant, bool, Occurrence)>,
    open: Vec<(Occurrence, [LinkStats; 2])>,
    outcomes: Vec<FaultOutcome>,
}

impl Proof {
    /// Creates a proof of the faults of these links.
    pub fn new(scenario: &Scenario, links: &[usize]) -> Self {
        let is_used = |fault: usize| links.contains(&scenario.faults[fault].link);
        let mut edges: Vec<_> = occurrences(scenario)
            .into_iter()
            .filter(|occurrence| is_used(occurrence.fault))
            .flat_map(|occurrence| {
                let at = |since: Duration| Instant::ZERO + since;
                [(at(occurrence.from), true, occurrence), (at(occurrence.to), false, occurrence)]
            })
            .collect();
        edges.sort_by_key(|(at, begins, _)| core::cmp::Reverse((*at, *begins)));
        let outcome = |fault| FaultOutcome { fault, occurrences: 0, effective: 0, packets: 0 };
        let outcomes = (0..scenario.faults.len()).filter(|fault| is_used(*fault)).map(outcome).collect();
        Self { edges, open: Vec::new(), outcomes }
    }

    /// Returns when to call [`Proof::observe`] next.
    pub fn timeout(&self) -> Option<Instant> {
        self.edges.last().map(|(at, ..)| *at)
    }

    /// Samples the counters for every fault that begins or ends by `now`. `stats` returns the
    /// counters of a link.
    pub fn observe(&mut self, now: Instant, scenario: &Scenario, stats: impl Fn(usize) -> [LinkStats; 2]) {
        while let Some((_, begins, occurrence)) = self.edges.pop_if(|(at, ..)| *at <= now) {
            let stats = stats(scenario.faults[occurrence.fault].link);
            if begins {
                self.open.push((occurrence, stats));
            } else {
                self.end(scenario, occurrence, stats);
            }
        }
    }

    fn end(&mut self, scenario: &Scenario, occurrence: Occurrence, stats: [LinkStats; 2]) {
        let Some(place) = self.open.iter().position(|(open, _)| *open == occurrence) else { return };
        let (_, before) = self.open.swap_remove(place);
        let fault = &scenario.faults[occurrence.fault];
        let met = |change: &Change| -> u64 {
            (0..2)
                .filter(|&direction| fault.directions[direction])
                .map(|direction| packets_affected(change, &before[direction], &stats[direction]))
                .sum()
        };
        let packets = fault.changes.iter().map(met).min().unwrap_or(0);
        if let Some(outcome) = self.outcomes.iter_mut().find(|outcome| outcome.fault == occurrence.fault) {
            outcome.occurrences += 1;
            outcome.effective += u64::from(packets > 0);
            outcome.packets += packets;
        }
    }

    /// Ends the run. `stats` returns the counters of a link, for faults that are still in force.
    pub fn finish(mut self, scenario: &Scenario, stats: impl Fn(usize) -> [LinkStats; 2]) -> Vec<FaultOutcome> {
        for (occurrence, _) in self.open.clone() {
            self.end(scenario, occurrence, stats(scenario.faults[occurrence.fault].link));
        }
        self.outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;

    #[test]
    fn a_fault_with_several_settings_must_affect_packets_through_each() {
        let scenario = scenario(
            "[[link]]\nname = 'a'\n[[fault]]\nlink = 'a'\nat = '1s'\nuntil = '2s'\nevery = '3s'\nloss = '1%'\ndelay = '5ms'",
        );
        let mut proof = Proof::new(&scenario, &[0]);
        let stats = |lost, carried| [LinkStats { lost, carried, ..LinkStats::default() }, LinkStats::default()];
        for (from, after) in [(1, stats(0, 50)), (4, stats(3, 60)), (7, stats(9, 62))] {
            for (millis, stats) in [(from * 1000, stats(1, 10)), (from * 1000 + 1000, after)] {
                let at = Instant::ZERO + Duration::from_millis(millis);
                assert_eq!(proof.timeout(), Some(at));
                proof.observe(at, &scenario, |_| stats);
            }
        }
        assert_eq!(proof.timeout(), None);
        let outcomes = proof.finish(&scenario, |_| unreachable!("no fault is open"));
        assert_eq!(outcomes, [FaultOutcome { fault: 0, occurrences: 3, effective: 2, packets: 2 + 8 }]);
    }

    #[test]
    fn faults_of_unused_links_do_not_count_and_open_faults_end_with_the_run() {
        let scenario = scenario(
            "[[link]]\nname = 'a'\n[[link]]\nname = 'b'\n[[fault]]\nlink = 'a'\nat = '1s'\nstate = 'silent'\n\
             [[fault]]\nlink = 'b'\nat = '1s'\nstate = 'silent'",
        );
        let mut proof = Proof::new(&scenario, &[1]);
        proof.observe(Instant::ZERO + Duration::from_secs(1), &scenario, |link| {
            assert_eq!(link, 1);
            Default::default()
        });
        let vanished = LinkStats { vanished: 4, ..LinkStats::default() };
        let outcomes = proof.finish(&scenario, |_| [vanished, LinkStats::default()]);
        assert_eq!(outcomes, [FaultOutcome { fault: 1, occurrences: 1, effective: 1, packets: 4 }]);
    }
}
