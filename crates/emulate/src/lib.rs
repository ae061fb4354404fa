//! Live link emulation: applies the models of [`netem`] to real packets in real time.
//!
//! There are two kinds of emulated links, with the same model:
//!
//! - [`Relay`]: UDP datagrams between clients and a server on one machine. Needs no privilege.
//! - [`Tunnels`]: all IP traffic between network namespaces, through TUN devices with checksum and
//!   segmentation offload. Needs root on Linux.
//!
//! ```text
//!                        ┌─────────────── one thread per link ───────────────┐
//!   sockets, devices ──▶ read all ──▶ netem::Link ──▶ due? write ──▶ sockets, devices
//!                        └─ sleeps until input is readable or a packet due ──┘
//! ```
//!
//! The only queue is the model's: input is read at once and sent into the link, which delays or
//! drops it. The emulator [records](Lateness) how late packets left, so that a run can show whether
//! the machine was fast enough.
//!
//! | module | holds |
//! |---|---|
//! | [`relay`](Relay) | datagrams through sockets |
//! | [`tunnels`](Tunnels) | packets through TUN devices |
//! | [`running`](Running) | running links: statistics, manual changes, stopping |
//! | [`text`] | links written as text |
//! | [`namespace`](Namespace) | network namespaces, and threads inside them |
//! | [`report`](LinkReport) | statistics of a link |
//! | [`limits`] | measurement of this machine's emulation limits |
//! | `worker`, `poller` | the thread of a link |
//! | `mtu` | the MTU of a link |
//!
//! Start with [`Relay`].
#![forbid(unsafe_code)]

mod cidr;
mod error;
pub mod limits;
mod mtu;
#[cfg(target_os = "linux")]
mod namespace;
mod poller;
mod pool;
mod relay;
mod report;
mod running;
pub mod text;
#[cfg(target_os = "linux")]
mod tunnels;
mod worker;

pub use cidr::{Cidr, ParseCidrError};
pub use error::StartError;
pub use mtu::{MTU_DEFAULT, MTU_MIN};
#[cfg(target_os = "linux")]
pub use namespace::Namespace;
pub use relay::{CLIENTS_MAX, Relay, RelayLink};
pub use report::{DirectionReport, LATE_THRESHOLD, Lateness, LinkReport};
pub use running::{Direction, Ended, Running};
pub use text::{DeviceText, LinkText, LinkTextError};
#[cfg(target_os = "linux")]
pub use tunnels::{Side, Tap, TappedPacket, TunLink, Tunnels};
pub use worker::{ChangeError, LINKS_MAX};
