//! Access to every datagram of a run as it leaves its host: to compare two runs, or to write a
//! capture.

use std::fmt;

use driver::Placement;
use units::{Instant, Rng};

use crate::memory::turns::FreeRun;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::world::{OnProgress, PayloadMode, RunPlan, WorldError};

/// A datagram at the moment when it leaves a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SentDatagram<'a> {
    /// The time of sending.
    pub at: Instant,
    /// 0 from the sending host, 1 from the receiving host.
    pub direction: usize,
    /// The index of the path among those of the run.
    pub path: usize,
    /// The number of the datagram within its path and direction, from 0.
    pub number: u64,
    /// The UDP payload. The same protocol state produces the same bytes in every world.
    pub datagram: &'a [u8],
}

impl fmt::Debug for SentDatagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, direction, path, number, datagram } = self;
        let way = if *direction == 0 { "forward" } else { "back" };
        // The first bytes are enough to see whether two encrypted datagrams are equal.
        let first = &datagram[..datagram.len().min(16)];
        let len = datagram.len();
        write!(f, "{} ns, path {path} {way}, no. {number}, {len} bytes: {first:02x?}..", at.as_nanos())
    }
}

/// Receives each datagram, in the order of sending.
pub type DatagramSink = Box<dyn FnMut(&SentDatagram<'_>)>;

/// Runs `scenario` over link models in virtual time, as the worlds
/// [`Memory`](crate::memory::Memory) and [`Sim`](crate::simulated::Sim) without a machine do, and
/// passes each datagram to `sink`. Packets that the run itself does not seal are sealed for the
/// sink, which then takes most of the time.
///
/// # Errors
/// As [`World::run`](crate::world::World::run).
pub fn run_with_sink(
    scenario: &Scenario,
    plan: &RunPlan,
    payload_mode: PayloadMode,
    sink: DatagramSink,
    on_progress: OnProgress<'_>,
) -> Result<Outcome, WorldError> {
    run_placed_with_sink(scenario, plan, payload_mode, [Placement::Thread; 2], sink, on_progress)
}

/// As [`run_with_sink`], with hosts that have the drivers and workers of these placements (sending
/// host first). Each processor takes its turns in a fixed order, and no turn takes time.
///
/// # Errors
/// As [`World::run`](crate::world::World::run).
pub fn run_placed_with_sink(
    scenario: &Scenario,
    plan: &RunPlan,
    payload_mode: PayloadMode,
    placements: [Placement; 2],
    sink: DatagramSink,
    on_progress: OnProgress<'_>,
) -> Result<Outcome, WorldError> {
    let mut free = FreeRun::new(scenario, plan, payload_mode, placements)?;
    free.run.network.set_sink(sink);
    free.finish(on_progress)
}

/// The random generator of one direction of a link in a run with this seed. Each link has a
/// generator derived from its own name, so other links do not change what it does to its packets.
pub fn link_rng(seed: u64, link: &str, direction: usize) -> Rng {
    let names = ["forward", "back"];
    Rng::from_seed(seed).split(&format!("link {link}")).split(names[direction])
}

/// The random sources of one host of a run.
pub struct HostSeeds {
    /// The secret from which connection IDs are derived.
    pub secret: [u8; 32],
    /// The generator of its deterministic TLS sessions.
    pub sessions: Rng,
}

/// The random sources of a host (0 is the sending host) in a run with this seed.
pub fn host_seeds(seed: u64, host: usize) -> HostSeeds {
    let names = ["host a", "host b"];
    let rng = Rng::from_seed(seed).split(names[host]);
    let mut secret = [0; 32];
    rng.split("secrets").fill(&mut secret);
    HostSeeds { secret, sessions: rng.split("sessions") }
}
