//! Modelled hardware. Its parameters are checked when it is built: what cannot be is an error that names the key.
//!
//! | module | what |
//! |---|---|
//! | [`atm`] | lines of 53-byte cells with circuits that take turns; a train of cells is one event |
//! | [`channel`] | message links between processes, synchronous and unbuffered |
//! | [`fddi`] | rings with the timed-token rules, an idle rotation costs nothing |
//! | [`line`] | point-to-point links on the model of `netem` |
//! | [`transputer`] | processors that run processes of two priorities, one at a time |

pub mod atm;
pub mod channel;
mod config_error;
mod driver;
pub mod fddi;
mod flight;
mod lane;
pub mod line;
pub mod transputer;

pub use channel::Channel;
pub use config_error::ConfigError;
pub use transputer::{Priority, Process, Transputer};
