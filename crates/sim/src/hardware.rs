//! Models of hardware. Each checks its parameters on construction; an invalid one is an error that
//! names its key.
//!
//! | module | contents |
//! |---|---|
//! | [`atm`] | ATM lines with circuits in round-robin order; a train of cells is one event |
//! | [`bus`] | buses with held or split transactions |
//! | [`channel`] | message links between processes, synchronous and unbuffered |
//! | [`dma`] | DMA engines |
//! | [`fddi`] | FDDI rings with the timed-token protocol; idle rotations cost no events |
//! | [`line`](mod@line) | point-to-point links with the link model of `netem` |
//! | [`memory`] | memories: nanoseconds per word, ports |
//! | [`mesh`] | processors connected by a linear array, a mesh or a crossbar |
//! | [`mux`] | network schedulers and a device shared by all packets |
//! | [`processor`] | processors: instructions per second, cache misses |
//! | [`transputer`] | processors that run processes of two priorities, one at a time |

pub mod atm;
pub mod bus;
pub mod channel;
mod component_process;
mod config_error;
pub mod dma;
pub mod fddi;
mod frame_queue;
mod in_flight;
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
pub use processor::{AttachedMemory, Processor, ProcessorConfig, Work};
pub use transputer::{Priority, Process, Transputer};
