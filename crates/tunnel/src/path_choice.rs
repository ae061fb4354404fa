//! Which flow takes which path.
//!
//! ```text
//!  delays alike     every flow on all paths: the scheduler of the connection divides its packets
//!  delays unlike    path 0  [flow][flow][flow][flow]      each flow with much to send keeps to one path
//!                   path 1  [flow][flow]                  by the rates of the paths; others take the first
//! ```
//!
//! If a flow uses two paths, its packets on the faster one wait at the exit for those on the other one. Its sender sees
//! the longer round trip for all of them, and while it waits, the faster path is idle. So a flow keeps to one path where
//! the delays differ by more than `UNLIKE`, and several flows share the paths:
//!
//! - A flow that sends little takes the path with the shortest round trip.
//! - A flow with much to send (`BULK_BYTES`) takes the path that gives it most, or one that no flow uses, if that gives
//!   it not much less.
//! - It moves if another path gives it more for a while. All that is known is measured: the capacities of paths, and
//!   what flows have had on a path that they do not fill, as where losses limit them.
//! - Paths whose capacities are not known are measured: one by the first flow, the others by
//!   filling.

mod measure;
mod state;
mod views;

use std::collections::BTreeMap;

use units::{Duration, Instant, Rate};

use self::state::{Flow, Path};
pub(crate) use self::views::Move;
pub use self::views::{LeftOut, PathUse, PathView};
use crate::item::FLOWS_MAX;

/// Round trips that differ by more are unlike. With less, a flow that uses all paths loses little; with more, several
/// flows do better on a path each.
const UNLIKE: Duration = Duration::from_millis(20);

/// The only flow with much to send uses all paths up to this difference. Beyond it the connection's scheduler,
/// which looks 50 ms ahead, uses the slow path by fits, and the flow has no more than the fast one gives it.
const UNLIKE_FOR_ONE: Duration = Duration::from_millis(80);

/// Unlike round trips are alike again below this share of the difference, in eighths.
const ALIKE_EIGHTHS: u64 = 6;

/// The smallest round trip of the last one to two of these counts, so that a queue that comes and goes does not; and the
/// losses.
const PERIOD: Duration = Duration::from_secs(5);

/// The time between two looks at the flows.
const TICK: Duration = Duration::from_millis(100);

/// Ticks between two calls that count, at most.
const TICKS_MAX: u32 = 10;

/// A flow with so many bytes, less an eighth each tick, has much to send: more than a first window of TCP, and 640 kb/s
/// for long. Smaller packets than [`LARGE_BYTES`] do not count: acknowledgements of a fast connection stay on the path
/// with the shortest round trip.
const BULK_BYTES: u32 = 64 << 10;
const LARGE_BYTES: usize = 400;

/// With less than this it has little again.
const LITTLE_BYTES: u32 = BULK_BYTES / 4;

/// A path is full if flows have so much of its capacity, in eighths: the rest is headers and what the estimate is too
/// high.
const FULL_EIGHTHS: u64 = 6;

/// What a flow gets on a path says something so many ticks after the last change there, and eight round trips.
const SETTLED_TICKS: u32 = 20;

/// After a move, no other for so many ticks.
const REST_TICKS: u32 = 20;

/// So many ticks a move must be worth it.
const PATIENCE_TICKS: u32 = 10;
/// If a path is empty, the flow that could use it does not wait long.
const PATIENCE_EMPTY_TICKS: u32 = 3;

/// A flow alone moves for so much more, in percent, or to a shorter round trip for so much less; one of several for
/// more, because capacities change.
const GAIN_ALONE: u64 = 108;
const GAIN_ALONE_NEARER: u64 = 97;
const GAIN: u64 = 140;
/// An empty path needs only so much of what the flow has, in percent: the others get the rest.
const GAIN_EMPTY: u64 = 40;

/// How long it is remembered that flows did not fill a path, in ticks; doubled each time, up to [`MEMORY_MAX`].
const MEMORY_TICKS: u32 = 300;
const MEMORY_MAX: u32 = 6000;

/// The rate of all paths while none is known: any, as long as it can be divided by the number of flows.
const RATE_UNKNOWN: Rate = Rate::from_mbps(1000);

/// Paths that have failed and are remembered, at most.
const PATHS_REMEMBERED: usize = 64;

/// How long the items of a flow that has moved say that they may be out of order, in ticks.
const MOVING_TICKS: u32 = 10;

/// Ticks without a packet after which nothing of a flow is under way any more.
const PAUSE_TICKS: u8 = 20;

