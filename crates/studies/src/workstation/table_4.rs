//! Table 4: the parallelism of a `send()` call.
//!
//! The report measures nothing here: it adds up instructions and memory accesses of a serial and a
//! parallel part. Both sums are solved from the two speeds of each case. The speedup is a
//! prediction: calls of this shape run on simulated processors that share a lock for the serial
//! part.

use std::rc::Rc;

use measure::Estimate;
use sim::{Resource, Simulation};
use units::{Duration, Instant};

use super::paper::{DATA_WITH_PROSE, Table4, paper};
use super::prose::prose;
use crate::choices;
use crate::choices::Choice;
use crate::conserved::check_accounting;
use crate::outcome::{Cell, Check, Outcome};
use crate::outcome::{Column, Plot, Row, Series, Table};
use crate::study::{Effort, Options, Study};

/// The print truncates or rounds a digit: half a unit more than the digit.
const SPEEDUP_ROUNDING: f64 = 0.1;
/// Times are printed to a tenth of a microsecond.
const TIME_ROUNDING_US: f64 = 0.05;
/// More processors than any case can use.
const MANY: usize = 32;

pub(super) struct SendCall;

impl Study for SendCall {
    fn id(&self) -> &'static str {
        "004-table-4"
    }

    fn title(&self) -> &'static str {
        "Parallelism of a send() call (Table 4)"
    }

    fn data(&self) -> &'static [&'static str] {
        DATA_WITH_PROSE
    }

    fn choices(&self) -> Vec<Choice> {
        let figure = "largest speedup, 500 bytes, 25 MIPS, hardware";
        let with = |processors, handoff: Duration| {
            move |options: &Options| {
                exactly(speedup_with_handoff(&paper().table_4[3], processors, calls(options.effort), handoff))
            }
        };
        vec![
            Choice::new(
                "processors that wait for the serial part",
                "execute it in order of arrival, at no cost, and nothing else is shared",
                "the report's formula (parallel + serial) / serial assumes it",
            )
            .or("0.1 us to pass the lock", figure, with(MANY, Duration::from_nanos(100)))
            .or("1 us to pass the lock", figure, with(MANY, Duration::from_micros(1))),
            Choice::new(
                "processors",
                format!("{MANY}, more than any case can use"),
                "the report's bound is for any number",
            )
            .or("4", figure, with(4, Duration::ZERO))
            .or("8", figure, with(8, Duration::ZERO)),
        ]
    }

    fn run(&self, options: &Options) -> Outcome {
        let calls = calls(options.effort);
        let rows = &paper().table_4;
        let limits: Vec<f64> = rows.iter().map(|row| speedup(row, MANY, calls)).collect();
        let mut checks = orderings(rows, &limits);
        checks.push(two_calls(&rows[0]));
        checks.push(linear_model(rows));
        Outcome {
            tables: vec![speedups(rows, &limits), sums(rows)],
            plots: vec![curves(rows, calls)],
            assumptions: choices::assumptions(&self.choices(), options),
            checks,
            notes: vec![
                "Fitted: two sums of each part, to its two printed times, which are therefore no evidence. A part \
                 consists of instructions and of reads and writes as long as Table 2 has them under load; where \
                 memory would become negative, of instructions and a fixed time. The speedups are measured in \
                 simulated calls on 32 processors."
                    .to_owned(),
                "The first parallel time is read as 58.2 us, as in the report's text; its table prints 54.2."
                    .to_owned(),
            ],
        }
    }
}

/// Returns the report's worked example: two processors with one call each.
fn two_calls(row: &Table4) -> Check {
    let printed = prose().two_calls;
    let (parallel, serial) = (row.parallel_us, row.serial_us);
    let sum = 2.0 * serial + parallel;
    let right = 2.0 * (serial + parallel) / sum;
    let two = speedup(row, 2, 2);
    let statement = format!(
        "two processors execute two calls of the first case {right:.2} times faster, not {} as printed: 2 x {serial} \
         + {parallel} is {sum:.1}, not {}",
        printed.speedup, printed.sum_us
    );
    // The statement is also wrong if the printed value is right.
    let is_slip = (two - printed.speedup).abs() > SPEEDUP_ROUNDING && (sum - printed.sum_us).abs() > TIME_ROUNDING_US;
    Check::new(statement, is_slip && (two - right).abs() < 0.02, format!("{two:.2}, from {sum:.1} us for two calls"))
}

