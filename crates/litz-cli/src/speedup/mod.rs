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
//! | `settings`, `failure` | what to measure, and why there is no result |
//! | `test_bed` | a real endpoint whose sockets connect to a scripted peer (crate `scripted-peer`) |
//! | `run`, `send`, `receive`, `duplex` | one run of one side, or of both sides |
//! | `streams` | reading several streams on one thread |
//! | `absorb`, `bound` | the serial part of the work, and the bound |
//! | `report`, `plot` | the result, in the format of `docs/spec/speedup.md` and as a plot |

mod absorb;
mod bound;
mod duplex;
mod failure;
mod plot;
mod receive;
mod report;
mod run;
mod send;
mod settings;
mod streams;
mod test_bed;

use litz::Placement;
use transfer::CancelToken;

pub(crate) use failure::Failure;
pub(crate) use measure::Estimate;
pub(crate) use plot::render as plot;
pub(crate) use report::{SideReport, SpeedupReport};
pub(crate) use scripted_peer::Cipher;
pub(crate) use settings::{AppCore, Kind, Settings, Side};

use bound::Shares;
use run::{Outcome, Span};
use test_bed::Setup;

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
pub(crate) fn measure(
    settings: &Settings,
    cancel: &CancelToken,
    progress: &dyn Fn(&str),
) -> Result<SpeedupReport, Failure> {
    let sides = settings.sides.iter().map(|side| measure_side(settings, *side, cancel, progress));
    let sides = sides.collect::<Result<Vec<_>, _>>()?;
    Ok(SpeedupReport::new(settings, sides))
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
            let outcome = run_once(side, &settings.setup(placement, true), span, cancel)?;
            Ok(Shares::new(side, settings.kind, settings.app_core, &outcome, absorb_ns))
        };
        measured.shares.push(metered(1)?);
        if let Some(most) = settings.most_processors() {
            measured.busiest.push(metered(most)?);
        }
        for (placement, outcomes) in &mut measured.outcomes {
            step(&placement.to_string());
            outcomes.push(run_once(side, &settings.setup(*placement, false), span, cancel)?);
        }
    }
    Ok(measured)
}

impl Settings {
    fn setup(&self, placement: Placement, metered: bool) -> Setup {
        let count = placement.thread_count().max(1);
        let cores = self.cores.iter().copied().take(count).collect();
        let (app_core, cipher, datagram_size) = (self.app_core, self.cipher, self.datagram_size);
        let (paths, is_multipath) = (self.paths, self.kind == Kind::Path);
        Setup { placement, cores, app_core, cipher, datagram_size, paths, is_multipath, metered }
    }
}

/// Makes one run.
fn run_once(side: Side, setup: &Setup, span: Span, cancel: &CancelToken) -> Result<Outcome, Failure> {
    match side {
        Side::Send => send::run(setup, span, cancel),
        Side::Receive => receive::run(setup, span, cancel),
        Side::Duplex => duplex::run(setup, span, cancel),
    }
}

#[cfg(test)]
mod tests;
