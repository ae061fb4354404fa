//! Link models: rate, queue, delay, jitter, loss and other faults for one direction of a link.
//!
//! Sans-I/O: a [`Link`] takes packets with the time at which they are sent and returns them at the
//! time of their arrival. It never reads a clock, uses a global generator, opens a socket or spawns
//! a thread. The same seed and the same calls give the same arrivals, so the simulator and the live
//! emulator share this code.
//!
//! ```text
//!                          schedule: changes of all settings over time
//!                  ┌───────────┬────────────┬────────────┬────────────┐
//!                  ▼           ▼            ▼            ▼            ▼
//!  send ─▶ [ up? ] ─▶ [ queue ] ─▶ [ line ] ─▶ [ faults ] ─▶ [ flight ] ─▶ poll_deliver
//!             │        drop-tail     rate or     duplicate,     delay,
//!             │        or CoDel       trace      corrupt,       jitter
//!             ▼            ▼            ▼        reorder
//!          vanished   overflowed,   vanished        ▼
//!                     dropped or                  lost, singly
//!                     marked by CoDel             or in bursts
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`link`](Link) | the chain above and the calling contract: start here |
//! | [`config`](LinkConfig) | every setting with its unit |
//! | [`schedule`](Schedule) | changes of the settings over time: outages, other rates, delays and loss |
//! | `queue` | packets that wait for the line |
//! | [`codel`](CoDel) | drops or marks packets that waited too long (RFC 8289) |
//! | `line` | transmission, one packet at a time, exact to a fraction of a nanosecond, or by a trace |
//! | [`trace`](Trace) | recorded rates in mahimahi's format |
//! | `faults` | one random generator per fault |
//! | [`bursts`](BurstLoss) | loss in bursts (Gilbert and Elliott) |
//! | [`jitter`](Jitter) | delays that differ from packet to packet |
//! | `real` | logarithm and exponential with the same result on every machine |
//! | `flight` | packets in propagation, ordered by arrival |
//! | [`packet`](Packet) | the interface of a packet |
//! | [`stats`](LinkStats) | counters |
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
pub use jitter::{Distribution, Jitter, PARETO_SHAPE_HUNDREDTHS_MAX};
pub use link::{Link, PACKETS_HELD_MAX};
pub use packet::{Ecn, LengthOnly, Packet};
pub use schedule::{CHANGES_MAX, Change, LineState, Schedule, ScheduleError};
pub use stats::LinkStats;
pub use trace::{OPPORTUNITIES_MAX, OPPORTUNITY_BYTES, Trace, TraceError};