/// Chooses the paths of flows.
#[derive(Debug)]
pub struct PathChoice {
    /// All flows keep to one path each, whatever the delays are.
    always_pins: bool,
    /// The peer passes over filling.
    can_fill: bool,
    /// The capacities and the filling of paths that have failed, by their numbers.
    failed: BTreeMap<u32, (Option<Rate>, u64, u8)>,
    /// In the order of their round trips.
    paths: Vec<Path>,
    flows: Box<[Flow]>,
    /// Flows keep to one path.
    is_unlike: bool,
    /// One flow alone also does.
    is_unlike_for_one: bool,
    tick: u32,
    ticked_at: Instant,
    period_began: Instant,
    /// The last change of a flow's path.
    moved_at: u32,
    /// The move that was worth it so many ticks in a row: from, to.
    wanted: Option<(usize, usize, u32)>,
}

impl PathChoice {
    /// Without paths. If it `always_pins`, also where the delays are alike. The peer passes over
    /// filling if it
    /// `can_fill` paths.
    pub(crate) fn new(always_pins: bool, can_fill: bool) -> Self {
        Self {
            always_pins,
            can_fill,
            failed: BTreeMap::new(),
            paths: Vec::new(),
            flows: vec![Flow::default(); usize::from(FLOWS_MAX)].into_boxed_slice(),
            is_unlike: always_pins,
            is_unlike_for_one: always_pins,
            tick: 0,
            ticked_at: Instant::ZERO,
            period_began: Instant::ZERO,
            moved_at: 0,
            wanted: None,
        }
    }

    /// Whether flows always keep to one path.
    pub(crate) const fn always_pins(&self) -> bool {
        self.always_pins
    }

    /// Whether flows keep to one path now.
    pub(crate) const fn pins(&self) -> bool {
        self.is_unlike && !self.paths.is_empty()
    }

    /// The path that a flow takes; None for all.
    pub(crate) fn path_of(&self, flow: u16) -> Option<u32> {
        self.flows[usize::from(flow)].path
    }

    /// What each path is used for. Empty while all flows use all paths.
    #[must_use]
    pub fn uses(&self) -> Vec<PathUse> {
        let bulk = self.flows.iter().filter(|flow| flow.is_bulk);
        if !self.pins() || self.paths.len() < 2 || bulk.clone().all(|flow| flow.path.is_none()) {
            return Vec::new();
        }
        let (counts, all) = (self.counts(), bulk.count());
        let in_use = || self.paths.iter().zip(&counts).filter(|(_, count)| **count > 0).map(|(path, _)| path);
        let use_of = |(path, count): (&Path, &u64)| {
            let (own, others) = (path.round_trip(), in_use().map(Path::round_trip));
            let differs = others.map(|other| own.max(other).saturating_sub(own.min(other))).max();
            let left_out = (*count == 0).then(|| match all < self.paths.len() {
                true => LeftOut::FewFlows(differs.unwrap_or(Duration::ZERO) / 2),
                false => LeftOut::Slower,
            });
            PathUse { id: path.id, flows: *count as u32, left_out }
        };
        self.paths.iter().zip(&counts).map(use_of).collect()
    }

    fn index(&self, id: u32) -> Option<usize> {
        self.paths.iter().position(|path| path.id == id)
    }

    /// Flows with much to send, by path.
    fn counts(&self) -> Vec<u64> {
        let count = |path: &Path| self.flows.iter().filter(|flow| flow.is_bulk && flow.path == Some(path.id)).count();
        self.paths.iter().map(|path| count(path) as u64).collect()
    }

    /// A packet of `len` bytes of a flow enters. Returns the path that the flow takes from now on, if it is another one.
    pub(crate) fn note(&mut self, flow: u16, len: usize) -> Option<Move> {
        if !self.pins() {
            return None;
        }
        let number = usize::from(flow);
        let is_first = !self.flows[number].is_used;
        let state = &mut self.flows[number];
        (state.is_used, state.idle) = (true, 0);
        if len >= LARGE_BYTES || self.always_pins {
            state.bytes = state.bytes.saturating_add(len as u32);
        }
        let becomes_bulk = !state.is_bulk && (state.bytes >= BULK_BYTES || self.always_pins);
        if becomes_bulk {
            state.is_bulk = true;
            let to = self.path_for_bulk(number);
            return self.put(flow, to, is_first);
        }
        // Until now it took any path, or it has paused.
        is_first.then(|| self.put(flow, Some(self.paths[0].id), true)).flatten()
    }

