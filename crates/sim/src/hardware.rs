//! Modelled hardware. Its parameters are checked when it is built: what cannot be is an error that names the key.
//!
//! | module | what |
//! |---|---|
//! | [`bus`] | buses: held or split transactions |
//! | [`dma`] | engines that move words without a processor |
//! | [`fddi`] | rings with the timed-token rules, an idle rotation costs nothing |
//! | [`memory`] | memories: nanoseconds a word, ports |
//! | [`mux`] | network schedulers, and the device that holds one for all |
//! | [`processor`] | processors: instructions per second, caches that miss |

pub mod bus;
mod config_error;
pub mod dma;
pub mod fddi;
pub mod memory;
pub mod mux;
pub mod processor;

pub use bus::{Bus, BusConfig, Transactions};
pub use config_error::ConfigError;
pub use dma::Dma;
pub use memory::{Memory, MemoryConfig};
pub use mux::{Chooser, Mux, Outlet, Schedule};
pub use processor::{Home, Processor, ProcessorConfig, Work};
