//! The world between network namespaces: two hosts of the kernel's, and real links of the emulator's between them.
//!
//! ```text
//!   namespace a                         this process                         namespace b
//!   app ─ connection ─ socket ─ TUN ══ link "wifi", a thread ══ TUN ─ socket ─ connection ─ app
//!                    └ socket ─ TUN ══ link "lte",  a thread ══ TUN ─ socket ┘
//! ```
//!
//! The connection is the library's, with TLS, an engine thread a host and a UDP socket a path. The applications of both
//! hosts run on one thread ([`run`]), which sleeps until one of their streams or a time wakes it ([`inbox`], [`streams`]).
//! Applications, measures, faults and their proof are those of every world.
//!
//! Namespaces, devices and sockets belong to one run and are gone when it is over, however it ends; only who kills the
//! process leaves two empty namespaces behind.
//!
//! | module | what it holds |
//! |---|---|
//! | [`suitable`] | what cannot be run here, and who may |
//! | [`network`] | namespaces, links and sockets |
//! | [`counted`] | a socket that counts what leaves |
//! | [`host`] | an endpoint and its one connection |
//! | [`streams`], [`inbox`] | its streams as applications take them, and what wakes whom |
//! | [`run`] | one run, from the first packet to the outcome |

mod counted;
mod host;
mod inbox;
mod network;
mod run;
mod streams;
mod suitable;

use litz::Placement;
use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::world::{Order, Watch, World, WorldError};

pub(in crate::cli) use suitable::check_machine;

/// On the command line and in results.
pub(super) const NAME: &str = "netns";

/// The world between network namespaces.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct Netns {
    /// Of both hosts; none is the library's own choice.
    pub(in crate::cli) placement: Option<Placement>,
}

impl World for Netns {
    fn name(&self) -> &'static str {
        NAME
    }

    fn run(&mut self, scenario: &Scenario, order: &Order, watch: Watch<'_>) -> Result<Outcome, WorldError> {
        suitable::check_scenario(scenario, order)?;
        run::Run::begin(scenario, order, self.placement)?.finish(watch)
    }
}