    /// The path of a flow that has much to send from now on.
    fn path_for_bulk(&self, number: usize) -> Option<u32> {
        let mut counts = self.counts();
        if let Some(at) = self.flows[number].path.and_then(|id| self.index(id)) {
            counts[at] -= u64::from(counts[at] > 0);
        }
        if !self.is_unlike_for_one && counts.iter().sum::<u64>() == 0 && !self.has_bulk_beside(number) {
            return None;
        }
        let at = self.first_to_measure(&counts).unwrap_or_else(|| self.best(&counts));
        Some(self.paths[at].id)
    }

    fn has_bulk_beside(&self, number: usize) -> bool {
        self.flows.iter().enumerate().any(|(other, flow)| other != number && flow.is_bulk)
    }

    /// The path for one more flow: the one that gives it most, or an empty one that gives it not much less. Of equal
    /// ones, that with the shortest round trip.
    fn best(&self, counts: &[u64]) -> usize {
        let share = |at: &usize| (self.share(*at, counts[*at] + 1), std::cmp::Reverse(*at));
        let best = (0..self.paths.len()).max_by_key(share).expect("there are paths");
        let most = self.share(best, counts[best] + 1);
        let empty = (0..self.paths.len()).filter(|at| counts[*at] == 0).max_by_key(share);
        empty.filter(|at| counts[best] > 0 && self.share(*at, 1) * 100 >= most * GAIN_EMPTY).unwrap_or(best)
    }

    /// What each of `count` flows gets on a path.
    fn share(&self, at: usize, count: u64) -> u64 {
        let path = &self.paths[at];
        let share = self.rate(path).as_bps() / count.max(1);
        path.limit.map_or(share, |(limit, _)| share.min(limit))
    }

    /// A rate that is not known is taken for the highest one; for more if only a flow that tries
    /// the path can tell.
    fn rate(&self, path: &Path) -> Rate {
        let highest = || self.paths.iter().filter_map(Path::known).max().unwrap_or(RATE_UNKNOWN);
        let expected = || {
            if self.can_fill || self.always_pins {
                highest()
            } else {
                Rate::from_bps(highest().as_bps().saturating_mul(2))
            }
        };
        path.known().unwrap_or_else(expected)
    }

    /// Gives a flow a path.
    fn put(&mut self, flow: u16, to: Option<u32>, is_settled: bool) -> Option<Move> {
        let before = self.flows[usize::from(flow)].path;
        if before == to {
            return None;
        }
        for id in [before, to].into_iter().flatten() {
            if let Some(at) = self.index(id).filter(|_| self.flows[usize::from(flow)].is_bulk) {
                self.paths[at].changed_at = self.tick;
            }
        }
        let state = &mut self.flows[usize::from(flow)];
        (state.path, state.moved_at, state.is_moving) = (to, self.tick, !is_settled);
        Some(Move { flow, from: before, to, is_settled })
    }

    /// These paths work. Returns the flows that take others from now on.
    pub(crate) fn follow(&mut self, now: Instant, views: &[PathView]) -> Vec<Move> {
        if views.is_empty() {
            return Vec::new();
        }
        let mut moves = Vec::new();
        self.update_paths(now, views);
        let was_unlike = self.pins();
        self.compare_round_trips();
        if !self.pins() {
            self.stop_measuring();
            if was_unlike {
                let pinned = (0..FLOWS_MAX).filter(|flow| self.flows[usize::from(*flow)].path.is_some());
                moves.extend(pinned.collect::<Vec<_>>().into_iter().filter_map(|flow| self.put(flow, None, false)));
                self.flows.fill(Flow::default());
            }
            return moves;
        }
        self.leave_failed(&mut moves);
        let ticks = now.saturating_since(self.ticked_at).as_nanos() / TICK.as_nanos();
        if ticks > 0 {
            self.ticked_at = now;
            // Nothing came in a longer time, and nothing was measured.
            let ticks = ticks.min(u64::from(TICKS_MAX)) as u32;
            self.tick += ticks;
            self.end_ticks(ticks, &mut moves);
        }
        moves
    }