/// Returns the number of calls of a case.
const fn calls(effort: Effort) -> u64 {
    match effort {
        Effort::Quick => 400,
        Effort::Full => 20_000,
    }
}

/// Returns the speedup of calls of this shape on `processors` processors.
fn speedup(row: &Table4, processors: usize, calls: u64) -> f64 {
    speedup_with_handoff(row, processors, calls, Duration::ZERO)
}

/// Returns the same if the serial part takes `handoff` more for a processor that had to wait for
/// it.
fn speedup_with_handoff(row: &Table4, processors: usize, calls: u64, handoff: Duration) -> f64 {
    let nanos = |micros: f64| Duration::from_nanos((micros * 1e3).round() as u64);
    let (parallel, serial) = (nanos(row.parallel_us), nanos(row.serial_us));
    let mut simulation = Simulation::new(0, 0);
    let sim = simulation.sim();
    let lock = Resource::new(&sim, "serial part");
    let left = Rc::new(std::cell::Cell::new(calls));
    for _ in 0..processors {
        let (sim, lock, left) = (sim.clone(), lock.clone(), Rc::clone(&left));
        simulation.spawn(async move {
            while left.get() > 0 {
                left.set(left.get() - 1);
                let waits = lock.present() > 0;
                let held = lock.acquire().await;
                sim.sleep(if waits { serial + handoff } else { serial }).await;
                drop(held);
                sim.sleep(parallel).await;
            }
        });
    }
    simulation.run();
    check_accounting(&simulation);
    let alone = (parallel + serial).as_nanos() as f64 * calls as f64;
    alone / (sim.now() - Instant::ZERO).as_nanos() as f64
}

/// The composition of a part of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sums {
    instructions: f64,
    /// Memory accesses, each as long as in Table 2 at that speed, including its waiting time.
    accesses: f64,
    /// Time that depends on neither processor nor memory: bus transfers.
    fixed_us: f64,
}

impl Sums {
    fn time_us(&self, mips: f64, access_us: f64) -> f64 {
        self.instructions / mips + self.accesses * access_us + self.fixed_us
    }

    const fn can_be(&self) -> bool {
        self.instructions >= 0.0 && self.accesses >= 0.0 && self.fixed_us >= 0.0
    }
}

/// Returns the composition of a part that takes `slow_us` and `fast_us` at the two speeds:
/// instructions, and accesses or a fixed time. Returns `None` if no nonnegative composition exists.
fn solve(slow: &Table4, fast: &Table4, access_us: [f64; 2], slow_us: f64, fast_us: f64) -> Option<Sums> {
    let with = |other: [f64; 2]| {
        // slow_us = instructions / slow.mips + share * other[0], and the same for the fast one.
        let determinant = other[1] / slow.mips - other[0] / fast.mips;
        let instructions = (slow_us * other[1] - fast_us * other[0]) / determinant;
        let share = (fast_us / slow.mips - slow_us / fast.mips) / determinant;
        (instructions, share)
    };
    let (instructions, accesses) = with(access_us);
    let first = Sums { instructions, accesses, fixed_us: 0.0 };
    let (instructions, fixed_us) = with([1.0, 1.0]);
    let second = Sums { instructions, accesses: 0.0, fixed_us };
    [first, second].into_iter().find(Sums::can_be)
}

/// Returns Table 2's time of a memory access at this memory speed.
fn access_us(memory_ns: u64) -> f64 {
    let row = paper().table_2.iter().find(|row| row.memory_ns == memory_ns);
    row.expect("both speeds of Table 4 are in Table 2").access_us
}

