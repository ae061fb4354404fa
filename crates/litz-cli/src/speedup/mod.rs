//! Measures how much faster more processors make one side of one connection: the experiments of
//! documents 000 and 002 on this machine.
//!
//! ```text
//!   for each run, in turn:  metered packet(1) ── cost of a packet ──── bound
//!                           thread            ─┐
//!                           packet(1), (2) ... ┴ throughput ── ratio to packet(1) of the same run ── speedup
//! ```
//! The same with `path(n)`, over one socket per path, and with `split` and `thread` instead of
//! `packet(2)` and `packet(1)`.
//! | module | contents |
//! |---|---|
//! | `test_bed` | a real endpoint whose sockets connect to a scripted peer (crate `scripted-peer`) |
//! | `run`, `send`, `receive`, `duplex` | one run of one side, or of both sides |
//! | `streams` | reading several streams on one thread |
//! | `absorb`, `bound` | the serial part of the work, and the bound |
//! | `report`, `plot` | the result, in the format of `docs/spec/speedup.md` and as a plot |

mod absorb;
mod bound;
mod duplex;
mod plot;
mod receive;
mod report;
mod run;
mod send;
mod streams;
mod test_bed;

use litz::Placement;
use transfer::CancelToken;
use units::Duration;

pub(crate) use measure::Estimate;
pub(crate) use plot::render as plot;
pub(crate) use report::{Report, SideReport};
pub(crate) use scripted_peer::Cipher;

use bound::Shares;
use run::{Outcome, Span};
use test_bed::Setup;

/// The measured side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Receive,
    /// Both sides at once.
    Duplex,
}

impl Side {
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Duplex => "duplex",
        }
    }
}

/// What the processors share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The batches of one path.
    Packet,
    /// The paths.
    Path,
    /// The two halves of the connection.
    Split,
}

impl Kind {
    /// The placement with this number of processors.
    pub(crate) const fn placement(self, processors: usize) -> Placement {
        match self {
            Self::Packet => Placement::Packet(processors),
            Self::Path => Placement::Path(processors),
            Self::Split if processors > 1 => Placement::Split,
            Self::Split => Placement::Thread,
        }
    }

    /// The speedup that the papers report for both directions at once: document 002, with one
    /// receiving and one transmitting processor.
    pub(crate) const fn gain_printed(self) -> Option<f64> {
        match self {
            Self::Split => Some(1.7),
            Self::Packet | Self::Path => None,
        }
    }
}

/// The processors of the application's threads. On another processor than the driver's, waiting for
/// the application costs wakeups; on the same one, both share the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppCore {
    /// On the driver's processor.
    First,
    /// On the last of the processors in use.
    Last,
    /// The writing thread on the first, the reading thread on the last: each with its half of the
    /// connection.
    Apart,
    /// On any processor that the system chooses.
    Free,
}

impl AppCore {
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Last => "last",
            Self::Apart => "apart",
            Self::Free => "free",
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) sides: Vec<Side>,
    pub(crate) kind: Kind,
    /// Number of paths of the connection; one unless paths are what is shared.
    pub(crate) paths: u16,
    /// Numbers of processors in ascending order, including one.
    pub(crate) processors: Vec<usize>,
    /// Other placements on one processor, for comparison.
    pub(crate) beside: Vec<Placement>,
    /// The usable processors by their system numbers: at least as many as the largest of
    /// `processors`.
    pub(crate) cores: Vec<usize>,
    pub(crate) seat: AppCore,
    pub(crate) cipher: Cipher,
    /// In bytes of UDP payload.
    pub(crate) datagram_size: usize,
    pub(crate) runs: usize,
    pub(crate) warm_up: Duration,
    pub(crate) time: Duration,
    /// Confidence level of the intervals, between 0 and 1.
    pub(crate) confidence: f64,
}

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A message for the user.
    Error(String),
    /// The user interrupted the command.
    Interrupted,
}

impl Settings {
    /// The placements that each run measures, without the metered run.
    pub(crate) fn placements(&self) -> Vec<Placement> {
        let packets = self.processors.iter().map(|count| self.kind.placement(*count));
        self.beside.iter().copied().chain(packets).collect()
    }

    /// The largest number of processors, if greater than one.
    fn most_processors(&self) -> Option<usize> {
        self.processors.iter().copied().max().filter(|most| *most > 1)
    }

    /// Number of runs of all kinds, for a progress bar.
    pub(crate) fn steps(&self) -> usize {
        let metered = 1 + usize::from(self.most_processors().is_some());
        self.sides.len() * self.runs * (self.placements().len() + metered)
    }

    /// The duration of all runs, without preparations.
    pub(crate) fn duration(&self) -> Duration {
        (self.warm_up + self.time) * self.steps() as u64
    }

    fn setup(&self, placement: Placement, metered: bool) -> Setup {
        let count = placement.thread_count().max(1);
        let cores = self.cores.iter().copied().take(count).collect();
        let (seat, cipher, datagram_size) = (self.seat, self.cipher, self.datagram_size);
        let (paths, is_multipath) = (self.paths, self.kind == Kind::Path);
        Setup { placement, cores, seat, cipher, datagram_size, paths, is_multipath, metered }
    }
}

/// The runs of one side.
struct Measured {
    side: Side,
    /// The outcomes by placement, in the order of the runs.
    outcomes: Vec<(Placement, Vec<Outcome>)>,
    shares: Vec<Shares>,
    /// The driver's costs with the most processors; empty if that is one.
    busiest: Vec<Shares>,
}

/// Measures; calls `progress` before each step.
pub(crate) fn measure(settings: &Settings, cancel: &CancelToken, progress: &dyn Fn(&str)) -> Result<Report, Failure> {
    let sides = settings.sides.iter().map(|side| measure_side(settings, *side, cancel, progress));
    let sides = sides.collect::<Result<Vec<_>, _>>()?;
    Ok(Report::new(settings, sides))
}

fn measure_side(
    settings: &Settings,
    side: Side,
    cancel: &CancelToken,
    progress: &dyn Fn(&str),
) -> Result<Measured, Failure> {
    let span = Span { warm_up: settings.warm_up, time: settings.time };
    let placements = settings.placements();
    let outcomes = placements.iter().map(|placement| (*placement, Vec::new())).collect();
    let mut measured = Measured { side, outcomes, shares: Vec::new(), busiest: Vec::new() };
    // All placements in turn, so that speed drift affects all equally.
    for number in 1..=settings.runs {
        let step = |what: &str| progress(&format!("{}, run {number}: {what}", side.id()));
        let absorb_ns = match side {
            Side::Send => 0.0,
            // A split connection opens and absorbs on the same processor, so these need not be
            // separated.
            Side::Duplex if settings.kind == Kind::Split => 0.0,
            Side::Receive | Side::Duplex => {
                absorb::packet_ns(settings.cipher, settings.datagram_size).map_err(Failure::Error)?
            }
        };
        let metered = |count: usize| {
            let placement = settings.kind.placement(count);
            step(&format!("costs of {placement}"));
            let outcome = run::run(side, &settings.setup(placement, true), span, cancel)?;
            Ok(Shares::new(side, settings.kind, settings.seat, &outcome, absorb_ns))
        };
        measured.shares.push(metered(1)?);
        if let Some(most) = settings.most_processors() {
            measured.busiest.push(metered(most)?);
        }
        for (placement, outcomes) in &mut measured.outcomes {
            step(&placement.to_string());
            outcomes.push(run::run(side, &settings.setup(*placement, false), span, cancel)?);
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests;
