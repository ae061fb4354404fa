//! Discrete-event simulation in virtual time, deterministic to the last event.
//!
//! Nothing here reads a clock or draws from the system: a run is a function of its model, a seed and the number of the run. Threads
//! serve only to make independent runs at once. Models are written as *processes*, async functions that wait for virtual time and for
//! each other, or, where every nanosecond counts, as a loop over a [`Calendar`] of plain events.
//!
//! | module | what |
//! |---|---|
//! | [`calendar`] | events in the total order of time and insertion |
//! | [`kernel`] | [`Simulation`] and its handle [`Sim`]: processes, virtual time, random streams |
//! | [`facility`] | servers that work first come, first served |
//! | [`resource`] | what one process at a time keeps for as long as it likes |
//! | [`store`] | bounded queues between processes |
//! | [`stream`] | named random streams and their distributions |
//! | [`watch`] | times what is not one component's doing |
//! | [`hardware`] | modelled hardware |
//! | [`replicate`] | independent runs on many threads, intervals, warm-up |
//! | [`trace`] | what happened when, for Perfetto |
//! | [`capture`] | packets of interfaces, as pcapng |
//! | [`observe`] | what every component reports: utilisation, queue length, waiting time; Little's law held to the nanosecond |
//!
//! Start with [`Simulation`].
#![forbid(unsafe_code)]

pub mod calendar;
pub mod capture;
pub mod facility;
pub mod hardware;
mod join;
pub mod kernel;
pub mod observe;
pub mod replicate;
pub mod resource;
pub mod store;
pub mod stream;
pub mod trace;
pub mod watch;

pub use calendar::Calendar;
pub use facility::Facility;
pub use join::join;
pub use kernel::{Sim, Simulation};
pub use observe::{Level, Report, Tally};
pub use replicate::{Replicated, Replications};
pub use resource::Resource;
pub use store::Store;
pub use stream::Stream;
pub use trace::Trace;
pub use watch::Watch;