fn label(row: &Table4) -> String {
    let checksum = if row.software_checksum { "software" } else { "hardware" };
    format!("{} bytes, {} ns, {} MIPS, {checksum}", row.packet_bytes, row.memory_ns, row.mips)
}

const fn exactly(mean: f64) -> Estimate {
    Estimate { mean, plus_minus: None }
}

fn speedups(rows: &[Table4], limits: &[f64]) -> Table {
    let row = |(row, &limit): (&Table4, &f64)| Row {
        label: label(row),
        cells: vec![Cell::compared(row.speedup, exactly(limit), SPEEDUP_ROUNDING / row.speedup)],
    };
    Table {
        title: "Largest speedup of send()".to_owned(),
        columns: vec![Column::new("speedup", "")],
        rows: rows.iter().zip(limits).map(row).collect(),
    }
}

/// Returns the compositions, and the times that follow from them.
fn sums(rows: &[Table4]) -> Table {
    let mut table = Table {
        title: "Composition of the two parts".to_owned(),
        columns: vec![
            Column::new("parallel part", "us"),
            Column::new("its instructions", ""),
            Column::new("its reads and writes", ""),
            Column::new("its fixed time", "us"),
            Column::new("serial part", "us"),
            Column::new("its instructions", ""),
            Column::new("its reads and writes", ""),
            Column::new("its fixed time", "us"),
        ],
        rows: Vec::new(),
    };
    for pair in rows.chunks_exact(2) {
        let (slow, fast) = (&pair[0], &pair[1]);
        let accesses_us = [access_us(slow.memory_ns), access_us(fast.memory_ns)];
        let parallel = solve(slow, fast, accesses_us, slow.parallel_us, fast.parallel_us);
        let serial = solve(slow, fast, accesses_us, slow.serial_us, fast.serial_us);
        for row in pair {
            let mut cells = part(row, row.parallel_us, parallel);
            cells.extend(part(row, row.serial_us, serial));
            table.rows.push(Row { label: label(row), cells });
        }
    }
    table
}

fn part(row: &Table4, printed_us: f64, sums: Option<Sums>) -> Vec<Cell> {
    // Solved from the printed times: these parameters make the times fit.
    let ours =
        |figure: fn(&Sums) -> f64| Cell { ours: sums.as_ref().map(figure).map(exactly), ..Cell::default() }.fitted();
    let time = sums.map(|sums| exactly(sums.time_us(row.mips, access_us(row.memory_ns))));
    let tolerance = Some(TIME_ROUNDING_US / printed_us);
    vec![
        Cell { paper: Some(printed_us), ours: time, tolerance, fitted: true },
        ours(|sums| sums.instructions),
        ours(|sums| sums.accesses),
        ours(|sums| sums.fixed_us),
    ]
}

/// Checks whether instructions and accesses without waiting can explain the report's pairs of
/// times.
fn linear_model(rows: &[Table4]) -> Check {
    let mut unexplained = Vec::new();
    for pair in rows.chunks_exact(2) {
        let (slow, fast) = (&pair[0], &pair[1]);
        let bounds = [fast.mips / slow.mips, slow.memory_ns as f64 / fast.memory_ns as f64];
        for (name, slow_us, fast_us) in
            [("parallel", slow.parallel_us, fast.parallel_us), ("serial", slow.serial_us, fast.serial_us)]
        {
            let least = (slow_us - TIME_ROUNDING_US) / (fast_us + TIME_ROUNDING_US);
            let most = (slow_us + TIME_ROUNDING_US) / (fast_us - TIME_ROUNDING_US);
            if most < bounds[0] || least > bounds[1] {
                unexplained.push(format!("{name} part of {}: {:.2} times", label(slow), slow_us / fast_us));
            }
        }
    }
    Check::new(
        "instructions and accesses without waiting would make the slow machine's times 5/3 to 2 times the fast one's",
        unexplained.is_empty(),
        if unexplained.is_empty() { "all eight".to_owned() } else { unexplained.join("; ") },
    )
}

