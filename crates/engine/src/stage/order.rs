//! Order in a parallel stage: whoever has work reserves a slot first, and results leave lane by lane in the order of the slots.
//!
//! A lane is one direction of one path of one connection. Work of one lane may be done on many processors and be finished in
//! any order; it goes on in the order in which it was begun. Lanes do not wait for each other.
//!
//! ```text
//!   reserve ─▶ [A1][B1][A2][A3][B2] ─▶ done: A2, A3, B1 ─▶ B1 may go on; A2 and A3 wait for A1, the head of their lane
//! ```
//!
//! Nothing here is shared between threads: the serial owner keeps the slots, workers know only the ticket.

use std::collections::VecDeque;

/// What names a slot.
pub(crate) type Ticket = u64;

/// Slots of all lanes.
#[derive(Debug)]
pub(crate) struct Ordered<L, T> {
    /// The ticket of the first of `slots`.
    base: Ticket,
    slots: VecDeque<Option<Slot<T>>>,
    /// Lanes with slots, in no order; as many as there are slots at most.
    lanes: Vec<(L, VecDeque<Ticket>)>,
    len: usize,
    /// Slots that are done.
    done: usize,
}

#[derive(Debug)]
struct Slot<T> {
    item: T,
    is_done: bool,
}

impl<L: Copy + PartialEq, T> Ordered<L, T> {
    pub(crate) fn new() -> Self {
        Self { base: 0, slots: VecDeque::new(), lanes: Vec::new(), len: 0, done: 0 }
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether anything of this lane is under way.
    pub(crate) fn is_busy(&self, lane: L) -> bool {
        self.lanes.iter().any(|(known, _)| *known == lane)
    }

    /// The next slot of a lane.
    pub(crate) fn reserve(&mut self, lane: L, item: T) -> Ticket {
        let ticket = self.base + self.slots.len() as u64;
        self.slots.push_back(Some(Slot { item, is_done: false }));
        self.len += 1;
        match self.lanes.iter_mut().find(|(known, _)| *known == lane) {
            Some((_, tickets)) => tickets.push_back(ticket),
            None => self.lanes.push((lane, VecDeque::from([ticket]))),
        }
        ticket
    }

    /// What is in a slot that is not done.
    pub(crate) fn waiting(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.slot(ticket).filter(|slot| !slot.is_done).map(|slot| &mut slot.item)
    }

    /// The work of a slot is done; its item, to put the result in. None if it was done before, by somebody else.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> Option<&mut T> {
        let index = self.index(ticket)?;
        let slot = self.slots[index].as_mut().filter(|slot| !slot.is_done)?;
        slot.is_done = true;
        self.done += 1;
        Some(&mut slot.item)
    }

    /// Takes the head of some lane that is done and that `may_go`.
    pub(crate) fn take(&mut self, mut may_go: impl FnMut(L, &T) -> bool) -> Option<(L, T)> {
        if self.done == 0 {
            return None;
        }
        for at in 0..self.lanes.len() {
            let (lane, tickets) = &self.lanes[at];
            let (lane, head) = (*lane, *tickets.front().expect("a lane has slots"));
            let index = self.index(head).expect("a lane's slots exist");
            let slot = self.slots[index].as_ref().expect("a lane's slots exist");
            if slot.is_done && may_go(lane, &slot.item) {
                return Some((lane, self.remove(at, index)));
            }
        }
        None
    }

