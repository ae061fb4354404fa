//! The outboxes of one peer: one whose datagrams take any path, or one for each path, if flows are pinned.
//!
//! ```text
//!  packet ─▶ flow ─▶ path ─▶ [Outbox] ─▶ connection: on this path
//!                        └─▶ [Outbox] ─▶ connection: on that path
//! ```
//!
//! A pinned flow stays on its path. A flow that begins, or goes on after a pause, takes the path that has the
//! most of its rate for each flow. If a path fails, its flows and what waits go to the others.

use std::collections::BTreeMap;
use std::ops::Range;

use units::{Duration, Instant, Rate};

use crate::item::FLOWS_MAX;
use crate::outbox::Outbox;
use crate::packer::PacketHead;
use crate::queue::QueueStats;
use crate::shaper::Shaper;

/// A flow that has sent nothing for this long may take another path: nothing of it is under way any more.
const PAUSE: Duration = Duration::from_secs(2);

/// The rate of all paths while none is known: any, as long as it can be divided by the number of flows.
const RATE_UNKNOWN: Rate = Rate::from_mbps(1000);

/// Paths that have stopped working and are remembered, at most.
const PATHS_REMEMBERED: usize = 64;

/// What waits for one peer.
#[derive(Debug)]
pub struct Outboxes {
    lines: Vec<Line>,
    /// For each flow its path. Empty if flows are not pinned.
    pins: Vec<Pin>,
    shaper: Option<Shaper>,
    /// Counters of outboxes that are gone.
    before: QueueStats,
    /// How many datagrams the outboxes of paths handed over that stopped working, for when they work again.
    handed_over: BTreeMap<u32, u64>,
    /// The line that is served first next: with a rate, it may take all of it.
    first: usize,
}

/// An outbox and its path.
#[derive(Debug)]
struct Line {
    /// None if the datagrams take any path.
    path: Option<u32>,
    rate: Rate,
    outbox: Outbox,
    /// The connection has no space.
    is_blocked: bool,
}

impl Line {
    const fn new(path: Option<u32>, outbox: Outbox) -> Self {
        Self { path, rate: Rate::ZERO, outbox, is_blocked: false }
    }
}

/// The path of a flow.
#[derive(Debug, Clone, Copy, Default)]
struct Pin {
    /// None before its first packet.
    path: Option<Option<u32>>,
    used_at: Instant,
}

impl Outboxes {
    /// Empty. Datagrams take any path, and keep to `rate`, if there is one.
    #[must_use]
    pub fn sprayed(rate: Option<Rate>) -> Self {
        Self {
            lines: vec![Line::new(None, Outbox::new(None))],
            pins: Vec::new(),
            shaper: rate.map(Shaper::sender),
            before: QueueStats::default(),
            handed_over: BTreeMap::new(),
            first: 0,
        }
    }

    /// Empty. Each flow keeps to one of the paths that [`follow`](Self::follow) names; before that, to none.
    #[must_use]
    pub fn pinned(rate: Option<Rate>) -> Self {
        Self { pins: vec![Pin::default(); usize::from(FLOWS_MAX)], ..Self::sprayed(rate) }
    }

