//! How much faster more processors make one side of one connection: document 000's experiment on this machine, and document 002's.
//!
//! ```text
//!   for each run, in turn:  metered packet(1) ── shares of a packet ── bound
//!                           thread            ─┐
//!                           packet(1), (2) ... ┴ throughput ── ratio to packet(1) of the same run ── speedup
//! ```
//!
//! The same with `path(n)`, over as many paths as sockets, and with `split` and `thread` in place of `packet(2)` and `packet(1)`.
//!
//! | module | what it holds |
//! |---|---|
//! | `cipher` | ciphers, and TLS that agrees on one |
//! | `peer`, `link` | the other end: a handshake, then a script inside each socket |
//! | `channel`, `hearing`, `socket` | the script of one path: what it says, what it hears, and how it looks from the other end |
//! | `world` | a real endpoint over that socket |
//! | `run`, `send`, `receive`, `duplex` | one run of one side, or of both |
//! | `stretch`, `streams`, `pattern` | what is sealed in advance, how it is read, and which bytes it consists of |
//! | `absorb`, `bound` | what is serial, and what follows |
//! | `report`, `plot` | the result, as `docs/spec/speedup.md` has it, and as a picture |

mod absorb;
mod bound;
mod channel;
mod cipher;
mod duplex;
mod hearing;
mod link;
mod pattern;
mod peer;
mod plot;
mod receive;
mod report;
mod run;
mod send;
mod socket;
mod streams;
mod stretch;
mod world;

use litz::Placement;
use litz::transfer::CancelToken;
use units::Duration;

pub(crate) use cipher::Cipher;
pub(crate) use measure::Estimate;
pub(crate) use plot::render as plot;
pub(crate) use report::{Report, SideReport};

use bound::Shares;
use run::{Outcome, Span};
use world::Stand;

/// Which side is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Receive,
    /// Both at once.
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

/// What more processors share.
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
    /// With so many processors.
    pub(crate) const fn placement(self, processors: usize) -> Placement {
        match self {
            Self::Packet => Placement::Packet(processors),
            Self::Path => Placement::Path(processors),
            Self::Split if processors > 1 => Placement::Split,
            Self::Split => Placement::Thread,
        }
    }

    /// What the papers gained by it, both ways at once: document 002, with one processor that receives and one that transmits.
    pub(crate) const fn gain_printed(self) -> Option<f64> {
        match self {
            Self::Split => Some(1.7),
            Self::Packet | Self::Path => None,
        }
    }
}

/// Where the application's threads stay. Serial work that waits for it has a wake-up to pay, and work beside it shares a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seat {
    /// On the driver's processor.
    First,
    /// On the last of the processors in use.
    Last,
    /// The one that writes on the first, the one that reads on the last: each beside its half of the connection.
    Apart,
    /// On whichever of the machine's processors the system chooses.
    Free,
}

impl Seat {
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
    /// Paths of the connection; one unless they are what is shared.
    pub(crate) paths: u16,
    /// How many processors, ascending, one among them.
    pub(crate) processors: Vec<usize>,
    /// Placements of one processor to measure beside that of the kind.
    pub(crate) beside: Vec<Placement>,
    /// Those that may be used, by the system's numbers; at least the most of `processors`.
    pub(crate) cores: Vec<usize>,
    pub(crate) seat: Seat,
    pub(crate) cipher: Cipher,
    /// In bytes of UDP payload.
    pub(crate) datagram_size: usize,
    pub(crate) runs: usize,
    pub(crate) warm_up: Duration,
    pub(crate) time: Duration,
    /// Of the intervals, between 0 and 1.
    pub(crate) confidence: f64,
}

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// In words for the user.
    Error(String),
    /// The user does not want it any more.
    Interrupted,
}

impl Settings {
    /// What is measured in each run, the metered one apart.
    pub(crate) fn placements(&self) -> Vec<Placement> {
        let packets = self.processors.iter().map(|count| self.kind.placement(*count));
        self.beside.iter().copied().chain(packets).collect()
    }

    /// The most processors, if that is more than one.
    fn most_processors(&self) -> Option<usize> {
        self.processors.iter().copied().max().filter(|most| *most > 1)
    }

    /// Runs of all kinds, for a progress bar.
    pub(crate) fn steps(&self) -> usize {
        let metered = 1 + usize::from(self.most_processors().is_some());
        self.sides.len() * self.runs * (self.placements().len() + metered)
    }

    /// How long it takes, what is not measured apart.
    pub(crate) fn duration(&self) -> Duration {
        (self.warm_up + self.time) * self.steps() as u64
    }

    fn stand(&self, placement: Placement, metered: bool) -> Stand {
        let count = placement.thread_count().max(1);
        let cores = self.cores.iter().copied().take(count).collect();
        let (seat, cipher, datagram_size) = (self.seat, self.cipher, self.datagram_size);
        let (paths, is_multipath) = (self.paths, self.kind == Kind::Path);
        Stand { placement, cores, seat, cipher, datagram_size, paths, is_multipath, metered }
    }
}

/// One side's runs.
struct Measured {
    side: Side,
    /// By placement, run after run.
    outcomes: Vec<(Placement, Vec<Outcome>)>,
    shares: Vec<Shares>,
    /// What the driver does meanwhile where there are most processors; empty if that is one.
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
    // All of them in turn, so that what disturbs the machine for a while disturbs all alike.
    for number in 1..=settings.runs {
        let step = |what: &str| progress(&format!("{}, run {number}: {what}", side.id()));
        let absorb_ns = match side {
            Side::Send => 0.0,
            // A split connection absorbs where it opens, so nothing is told apart there.
            Side::Duplex if settings.kind == Kind::Split => 0.0,
            Side::Receive | Side::Duplex => {
                absorb::packet_ns(settings.cipher, settings.datagram_size).map_err(Failure::Error)?
            }
        };
        let metered = |count: usize| {
            let placement = settings.kind.placement(count);
            step(&format!("costs of {placement}"));
            let outcome = run::run(side, &settings.stand(placement, true), span, cancel)?;
            Ok(Shares::new(side, settings.kind, settings.seat, &outcome, absorb_ns))
        };
        measured.shares.push(metered(1)?);
        if let Some(most) = settings.most_processors() {
            measured.busiest.push(metered(most)?);
        }
        for (placement, outcomes) in &mut measured.outcomes {
            step(&placement.to_string());
            outcomes.push(run::run(side, &settings.stand(*placement, false), span, cancel)?);
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests;