    fn update_paths(&mut self, now: Instant, views: &[PathView]) {
        let begins = now.saturating_since(self.period_began) >= PERIOD;
        if begins {
            self.period_began = now;
        }
        self.forget_failed(views);
        for view in views {
            match self.paths.iter_mut().find(|path| path.id == view.id) {
                Some(path) => {
                    if begins {
                        path.round_trips = [view.round_trip, path.round_trips[0]];
                        path.packets_before = [view.packets, path.packets_before[0]];
                    }
                    path.round_trips[0] = path.round_trips[0].min(view.round_trip);
                    (path.rate, path.packets) = (view.rate.or(path.rate), view.packets);
                    path.at_least = view.at_least;
                }
                None => {
                    let (rate, filled, fillings) = self.failed.remove(&view.id).unwrap_or_default();
                    self.paths.push(Path {
                        id: view.id,
                        rate: view.rate.or(rate),
                        at_least: view.at_least,
                        filled,
                        fillings,
                        measured_until: None,
                        is_given_up: false,
                        round_trips: [view.round_trip; 2],
                        packets: view.packets,
                        packets_before: [view.packets; 2],
                        limit: None,
                        memory: MEMORY_TICKS,
                        changed_at: self.tick,
                    });
                }
            }
        }
        self.paths.sort_by_key(|path| (path.round_trip(), path.id));
    }

    /// Takes out the paths that work no more, and remembers what they carry.
    fn forget_failed(&mut self, views: &[PathView]) {
        for path in self.paths.extract_if(.., |path| !views.iter().any(|view| view.id == path.id)) {
            if self.failed.len() >= PATHS_REMEMBERED {
                self.failed.pop_first();
            }
            self.failed.insert(path.id, (path.rate, path.filled, path.fillings));
        }
    }

    fn compare_round_trips(&mut self) {
        if self.always_pins {
            return;
        }
        let shortest = self.paths[0].round_trip();
        let longest = self.paths[self.paths.len() - 1].round_trip();
        let differ = longest.saturating_sub(shortest);
        let is_above = |was: bool, limit: Duration| differ > if was { limit * ALIKE_EIGHTHS / 8 } else { limit };
        self.is_unlike = is_above(self.is_unlike, UNLIKE);
        self.is_unlike_for_one = is_above(self.is_unlike_for_one, UNLIKE_FOR_ONE);
    }

    /// Flows whose path does not work go on elsewhere.
    fn leave_failed(&mut self, moves: &mut Vec<Move>) {
        for flow in 0..FLOWS_MAX {
            let state = self.flows[usize::from(flow)];
            if state.path.is_some_and(|id| self.index(id).is_none()) {
                let to = if state.is_bulk { self.path_for_bulk(flow.into()) } else { Some(self.paths[0].id) };
                moves.extend(self.put(flow, to, false));
            }
        }
    }

    /// So many ticks have passed.
    fn end_ticks(&mut self, ticks: u32, moves: &mut Vec<Move>) {
        for flow in 0..FLOWS_MAX {
            let tick = self.tick;
            let state = &mut self.flows[usize::from(flow)];
            (0..ticks).for_each(|_| state.bytes -= state.bytes / 8);
            state.idle = state.idle.saturating_add(ticks as u8);
            if state.is_moving && tick - state.moved_at >= MOVING_TICKS {
                state.is_moving = false;
                moves.push(Move { flow, from: state.path, to: state.path, is_settled: true });
            }
            if state.idle >= PAUSE_TICKS {
                state.is_used = false;
            }
            let ends = state.bytes < LITTLE_BYTES && !self.always_pins;
            if state.is_bulk && (ends || !state.is_used) {
                state.is_bulk = false;
                if let Some(at) = state.path.and_then(|id| self.index(id)) {
                    self.paths[at].changed_at = tick;
                }
            }
        }
        if self.always_pins {
            return;
        }
        self.part_from_other(moves);
        self.note_limits();
        if self.measure() {
            self.share_out(moves);
        }
        self.rebalance(moves);
    }

    /// A flow that used all paths alone keeps to one when another one has much to send, and the other way round.
    fn part_from_other(&mut self, moves: &mut Vec<Move>) {
        let bulk: Vec<u16> = (0..FLOWS_MAX).filter(|flow| self.flows[usize::from(*flow)].is_bulk).collect();
        match bulk[..] {
            [alone] if !self.is_unlike_for_one => {
                let has_settled = self.tick - self.flows[usize::from(alone)].moved_at >= REST_TICKS;
                moves.extend(has_settled.then(|| self.put(alone, None, false)).flatten());
            }
            _ => {
                let sprayed = bulk.into_iter().filter(|flow| self.flows[usize::from(*flow)].path.is_none());
                for flow in sprayed.collect::<Vec<_>>() {
                    let to = self.path_for_bulk(flow.into());
                    moves.extend(self.put(flow, to, false));
                }
            }
        }
    }

    /// The bits a second of flows with much to send, by path.
    fn carried(&self) -> Vec<u64> {
        let of_path = |path: &Path| {
            let flows = self.flows.iter().filter(|flow| flow.is_bulk && flow.path == Some(path.id));
            flows.map(Flow::bps).sum()
        };
        self.paths.iter().map(of_path).collect()
    }

