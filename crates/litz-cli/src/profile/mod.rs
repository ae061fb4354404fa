//! Measures where the time of a packet goes, divides it into activities, and derives bounds on the
//! speedup.
//!
//! ```text
//!   absorb ── ns per batch ──────────────────────────────┐
//!   run (two threads, loopback) ── ns for activities ────────┼▶ side: rows, sums ── fit over sizes ──▶ report
//!     └ calibrate, between its calls ── ns for its parts ┘
//! ```
//! | module | contents |
//! |---|---|
//! | `settings`, `failure` | what to measure, and why there is no profile |
//! | `run`, `several` | runs from memory to memory, by one connection or by several at once |
//! | `calibrate`, `absorb` | costs of parts of activities, measured separately |
//! | `cores`, `wake` | the processors of each end; the time to wake a thread |
//! | `file` | costs of reading, hashing and writing files |
//! | `row` | the rows: activities, their parts, and whether they can run in parallel |
//! | `side`, `fit`, `bound` | tables, fitted lines, bounds |
//! | `report` | the result, in the JSON format of `docs/spec/profile.md` |
//! | `tcp` | the cost of a segment of TCP |

mod absorb;
mod bound;
mod calibrate;
mod cores;
mod failure;
mod file;
mod fit;
mod report;
mod row;
mod run;
mod settings;
mod several;
mod side;
mod tcp;
mod wake;

use litz::Placement;
use transfer::CancelToken;

pub(crate) use bound::Bound;
pub(crate) use calibrate::payload_len;
pub(crate) use cores::halves;
pub(crate) use failure::Failure;
pub(crate) use fit::median;
pub(crate) use report::{BUDGET_NS, ProfileReport, Table};
pub(crate) use row::{End, Source};
pub(crate) use run::{Run, RunPlan, WARM_UP, WINDOW, run};
pub(crate) use settings::Settings;
pub(crate) use several::run_several;
pub(crate) use side::Side;
pub(crate) use tcp::serial::measure as measure_serial_step;
pub(crate) use tcp::{Job, Jobs, SerialStep, TcpReport, TcpSettings, measure_tcp};

use cores::Cores;
use file::FileCosts;
use report::{FileTable, Overhead};
use side::{Measured, Point};

/// All measurements at one size.
#[derive(Default)]
struct AtSize {
    sending: Vec<Measured>,
    receiving: Vec<Measured>,
}

/// Runs at the requested size, alternately with the meter and without it.
#[derive(Default)]
struct Comparison {
    metered: Vec<Run>,
    unmetered: Vec<Run>,
}

/// Measures; calls `progress` before each step.
pub(crate) fn measure(
    settings: &Settings,
    cancel: &CancelToken,
    progress: &dyn Fn(&str),
) -> Result<ProfileReport, Failure> {
    let mut session = Session::begin(settings, cancel, progress)?;
    for _ in 0..settings.runs {
        session.round(cancel, progress)?;
    }
    session.report()
}

/// A profile that is measured in rounds, so that other measurements can run between them.
pub(crate) struct Session<'a> {
    settings: &'a Settings,
    file: Option<FileCosts>,
    sizes: Vec<AtSize>,
    comparison: Comparison,
    wake_ns: Vec<f64>,
}

impl<'a> Session<'a> {
    /// Makes the measurements that are made only once.
    pub(crate) fn begin(
        settings: &'a Settings,
        cancel: &CancelToken,
        progress: &dyn Fn(&str),
    ) -> Result<Self, Failure> {
        // First, so that an unusable folder is reported at once.
        let file = if settings.file {
            progress("from file to file");
            let dir = settings.dir.as_deref();
            Some(file::measure(dir, settings.datagram_size, settings.runs, cancel)?)
        } else {
            None
        };
        let sizes = settings.sizes.iter().map(|_| AtSize::default()).collect();
        Ok(Self { settings, file, sizes, comparison: Comparison::default(), wake_ns: Vec::new() })
    }

    /// Makes one run at each size.
    pub(crate) fn round(&mut self, cancel: &CancelToken, progress: &dyn Fn(&str)) -> Result<(), Failure> {
        let settings = self.settings;
        self.wake_ns.push(wake::measure(&Cores::of_this_machine().sending).map_err(Failure::Error)?);
        for (size, at_size) in settings.sizes.iter().zip(&mut self.sizes) {
            let plan =
                RunPlan { datagram_size: *size, time: settings.time, metered: true, placement: Placement::Inline };
            if *size == settings.datagram_size {
                progress(&format!("{size} bytes, without the meter"));
                self.comparison.unmetered.push(run(&RunPlan { metered: false, ..plan }, cancel)?);
            }
            progress(&format!("{size} bytes"));
            let run = at_size.add(&plan, cancel)?;
            if *size == settings.datagram_size {
                self.comparison.metered.push(run);
            }
        }
        Ok(())
    }

    /// The medians of all rounds.
    pub(crate) fn report(self) -> Result<ProfileReport, Failure> {
        let Self { settings, file, sizes, comparison, wake_ns } = self;
        let at = settings.sizes.iter().position(|size| *size == settings.datagram_size).unwrap_or(0);
        let points = |end: End| -> Vec<_> {
            let at_sizes = settings.sizes.iter().zip(&sizes);
            at_sizes.map(|(size, runs)| Point::new(end, *size, runs.of(end))).collect()
        };
        let memory = Table {
            sending: Side::new(End::Sending, points(End::Sending), at),
            receiving: Side::new(End::Receiving, points(End::Receiving), at),
        };
        let file = file.map(|costs| {
            let side = |end: End| Side::with_file(end, points(end), at, |part| costs.byte_ns(part));
            let table = Table { sending: side(End::Sending), receiving: side(End::Receiving) };
            FileTable::new(table, costs, settings.datagram_size)
        });
        let overhead = Overhead::new(&comparison.metered, &comparison.unmetered, calibrate::reading_ns());
        Ok(ProfileReport::new(settings, memory, file, overhead, fit::median(&wake_ns)))
    }
}

impl AtSize {
    /// Makes another calibration and metered run.
    fn add(&mut self, plan: &RunPlan, cancel: &CancelToken) -> Result<Run, Failure> {
        let absorb_batch_ns = absorb::batch_ns(plan.datagram_size).map_err(Failure::Error)?;
        let run = run(plan, cancel)?;
        self.sending.push(Measured::new(End::Sending, run.sending, 0.0));
        self.receiving.push(Measured::new(End::Receiving, run.receiving, absorb_batch_ns));
        Ok(run)
    }

    fn of(&self, end: End) -> &[Measured] {
        match end {
            End::Sending => &self.sending,
            End::Receiving => &self.receiving,
        }
    }
}
