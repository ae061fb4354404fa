//! Link models: what a packet suffers between two ports, in one direction.
//!
//! Sans-IO: a [`Link`] takes packets with the time at which they were offered and hands them out when they arrive. It never
//! reads a clock, draws from a global generator, opens a socket or spawns. The same seed and the same calls give the same
//! arrivals, so simulations and the live emulator share this code.
//!
//! ```text
//!            overflowed               lost
//!                ^                      ^
//!  send -> [ queue ] -> [ line ] -> [ faults ] -> [ flight ] -> poll_deliver
//!            bytes        rate      duplicate,      delay
//!            bound                  corrupt,
//!                                   reorder
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`link`](Link) | the chain above and the calling contract: start there |
//! | [`config`](LinkConfig) | every setting with its unit |
//! | `queue` | packets that wait for the line |
//! | `line` | the line: one packet at a time, exact to a fraction of a nanosecond |
//! | `faults` | one generator a fault |
//! | `flight` | packets that propagate, in the order of their arrival |
//! | [`packet`](Packet) | what a link needs to know about a packet |
//! | [`stats`](LinkStats) | what happened, counted |
#![forbid(unsafe_code)]

mod config;
mod faults;
mod flight;
mod line;
mod link;
mod packet;
mod queue;
mod stats;

pub use config::{ConfigError, LinkConfig};
pub use link::{Link, PACKETS_HELD_MAX};
pub use packet::{LengthOnly, Packet};
pub use stats::LinkStats;
