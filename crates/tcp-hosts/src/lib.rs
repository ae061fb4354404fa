//! Hosts that run the TCP/IP stack in virtual time, on modelled processors and links.
//!
//! ```text
//!   process of the model ── Stream ──▶ Driver<Tcp> ──▶ device ──▶ line ──▶ device of the other host
//!        each call costs time          each segment costs time
//! ```
//!
//! The stack is that of the live engine: the driver core (crate `driver`) with TCP/IP as its protocol
//! (`tcp-driver`, `tcp`). It differs in the clock, which the simulation sets, and in the device, which
//! is a queue in memory. Bytes are real, so checksums are verified.
//!
//! For a processor that takes turns three kinds of work compete, the first before the second before the
//! third, none of them interrupted:
//!
//! 1. interrupts: each segment that arrives costs its time,
//! 2. turns of the driver, in which each segment that leaves costs its time,
//! 3. calls of applications.
//!
//! While segments arrive faster than the host can take them, it makes no turn, unless the interrupts
//! before a turn are limited. So a busy host processes several segments at a time, and what it answers
//! comes late.
//!
//! Under `packet(n)`, and where four processors divide the work, the driver's turns take no time, and
//! each packet passes through steps that do: `steps` has the figure. Interface, connection, and the work
//! that needs no connection, such as digests and records, have costs of their own.
//!
//! | module | content |
//! |---|---|
//! | [`host`] | [`Host`]. Start there |
//! | [`processor`] | [`Processors`]: how many, and the work of each |
//! | `turns` | processors that take turns: one, or one for each direction |
//! | `steps` | processors that do single steps: `packet(n)`, or four |
//! | [`stream`] | [`Stream`]: a connection, for processes of the model |
//! | [`costs`] | [`Costs`] |
//! | `common` | what a host has whatever its processors |
//! | `device` | the environment of the driver: virtual time, the device |
#![forbid(unsafe_code)]

mod common;
pub mod costs;
mod device;
pub mod host;
pub mod processor;
mod steps;
pub mod stream;
mod turns;

pub use costs::{Costs, SegmentCost};
pub use host::{Host, HostConfig, connect};
pub use processor::Processors;
pub use stream::Stream;
pub use tcp_driver::{Layers, Limits};
