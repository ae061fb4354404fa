//! Computes the turns of circuits on the line, many at a time.

use std::collections::VecDeque;

use units::{Duration, Instant};

use super::{AtmConfig, AtmFrame, AtmReport, CELL_BYTES, cells};
use crate::hardware::frame_queue::FrameQueue;
use crate::hardware::in_flight::InFlight;
use crate::kernel::Sim;
use crate::observe::{Accounting, ComponentReport};
use crate::stream::Stream;

/// State since the line was last idle.
struct Busy {
    began: Instant,
    /// Cells sent since then, as far as computed.
    cells: u64,
    /// Circuits with frames in the order of their turns. A cell of the first one is in
    /// transmission.
    turns: VecDeque<usize>,
}

struct Circuit<T> {
    queue: FrameQueue<AtmFrame<T>>,
    /// Unsent cells of the first frame.
    cells_left: u64,
    /// True if the last cell of the previous frame was lost, so that the next frame is joined with
    /// it.
    runs_on: bool,
}

pub(super) struct AtmState<T> {
    name: String,
    config: AtmConfig,
    losses: Stream,
    circuits: Vec<Circuit<T>>,
    busy: Option<Busy>,
    /// The empty buffer of `turns` of the previous busy period, for reuse.
    idle_turns: VecDeque<usize>,
    pub(super) in_flight: InFlight<AtmFrame<T>>,
    accounting: Accounting,
    pub(super) counts: AtmReport,
    /// Busy time since the warm-up, without the current busy period.
    busy_before: Duration,
    since: Instant,
}

impl Busy {
    /// Returns when `cells` cells have been sent. Computed from the start of the busy period, so
    /// that rounding errors do not accumulate.
    fn time(&self, cells: u64, config: &AtmConfig) -> Instant {
        let bits = u128::from(cells) * u128::from(CELL_BYTES * 8);
        let nanos = (bits * 1_000_000_000).div_ceil(u128::from(config.rate.as_bps()));
        self.began + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of cells sent by `now`.
    fn cells_at(&self, now: Instant, config: &AtmConfig) -> u64 {
        let nanos = u128::from(now.saturating_since(self.began).as_nanos());
        let cells = nanos * u128::from(config.rate.as_bps()) / (u128::from(CELL_BYTES * 8) * 1_000_000_000);
        u64::try_from(cells).unwrap_or(u64::MAX)
    }
}

impl<T> AtmState<T> {
    pub(super) fn new(name: &str, config: AtmConfig, losses: Stream) -> Self {
        let circuit = || Circuit { queue: FrameQueue::new(config.queue_frames), cells_left: 0, runs_on: false };
        Self {
            name: name.to_owned(),
            circuits: (0..config.circuits).map(|_| circuit()).collect(),
            losses,
            busy: None,
            idle_turns: VecDeque::new(),
            in_flight: InFlight::new(),
            accounting: Accounting::default(),
            counts: AtmReport::default(),
            busy_before: Duration::ZERO,
            since: Instant::ZERO,
            config,
        }
    }

    pub(super) fn queue(&mut self, circuit: usize) -> &mut FrameQueue<AtmFrame<T>> {
        &mut self.circuits[circuit].queue
    }

    /// Adds a frame to its circuit's queue. The state must be up to date. Returns the frame's
    /// number on the circuit.
    pub(super) fn push(&mut self, now: Instant, frame: AtmFrame<T>, sim: &Sim) -> u64 {
        let number = frame.circuit;
        let Circuit { queue, cells_left, .. } = &mut self.circuits[number];
        let was_empty = queue.is_empty();
        let frame_cells = cells(frame.bytes);
        let (ticket, is_in) = queue.push(now, frame);
        if is_in {
            self.accounting.arrive(now);
        }
        let held = queue.len() as u64;
        sim.trace(|trace| trace.level(&format!("{} circuit {number}", self.name), now, held));
        if was_empty {
            *cells_left = frame_cells;
            let idle_turns = &mut self.idle_turns;
            let busy =
                self.busy.get_or_insert_with(|| Busy { began: now, cells: 0, turns: std::mem::take(idle_turns) });
            busy.turns.push_back(number);
            let first_cell = busy.time(busy.cells + busy.turns.len() as u64 - 1, &self.config);
            self.accounting.begin(first_cell.saturating_since(now));
        }
        ticket
    }

