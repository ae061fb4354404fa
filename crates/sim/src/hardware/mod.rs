//! Models of machines and their parts.
//!
//! | module | what |
//! |---|---|
//! | [`channel`] | message links between processes, synchronous and unbuffered |
//! | [`transputer`] | a processor that runs processes of two priorities, one at a time |

pub mod channel;
pub mod transputer;

pub use channel::Channel;
pub use transputer::{Priority, Process, Transputer};
