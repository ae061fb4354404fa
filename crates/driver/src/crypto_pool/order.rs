//! The order of results in the crypto pool: a batch gets a slot first, and the results of each flow
//! are taken in the order of its slots.
//!
//! A flow is one direction of one path of one connection. Several workers may process batches of
//! one flow and finish them in any order. The results are taken in the order in which the slots
//! were reserved. Flows do not wait for each other.
//!
//! ```text
//!   reserve ─▶ [A1][B1][A2][A3][B2] ─▶ done: A2, A3, B1 ─▶ B1 can be taken; A2 and A3 wait for A1
//! ```
//!
//! Only the owner accesses the slots. Workers know only the ticket.

use std::collections::VecDeque;

/// Identifies a slot.
pub(crate) type Ticket = u64;

/// Slots of all flows.
#[derive(Debug)]
pub(crate) struct Ordered<L, T> {
    /// The ticket of the first element of `slots`.
    base: Ticket,
    slots: VecDeque<Option<Slot<T>>>,
    /// Flows with slots, in the order in which they are polled. There are at most as many as slots.
    flows: Vec<(L, VecDeque<Ticket>)>,
    len: usize,
    /// The number of slots that are done.
    done: usize,
}

#[derive(Debug)]
struct Slot<T> {
    item: T,
    is_done: bool,
}

impl<L: Copy + PartialEq, T> Ordered<L, T> {
    pub(crate) fn new() -> Self {
        Self { base: 0, slots: VecDeque::new(), flows: Vec::new(), len: 0, done: 0 }
    }

    /// Returns the number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether this flow has slots.
    pub(crate) fn is_busy(&self, flow: L) -> bool {
        self.flows.iter().any(|(known, _)| *known == flow)
    }

    /// Reserves the next slot of a flow.
    pub(crate) fn reserve(&mut self, flow: L, item: T) -> Ticket {
        let ticket = self.base + self.slots.len() as u64;
        self.slots.push_back(Some(Slot { item, is_done: false }));
        self.len += 1;
        match self.flows.iter_mut().find(|(known, _)| *known == flow) {
            Some((_, tickets)) => tickets.push_back(ticket),
            None => self.flows.push((flow, VecDeque::from([ticket]))),
        }
        ticket
    }

    /// Returns the item of a slot that is not done.
    pub(crate) fn waiting(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.slot(ticket).filter(|slot| !slot.is_done).map(|slot| &mut slot.item)
    }

