//! Measures paths whose capacity is not known, as soon as a flow has much to send.
//!
//! A controller knows the capacity of its path when it has filled it. If nothing is known of any
//! path, the first flow fills the one with the longest round trip: TCP that has found the rate of a
//! near path takes many seconds to make use of a far one that is faster, and no time to make use of
//! a near one. Filling measures the other paths, in a few of their round trips. Then the flows
//! share the paths anew.

use super::state::Path;
use super::{Move, PathChoice};
use crate::item::FLOWS_MAX;

/// A path is measured for so many ticks and as many of its round trips, whichever is longer.
const TICKS: u32 = 8;
const ROUND_TRIPS: u64 = 12;

/// Bytes of filling of one path, at most, however often it is measured: a path that takes them
/// carries much, and some links cost money.
const FILLING_BYTES_MAX: u64 = 4 << 20;

/// A path is measured with filling so often, at most.
const FILLINGS_MAX: u8 = 3;

impl Path {
    fn may_be_filled(&self) -> bool {
        self.filled < FILLING_BYTES_MAX && self.fillings < FILLINGS_MAX
    }
}

impl PathChoice {
    /// The path that the first flow measures: the one with the longest round trip, if no capacity
    /// is known.
    pub(super) fn first_to_measure(&self, counts: &[u64]) -> Option<usize> {
        let is_first = self.can_fill && !self.always_pins && counts.iter().all(|count| *count == 0);
        (is_first && self.paths.iter().all(|path| path.known().is_none())).then(|| self.paths.len() - 1)
    }

    /// A path to be filled now, and with how many bytes at most.
    pub(crate) fn to_fill(&self) -> Option<(u32, u64)> {
        // This is asked for each batch of packets.
        if !self.can_fill || self.paths.iter().all(|path| path.measured_until.is_none()) {
            return None;
        }
        let counts = self.counts();
        let path = self.paths.iter().zip(counts).find(|(path, count)| *count == 0 && path.measured_until.is_some())?.0;
        Some((path.id, FILLING_BYTES_MAX - path.filled)).filter(|(_, bytes)| *bytes > 0)
    }

    /// A path has taken so many bytes of filling.
    pub(crate) fn on_filled(&mut self, id: u32, bytes: u64) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.id == id) {
            path.filled = (path.filled + bytes).min(FILLING_BYTES_MAX);
        }
    }

    /// No flow could use what is measured.
    pub(super) fn stop_measuring(&mut self) {
        self.paths.iter_mut().for_each(|path| path.measured_until = None);
    }

    /// Begins and ends measurements. Whether the last capacity has become known.
    pub(super) fn measure(&mut self) -> bool {
        let counts = self.counts();
        if !self.can_fill || counts.iter().all(|count| *count == 0) {
            self.stop_measuring();
            return false;
        }
        let (tick, mut has_ended) = (self.tick, false);
        for (path, count) in self.paths.iter_mut().zip(&counts) {
            // A flow may not have filled it, so that filling can find more.
            path.is_given_up &= *count > 0 || !path.may_be_filled();
            let is_spent = *count == 0 && path.filled >= FILLING_BYTES_MAX;
            if path.measured_until.is_some_and(|until| path.rate.is_some() || is_spent || tick >= until) {
                path.is_given_up = path.rate.is_none();
                (path.measured_until, has_ended) = (None, true);
            }
        }
        self.begin_measuring(&counts);
        has_ended && self.paths.iter().all(|path| path.known().is_some())
    }

    /// Begins to measure the paths with flows, and one of the others: they may share a link.
    fn begin_measuring(&mut self, counts: &[u64]) {
        let is_filled = |(path, count): (&Path, &u64)| *count == 0 && path.measured_until.is_some();
        let is_filling = self.paths.iter().zip(counts).any(is_filled);
        let may_be_filled = |at: &usize| counts[*at] == 0 && self.paths[*at].known().is_none();
        let to_fill = (0..counts.len()).filter(may_be_filled).min_by_key(|at| self.paths[*at].fillings);
        for (at, (path, count)) in self.paths.iter_mut().zip(counts).enumerate() {
            let begins = *count > 0 || (!is_filling && to_fill == Some(at));
            if begins && path.known().is_none() && path.measured_until.is_none() {
                path.measured_until = Some(self.tick + TICKS.max(path.ticks_of(ROUND_TRIPS)));
                path.fillings = path.fillings.saturating_add(u8::from(*count == 0));
            }
        }
    }

    /// Divides the flows with much to send anew: what was known when they began was less.
    pub(super) fn share_out(&mut self, moves: &mut Vec<Move>) {
        let mut wanted = vec![0; self.paths.len()];
        for _ in 0..self.counts().iter().sum::<u64>() {
            let at = self.best(&wanted);
            wanted[at] += 1;
        }
        for flow in 0..FLOWS_MAX {
            let state = self.flows[usize::from(flow)];
            let Some(at) = state.path.filter(|_| state.is_bulk).and_then(|id| self.index(id)) else { continue };
            let counts = self.counts();
            let Some(to) = (0..counts.len()).find(|to| counts[*to] < wanted[*to]) else { break };
            if counts[at] > wanted[at] {
                let to = Some(self.paths[to].id);
                moves.extend(self.put(flow, to, false));
            }
        }
        (self.moved_at, self.wanted) = (self.tick, None);
    }
}
