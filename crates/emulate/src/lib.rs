//! Emulated links, live: what [`netem`] models happens to real packets, in real time.
//!
//! Two forms, one model:
//!
//! - [`Relay`]: UDP datagrams between clients and a server on one machine. Needs no privilege.
//! - [`Tunnels`]: all that IP carries, between network namespaces, through TUN devices with checksum and segmentation
//!   offload. Needs root on Linux.
//!
//! ```text
//!                        ┌──────────────── one thread a link ────────────────┐
//!   sockets, devices ──▶ read all ──▶ netem::Link ──▶ due? write ──▶ sockets, devices
//!                        └─ sleeps until something can be read or is due ────┘
//! ```
//!
//! The only queue is the model's: what can be read is read at once and offered to the link, which delays it or drops it.
//! How late packets left is [counted](Lateness), so that a run can say whether the machine was fast enough for it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`relay`](Relay) | datagrams through sockets |
//! | [`tunnels`](Tunnels) | packets through TUN devices |
//! | [`running`](Running) | links while they run: statistics, faults by hand, the end |
//! | [`text`] | links as people write them |
//! | [`namespace`](Namespace) | network namespaces of our own, and threads inside them |
//! | [`report`](LinkReport) | what happened |
//! | [`limits`] | what this machine can emulate, measured |
//! | `worker`, `sleep` | the thread of a link |
#![forbid(unsafe_code)]

mod cidr;
mod error;
pub mod limits;
#[cfg(target_os = "linux")]
mod namespace;
mod pool;
mod relay;
mod report;
mod running;
mod sleep;
pub mod text;
#[cfg(target_os = "linux")]
mod tunnels;
mod worker;

pub use cidr::{Cidr, ParseCidrError};
pub use error::StartError;
#[cfg(target_os = "linux")]
pub use namespace::Namespace;
pub use relay::{CLIENTS_MAX, Relay, RelayLink};
pub use report::{DirectionReport, LATE_FROM, Lateness, LinkReport};
pub use running::{Direction, Ended, Running};
pub use text::{DeviceText, LinkText, LinkTextError};
#[cfg(target_os = "linux")]
pub use tunnels::{Side, TunLink, Tunnels};
pub use worker::ChangeError;

/// Links that run at a time: each has a thread of its own.
pub const LINKS_MAX: usize = 64;

/// The smallest MTU that IPv4 knows (RFC 791, section 3.2).
pub const MTU_MIN: u16 = 68;

/// The MTU of a link whose text does not say: Ethernet's.
pub const MTU_DEFAULT: u16 = 1500;
