//! Packets of a run, one by one as they leave their host: to be compared with those of another run, or written to a file.

use std::fmt;

use units::{Instant, Rng};

use crate::memory::run::Run;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::placement::Placement;
use crate::world::{Order, Stages, Watch, WorldError};

/// A datagram that leaves a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sent<'a> {
    /// When.
    pub at: Instant,
    /// 0 from the host that begins the work, 1 from the other.
    pub direction: usize,
    /// Which of the run's paths.
    pub path: usize,
    /// Which of the datagrams in this direction of this path, from 0.
    pub number: u64,
    /// What it is on the wire: the payload of UDP. The same protocol in the same state makes the same bytes, whatever the world.
    pub datagram: &'a [u8],
}

impl fmt::Debug for Sent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, direction, path, number, datagram } = self;
        let way = if *direction == 0 { "forward" } else { "back" };
        // Not all bytes: what is encrypted tells a reader nothing but whether it is the same.
        let first = &datagram[..datagram.len().min(16)];
        let len = datagram.len();
        write!(f, "{} ns, path {path} {way}, no. {number}, {len} bytes: {first:02x?}..", at.as_nanos())
    }
}

/// Hears of each datagram, in the order in which they leave.
pub type Sink = Box<dyn FnMut(&Sent<'_>)>;

/// Runs `scenario` over link models in virtual time, in memory or without the bytes, as the worlds [`Memory`](crate::memory::Memory)
/// and [`Sim`](crate::simulated::Sim) without a machine do, and tells `sink` of each datagram. What is not sealed otherwise is
/// sealed for it, which takes most of the time then.
///
/// # Errors
/// As of any world.
pub fn listen(
    scenario: &Scenario,
    order: &Order,
    stages: Stages,
    sink: Sink,
    watch: Watch<'_>,
) -> Result<Outcome, WorldError> {
    listen_placed(scenario, order, stages, [Placement::Thread; 2], sink, watch)
}

/// The same, of hosts that do their turns as an engine with these placements does while nothing costs time, the sending host's first:
/// under `inline` calls of the application do turns, and under `connection(n)` the first of several endpoints has the connection. The
/// others do what `thread` does, in an order that is not defined; see `tests/live.rs` for what is.
///
/// # Errors
/// As of any world.
pub fn listen_placed(
    scenario: &Scenario,
    order: &Order,
    stages: Stages,
    placements: [Placement; 2],
    sink: Sink,
    watch: Watch<'_>,
) -> Result<Outcome, WorldError> {
    let mut run = Run::placed(scenario, order, stages, placements)?;
    run.network.listen(sink);
    run.finish(watch)
}

/// The generator of one direction of a link in a run with this seed: links draw from generators of their own names, so that each does
/// to its packets what it would do if the others were not there.
pub fn link_rng(seed: u64, link: &str, direction: usize) -> Rng {
    let names = ["forward", "back"];
    Rng::from_seed(seed).split(&format!("link {link}")).split(names[direction])
}

/// What a host of a run draws from: 0 is the one that begins the work.
pub struct HostSeeds {
    /// What connection IDs are made of.
    pub secret: [u8; 32],
    /// Of its deterministic sessions.
    pub sessions: Rng,
}

/// The seeds of a host in a run with this seed.
pub fn host_seeds(seed: u64, host: usize) -> HostSeeds {
    let names = ["host a", "host b"];
    let rng = Rng::from_seed(seed).split(names[host]);
    let mut secret = [0; 32];
    rng.split("secrets").fill(&mut secret);
    HostSeeds { secret, sessions: rng.split("sessions") }
}
