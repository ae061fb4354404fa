//! Turns on the line, many at once.

use std::collections::VecDeque;

use units::{Duration, Instant};

use super::{AtmConfig, AtmFrame, AtmReport, CELL_BYTES, cells};
use crate::hardware::flight::Flight;
use crate::hardware::lane::Lane;
use crate::observe::{Ledger, Report};
use crate::{Sim, Stream};

/// Since the line was last idle.
struct Busy {
    began: Instant,
    /// Cells that have left since then, as far as worked out.
    cells: u64,
    /// Circuits with frames in the order of their turns; a cell of the first one is on the line.
    turns: VecDeque<usize>,
}

struct Circuit<T> {
    lane: Lane<AtmFrame<T>>,
    /// Cells of its first frame that have not left.
    cells_left: u64,
    /// The end of its last frame was lost: the next one belongs to it.
    runs_on: bool,
}

pub(super) struct State<T> {
    name: String,
    config: AtmConfig,
    losses: Stream,
    circuits: Vec<Circuit<T>>,
    busy: Option<Busy>,
    /// The memory of turns of the last time that the line was busy, for the next one; empty.
    idle_turns: VecDeque<usize>,
    pub(super) flight: Flight<AtmFrame<T>>,
    ledger: Ledger,
    pub(super) counts: AtmReport,
    /// Time that the line was busy since the warm-up, the present stretch left out.
    busy_before: Duration,
    since: Instant,
}

impl Busy {
    /// When `cells` cells have left. Counted from the beginning each time, so that fractions of a nanosecond do not add up.
    fn time(&self, cells: u64, config: &AtmConfig) -> Instant {
        let bits = u128::from(cells) * u128::from(CELL_BYTES * 8);
        let nanos = (bits * 1_000_000_000).div_ceil(u128::from(config.rate.as_bps()));
        self.began + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many cells have left at `now`.
    fn cells_at(&self, now: Instant, config: &AtmConfig) -> u64 {
        let nanos = u128::from(now.saturating_since(self.began).as_nanos());
        let cells = nanos * u128::from(config.rate.as_bps()) / (u128::from(CELL_BYTES * 8) * 1_000_000_000);
        u64::try_from(cells).unwrap_or(u64::MAX)
    }
}

impl<T> State<T> {
    pub(super) fn new(name: &str, config: AtmConfig, losses: Stream) -> Self {
        let circuit = || Circuit { lane: Lane::new(config.queue_frames), cells_left: 0, runs_on: false };
        Self {
            name: name.to_owned(),
            circuits: (0..config.circuits).map(|_| circuit()).collect(),
            losses,
            busy: None,
            idle_turns: VecDeque::new(),
            flight: Flight::new(),
            ledger: Ledger::default(),
            counts: AtmReport::default(),
            busy_before: Duration::ZERO,
            since: Instant::ZERO,
            config,
        }
    }

    pub(super) fn lane(&mut self, circuit: usize) -> &mut Lane<AtmFrame<T>> {
        &mut self.circuits[circuit].lane
    }

    /// Puts a frame into its circuit's queue; what happened before has been worked out. Returns its number on the circuit.
    pub(super) fn push(&mut self, now: Instant, frame: AtmFrame<T>, sim: &Sim) -> u64 {
        let number = frame.circuit;
        let Circuit { lane, cells_left, .. } = &mut self.circuits[number];
        let was_empty = lane.is_empty();
        let frame_cells = cells(frame.bytes);
        let (ticket, is_in) = lane.push(now, frame);
        if is_in {
            self.ledger.arrive(now);
        }
        let held = lane.len() as u64;
        sim.trace(|trace| trace.level(&format!("{} circuit {number}", self.name), now, held));
        if was_empty {
            *cells_left = frame_cells;
            let idle_turns = &mut self.idle_turns;
            let busy =
                self.busy.get_or_insert_with(|| Busy { began: now, cells: 0, turns: std::mem::take(idle_turns) });
            busy.turns.push_back(number);
            let first_cell = busy.time(busy.cells + busy.turns.len() as u64 - 1, &self.config);
            self.ledger.begin(first_cell.saturating_since(now));
        }
        ticket
    }

    /// When the next frame ends or arrives.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let end = self.busy.as_ref().map(|busy| busy.time(busy.cells + self.cells_to_next_end(busy), &self.config));
        end.into_iter().chain(self.flight.next_arrival()).min()
    }

    /// Cells until one is the last of its frame, as turns stand: those before it in its round, and the full rounds before.
    fn cells_to_next_end(&self, busy: &Busy) -> u64 {
        let count = busy.turns.len() as u64;
        let ends =
            (1..).zip(&busy.turns).map(|(turn, &circuit)| (self.circuits[circuit].cells_left - 1) * count + turn);
        ends.min().expect("a busy line has circuits with frames")
    }

    /// Works out what happens until `now`.
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

    /// Lets `count` cells leave, no more than until the end of a frame.
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

    /// The circuit that had the last turn has sent the last cell of its frame.
    fn end_frame(&mut self, mut busy: Busy, sim: &Sim) {
        let number = *busy.turns.back().expect("somebody had a turn");
        let at = busy.time(busy.cells, &self.config);
        let circuit = &mut self.circuits[number];
        debug_assert_eq!(circuit.cells_left, 0, "the circuit whose frame ends is the last in turn");
        let (frame, another_came) = circuit.lane.complete(at, sim);
        self.ledger.depart(at, frame.queued);
        if another_came {
            self.ledger.arrive(at);
        }
        let held = circuit.lane.len() as u64;
        sim.trace(|trace| trace.level(&format!("{} circuit {number}", self.name), at, held));
        if let Some(next) = circuit.lane.front() {
            circuit.cells_left = cells(next.bytes);
            let first_cell = busy.time(busy.cells + busy.turns.len() as u64 - 1, &self.config);
            self.ledger.begin(first_cell.saturating_since(next.queued));
        } else {
            busy.turns.pop_back();
        }
        let frame_cells = cells(frame.bytes);
        self.counts.frames += 1;
        self.counts.cells += frame_cells;
        if self.survives(number, frame_cells) {
            self.flight.push(at + self.config.delay, frame);
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

    /// Draws whether a frame of so many cells is whole, and is not taken for a part of the one before.
    fn survives(&mut self, circuit: usize, frame_cells: u64) -> bool {
        let loss = self.config.cell_loss;
        let others = i32::try_from(frame_cells - 1).expect("a frame has at most 1366 cells");
        let is_hit = self.losses.chance(1.0 - (1.0 - loss).powi(others));
        let loses_its_end = self.losses.chance(loss);
        let runs_on = std::mem::replace(&mut self.circuits[circuit].runs_on, loses_its_end);
        !(is_hit || loses_its_end || runs_on)
    }

    pub(super) fn reset(&mut self, now: Instant) {
        self.ledger.reset(now);
        (self.counts, self.busy_before, self.since) = (AtmReport::default(), Duration::ZERO, now);
    }

    pub(super) fn report(&self, now: Instant) -> Report {
        let stretch =
            self.busy.as_ref().map_or(Duration::ZERO, |busy| now.saturating_since(busy.began.max(self.since)));
        let busy_ns = u128::from((self.busy_before + stretch).as_nanos());
        self.ledger.report(&self.name, now, None, busy_ns)
    }
}
