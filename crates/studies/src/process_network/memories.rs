//! 002-memories: one shared memory against one per side, with data in both directions at line rate.
//!
//! Every word of a direction is written to a shared memory and read from it: by the network
//! interface at line rate, which cannot wait, and by the workstation, which can.

use std::cell::Cell;
use std::rc::Rc;

use sim::{Facility, Sim, Simulation, Store};
use units::{Duration, Instant};

use super::paper::Table1;
use super::run::exact;
use crate::choices;
use crate::choices::Choice;
use crate::conserved::{assert_conserved, check_accounting};
use crate::outcome::{Cell as TableCell, Check, Column, Outcome, Plot, Row, Series, Table};
use crate::study::{Effort, Options, Study};

/// The study.
pub(super) struct Memories;

/// Buffer sizes.
#[derive(Clone, Copy)]
struct Buffers {
    /// Blocks that the network interface holds while the memory is busy. Further blocks are lost.
    interface_blocks: usize,
    /// Blocks of a direction that wait in memory.
    waiting_blocks: usize,
    /// Words per memory access.
    block_words: u64,
}

/// Sixteen words, as in a bus burst; four segments in memory.
const BUFFERS: Buffers = Buffers { interface_blocks: 2, waiting_blocks: 256, block_words: 16 };

/// Cycle times in nanoseconds per word.
const CYCLES_NS: [u64; 12] = [30, 40, 50, 60, 65, 70, 80, 100, 120, 130, 140, 160];

/// Number and speed of the memories for the two directions.
#[derive(Clone, Copy)]
struct Setup {
    memories: usize,
    cycle_ns: u64,
    word_ns: u64,
    buffers: Buffers,
}

/// A direction: words pass from one end to the other through its memory.
struct Direction {
    sim: Sim,
    memory: Facility,
    setup: Setup,
    /// Blocks in memory.
    waiting: Store<()>,
    /// Blocks in the interface's own buffer.
    interface: Store<()>,
    moved: Rc<Cell<u64>>,
    /// Blocks that entered, that are being moved, and that left, since the start of the run.
    entered: Cell<u64>,
    in_progress: Cell<u64>,
    left: Cell<u64>,
}

