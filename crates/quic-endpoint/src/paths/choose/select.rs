//! The rules of [`choose`](super), one function each.

use std::collections::{BTreeMap, BTreeSet};

use super::choice::{Candidate, Choice, Rejected};
use super::pairs::Pairs;
use super::reasons::{Reason, Turn, Unused};
use crate::paths::binding::device_to_bind;

/// The number and kind of paths to choose.
pub(super) struct PathCriteria {
    /// Maximum number of paths.
    pub(super) limit: usize,
    /// Whether to add paths until `limit` is reached.
    pub(super) fill: bool,
    /// Whether the rules choose the paths, not `--path`.
    pub(super) automatic: bool,
}

pub(super) fn select(pairs: Pairs, criteria: &PathCriteria) -> Choice {
    let mut selection = Selection {
        limit: criteria.limit,
        chosen: Vec::new(),
        settled: BTreeMap::new(),
        slot_uses: vec![0; pairs.slots.len()],
        card_uses: vec![0; pairs.card_count],
        pairs: &pairs,
    };
    selection.match_cards();
    // Paths inside one host use no cards, so rules 2 and 3 do not apply.
    if !pairs.is_loop {
        selection.use_idle_slots();
        if criteria.automatic {
            selection.use_idle_cards();
        }
    }
    if criteria.fill && criteria.automatic {
        selection.add_pairs();
        selection.add_addresses();
    }
    if !criteria.automatic {
        selection.follow_the_user();
    }
    let mut candidates = selection.candidates(criteria.automatic);
    let unused = selection.unused();
    if criteria.fill {
        add_ports(&mut candidates, criteria.limit);
    }
    let mut rejected = pairs.rejected;
    rejected.extend(unused);
    Choice { candidates, rejected }
}

struct Selection<'a> {
    pairs: &'a Pairs,
    limit: usize,
    /// Indices of pairs, in the order in which the rules took them.
    chosen: Vec<(usize, Turn)>,
    /// Pairs that a rule selected but could not use, with the reason.
    settled: BTreeMap<usize, Unused>,
    slot_uses: Vec<usize>,
    card_uses: Vec<usize>,
}

