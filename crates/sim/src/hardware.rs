//! Modelled hardware. Its parameters are checked when it is built: what cannot be is an error that names the key.
//!
//! | module | what |
//! |---|---|
//! | [`atm`] | lines of 53-byte cells with circuits that take turns; a train of cells is one event |
//! | [`bus`] | buses: held or split transactions |
//! | [`channel`] | message links between processes, synchronous and unbuffered |
//! | [`dma`] | engines that move words without a processor |
//! | [`fddi`] | rings with the timed-token rules, an idle rotation costs nothing |
//! | [`line`](mod@line) | point-to-point links on the model of `netem` |
//! | [`memory`] | memories: nanoseconds a word, ports |
//! | [`mesh`] | processors joined by a linear array, a mesh or a crossbar |
//! | [`mux`] | network schedulers, and the device that holds one for all |
//! | [`processor`] | processors: instructions per second, caches that miss |
//! | [`transputer`] | processors that run processes of two priorities, one at a time |

pub mod atm;
pub mod bus;
pub mod channel;
mod config_error;
pub mod dma;
mod driver;
pub mod fddi;
mod flight;
mod lane;
pub mod line;
pub mod memory;
pub mod mesh;
pub mod mux;
pub mod processor;
pub mod transputer;

pub use bus::{Bus, BusConfig, Transactions};
pub use channel::Channel;
pub use config_error::ConfigError;
pub use dma::Dma;
pub use memory::{Memory, MemoryConfig};
pub use mesh::{Forwarding, Mesh, MeshConfig, Topology};
pub use mux::{Chooser, Mux, Outlet, Schedule};
pub use processor::{Home, Processor, ProcessorConfig, Work};
pub use transputer::{Priority, Process, Transputer};
