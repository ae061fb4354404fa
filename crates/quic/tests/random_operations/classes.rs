//! Classes of service that change during a run, in every other run. They have a generator of their
//! own, so that the meaning of older seeds is unchanged.

use std::fmt;

use quic::{BURST_MIN, Class, PathId, PathSet, RateLimit, Side, StreamId};
use units::{Rate, Rng};

use super::{Run, magnitude, node};

/// The changes made, and how often.
pub(super) struct Changes {
    rng: Rng,
    /// Percent of operations that change a class.
    share: u64,
}

impl Changes {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed).split("classes");
        let share = if rng.below(2) == 0 { 0 } else { rng.between(1, 30) };
        Self { rng, share }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "classes change before {} % of", self.share)
    }
}

impl Run {
    /// Occasionally changes a class.
    pub(super) fn change_classes(&mut self) {
        let Changes { rng, share } = &mut self.classes;
        if rng.below(100) >= *share {
            return;
        }
        let side = if rng.below(2) == 0 { Side::Client } else { Side::Server };
        match rng.below(4) {
            0 => {
                let limit = pick_limit(rng);
                node(&mut self.pair, side).connection(0).set_rate(limit);
            }
            1 => {
                let limit = pick_limit(rng);
                if let Some(id) = self.pick_open(side) {
                    // The stream may have ended by now, which the run does not know.
                    let _ = node(&mut self.pair, side).connection(0).set_stream_rate(id, limit);
                }
            }
            2 => {
                let is_background = rng.below(2) == 0;
                if let Some(id) = self.pick_open(side) {
                    let _ = node(&mut self.pair, side).connection(0).set_background(id, is_background);
                }
            }
            _ => self.confine(side),
        }
    }

    /// Confines a stream to some paths, of which some may not exist, or removes the restriction.
    fn confine(&mut self, side: Side) {
        let newest = node(&mut self.pair, side).connection(0).path_stats().last().map_or(0, |path| path.id.0);
        let rng = &mut self.classes.rng;
        let named: Vec<PathId> = (0..=newest + 1).filter(|_| rng.below(2) == 0).take(32).map(PathId).collect();
        let paths = PathSet::only(&named).unwrap_or(PathSet::ALL);
        if let Some(id) = self.pick_open(side) {
            let _ = node(&mut self.pair, side).connection(0).set_stream_paths(id, paths);
        }
    }

    fn pick_open(&mut self, side: Side) -> Option<StreamId> {
        let flows = self.flows.iter().filter(|((sender, _), flow)| *sender == side && flow.may_write());
        let ids: Vec<StreamId> = flows.map(|((_, id), _)| *id).collect();
        (!ids.is_empty()).then(|| ids[self.classes.rng.below(ids.len() as u64) as usize])
    }

    /// Removes all limits on rates and paths.
    pub(super) fn remove_classes(&mut self) {
        for (side, id) in self.flows.keys().copied() {
            let connection = node(&mut self.pair, side).connection(0);
            let _ = connection.set_class(id, &Class::default());
            connection.set_rate(None);
        }
    }
}

/// A limit or none. The slowest lets one bit per second through.
fn pick_limit(rng: &mut Rng) -> Option<RateLimit> {
    (rng.below(4) > 0).then(|| {
        let (rate, burst) = (magnitude(rng, 1_000_000_000), BURST_MIN + magnitude(rng, 1_000_000));
        RateLimit::new(Rate::from_bps(rate), burst).expect("neither is too small")
    })
}