    /// The head of each lane that is not done, which those behind it wait for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.lanes.iter().filter_map(|(_, tickets)| {
            let head = *tickets.front()?;
            let slot = self.slots[self.index(head)?].as_ref()?;
            (!slot.is_done).then_some((head, &slot.item))
        })
    }

    /// Every slot that is not done.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = (Ticket, &T)> {
        let slots = (self.base..).zip(&self.slots);
        slots.filter_map(|(ticket, slot)| slot.as_ref().filter(|slot| !slot.is_done).map(|slot| (ticket, &slot.item)))
    }

    fn index(&self, ticket: Ticket) -> Option<usize> {
        let index = usize::try_from(ticket.checked_sub(self.base)?).ok()?;
        (index < self.slots.len()).then_some(index)
    }

    fn slot(&mut self, ticket: Ticket) -> Option<&mut Slot<T>> {
        let index = self.index(ticket)?;
        self.slots[index].as_mut()
    }

    /// Removes the head of the lane in place `at`, which is in slot `index`.
    fn remove(&mut self, at: usize, index: usize) -> T {
        let slot = self.slots[index].take().expect("it was looked at");
        self.lanes[at].1.pop_front();
        if self.lanes[at].1.is_empty() {
            self.lanes.swap_remove(at);
        } else {
            // Others have their turn first.
            self.lanes[at..].rotate_left(1);
        }
        self.len -= 1;
        self.done -= 1;
        while matches!(self.slots.front(), Some(None)) {
            self.slots.pop_front();
            self.base += 1;
        }
        slot.item
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lane_waits_for_its_head_and_for_no_other_lane() {
        let mut order = Ordered::new();
        let tickets = ["a1", "b1", "a2"].map(|item| order.reserve(item.as_bytes()[0], item));
        assert_eq!(order.finish(tickets[2]).copied(), Some("a2"));
        assert_eq!(order.take(|_, _| true), None, "a1 is not done");
        order.finish(tickets[1]);
        assert_eq!(order.take(|_, _| true), Some((b'b', "b1")));
        assert_eq!(order.awaited().collect::<Vec<_>>(), [(tickets[0], &"a1")]);
        order.finish(tickets[0]);
        assert!(order.finish(tickets[0]).is_none(), "it was done before");
        assert_eq!(order.take(|_, _| false), None);
        assert_eq!(order.take(|_, _| true), Some((b'a', "a1")));
        assert_eq!(order.take(|_, _| true), Some((b'a', "a2")));
        assert!(order.len() == 0 && !order.is_busy(b'a'));
        assert!(order.finish(tickets[0]).is_none(), "it is gone");
    }

    /// What a step does, as the model knows it.
    #[derive(Debug, Default)]
    struct Known {
        /// Tickets of each lane that were not taken, in order, and whether they are done.
        lanes: BTreeMap<u8, Vec<(Ticket, bool)>>,
    }

    impl Known {
        fn all(&self) -> impl Iterator<Item = (Ticket, bool)> {
            self.lanes.values().flatten().copied()
        }

        fn tickets(slots: impl Iterator<Item = (Ticket, bool)>) -> Vec<Ticket> {
            let mut waiting: Vec<_> = slots.filter(|(_, is_done)| !is_done).map(|(ticket, _)| ticket).collect();
            waiting.sort_unstable();
            waiting
        }

        /// The slots are what the model knows them to be.
        fn check(&self, order: &mut Ordered<u8, Ticket>) {
            let sorted = |slots: Vec<(Ticket, Ticket)>| {
                assert!(slots.iter().all(|(ticket, item)| ticket == item), "each slot has its own item");
                let mut tickets: Vec<_> = slots.into_iter().map(|(ticket, _)| ticket).collect();
                tickets.sort_unstable();
                tickets
            };
            assert_eq!(order.len(), self.all().count());
            assert_eq!(
                sorted(order.all_waiting().map(|(ticket, item)| (ticket, *item)).collect()),
                Self::tickets(self.all())
            );
            let heads = self.lanes.values().filter_map(|slots| slots.first().copied());
            assert_eq!(sorted(order.awaited().map(|(ticket, item)| (ticket, *item)).collect()), Self::tickets(heads));
            for lane in 0..4 {
                assert_eq!(order.is_busy(lane), self.lanes.get(&lane).is_some_and(|slots| !slots.is_empty()));
            }
            for (ticket, is_done) in self.all() {
                assert_eq!(order.waiting(ticket).is_some(), !is_done);
            }
        }
    }

    proptest! {
        /// Workers finish in any order, late ones what others have done before, or what has long gone on; at each step the slots
        /// are what a list of each lane says.
        #[test]
        fn the_slots_are_those_of_a_simple_model(choices in prop::collection::vec((0u8..4, 0u8..4, any::<prop::sample::Index>()), 1..200)) {
            let (mut order, mut known, mut given) = (Ordered::new(), Known::default(), Vec::<(u8, Ticket)>::new());
            for (what, lane, pick) in choices {
                match what {
                    0 | 1 => {
                        // Tickets are handed out one after the other, so the item can be its own.
                        let ticket = order.reserve(lane, given.len() as Ticket);
                        prop_assert_eq!(ticket, given.len() as Ticket);
                        known.lanes.entry(lane).or_default().push((ticket, false));
                        given.push((lane, ticket));
                    }
                    2 if !given.is_empty() => {
                        let (lane, ticket) = given[pick.index(given.len())];
                        let slot = known.lanes.get_mut(&lane).and_then(|slots| slots.iter_mut().find(|slot| slot.0 == ticket));
                        let is_first = slot.is_some_and(|slot| !std::mem::replace(&mut slot.1, true));
                        prop_assert_eq!(order.finish(ticket).copied(), is_first.then_some(ticket));
                    }
                    _ => match order.take(|_, _| true) {
                        Some((lane, ticket)) => {
                            let slots = known.lanes.get_mut(&lane).expect("a lane that was given work");
                            prop_assert_eq!(slots.remove(0), (ticket, true), "the head of its lane, done");
                        }
                        None => prop_assert!(known.lanes.values().all(|slots| slots.first().is_none_or(|head| !head.1))),
                    },
                }
                known.check(&mut order);
            }
        }

        /// Whatever the order in which work is done, each lane's leaves in the order in which it was begun, and all of it.
        #[test]
        fn every_lane_leaves_in_order(choices in prop::collection::vec((0u8..3, 0u8..4, any::<prop::sample::Index>()), 1..300)) {
            let mut order = Ordered::new();
            let (mut waiting, mut next, mut left) = (Vec::new(), BTreeMap::<u8, u32>::new(), BTreeMap::<u8, u32>::new());
            let mut take = |order: &mut Ordered<u8, u32>, blocked: Option<u8>| {
                while let Some((lane, item)) = order.take(|lane, _| Some(lane) != blocked) {
                    let expected = left.entry(lane).or_default();
                    assert_eq!(item, *expected, "lane {lane}");
                    *expected += 1;
                }
            };
            for (what, lane, pick) in choices {
                match what {
                    0 => {
                        let number = next.entry(lane).or_default();
                        waiting.push(order.reserve(lane, *number));
                        *number += 1;
                    }
                    1 if !waiting.is_empty() => {
                        let ticket = waiting.swap_remove(pick.index(waiting.len()));
                        prop_assert!(order.finish(ticket).is_some());
                    }
                    _ => take(&mut order, Some(lane)),
                }
            }
            for ticket in waiting {
                order.finish(ticket);
            }
            take(&mut order, None);
            prop_assert_eq!(order.len(), 0);
            prop_assert_eq!(next, left);
        }
    }
}
