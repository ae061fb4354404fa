//! The outboxes of one peer: one whose datagrams take any path, and one for each path to which flows keep.
//!
//! ```text
//!  packet ─▶ flow ─▶ [PathChoice] ─▶ [Outbox] ─▶ connection: any path
//!                                └─▶ [Outbox] ─▶ connection: on this path
//!                                └─▶ [Outbox] ─▶ connection: on that path
//! ```
//!
//! If a path fails, its flows and what waits go to the others.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use units::{Instant, Rate};

use crate::meter::{Meter, Turn};
use crate::outbox::Outbox;
use crate::packer::{Packet, PacketHead};
use crate::path_choice::{Move, PathChoice, PathUse, PathView};
use crate::queue::QueueStats;

/// Paths that have stopped working and are remembered, at most.
const PATHS_REMEMBERED: usize = 64;

/// What waits for one peer.
#[derive(Debug)]
pub struct Outboxes {
    /// The first is that of datagrams that take any path. The others are those of paths.
    lines: Vec<Line>,
    /// None if all datagrams take any path.
    choice: Option<PathChoice>,
    /// With the rate of what leaves, on all paths together, if there is one.
    turn: Option<Turn>,
    rate: Option<Rate>,
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
    outbox: Outbox,
    /// The connection has no space.
    is_blocked: bool,
}

impl Line {
    const fn new(path: Option<u32>, outbox: Outbox) -> Self {
        Self { path, outbox, is_blocked: false }
    }
}

impl Outboxes {
    /// Empty. Datagrams take any path, and keep to the rate of `meter`, if there is one.
    #[must_use]
    pub fn sprayed(meter: Option<Arc<Meter>>) -> Self {
        let rate = meter.as_ref().map(|meter| meter.rate());
        Self {
            lines: vec![Line::new(None, Outbox::new(rate))],
            choice: None,
            turn: meter.map(Turn::new),
            rate,
            before: QueueStats::default(),
            handed_over: BTreeMap::new(),
            first: 0,
        }
    }

    /// Empty. Each flow keeps to one of the paths that [`follow`](Self::follow) names; before that, to none.
    #[must_use]
    pub fn pinned(meter: Option<Arc<Meter>>) -> Self {
        Self { choice: Some(PathChoice::new(true, false)), ..Self::sprayed(meter) }
    }

    /// Empty. Flows keep to one path each while the delays of the paths are unlike. The peer passes
    /// over filling if it
    /// `can_fill` paths.
    #[must_use]
    pub fn chosen(meter: Option<Arc<Meter>>, can_fill: bool) -> Self {
        Self { choice: Some(PathChoice::new(false, can_fill)), ..Self::sprayed(meter) }
    }