fn up(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

fn down(count: &Cell<u64>) {
    count.set(count.get() - 1);
}

impl Direction {
    async fn access(&self) {
        self.memory.serve(Duration::from_nanos(self.setup.cycle_ns * self.setup.buffers.block_words)).await;
    }

    /// Runs the line, which delivers, or requests, one block per block time. A block is lost if the
    /// buffer is full, or empty.
    async fn line(self: Rc<Self>, is_receive: bool) {
        let mut due = Instant::ZERO;
        loop {
            due += Duration::from_nanos(self.setup.word_ns * self.setup.buffers.block_words);
            self.sim.sleep_until(due).await;
            let is_in_time =
                if is_receive { self.interface.try_put(()).is_ok() } else { self.interface.try_take().is_some() };
            if is_in_time {
                up(&self.moved);
                up(if is_receive { &self.entered } else { &self.left });
            }
        }
    }

    /// Moves blocks between the interface's buffer and the memory.
    async fn interface(self: Rc<Self>, is_receive: bool) {
        loop {
            if is_receive {
                self.interface.take().await;
                up(&self.in_progress);
                self.access().await;
                self.waiting.put(()).await;
            } else {
                self.waiting.take().await;
                up(&self.in_progress);
                self.access().await;
                self.interface.put(()).await;
            }
            down(&self.in_progress);
        }
    }

    /// Moves the workstation's blocks from or to the memory as fast as possible.
    async fn workstation(self: Rc<Self>, is_receive: bool) {
        loop {
            if is_receive {
                self.waiting.take().await;
                up(&self.in_progress);
                self.access().await;
                down(&self.in_progress);
                up(&self.left);
            } else {
                self.access().await;
                self.waiting.put(()).await;
                up(&self.entered);
            }
        }
    }

    /// Checks that each block that entered is waiting, being moved or has left. Blocks lost on the
    /// line never entered.
    ///
    /// # Panics
    /// Panics if this does not hold.
    fn check_conservation(&self) {
        let places = [
            ("in memory", self.waiting.len() as u64),
            ("in the interface", self.interface.len() as u64),
            ("moved", self.in_progress.get()),
            ("left", self.left.get()),
        ];
        assert_conserved("blocks", self.entered.get(), &places);
    }
}

/// Returns the throughput of both directions as a fraction of the capacity of two lines.
fn share_of_line(setup: Setup, options: &Options) -> f64 {
    let blocks: u64 = match options.effort {
        Effort::Quick => 2_000,
        Effort::Full => 100_000,
    };
    let mut simulation = Simulation::new(options.seed, 0);
    let sim = simulation.sim();
    let new = |index| Facility::new(&sim, &format!("memory {index}"), 1);
    let memories: Vec<_> = (0..setup.memories).map(new).collect();
    let moved = Rc::new(Cell::new(0));
    let mut directions = Vec::new();
    for (index, is_receive) in [true, false].into_iter().enumerate() {
        let direction = Rc::new(Direction {
            sim: sim.clone(),
            memory: memories[index % setup.memories].clone(),
            setup,
            waiting: Store::new(&sim, &format!("waiting {index}"), setup.buffers.waiting_blocks),
            interface: Store::new(&sim, &format!("interface {index}"), setup.buffers.interface_blocks),
            moved: Rc::clone(&moved),
            entered: Cell::new(0),
            in_progress: Cell::new(0),
            left: Cell::new(0),
        });
        simulation.spawn(Rc::clone(&direction).line(is_receive));
        simulation.spawn(Rc::clone(&direction).interface(is_receive));
        simulation.spawn(Rc::clone(&direction).workstation(is_receive));
        directions.push(direction);
    }
    let block_ns = setup.word_ns * setup.buffers.block_words;
    let warm_up = Instant::from_nanos(block_ns * blocks / 10);
    simulation.run_until(warm_up);
    let before = moved.get();
    simulation.run_until(warm_up + Duration::from_nanos(block_ns * blocks));
    check_accounting(&simulation);
    directions.iter().for_each(|direction| direction.check_conservation());
    (moved.get() - before) as f64 / (2 * blocks) as f64
}

/// Returns the line time per word.
fn word_ns() -> u64 {
    (Table1::load().of("driver_send").us_per_word * 1000.0).round() as u64
}

/// Returns the slowest memory without loss, to the nanosecond.
fn slowest_ns(memories: usize, buffers: Buffers, word_ns: u64, options: &Options) -> u64 {
    let keeps_up = |cycle_ns: u64| {
        // One block may be in transit at either end of the measured interval.
        share_of_line(Setup { memories, cycle_ns, word_ns, buffers }, options) > 0.9995
    };
    // Bisection between a memory that certainly keeps up and one that cannot because it is slower
    // than the line.
    let (mut good, mut bad) = (1, word_ns + 1);
    while bad - good > 1 {
        let middle = u64::midpoint(good, bad);
        if keeps_up(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

impl Study for Memories {
    fn id(&self) -> &'static str {
        "002-memories"
    }

    fn title(&self) -> &'static str {
        "One shared memory for both sides against one for each, with data in both directions at line rate"
    }

    fn data(&self) -> &'static [&'static str] {
        &["002-table-1.toml"]
    }

    fn choices(&self) -> Vec<Choice> {
        let with = |interface_blocks, waiting_blocks, block_words| {
            move |options: &Options| {
                let buffers = Buffers { interface_blocks, waiting_blocks, block_words };
                exact(slowest_ns(2, buffers, word_ns(), options) as f64)
            }
        };
        let figure = "the slowest of two memories, ns";
        let Buffers { interface_blocks, waiting_blocks, block_words } = BUFFERS;
        vec![
            Choice::new(
                "interface",
                format!("{interface_blocks} blocks in the interface's buffer"),
                "not given; without a buffer the memory would have to be idle at every access",
            )
            .or("1 block", figure, with(1, waiting_blocks, block_words))
            .or("8 blocks", figure, with(8, waiting_blocks, block_words)),
            Choice::new("block", format!("{block_words} words per access"), "not given; as in a bus burst")
                .or("4 words", figure, with(interface_blocks, waiting_blocks, 4))
                .or("64 words", figure, with(interface_blocks, waiting_blocks, 64)),
            Choice::new(
                "waiting",
                format!("{waiting_blocks} blocks per direction in memory"),
                "not given; four segments",
            )
            .or("one segment", figure, with(interface_blocks, waiting_blocks / 4, block_words))
            .or("sixteen segments", figure, with(interface_blocks, waiting_blocks * 4, block_words)),
        ]
    }

    fn run(&self, options: &Options) -> Outcome {
        let word_ns = word_ns();
        let slowest = |memories| slowest_ns(memories, BUFFERS, word_ns, options);
        let (one, two) = (slowest(1), slowest(2));
        let curve = |memories| {
            let share = |&cycle_ns: &u64| {
                let setup = Setup { memories, cycle_ns, word_ns, buffers: BUFFERS };
                (cycle_ns as f64, exact(share_of_line(setup, options) * 100.0))
            };
            CYCLES_NS.iter().map(share).collect::<Vec<_>>()
        };
        let names = ["one memory", "two memories"];
        let row =
            |label: &str, ns: u64| Row { label: label.to_owned(), cells: vec![TableCell::ours(exact(ns as f64))] };
        let ratio = two as f64 / one as f64;
        Outcome {
            tables: vec![Table {
                title: "The slowest memory with which the line reaches its full rate".to_owned(),
                columns: vec![Column::new("cycle time per word", "ns")],
                rows: vec![row(names[0], one), row(names[1], two)],
            }],
            plots: vec![Plot {
                title: "Throughput of both directions by memory cycle".to_owned(),
                x: Column::new("cycle time per word", "ns"),
                y: Column::new("share of the line", "%"),
                series: names
                    .iter()
                    .zip([curve(1), curve(2)])
                    .map(|(name, points)| Series { name: (*name).to_owned(), points })
                    .collect(),
            }],
            assumptions: choices::assumptions(&self.choices(), options),
            checks: vec![Check::new(
                "two memories need half the speed of one",
                (1.7..=2.3).contains(&ratio),
                format!("{one} and {two} ns, {ratio:.2} times as slow"),
            )],
            notes: vec![
                "The paper gives no numbers for this, only the argument: each word is written and read once per \
                 direction."
                    .to_owned(),
            ],
        }
    }
}
