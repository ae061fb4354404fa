//! Link models: what a packet suffers between two ports, in one direction.
//!
//! Sans-IO: a [`Link`] takes packets with the time at which they were offered and hands them out when they arrive. It never
//! reads a clock, draws from a global generator, opens a socket or spawns. The same seed and the same calls give the same
//! arrivals, so simulations and the live emulator share this code.
//!
//! ```text
//!                          schedule: changes of all settings in time
//!                  ┌───────────┬────────────┬────────────┬────────────┐
//!                  ▼           ▼            ▼            ▼            ▼
//!  send ─▶ [ up? ] ─▶ [ queue ] ─▶ [ line ] ─▶ [ faults ] ─▶ [ flight ] ─▶ poll_deliver
//!             │        drop-tail     rate or     duplicate,     delay,
//!             │        or CoDel       trace      corrupt,       jitter
//!             ▼            ▼            ▼        reorder
//!          vanished   overflowed,   vanished        ▼
//!                     dropped or                  lost, alone
//!                     marked by CoDel             or in bursts
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`link`](Link) | the chain above and the calling contract: start there |
//! | [`config`](LinkConfig) | every setting with its unit |
//! | [`schedule`](Schedule) | changes of the settings in time: cuts, other rates and delays, more loss |
//! | `queue` | packets that wait for the line |
//! | [`codel`](CoDel) | drops or marks packets that waited too long (RFC 8289) |
//! | `line` | the line: one packet at a time, exact to a fraction of a nanosecond, or by a recording |
//! | [`trace`](Trace) | recorded rates in mahimahi's format |
//! | `faults` | one generator a fault |
//! | [`bursts`](BurstLoss) | loss in bursts (Gilbert and Elliott) |
//! | [`jitter`](Jitter) | delays that differ from packet to packet |
//! | `real` | logarithm and exponential that are the same on every machine |
//! | `flight` | packets that propagate, in the order of their arrival |
//! | [`packet`](Packet) | what a link needs to know about a packet |
//! | [`stats`](LinkStats) | what happened, counted |
#![forbid(unsafe_code)]

mod bursts;
mod codel;
mod config;
mod faults;
mod flight;
mod jitter;
mod line;
mod link;
mod packet;
mod queue;
mod real;
mod schedule;
mod stats;
mod trace;

pub use bursts::BurstLoss;
pub use codel::CoDel;
pub use config::{ConfigError, Discipline, LinkConfig};
pub use jitter::{Jitter, PARETO_SHAPE_HUNDREDTHS_MAX, Spread};
pub use link::{Link, PACKETS_HELD_MAX};
pub use packet::{Ecn, LengthOnly, Packet};
pub use schedule::{CHANGES_MAX, Change, LineState, Schedule, ScheduleError};
pub use stats::LinkStats;
pub use trace::{OPPORTUNITIES_MAX, OPPORTUNITY_BYTES, Trace, TraceError};