    /// Whether flows always keep to one path.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.choice.as_ref().is_some_and(PathChoice::always_pins)
    }

    /// What each path is used for. Empty while all flows use all paths.
    #[must_use]
    pub fn uses(&self) -> Vec<PathUse> {
        self.choice.as_ref().map(PathChoice::uses).unwrap_or_default()
    }

    /// A path whose capacity is measured now, and how many bytes it may be filled with, of what the peer [passes
    /// over](crate::item::filling). Above a rate by less than a datagram, as packets are.
    pub fn to_fill(&mut self, now: Instant) -> Option<(u32, usize)> {
        let (path, most) = self.choice.as_ref()?.to_fill()?;
        let bytes = self.turn.as_mut().map_or(usize::MAX, |turn| turn.available(now));
        (bytes > 0).then(|| (path, usize::try_from(most).unwrap_or(usize::MAX).min(bytes)))
    }

    /// A path has taken so many bytes of filling, which count for the rate.
    pub fn on_filled(&mut self, path: u32, bytes: usize) {
        if let Some(choice) = &mut self.choice {
            choice.on_filled(path, bytes as u64);
        }
        if let Some(turn) = &mut self.turn {
            turn.spend(bytes);
        }
    }

    /// These paths work. Without any, all stays as it is. To be called several times a second while packets come.
    pub fn follow(&mut self, now: Instant, paths: &[PathView]) {
        self.choose(now, paths);
        let round_trips = paths.iter().map(|path| path.round_trip);
        if let Some(longest) = round_trips.max() {
            for line in &mut self.lines {
                let own = paths.iter().find(|path| Some(path.id) == line.path);
                line.outbox.set_round_trip(own.map_or(longest, |path| path.round_trip));
            }
        }
    }

    /// Lets flows take these paths.
    fn choose(&mut self, now: Instant, paths: &[PathView]) {
        let Some(choice) = &mut self.choice else { return };
        if paths.is_empty() {
            return;
        }
        let moves = choice.follow(now, paths);
        if choice.pins() {
            for view in paths {
                if !self.lines.iter().any(|line| line.path == Some(view.id)) {
                    let handed_over = self.handed_over.remove(&view.id).unwrap_or(0);
                    self.lines.push(Line::new(Some(view.id), Outbox::pinned(self.rate, handed_over)));
                }
            }
        }
        let moved: Vec<_> = moves.iter().filter(|flow_move| flow_move.from != flow_move.to).copied().collect();
        moves.into_iter().for_each(|flow_move| self.move_flow(flow_move));
        let is_gone = |line: &mut Line| line.path.is_some_and(|id| !paths.iter().any(|path| path.id == id));
        for line in self.lines.extract_if(.., is_gone).collect::<Vec<_>>() {
            let moved: Vec<_> = moved.iter().filter(|flow_move| flow_move.from == line.path).collect();
            self.take_over(now, line, &moved);
        }
    }

    fn line_at(&self, path: Option<u32>) -> usize {
        self.lines.iter().position(|line| line.path == path).unwrap_or(0)
    }

    /// A flow goes on elsewhere, with its packets that wait in queues.
    fn move_flow(&mut self, Move { flow, from, to, is_settled }: Move) {
        let (from, to) = (self.line_at(from), self.line_at(to));
        if let Ok([from, to]) = self.lines.get_disjoint_mut([from, to]) {
            to.outbox.take_flow(flow, &mut from.outbox);
        }
        self.lines[to].outbox.set_pinned(flow, is_settled);
    }

    /// The path of a line is gone, and its flows have moved. What is packed goes where the first of them is now.
    fn take_over(&mut self, now: Instant, from: Line, moved: &[&Move]) {
        let to = self.line_at(moved.first().and_then(|flow_move| flow_move.to));
        if let Some(path) = from.path {
            if self.handed_over.len() >= PATHS_REMEMBERED {
                self.handed_over.pop_first();
            }
            self.handed_over.insert(path, from.outbox.handed_over());
        }
        let to = &mut self.lines[to];
        self.before = self.before.plus(to.outbox.take_over(now, from.outbox));
        moved.iter().for_each(|flow_move| to.outbox.note_in_line(flow_move.flow));
        to.is_blocked = false;
    }

    /// The line of a flow that sends a packet of `len` bytes now.
    fn line_of(&mut self, flow: u16, len: usize) -> usize {
        let Some(choice) = &mut self.choice else { return 0 };
        if let Some(flow_move) = choice.note(flow, len) {
            self.move_flow(flow_move);
        }
        match self.choice.as_ref().and_then(|choice| choice.path_of(flow)) {
            None => 0,
            path => self.line_at(path),
        }
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
        let at = self.line_of(flow, place.len());
        self.with(at, |line| line.outbox.take(now, flow, buffer, place, head, len_max, line.is_blocked))
    }

    /// The outbox that packets of this flow take now, which may be packed [alone](Outbox::pack_alone).
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn of_flow(&mut self, flow: u16) -> &mut Outbox {
        let at = self.line_of(flow, 0);
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
        if let Some(turn) = self.turn.as_mut().filter(|_| !self.lines.iter().any(|line| line.outbox.has_queued())) {
            turn.rest();
        }
    }

    /// Whether a packet may pass all others with regard to the rate; [`count`](Self::count) counts it.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.turn.as_ref().is_none_or(Turn::may_overdraw)
    }

    /// Counts a packet that has passed all others.
    pub fn count(&mut self, packet: &Packet<'_>) {
        if let Some(turn) = &mut self.turn {
            turn.spend(packet.data_bytes());
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

    /// When the rate lets the next packet leave, if packets wait for that. The time may have come since they were last
    /// [served](Self::serve).
    #[must_use]
    pub fn blocked_until(&self) -> Option<Instant> {
        let until = self.turn.as_ref()?.blocked_until();
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
        line.outbox.swap_turn(&mut self.turn);
        let result = use_it(line);
        line.outbox.swap_turn(&mut self.turn);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use units::Duration;

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

    const fn view(id: u32, rate: Option<Rate>) -> PathView {
        PathView { id, round_trip: Duration::from_millis(10), rate, at_least: Rate::ZERO, packets: (0, 0) }
    }

    const PATHS: [PathView; 2] = [view(4, Some(Rate::from_mbps(20))), view(7, Some(Rate::from_mbps(10)))];

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
        assert_eq!((flows(&left[&Some(4)]), flows(&left[&Some(7)])), (vec![0, 2, 3, 4], vec![1, 5]));
        assert!(left.values().flatten().all(|item| item.is_pinned));
        for flow in 0..6 {
            let numbers: Vec<u32> =
                left.values().flatten().filter(|item| item.flow == flow).map(|item| item.sequence).collect();
            assert_eq!(numbers, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn a_path_whose_rate_is_not_known_gets_flows_as_the_fastest_one() {
        for known in [None, PATHS[0].rate] {
            let mut outboxes = Outboxes::pinned(None);
            outboxes.follow(at(0), &[view(4, known), view(7, None)]);
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
        (0..3).for_each(|pause| outboxes.follow(at(1000 * (1 + pause)), &PATHS));
        (0..3).for_each(|flow| put(&mut outboxes, at(3500), flow));
        let left = leave(&mut outboxes, at(3500), None);
        let shown = |path| left[&Some(path)].iter().map(|item| (item.flow, item.sequence)).collect::<Vec<_>>();
        assert_eq!((shown(4), shown(7)), (vec![(0, 2), (2, 2)], vec![(1, 2)]));
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
        let mut outboxes = Outboxes::pinned(Some(Arc::new(Meter::sender(rate))));
        outboxes.follow(at(0), &PATHS);
        let (mut now, mut left) = (at(0), BTreeMap::new());
        while now < at(500) {
            // Each always has more to send than the rate allows.
            (0..8).for_each(|_| (0..3).for_each(|flow| put(&mut outboxes, now, flow)));
            for (path, items) in leave(&mut outboxes, now, None) {
                *left.entry(path).or_insert(0) += items.len();
            }
            now = outboxes.blocked_until().unwrap_or(now) + Duration::from_micros(100);
        }
        let (least, most) = (left.values().min(), left.values().max());
        assert!(left.len() == 2 && least.zip(most).is_some_and(|(least, most)| 3 * least > *most), "{left:?}");
    }

    #[test]
    fn packets_that_wait_for_a_rate_say_until_when_also_once_that_has_passed() {
        let mut outboxes = Outboxes::sprayed(Some(Arc::new(Meter::sender(Rate::from_mbps(1)))));
        for round in 0..50 {
            (0..9).for_each(|flow| put(&mut outboxes, at(round), flow));
            leave(&mut outboxes, at(round), None);
            // A thread that looks at the clock again finds out later than it was told.
            let waits = outboxes.waiting_bytes() > 0;
            assert_eq!(outboxes.blocked_until().is_some(), waits, "round {round}");
        }
        assert!(outboxes.waiting_bytes() > 0, "it is more than the rate");
    }

    #[test]
    fn a_rate_holds_for_all_paths_together() {
        let rate = Rate::from_mbps(10);
        let mut outboxes = Outboxes::pinned(Some(Arc::new(Meter::sender(rate))));
        outboxes.follow(at(0), &PATHS);
        (0..200).for_each(|_| (0..3).for_each(|flow| put(&mut outboxes, at(0), flow)));
        let (mut now, mut bytes) = (at(0), 0);
        while outboxes.waiting_bytes() > 0 {
            bytes +=
                leave(&mut outboxes, now, None).values().flatten().map(|item| item.body.len_bytes()).sum::<usize>();
            now = outboxes.blocked_until().unwrap_or(now);
        }
        let took = now.saturating_since(at(0));
        let expected = rate.time_for(bytes as u64);
        assert!(took <= expected && took + Duration::from_millis(30) > expected, "{bytes} bytes took {took}");
    }
}