    /// Whether flows are pinned to paths.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        !self.pins.is_empty()
    }

    /// Pins flows to these paths, with their rates, from now on. A rate that is not known yet is taken for the
    /// highest one, and known once flows use the path. Without any paths, all stays as it is.
    pub fn follow(&mut self, now: Instant, paths: &[(u32, Option<Rate>)]) {
        if !self.is_pinned() || paths.is_empty() {
            return;
        }
        let highest = paths.iter().filter_map(|(_, rate)| *rate).max().unwrap_or(RATE_UNKNOWN);
        for &(path, rate) in paths {
            let rate = rate.unwrap_or(highest);
            match self.lines.iter_mut().find(|line| line.path == Some(path)) {
                Some(line) => line.rate = rate,
                None => {
                    let handed_over = self.handed_over.remove(&path).unwrap_or(0);
                    self.lines.push(Line { rate, ..Line::new(Some(path), Outbox::pinned(handed_over)) });
                }
            }
        }
        let is_gone = |line: &mut Line| !paths.iter().any(|(path, _)| line.path == Some(*path));
        for line in self.lines.extract_if(.., is_gone).collect::<Vec<_>>() {
            self.move_to_another(now, line);
        }
    }

    /// The path of a line is gone. Its flows and what waits go to the path with the highest rate; flows that pause
    /// are divided over all paths later.
    fn move_to_another(&mut self, now: Instant, from: Line) {
        let to = self.lines.iter_mut().max_by_key(|line| line.rate).expect("there is always a line");
        let mut moved = Vec::new();
        for (flow, pin) in self.pins.iter_mut().enumerate().filter(|(_, pin)| pin.path == Some(from.path)) {
            to.outbox.continue_flow(flow as u16, &from.outbox);
            pin.path = Some(to.path);
            moved.push(flow as u16);
        }
        if let Some(path) = from.path {
            if self.handed_over.len() >= PATHS_REMEMBERED {
                self.handed_over.pop_first();
            }
            self.handed_over.insert(path, from.outbox.handed_over());
        }
        self.before = self.before.plus(to.outbox.take_over(now, from.outbox));
        moved.into_iter().for_each(|flow| to.outbox.note_in_line(flow));
        to.is_blocked = false;
    }

    /// The line of a flow that sends a packet now.
    fn line_of(&mut self, now: impl FnOnce() -> Instant, flow: u16) -> usize {
        if !self.is_pinned() {
            return 0;
        }
        let (now, number) = (now(), usize::from(flow));
        let Pin { path, used_at } = self.pins[number];
        let known = path.and_then(|path| self.lines.iter().position(|line| line.path == path));
        let is_paused = now.saturating_since(used_at) >= PAUSE;
        let at = match known {
            Some(at) if !is_paused || self.lines[at].outbox.holds(flow) => at,
            Some(old) => {
                let new = self.least_used(now);
                if new != old {
                    let [old, new] = self.lines.get_disjoint_mut([old, new]).expect("two lines");
                    new.outbox.continue_flow(flow, &old.outbox);
                }
                new
            }
            None => self.least_used(now),
        };
        self.pins[number] = Pin { path: Some(self.lines[at].path), used_at: now };
        at
    }

    /// The line with the most of its rate for each flow, if it had one more.
    fn least_used(&self, now: Instant) -> usize {
        let flows = |line: &Line| {
            let uses = |pin: &&Pin| pin.path == Some(line.path) && now.saturating_since(pin.used_at) < PAUSE;
            self.pins.iter().filter(uses).count() as u64
        };
        let share = |at: &usize| {
            let line = &self.lines[*at];
            (line.rate.as_bps() / (flows(line) + 1), std::cmp::Reverse(*at))
        };
        (0..self.lines.len()).max_by_key(share).expect("there is always a line")
    }

    /// As [`Outbox::take`]. Whether the batch of the flow's outbox is full now.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn take(
        &mut self,
        now: impl Fn() -> Instant,
        flow: u16,
        buffer: &mut Vec<u8>,
        place: Range<usize>,
        head: &PacketHead,
        len_max: usize,
    ) -> bool {
        let at = self.line_of(&now, flow);
        self.with(at, |line| line.outbox.take(now, flow, buffer, place, head, len_max, line.is_blocked))
    }

    /// The outbox that packets of this flow take now, which may be packed [alone](Outbox::pack_alone).
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn of_flow(&mut self, now: impl FnOnce() -> Instant, flow: u16) -> &mut Outbox {
        let at = self.line_of(now, flow);
        &mut self.lines[at].outbox
    }

    /// Calls `serve` for the outbox of each path, with the path and whether the connection has no space for it;
    /// `serve` says whether it has none now.
    pub fn serve(&mut self, mut serve: impl FnMut(Option<u32>, &mut Outbox, bool) -> bool) {
        let count = self.lines.len();
        let first = self.first % count;
        self.first = first + 1;
        for at in (first..count).chain(0..first) {
            self.with(at, |line| line.is_blocked = serve(line.path, &mut line.outbox, line.is_blocked));
        }
    }

    /// The connection may have space.
    pub fn unblock(&mut self) {
        self.lines.iter_mut().for_each(|line| line.is_blocked = false);
    }

    /// Whether the connection has no space for some path.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.lines.iter().any(|line| line.is_blocked)
    }

    /// When the rate lets the next packet leave, if packets wait and that is not now.
    #[must_use]
    pub fn blocked_until(&self, now: Instant) -> Option<Instant> {
        let until = self.shaper.as_ref()?.blocked_until(now);
        until.filter(|_| self.lines.iter().any(|line| line.outbox.has_queued()))
    }

    /// Bytes in the queues and in the batches.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.lines.iter().map(|line| line.outbox.queued_bytes() + line.outbox.batch_bytes()).sum()
    }

    /// Flows with packets in the queues.
    #[must_use]
    pub fn queued_flows(&self) -> usize {
        self.lines.iter().map(|line| line.outbox.queued_flows()).sum()
    }

    /// Counters of the queues.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        self.lines.iter().fold(self.before, |sum, line| sum.plus(line.outbox.stats()))
    }

    /// Calls `use_it` for a line, whose outbox has the rate meanwhile.
    fn with<R>(&mut self, at: usize, use_it: impl FnOnce(&mut Line) -> R) -> R {
        let line = &mut self.lines[at];
        line.outbox.swap_shaper(&mut self.shaper);
        let result = use_it(line);
        line.outbox.swap_shaper(&mut self.shaper);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::*;
    use crate::item::{Item, take_item};
    use crate::samples::transport_packet;

    const LEN_MAX: usize = 1400;

    fn at(ms: u64) -> Instant {
        // Later than a pause after zero.
        Instant::ZERO + Duration::from_millis(10_000 + ms)
    }

    fn put(outboxes: &mut Outboxes, now: Instant, flow: u16) {
        let packet = transport_packet(false, false, flow, &[1; 1200], None);
        let head = packet.packet();
        let head = PacketHead { inner: head.inner, is_partial: head.is_partial, segment: head.segment };
        let mut buffer = packet.ip.clone();
        let place = 0..buffer.len();
        outboxes.take(|| now, flow, &mut buffer, place, &head, LEN_MAX);
    }

    fn items(mut datagram: Bytes) -> Vec<Item> {
        std::iter::from_fn(|| take_item(&mut datagram).expect("items")).collect()
    }

    /// What leaves now, by path, if the connection has space for all but the path `blocked`.
    fn leave(outboxes: &mut Outboxes, now: Instant, blocked: Option<u32>) -> BTreeMap<Option<u32>, Vec<Item>> {
        let mut left = BTreeMap::new();
        outboxes.serve(|path, outbox, _| {
            if path.is_some() && path == blocked {
                return true;
            }
            loop {
                let batch: Vec<Bytes> = outbox.fill(now, LEN_MAX).drain(..).collect();
                if batch.is_empty() {
                    return false;
                }
                outbox.on_taken(batch.len());
                left.entry(path).or_insert_with(Vec::new).extend(batch.into_iter().flat_map(items));
            }
        });
        left
    }

    fn flows(items: &[Item]) -> Vec<u16> {
        let mut flows: Vec<u16> = items.iter().map(|item| item.flow).collect();
        flows.sort_unstable();
        flows.dedup();
        flows
    }

    const PATHS: [(u32, Option<Rate>); 2] = [(4, Some(Rate::from_mbps(20))), (7, Some(Rate::from_mbps(10)))];

    #[test]
    fn flows_that_are_not_pinned_have_one_outbox() {
        let mut outboxes = Outboxes::sprayed(None);
        outboxes.follow(at(0), &PATHS);
        (0..5).for_each(|flow| put(&mut outboxes, at(0), flow));
        let left = leave(&mut outboxes, at(0), None);
        assert_eq!(left.keys().collect::<Vec<_>>(), [&None]);
        assert!(left[&None].iter().all(|item| !item.is_pinned) && left[&None].len() == 5);
    }

    #[test]
    fn each_flow_keeps_to_a_path_and_paths_get_flows_by_their_rates() {
        let mut outboxes = Outboxes::pinned(None);
        outboxes.follow(at(0), &PATHS);
        for round in 0..4 {
            (0..6).for_each(|flow| put(&mut outboxes, at(round), flow));
        }
        let left = leave(&mut outboxes, at(4), None);
        assert_eq!((flows(&left[&Some(4)]), flows(&left[&Some(7)])), (vec![0, 1, 3, 4], vec![2, 5]));
        assert!(left.values().flatten().all(|item| item.is_pinned));
        for flow in 0..6 {
            let numbers: Vec<u32> =
                left.values().flatten().filter(|item| item.flow == flow).map(|item| item.sequence).collect();
            assert_eq!(numbers, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn a_path_whose_rate_is_not_known_gets_flows_as_the_fastest_one() {
        for known in [None, PATHS[0].1] {
            let mut outboxes = Outboxes::pinned(None);
            outboxes.follow(at(0), &[(4, known), (7, None)]);
            (0..6).for_each(|flow| put(&mut outboxes, at(0), flow));
            let left = leave(&mut outboxes, at(0), None);
            assert_eq!((flows(&left[&Some(4)]), flows(&left[&Some(7)])), (vec![0, 2, 4], vec![1, 3, 5]));
        }
    }

    #[test]
    fn a_flow_that_pauses_may_take_another_path_and_goes_on_with_its_numbers() {
        let mut outboxes = Outboxes::pinned(None);
        outboxes.follow(at(0), &PATHS[..1]);
        (0..3).for_each(|flow| put(&mut outboxes, at(0), flow));
        leave(&mut outboxes, at(0), None);
        outboxes.follow(at(1), &PATHS);
        (0..3).for_each(|flow| put(&mut outboxes, at(1), flow));
        assert_eq!(leave(&mut outboxes, at(1), None).keys().collect::<Vec<_>>(), [&Some(4)], "no pause");
        (0..3).for_each(|flow| put(&mut outboxes, at(2500), flow));
        let left = leave(&mut outboxes, at(2500), None);
        let shown = |path| left[&Some(path)].iter().map(|item| (item.flow, item.sequence)).collect::<Vec<_>>();
        assert_eq!((shown(4), shown(7)), (vec![(0, 2), (1, 2)], vec![(2, 2)]));
    }

    #[test]
    fn what_waits_for_a_path_that_fails_leaves_on_another_one_whole_and_in_order() {
        let mut outboxes = Outboxes::pinned(None);
        // Before the paths are known.
        put(&mut outboxes, at(0), 1);
        outboxes.follow(at(0), &PATHS);
        (0..100).for_each(|_| (0..3).for_each(|flow| put(&mut outboxes, at(0), flow)));
        let mut left = leave(&mut outboxes, at(0), Some(4));
        assert!(outboxes.is_blocked() && outboxes.waiting_bytes() > 0);
        outboxes.follow(at(1), &PATHS[1..]);
        (0..3).for_each(|flow| put(&mut outboxes, at(1), flow));
        for (path, items) in leave(&mut outboxes, at(1), None) {
            left.entry(path).or_default().extend(items);
        }
        assert_eq!(outboxes.waiting_bytes(), 0);
        for flow in 0..3 {
            let numbers: Vec<u32> =
                left.values().flatten().filter(|item| item.flow == flow).map(|item| item.sequence).collect();
            let count = if flow == 1 { 102 } else { 101 };
            assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "flow {flow}");
        }
    }

    #[test]
    fn no_path_takes_the_rate_of_the_others() {
        let rate = Rate::from_mbps(10);
        let mut outboxes = Outboxes::pinned(Some(rate));
        outboxes.follow(at(0), &PATHS);
        let (mut now, mut left) = (at(0), BTreeMap::new());
        while now < at(500) {
            // Each always has more to send than the rate allows.
            (0..8).for_each(|_| (0..3).for_each(|flow| put(&mut outboxes, now, flow)));
            for (path, items) in leave(&mut outboxes, now, None) {
                *left.entry(path).or_insert(0) += items.len();
            }
            now = outboxes.blocked_until(now).unwrap_or(now) + Duration::from_micros(100);
        }
        let (least, most) = (left.values().min(), left.values().max());
        assert!(left.len() == 2 && least.zip(most).is_some_and(|(least, most)| 3 * least > *most), "{left:?}");
    }

    #[test]
    fn a_rate_holds_for_all_paths_together() {
        let rate = Rate::from_mbps(10);
        let mut outboxes = Outboxes::pinned(Some(rate));
        outboxes.follow(at(0), &PATHS);
        (0..200).for_each(|_| (0..3).for_each(|flow| put(&mut outboxes, at(0), flow)));
        let (mut now, mut bytes) = (at(0), 0);
        while outboxes.waiting_bytes() > 0 {
            bytes +=
                leave(&mut outboxes, now, None).values().flatten().map(|item| item.body.len_bytes()).sum::<usize>();
            now = outboxes.blocked_until(now).unwrap_or(now);
        }
        let took = now.saturating_since(at(0));
        let expected = rate.time_for(bytes as u64);
        assert!(took <= expected && took + Duration::from_millis(30) > expected, "{bytes} bytes took {took}");
    }
}