    /// Returns when the next frame ends or arrives.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let end = self.busy.as_ref().map(|busy| busy.time(busy.cells + self.cells_to_next_end(busy), &self.config));
        end.into_iter().chain(self.in_flight.next_arrival()).min()
    }

    /// Returns the number of cells until the next end of a frame in the present order of turns:
    /// full rounds plus the position in the last round.
    fn cells_to_next_end(&self, busy: &Busy) -> u64 {
        let count = busy.turns.len() as u64;
        let ends =
            (1..).zip(&busy.turns).map(|(turn, &circuit)| (self.circuits[circuit].cells_left - 1) * count + turn);
        ends.min().expect("a busy line has circuits with frames")
    }

    /// Brings the state up to date until `now`.
    pub(super) fn advance(&mut self, now: Instant, sim: &Sim) {
        while let Some(busy) = self.busy.take() {
            let gone = busy.cells_at(now, &self.config) - busy.cells;
            let to_end = self.cells_to_next_end(&busy);
            let busy = self.pass_cells(busy, gone.min(to_end));
            if gone < to_end {
                self.busy = Some(busy);
                return;
            }
            self.end_frame(busy, sim);
        }
    }

    /// Sends `count` cells, at most until the end of a frame.
    fn pass_cells(&mut self, mut busy: Busy, count: u64) -> Busy {
        let turns = busy.turns.len() as u64;
        let (rounds, rest) = (count / turns, (count % turns) as usize);
        for (index, &circuit) in busy.turns.iter().enumerate() {
            self.circuits[circuit].cells_left -= rounds + u64::from(index < rest);
        }
        busy.turns.rotate_left(rest);
        busy.cells += count;
        busy
    }

    /// Ends the frame whose last cell the circuit of the last turn has sent.
    fn end_frame(&mut self, mut busy: Busy, sim: &Sim) {
        let number = *busy.turns.back().expect("a circuit had a turn");
        let at = busy.time(busy.cells, &self.config);
        let circuit = &mut self.circuits[number];
        debug_assert_eq!(circuit.cells_left, 0, "the circuit whose frame ends is the last in turn");
        let (frame, another_came) = circuit.queue.complete(at, sim);
        self.accounting.depart(at, frame.queued);
        if another_came {
            self.accounting.arrive(at);
        }
        let held = circuit.queue.len() as u64;
        sim.trace(|trace| trace.level(&format!("{} circuit {number}", self.name), at, held));
        if let Some(next) = circuit.queue.front() {
            circuit.cells_left = cells(next.bytes);
            let first_cell = busy.time(busy.cells + busy.turns.len() as u64 - 1, &self.config);
            self.accounting.begin(first_cell.saturating_since(next.queued));
        } else {
            busy.turns.pop_back();
        }
        let frame_cells = cells(frame.bytes);
        self.counts.frames += 1;
        self.counts.cells += frame_cells;
        if self.is_delivered_intact(number, frame_cells) {
            self.in_flight.push(at + self.config.delay, frame);
        } else {
            self.counts.spoiled += 1;
        }
        if busy.turns.is_empty() {
            self.busy_before += at.saturating_since(busy.began.max(self.since));
            self.idle_turns = busy.turns;
        } else {
            self.busy = Some(busy);
        }
    }

    /// Draws whether a frame of `frame_cells` cells arrives intact and is not joined with the
    /// previous one.
    fn is_delivered_intact(&mut self, circuit: usize, frame_cells: u64) -> bool {
        let loss = self.config.cell_loss;
        let other_cells = i32::try_from(frame_cells - 1).expect("a frame has at most 1366 cells");
        let is_hit = self.losses.chance(1.0 - (1.0 - loss).powi(other_cells));
        let loses_its_end = self.losses.chance(loss);
        let runs_on = std::mem::replace(&mut self.circuits[circuit].runs_on, loses_its_end);
        !(is_hit || loses_its_end || runs_on)
    }

    pub(super) fn reset(&mut self, now: Instant) {
        self.accounting.reset(now);
        (self.counts, self.busy_before, self.since) = (AtmReport::default(), Duration::ZERO, now);
    }

    pub(super) fn report(&self, now: Instant) -> ComponentReport {
        let current =
            self.busy.as_ref().map_or(Duration::ZERO, |busy| now.saturating_since(busy.began.max(self.since)));
        let busy_ns = u128::from((self.busy_before + current).as_nanos());
        self.accounting.report(&self.name, now, None, busy_ns)
    }
}
