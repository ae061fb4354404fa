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
//! For a processor three kinds of work compete, the first before the second before the third, none of
//! them interrupted:
//!
//! 1. interrupts: each segment that arrives costs its time,
//! 2. turns of the driver, in which each segment that leaves costs its time,
//! 3. calls of applications.
//!
//! While segments arrive faster than the host can take them, it makes no turn, unless the interrupts
//! before a turn are limited. So a busy host processes several segments at a time, and what it answers
//! comes late.
//!
//! | module | content |
//! |---|---|
//! | [`host`] | [`Host`]. Start there |
//! | [`processor`] | [`Processors`]: one, or one for each direction |
//! | [`stream`] | [`Stream`]: a connection, for processes of the model |
//! | [`costs`] | [`Costs`] |
//! | `device` | the environment of the driver: virtual time, the device |
#![forbid(unsafe_code)]

pub mod costs;
mod device;
pub mod host;
pub mod processor;
pub mod stream;

pub use costs::{Costs, SegmentCost};
pub use host::{Host, HostConfig, connect};
pub use processor::Processors;
pub use stream::Stream;
pub use tcp_driver::Limits;
