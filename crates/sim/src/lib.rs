//! Deterministic discrete-event simulation in virtual time.
//!
//! The crate reads no clock and takes no randomness from the operating system. A run is a function
//! of its model, a seed and a run number. Threads are used only to execute independent runs in
//! parallel. A model is written as *processes* (async functions that wait for virtual time and for
//! each other) or, where simulation speed matters most, as a loop over a [`Calendar`] of plain
//! events.
//!
//! | module | contents |
//! |---|---|
//! | [`kernel`] | [`Simulation`] and its handle [`Sim`]: processes, virtual time, random streams |
//! | [`calendar`] | the event queue, ordered by time and then by insertion |
//! | [`stream`] | named random streams and their distributions |
//! | [`facility`] | first-come, first-served servers with a known service time |
//! | [`resource`] | exclusive resources that a process holds for as long as it needs |
//! | [`store`] | bounded queues between processes |
//! | [`hardware`] | models of buses, memories, processors, FDDI rings, ATM lines and links |
//! | [`observe`] | statistics of components: utilisation, queue length, waiting time, with an exact check of Little's law |
//! | [`stopwatch`] | timing of operations that involve several components |
//! | [`replicate`] | independent runs on many threads, confidence intervals, warm-up detection |
//! | [`waker`] | waits of processes for each other |
//! | [`trace`] | traces for Perfetto |
//! | [`capture`] | packet captures in pcapng format |
//!
//! Start with [`Simulation`].

pub mod calendar;
pub mod capture;
pub mod facility;
pub mod hardware;
mod join;
pub mod kernel;
pub mod observe;
pub mod replicate;
pub mod resource;
pub mod stopwatch;
pub mod store;
pub mod stream;
pub mod trace;
pub mod waker;

pub use calendar::Calendar;
pub use facility::Facility;
pub use join::join;
pub use kernel::{Sim, Simulation};
pub use observe::{ComponentReport, Level, Tally};
pub use replicate::{Replicated, Replications};
pub use resource::Resource;
pub use stopwatch::Stopwatch;
pub use store::Store;
pub use stream::Stream;
pub use trace::Trace;
pub use waker::{ProcessWaker, Sequencer, wait_for_wake};
