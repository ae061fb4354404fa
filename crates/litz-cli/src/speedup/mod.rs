//! Measures how much faster more processors make one side of one connection: the experiments of
//! documents 000 and 002 on this machine.
//!
//! ```text
//!   for each run, in turn:  metered packet(1) ── cost of a packet ──── bound
//!                           thread            ─┐
//!                           packet(1), (2) ... ┴ throughput ── ratio to packet(1) of the same run ── speedup
//! ```
//! The same with `path(n)`, over one socket per path, and with `split` or `pipeline` and `thread`
//! instead of `packet(n)` and `packet(1)`.
//! | module | contents |
//! |---|---|
//! | `settings`, `failure` | what to measure, and why there is no result |
//! | `test_bed` | a real endpoint whose sockets connect to a scripted peer (crate `scripted-peer`) |
//! | `stack_bed`, `stack_duplex`, `primitives` | the same for a stack of TCP/IP, both its sides at once, and its layers alone |
//! | `pins` | the processors of the application's threads |
//! | `end`, `quic_source` | a measured end, whatever its protocol, and what it receives |
//! | `run`, `send`, `receive`, `duplex` | one run of one side, or of both sides |
//! | `streams` | reading several streams on one thread |
//! | `absorb`, `bound` | the serial part of the work, and the bound |
//! | `report`, `plot` | the result, in the format of `docs/spec/speedup.md` and as a plot |

mod absorb;
mod bound;
mod duplex;
mod end;
mod failure;
mod pins;
mod plot;
mod primitives;
mod quic_source;
mod receive;
mod report;
mod run;
mod send;
mod settings;
mod stack_bed;
mod stack_duplex;
mod streams;
mod test_bed;

use litz::Placement;
use transfer::CancelToken;
use units::Duration;

pub(crate) use failure::Failure;
pub(crate) use measure::Estimate;
pub(crate) use plot::render as plot;
pub(crate) use primitives::{Paper, Primitive};
pub(crate) use report::{SideReport, SpeedupReport, StackReport};
pub(crate) use scripted_peer::Cipher;
pub(crate) use settings::{AppCore, Kind, MeasuredStack, Settings, Side};

use crate::profile::measure_serial_step;
use bound::Shares;
use run::{Outcome, Span};
use stack_bed::StackBed;
use test_bed::{Setup, TestBed};

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
    let stack = settings.stack.map(|stack| Checked::new(settings, stack, cancel, progress)).transpose()?;
    let sides = settings.sides.iter().map(|side| measure_side(settings, *side, cancel, progress));
    let sides = sides.collect::<Result<Vec<_>, _>>()?;
    Ok(SpeedupReport::new(settings, stack, sides))
}

/// What was found of a stack before the runs.
struct Checked {
    primitives: Vec<Primitive>,
    /// The digest of what each placement sends in lock-step.
    wire_digests: Vec<(Placement, String)>,
}

impl Checked {
    /// Measures the layers, and lets every placement send in lock-step.
    fn new(
        settings: &Settings,
        measured: MeasuredStack,
        cancel: &CancelToken,
        progress: &dyn Fn(&str),
    ) -> Result<Self, Failure> {
        progress("layers alone");
        let primitives = primitives::measure(measured.stack, measured.payload);
        let inline = measured.wire_digest(Placement::Inline)?;
        let mut wire_digests = Vec::new();
        for placement in settings.placements() {
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            let digest = measured.wire_digest(placement)?;
            if digest != inline {
                let message = format!("{placement} sends another stream than inline: {digest}, {inline}");
                return Err(Failure::Error(message));
            }
            wire_digests.push((placement, digest));
        }
        Ok(Self { primitives, wire_digests })
    }
}

/// The longest warm-up, and the longest measurement, of the cost of a packet: it is a median of runs, and only the
/// bound depends on it.
const METERED_TIME_MAX: Duration = Duration::from_secs(2);

fn measure_side(
    settings: &Settings,
    side: Side,
    cancel: &CancelToken,
    progress: &dyn Fn(&str),
) -> Result<Measured, Failure> {
    let span = Span { warm_up: settings.warm_up, time: settings.time };
    let metered_span = Span { warm_up: span.warm_up.min(METERED_TIME_MAX), time: span.time.min(METERED_TIME_MAX) };
    let placements = settings.placements();
    let outcomes = placements.iter().map(|placement| (*placement, Vec::new())).collect();
    let mut measured = Measured { side, outcomes, shares: Vec::new(), busiest: Vec::new() };
    // All placements in turn, so that speed drift affects all equally.
    for number in 1..=settings.runs {
        let step = |what: &str| progress(&format!("{}, run {number}: {what}", side.id()));
        let absorb_ns = match (side, settings.stack) {
            (Side::Send, _) => 0.0,
            // A split connection opens and absorbs on the same processor, so these need not be
            // separated.
            (Side::Duplex, _) if settings.kind.has_halves() => 0.0,
            (_, Some(measured)) => {
                let step = measure_serial_step(measured.payload, 1).map_err(Failure::Error)?;
                step.arrival_ns
            }
            (Side::Receive | Side::Duplex, None) => {
                absorb::packet_ns(settings.cipher, settings.datagram_size).map_err(Failure::Error)?
            }
        };
        let metered = |count: usize| {
            let placement = settings.kind.placement(count);
            step(&format!("costs of {placement}"));
            let outcome = run_once(side, settings, placement, true, metered_span, cancel)?;
            Ok(Shares::new(side, settings, &outcome, absorb_ns))
        };
        measured.shares.push(metered(1)?);
        if let Some(most) = settings.most_processors() {
            measured.busiest.push(metered(most)?);
        }
        for (placement, outcomes) in &mut measured.outcomes {
            step(&placement.to_string());
            outcomes.push(run_once(side, settings, *placement, false, span, cancel)?);
        }
    }
    Ok(measured)
}

impl Settings {
    fn setup(&self, placement: Placement, metered: bool) -> Setup {
        let cores = self.cores_of(placement);
        let (app_core, cipher, datagram_size) = (self.app_core, self.cipher, self.datagram_size);
        let (paths, is_multipath) = (self.paths, self.kind == Kind::Path);
        Setup { placement, cores, app_core, cipher, datagram_size, paths, is_multipath, metered }
    }
}

/// Makes one run.
fn run_once(
    side: Side,
    settings: &Settings,
    placement: Placement,
    metered: bool,
    span: Span,
    cancel: &CancelToken,
) -> Result<Outcome, Failure> {
    let setup = settings.setup(placement, metered);
    let payload = settings.payload_len();
    if let Some(measured) = settings.stack {
        let setup = measured.setup(placement, setup.cores, metered);
        let bed = StackBed::new(&setup, settings.app_core, side == Side::Duplex)?;
        return match side {
            Side::Send => send::run(&bed, payload, span, cancel),
            Side::Receive => receive::run(&bed, span, cancel),
            Side::Duplex => stack_duplex::run(&bed, span, cancel),
        };
    }
    match side {
        Side::Send => send::run(&TestBed::new(&setup, cancel)?, payload, span, cancel),
        Side::Receive => receive::run(&TestBed::new(&setup, cancel)?, span, cancel),
        Side::Duplex => duplex::run(&setup, span, cancel),
    }
}

#[cfg(test)]
mod tests;