    /// Marks a slot as done and returns its item, to store the result. Returns `None` if another
    /// worker has already finished it.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> Option<&mut T> {
        let index = self.index(ticket)?;
        let slot = self.slots[index].as_mut().filter(|slot| !slot.is_done)?;
        slot.is_done = true;
        self.done += 1;
        Some(&mut slot.item)
    }

    /// Removes the first slot of a flow, if it is done and `may_go` accepts it. Flows take turns.
    pub(crate) fn take(&mut self, mut may_go: impl FnMut(L, &T) -> bool) -> Option<(L, T)> {
        if self.done == 0 {
            return None;
        }
        for at in 0..self.flows.len() {
            let (flow, tickets) = &self.flows[at];
            let (flow, head) = (*flow, *tickets.front().expect("a flow has slots"));
            let index = self.index(head).expect("a flow's slots exist");
            let slot = self.slots[index].as_ref().expect("a flow's slots exist");
            if slot.is_done && may_go(flow, &slot.item) {
                return Some((flow, self.remove(at, index)));
            }
        }
        None
    }

    /// Returns whether the first slot of a flow is done.
    pub(crate) fn has_ready(&self) -> bool {
        self.done > 0 && self.flows.iter().any(|(_, tickets)| tickets.front().is_some_and(|head| self.is_done(*head)))
    }

    fn is_done(&self, ticket: Ticket) -> bool {
        self.index(ticket).and_then(|index| self.slots[index].as_ref()).is_some_and(|slot| slot.is_done)
    }

    /// Returns the first slot of each flow, if it is not done. The later slots of the flow wait for
    /// it.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.flows.iter().filter_map(|(_, tickets)| {
            let head = *tickets.front()?;
            let slot = self.slots[self.index(head)?].as_ref()?;
            (!slot.is_done).then_some((head, &slot.item))
        })
    }

    /// Returns all slots that are not done.
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

    /// Removes the first slot of the flow at `at`, which has the index `index`.
    fn remove(&mut self, at: usize, index: usize) -> T {
        let slot = self.slots[index].take().expect("the caller has checked the slot");
        self.flows[at].1.pop_front();
        if self.flows[at].1.is_empty() {
            self.flows.swap_remove(at);
        } else {
            // The other flows get their turn first.
            self.flows[at..].rotate_left(1);
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
    fn a_flow_waits_for_its_head_and_for_no_other_flow() {
        let mut order = Ordered::new();
        let tickets = ["a1", "b1", "a2"].map(|item| order.reserve(item.as_bytes()[0], item));
        assert_eq!(order.finish(tickets[2]).copied(), Some("a2"));
        assert_eq!(order.take(|_, _| true), None, "a1 is not done");
        assert!(!order.has_ready());
        order.finish(tickets[1]);
        assert!(order.has_ready());
        assert_eq!(order.take(|_, _| true), Some((b'b', "b1")));
        assert_eq!(order.awaited().collect::<Vec<_>>(), [(tickets[0], &"a1")]);
        order.finish(tickets[0]);
        assert!(order.finish(tickets[0]).is_none(), "it was done before");
        assert_eq!(order.take(|_, _| false), None);
        assert_eq!(order.take(|_, _| true), Some((b'a', "a1")));
        assert_eq!(order.take(|_, _| true), Some((b'a', "a2")));
        assert!(order.len() == 0 && !order.is_busy(b'a'));
        assert!(order.finish(tickets[0]).is_none(), "the slot was taken");
    }

    /// The model's state: a list of slots for each flow.
    #[derive(Debug, Default)]
    struct Known {
        /// The slots of each flow that were not taken, in order, and whether they are done.
        flows: BTreeMap<u8, Vec<(Ticket, bool)>>,
    }

    impl Known {
        fn all(&self) -> impl Iterator<Item = (Ticket, bool)> {
            self.flows.values().flatten().copied()
        }

        fn tickets(slots: impl Iterator<Item = (Ticket, bool)>) -> Vec<Ticket> {
            let mut waiting: Vec<_> = slots.filter(|(_, is_done)| !is_done).map(|(ticket, _)| ticket).collect();
            waiting.sort_unstable();
            waiting
        }

        /// Checks that the slots equal those of the model.
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
            let heads = self.flows.values().filter_map(|slots| slots.first().copied());
            assert_eq!(sorted(order.awaited().map(|(ticket, item)| (ticket, *item)).collect()), Self::tickets(heads));
            for flow in 0..4 {
                assert_eq!(order.is_busy(flow), self.flows.get(&flow).is_some_and(|slots| !slots.is_empty()));
            }
            for (ticket, is_done) in self.all() {
                assert_eq!(order.waiting(ticket).is_some(), !is_done);
            }
        }
    }

    proptest! {
        /// Workers finish in any order, and may finish slots that others have finished or that were
        /// taken. At each step the slots equal those of the model.
        #[test]
        fn the_slots_are_those_of_a_simple_model(choices in prop::collection::vec((0u8..4, 0u8..4, any::<prop::sample::Index>()), 1..200)) {
            let (mut order, mut known, mut given) = (Ordered::new(), Known::default(), Vec::<(u8, Ticket)>::new());
            for (what, flow, pick) in choices {
                match what {
                    0 | 1 => {
                        // Tickets are consecutive, so the item can be its own ticket.
                        let ticket = order.reserve(flow, given.len() as Ticket);
                        prop_assert_eq!(ticket, given.len() as Ticket);
                        known.flows.entry(flow).or_default().push((ticket, false));
                        given.push((flow, ticket));
                    }
                    2 if !given.is_empty() => {
                        let (flow, ticket) = given[pick.index(given.len())];
                        let slot = known.flows.get_mut(&flow).and_then(|slots| slots.iter_mut().find(|slot| slot.0 == ticket));
                        let is_first = slot.is_some_and(|slot| !std::mem::replace(&mut slot.1, true));
                        prop_assert_eq!(order.finish(ticket).copied(), is_first.then_some(ticket));
                    }
                    _ => match order.take(|_, _| true) {
                        Some((flow, ticket)) => {
                            let slots = known.flows.get_mut(&flow).expect("a flow that was given work");
                            prop_assert_eq!(slots.remove(0), (ticket, true), "the head of its flow, done");
                        }
                        None => prop_assert!(known.flows.values().all(|slots| slots.first().is_none_or(|head| !head.1))),
                    },
                }
                known.check(&mut order);
            }
        }

        /// The results of each flow are taken completely and in the order in which they were
        /// reserved, for any order in which work is finished.
        #[test]
        fn every_flow_leaves_in_order(choices in prop::collection::vec((0u8..3, 0u8..4, any::<prop::sample::Index>()), 1..300)) {
            let mut order = Ordered::new();
            let (mut waiting, mut next, mut left) = (Vec::new(), BTreeMap::<u8, u32>::new(), BTreeMap::<u8, u32>::new());
            let mut take = |order: &mut Ordered<u8, u32>, blocked: Option<u8>| {
                while let Some((flow, item)) = order.take(|flow, _| Some(flow) != blocked) {
                    let expected = left.entry(flow).or_default();
                    assert_eq!(item, *expected, "flow {flow}");
                    *expected += 1;
                }
            };
            for (what, flow, pick) in choices {
                match what {
                    0 => {
                        let number = next.entry(flow).or_default();
                        waiting.push(order.reserve(flow, *number));
                        *number += 1;
                    }
                    1 if !waiting.is_empty() => {
                        let ticket = waiting.swap_remove(pick.index(waiting.len()));
                        prop_assert!(order.finish(ticket).is_some());
                    }
                    _ => take(&mut order, Some(flow)),
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
