//! Measures paths whose capacity is not known, as soon as a flow has much to send.
//!
//! A controller knows the capacity of its path when it has filled it. The first flow does that for the path with the
//! longest round trip: TCP that has found the rate of a near path takes many seconds to make use of a far one that is
//! faster, and no time to make use of a near one. Filling does it for the other paths, which takes a few of their round
//! trips. Then the flows share the paths anew.

use super::state::Measurement;
use super::{Move, PathChoice};
use crate::item::FLOWS_MAX;

/// A path is measured for so many ticks and as many of its round trips, whichever is longer.
const TICKS: u32 = 8;
const ROUND_TRIPS: u64 = 12;

/// Bytes of filling that measure a path, at most: a path that takes them carries much.
const FILLING_BYTES_MAX: u64 = 4 << 20;

impl PathChoice {
    /// The path with the longest round trip of those without a flow whose capacity is not known.
    pub(super) fn unmeasured(&self, counts: &[u64]) -> Option<usize> {
        if self.always_pins {
            return None;
        }
        (0..self.paths.len()).rfind(|at| counts[*at] == 0 && self.paths[*at].rate.is_none())
    }

    /// A path to be filled now.
    pub(crate) fn to_fill(&self) -> Option<u32> {
        let counts = self.counts();
        let is_filled = |at: &usize| {
            let measurement = self.paths[*at].measurement;
            counts[*at] == 0 && measurement.is_some_and(|of| of.filled < FILLING_BYTES_MAX)
        };
        (0..self.paths.len()).find(is_filled).map(|at| self.paths[at].id)
    }

    /// A path has taken so many bytes of filling.
    pub(crate) fn on_filled(&mut self, id: u32, bytes: u64) {
        let path = self.paths.iter_mut().find(|path| path.id == id);
        if let Some(measurement) = path.and_then(|path| path.measurement.as_mut()) {
            measurement.filled += bytes;
        }
    }

    /// Begins and ends measurements. Whether the capacity of the last path has become known.
    pub(super) fn measure(&mut self) -> bool {
        let counts = self.counts();
        if counts.iter().all(|count| *count == 0) {
            // Nobody would use it, and filling takes space from nobody but costs money on some links.
            return false;
        }
        let (tick, mut has_ended) = (self.tick, false);
        // One by one: paths may share a link.
        let mut is_filling = self.to_fill().is_some();
        for (path, count) in self.paths.iter_mut().zip(counts) {
            match path.measurement {
                Some(measurement) => {
                    let is_over = tick >= measurement.until || measurement.filled >= FILLING_BYTES_MAX;
                    if path.rate.is_none() && is_over {
                        path.rate = Some(path.at_least);
                    }
                    if path.rate.is_some() {
                        (path.measurement, has_ended) = (None, true);
                    }
                }
                None if path.rate.is_none() && (count > 0 || !is_filling) => {
                    let ticks = TICKS.max(path.ticks_of(ROUND_TRIPS));
                    path.measurement = Some(Measurement { until: tick + ticks, filled: 0 });
                    is_filling |= count == 0;
                }
                None => {}
            }
        }
        has_ended && self.paths.iter().all(|path| path.rate.is_some())
    }

    /// Divides the flows with much to send anew: what was known when they began was less.
    pub(super) fn share_out(&mut self, moves: &mut Vec<Move>) {
        let bulk = |choice: &Self, flow: &u16| {
            let flow = &choice.flows[usize::from(*flow)];
            flow.is_bulk && flow.path.is_some()
        };
        let mut wanted = vec![0; self.paths.len()];
        for _ in 0..self.counts().iter().sum::<u64>() {
            let at = self.best(&wanted);
            wanted[at] += 1;
        }
        for flow in (0..FLOWS_MAX).filter(|flow| bulk(self, flow)).collect::<Vec<_>>() {
            let counts = self.counts();
            let Some(at) = self.flows[usize::from(flow)].path.and_then(|id| self.index(id)) else { continue };
            let Some(to) = (0..counts.len()).find(|to| counts[*to] < wanted[*to]) else { return };
            if counts[at] > wanted[at] {
                let to = Some(self.paths[to].id);
                moves.extend(self.put(flow, to, false));
            }
        }
        (self.moved_at, self.wanted) = (self.tick, None);
    }
}
