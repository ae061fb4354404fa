//! Hosts that run the TCP/IP stack in virtual time, on modelled processors and links.
//!
//! ```text
//!   process of the model ── Stream ──▶ Driver<Tcp> ──▶ device ──▶ line ──▶ device of the other host
//!        each call costs time          each segment costs time
//! ```
//!
//! The stack is the live engine's: the driver core (crate `driver`) with TCP/IP as its protocol
//! (`tcp-driver`, `tcp`). It differs in the clock, which the simulation sets, and in the device,
//! which is a queue in memory. Bytes are real, so checksums are verified.
//!
//! On a processor that takes turns, three kinds of work compete; each kind precedes the next, and
//! none is interrupted:
//!
//! 1. interrupts: each arriving segment costs its time,
//! 2. turns of the driver, in which each outgoing segment costs its time,
//! 3. calls of applications.
//!
//! While segments arrive faster than the host can take them, it makes no turn, unless the number of
//! interrupts before a turn is limited. So a busy host processes several segments at a time, and
//! answers them late.
//!
//! Under `packet(n)`, and where four processors divide the work, the driver's turns take no time,
//! and each packet passes through steps that do: `steps` has the figure. The interface, the
//! connection and connection-independent work, such as digests and records, have separate costs.
//!
//! | module | content |
//! |---|---|
//! | [`host`] | [`Host`]. Start here |
//! | [`processor`] | [`Processors`]: their number, and the work of each |
//! | `turns` | processors that take turns: one, or one for each direction |
//! | `steps` | processors that perform single steps: `packet(n)`, or four |
//! | [`stream`] | [`Stream`]: a connection, for processes of the model |
//! | [`costs`] | [`Costs`] |
//! | `common` | parts of a host that do not depend on its processors |
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