fn orderings(rows: &[Table4], limits: &[f64]) -> Vec<Check> {
    let limit = |bytes: u64, software: bool| -> Vec<f64> {
        let of_case = |row: &Table4| row.packet_bytes == bytes && row.software_checksum == software;
        rows.iter().zip(limits).filter(|(row, _)| of_case(row)).map(|(_, &limit)| limit).collect()
    };
    let above = |statement: &str, more: Vec<f64>, less: Vec<f64>| {
        let holds = more.iter().zip(&less).all(|(more, less)| more > less);
        Check::new(statement, holds, format!("{more:.1?} and {less:.1?}"))
    };
    let (least, most) =
        limits.iter().fold((f64::MAX, f64::MIN), |(least, most), &limit| (least.min(limit), most.max(limit)));
    vec![
        Check::new(
            "the serial part bounds the speedup to between 3 and 8",
            least > 3.0 && most < 8.0,
            format!("{least:.1} to {most:.1}"),
        ),
        above("a checksum in hardware raises the bound, 500 bytes", limit(500, false), limit(500, true)),
        above("a checksum in hardware raises the bound, 4500 bytes", limit(4500, false), limit(4500, true)),
        above("larger packets lower it, software", limit(500, true), limit(4500, true)),
        above("larger packets lower it, hardware", limit(500, false), limit(4500, false)),
    ]
}

fn curves(rows: &[Table4], calls: u64) -> Plot {
    let series = |row: &Table4| Series {
        name: label(row),
        points: (1..=12_usize).map(|count| (count as f64, exactly(speedup(row, count, calls)))).collect(),
    };
    Plot {
        title: "Speedup of send() with the number of processors".to_owned(),
        x: Column::new("processors", ""),
        y: Column::new("speedup", ""),
        series: rows.iter().step_by(2).map(series).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_processors_reach_the_bound_of_the_serial_part_and_few_are_linear() {
        for row in &paper().table_4 {
            let bound = (row.parallel_us + row.serial_us) / row.serial_us;
            assert!((speedup(row, MANY, 2_000) / bound - 1.0).abs() < 0.02, "{row:?}");
            assert!((speedup(row, 1, 100) - 1.0).abs() < 1e-9);
            assert!(
                (speedup(row, 2, 2_000) - 2.0).abs() < 0.01,
                "two processors do not wait for each other in the long run"
            );
        }
    }

    #[test]
    fn compositions_are_marked_as_fitted_and_speedups_are_not() {
        let rows = &paper().table_4;
        assert!(sums(rows).rows.iter().flat_map(|row| &row.cells).all(|cell| cell.fitted));
        let limits = vec![1.0; rows.len()];
        assert!(!speedups(rows, &limits).rows.iter().flat_map(|row| &row.cells).any(|cell| cell.fitted));
    }

    #[test]
    fn the_composition_of_every_part_gives_its_printed_times() {
        for pair in paper().table_4.chunks_exact(2) {
            let (slow, fast) = (&pair[0], &pair[1]);
            let accesses_us = [access_us(slow.memory_ns), access_us(fast.memory_ns)];
            for (slow_us, fast_us) in [(slow.parallel_us, fast.parallel_us), (slow.serial_us, fast.serial_us)] {
                let sums = solve(slow, fast, accesses_us, slow_us, fast_us).expect("a composition exists");
                assert!((sums.time_us(slow.mips, accesses_us[0]) - slow_us).abs() < TIME_ROUNDING_US, "{sums:?}");
                assert!((sums.time_us(fast.mips, accesses_us[1]) - fast_us).abs() < TIME_ROUNDING_US, "{sums:?}");
            }
            // The ratio is larger than those of memory and processor: no composition exists.
            assert_eq!(solve(slow, fast, accesses_us, 30.0, 10.0), None);
        }
    }
}