    fn is_full(&self, at: usize, carried: &[u64]) -> bool {
        self.paths[at].known().is_none_or(|rate| carried[at] * 8 >= rate.as_bps() * FULL_EIGHTHS)
    }

    /// Remembers what a flow gets on paths that their flows do not fill.
    fn note_limits(&mut self) {
        let (counts, carried, tick) = (self.counts(), self.carried(), self.tick);
        for at in 0..self.paths.len() {
            let is_full = self.is_full(at, &carried);
            let path = &mut self.paths[at];
            if path.limit.is_some_and(|(_, until)| until <= tick) {
                path.limit = None;
            }
            if counts[at] == 0 || tick - path.changed_at < path.settles() {
                continue;
            }
            if is_full {
                (path.limit, path.memory) = (None, MEMORY_TICKS);
            } else {
                path.limit = Some((carried[at] / counts[at], tick + path.memory));
            }
        }
    }

    /// Moves a flow if it was worth it for a while.
    fn rebalance(&mut self, moves: &mut Vec<Move>) {
        let found = self.better();
        let Some((from, to, patience)) = found.filter(|_| self.tick - self.moved_at >= REST_TICKS) else {
            self.wanted = None;
            return;
        };
        let ids = (self.paths[from].id as usize, self.paths[to].id as usize);
        let ticks = match self.wanted {
            Some((from, to, ticks)) if (from, to) == ids => ticks + 1,
            _ => 1,
        };
        self.wanted = Some((ids.0, ids.1, ticks));
        if ticks < patience {
            return;
        }
        let id = self.paths[from].id;
        let of_path = (0..FLOWS_MAX).filter(|flow| {
            let state = &self.flows[usize::from(*flow)];
            state.is_bulk && state.path == Some(id)
        });
        // The one that has least loses least.
        let Some(flow) = of_path.min_by_key(|flow| self.flows[usize::from(*flow)].bytes) else { return };
        self.wanted = None;
        self.moved_at = self.tick;
        let path = &mut self.paths[from];
        if let Some((_, until)) = &mut path.limit {
            *until = self.tick + path.memory;
            path.memory = (2 * path.memory).min(MEMORY_MAX);
        }
        let to = Some(self.paths[to].id);
        moves.extend(self.put(flow, to, false));
    }

    /// The move that is worth most, and for how many ticks it must be.
    fn better(&self) -> Option<(usize, usize, u32)> {
        let (counts, carried) = (self.counts(), self.carried());
        let all: u64 = counts.iter().sum();
        let mut best = None;
        for from in (0..self.paths.len()).filter(|at| counts[*at] > 0) {
            let is_limited = self.paths[from].limit.is_some();
            if !is_limited && !self.is_full(from, &carried) {
                continue;
            }
            let has = self.share(from, counts[from]).max(carried[from] / counts[from]).max(1);
            for to in (0..self.paths.len()).filter(|to| *to != from) {
                if counts[to] == 0 && self.paths[to].known().is_none() && self.can_fill {
                    // It is measured first.
                    continue;
                }
                let gain = self.share(to, counts[to] + 1).saturating_mul(100) / has;
                let (needed, patience) = match (counts[to], counts[from]) {
                    (0, 2..) if !is_limited => (GAIN_EMPTY, PATIENCE_EMPTY_TICKS),
                    (0, 1) if all == 1 && self.tick - self.paths[from].changed_at < self.paths[from].settles() => {
                        continue;
                    }
                    // A shorter round trip is worth as much.
                    (0, 1) if all == 1 && to < from => (GAIN_ALONE_NEARER, PATIENCE_TICKS),
                    (0, 1) if all == 1 => (GAIN_ALONE, PATIENCE_TICKS),
                    _ => (GAIN, PATIENCE_TICKS),
                };
                // Those limited by losses or by themselves gain nothing where there are none.
                let gains = gain >= needed && (!is_limited || self.is_lossy(from));
                if gains && best.is_none_or(|(_, _, _, most)| gain > most) {
                    best = Some((from, to, patience, gain));
                }
            }
        }
        best.map(|(from, to, patience, _)| (from, to, patience))
    }

    /// Whether losses may be what limits flows on a path: more than one packet in a thousand, lately.
    fn is_lossy(&self, at: usize) -> bool {
        let (path, before) = (&self.paths[at], self.paths[at].packets_before[1]);
        path.packets.1.saturating_sub(before.1) * 1000 > path.packets.0.saturating_sub(before.0)
    }
}

#[cfg(test)]
mod tests;