impl Selection<'_> {
    /// Applies rule 1: for each class of links, the largest set of pairs in which no interface and
    /// no card occurs twice. Pairs of a better class stay.
    fn match_cards(&mut self) {
        let classes: BTreeSet<u8> = self.groups().map(|(_, best)| self.pairs.pairs[best].link.class()).collect();
        for class in classes {
            let mut usable_cards: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for ((slot, card), best) in self.groups() {
                let is_free = self.slot_uses[slot] == 0 && self.card_uses[card] == 0;
                if is_free && self.pairs.pairs[best].link.class() == class {
                    usable_cards.entry(slot).or_default().push(card);
                }
            }
            let assigned = matching(&usable_cards);
            let mut by_slot: Vec<(usize, usize)> = assigned.iter().map(|(&card, &slot)| (slot, card)).collect();
            by_slot.sort_unstable();
            for (slot, card) in by_slot {
                self.take(self.pairs.between[&(slot, card)][0], Turn::Pair);
            }
        }
    }

    /// Applies rule 2.
    fn use_idle_slots(&mut self) {
        for slot in 0..self.pairs.slots.len() {
            let mine = self.groups().filter(|((of, _), _)| *of == slot && self.slot_uses[slot] == 0);
            let best = mine.min_by_key(|((_, card), best)| (self.class(*best), self.card_uses[*card], *card));
            if let Some((_, best)) = best {
                self.take(best, Turn::IdleInterface);
            }
        }
    }

    /// Applies rule 3.
    fn use_idle_cards(&mut self) {
        for card in 0..self.pairs.card_count {
            let its = self.groups().filter(|((_, of), _)| *of == card && self.card_uses[card] == 0);
            let best = its.min_by_key(|((slot, _), best)| (self.class(*best), self.slot_uses[*slot], *slot));
            if let Some((_, best)) = best {
                self.take(best, Turn::IdleRemote);
            }
        }
    }

    /// Adds pairs of cards that are not used yet.
    fn add_pairs(&mut self) {
        while self.chosen.len() < self.limit {
            let unused = self.groups().filter(|(ends, _)| !self.is_used(*ends));
            let next = unused.min_by_key(|((slot, card), best)| {
                (self.slot_uses[*slot], self.class(*best), self.card_uses[*card], *slot, *card)
            });
            let Some((_, best)) = next else { return };
            self.take(best, Turn::MorePairs);
        }
    }

    /// Adds other addresses between cards that are in use.
    fn add_addresses(&mut self) {
        while self.chosen.len() < self.limit {
            let taken: BTreeSet<usize> = self.chosen.iter().map(|(pair, _)| *pair).collect();
            let others = self.pairs.between.values().enumerate().flat_map(|(group, pairs)| {
                let left = pairs.iter().filter(|pair| !taken.contains(pair));
                left.enumerate().map(move |(place, &pair)| (place, group, pair))
            });
            let next = others.min_by_key(|(place, group, pair)| {
                let pair = &self.pairs.pairs[*pair];
                (self.slot_uses[pair.slot], *place, *group)
            });
            let Some((_, _, pair)) = next else { return };
            self.take(pair, Turn::OtherAddresses);
        }
    }

    /// Adds the paths of `--path` in the given order, backups last.
    fn follow_the_user(&mut self) {
        let slots = &self.pairs.slots;
        let slot_of = |(pair, _): &(usize, Turn)| self.pairs.pairs[*pair].slot;
        self.chosen.sort_by_key(|chosen| (slots[slot_of(chosen)].backup, slot_of(chosen)));
    }

    fn take(&mut self, index: usize, turn: Turn) {
        let pair = &self.pairs.pairs[index];
        self.slot_uses[pair.slot] += 1;
        self.card_uses[pair.card] += 1;
        let binds_the_same = |(other, _): &(usize, Turn)| self.pairs.pairs[*other].local == pair.local;
        if self.chosen.len() >= self.limit {
            self.settled.insert(index, Unused::BeyondLimit(self.limit));
        } else if pair.local.port() != 0 && self.chosen.iter().any(binds_the_same) {
            self.settled.insert(index, Unused::PortTaken);
        } else {
            self.chosen.push((index, turn));
        }
    }

    fn candidates(&self, automatic: bool) -> Vec<Candidate> {
        let candidates = self.chosen.iter().map(|&(index, turn)| {
            let pair = &self.pairs.pairs[index];
            let slot = &self.pairs.slots[pair.slot];
            Candidate {
                local: pair.local,
                device: slot.name.as_deref().and_then(device_to_bind),
                remote: pair.remote,
                backup: slot.backup,
                why: Reason { link: pair.link, turn: if automatic { turn } else { Turn::Asked } },
            }
        });
        candidates.collect()
    }

    /// Returns the pairs that work and are not used.
    fn unused(&self) -> Vec<Rejected> {
        let taken: BTreeSet<usize> = self.chosen.iter().map(|(pair, _)| *pair).collect();
        let left = self.pairs.pairs.iter().enumerate().filter(|(index, _)| !taken.contains(index));
        let rejected = left.map(|(index, pair)| {
            let why = self.settled.get(&index).cloned();
            let usual = || if self.is_used((pair.slot, pair.card)) { Unused::PairUsed } else { Unused::EndsUsed };
            Rejected {
                device: self.pairs.slots[pair.slot].name.clone(),
                local: Some(pair.local),
                remote: Some(pair.remote),
                why: why.unwrap_or_else(usual),
            }
        });
        rejected.collect()
    }

    /// Returns each slot and card with the best pair between them.
    fn groups(&self) -> impl Iterator<Item = ((usize, usize), usize)> + '_ {
        self.pairs.between.iter().map(|(ends, pairs)| (*ends, pairs[0]))
    }

    fn is_used(&self, ends: (usize, usize)) -> bool {
        self.chosen.iter().any(|(pair, _)| (self.pairs.pairs[*pair].slot, self.pairs.pairs[*pair].card) == ends)
    }

    fn class(&self, pair: usize) -> u8 {
        self.pairs.pairs[pair].link.class()
    }
}

/// Adds used pairs again from other ports, in turn. A pair with a port of its own cannot be
/// repeated.
fn add_ports(candidates: &mut Vec<Candidate>, limit: usize) {
    let repeatable: Vec<Candidate> = candidates.iter().filter(|path| path.local.port() == 0).cloned().collect();
    let missing = limit.saturating_sub(candidates.len());
    for path in repeatable.iter().cycle().take(missing) {
        candidates.push(Candidate { why: Reason { turn: Turn::OtherPort, ..path.why }, ..path.clone() });
    }
}

/// Returns a maximum matching of slots and cards, as card → slot (Kuhn's algorithm with augmenting
/// paths). Slots are matched in order, and no slot is reassigned while one of its cards is free, so
/// the first slots are matched with the first cards.
fn matching(usable_cards: &BTreeMap<usize, Vec<usize>>) -> BTreeMap<usize, usize> {
    let mut assigned = BTreeMap::new();
    for &slot in usable_cards.keys() {
        assign_card(slot, usable_cards, &mut assigned, &mut BTreeSet::new());
    }
    assigned
}

/// Finds a card for `slot`. The recursion depth is at most the number of cards,
/// [`REMOTES_MAX`](super::REMOTES_MAX).
fn assign_card(
    slot: usize,
    usable_cards: &BTreeMap<usize, Vec<usize>>,
    assigned: &mut BTreeMap<usize, usize>,
    tried: &mut BTreeSet<usize>,
) -> bool {
    let cards = &usable_cards[&slot];
    if let Some(&free) = cards.iter().find(|card| !assigned.contains_key(card)) {
        assigned.insert(free, slot);
        return true;
    }
    for &card in cards {
        if tried.insert(card) && assign_card(assigned[&card], usable_cards, assigned, tried) {
            assigned.insert(card, slot);
            return true;
        }
    }
    false
}
