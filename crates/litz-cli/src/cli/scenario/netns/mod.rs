//! The world between network namespaces: two hosts with kernel sockets, connected by the link
//! emulator in real time.
//!
//! ```text
//!   namespace a                         this process                         namespace b
//!   app ─ connection ─ socket ─ TUN ══ link "wifi", a thread ══ TUN ─ socket ─ connection ─ app
//!                    └ socket ─ TUN ══ link "lte",  a thread ══ TUN ─ socket ┘
//! ```
//! The connection is the library's, with TLS, one engine thread per host and one UDP socket per
//! path. The applications of both hosts run on one thread ([`run`]), which sleeps until a stream or
//! a timer wakes it ([`wakeups`], [`streams`]). Applications, measurements, faults and their checks
//! are the same in all worlds. Namespaces, devices and sockets belong to one run and are removed
//! when it ends. Only if the process is killed do two empty namespaces remain.
//! | module | contents |
//! |---|---|
//! | [`requirements`] | requirements on the machine, the user and the scenario |
//! | [`network`] | namespaces, links and sockets |
//! | [`counted`] | a socket that counts the datagrams it sends |
//! | [`packet_file`] | the packets and the keys of a recorded run |
//! | [`host`] | an endpoint and its single connection |
//! | [`streams`], [`wakeups`] | the application's view of its streams, and the queue of wakeups |
//! | [`run`] | one run, from the first packet to the outcome |

mod counted;
mod host;
mod network;
mod packet_file;
mod requirements;
mod run;
mod streams;
mod wakeups;

use litz::Placement;
use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::recording::Recording;
use scenario::world::{OnProgress, RunPlan, World, WorldError};

use packet_file::PacketFile;
use run::Captured;

pub(in crate::cli) use requirements::check_machine;

/// The name on the command line and in results.
pub(super) const NAME: &str = "netns";

/// The world between network namespaces.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct Netns {
    /// The placement of both hosts; by default the library's choice.
    pub(in crate::cli) placement: Option<Placement>,
}

impl Netns {
    /// Runs `scenario` once and writes its packets, and with `has_keys` the keys that decrypt them.
    ///
    /// # Errors
    /// As [`World::run`], and if the packets cannot be written.
    pub(super) fn run_recorded(
        &self,
        scenario: &Scenario,
        plan: &RunPlan,
        recording: Recording,
        has_keys: bool,
        on_progress: OnProgress<'_>,
    ) -> Result<Outcome, WorldError> {
        requirements::check_scenario(scenario, plan)?;
        let Recording { about, packets, .. } = recording;
        let begin = |packets| PacketFile::begin(packets, &about, scenario, &scenario.links_under(&plan.paths));
        let captured = packets.map(begin).transpose()?.map(|file| Captured { file, has_keys });
        let outcome = run::Run::begin(scenario, plan, self.placement, captured.as_ref())?.finish(on_progress)?;
        captured.map_or(Ok(()), |captured| captured.file.finish())?;
        Ok(outcome)
    }
}

impl World for Netns {
    fn name(&self) -> &'static str {
        NAME
    }

    fn run(&mut self, scenario: &Scenario, plan: &RunPlan, on_progress: OnProgress<'_>) -> Result<Outcome, WorldError> {
        requirements::check_scenario(scenario, plan)?;
        run::Run::begin(scenario, plan, self.placement, None)?.finish(on_progress)
    }
}
