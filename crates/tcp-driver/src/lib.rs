//! TCP/IP for the driver: an implementation of [`driver::Protocol`], and the handles through which
//! applications use connections. Sans-IO, like the driver.
//!
//! | module | content |
//! |---|---|
//! | [`protocol`] | [`Tcp`], the protocol: routes, listening ports, TIME-WAIT, resets. Start here |
//! | [`connection`] | [`TcpConnection`]: a connection together with the state of its handles |
//! | [`handle`] | [`StreamHandle`] |
//! | [`application`] | the cell that handles and driver share, and its limits |
//! | [`listener`], [`listeners`] | a listening port, and all listening ports with their limits |
//! | [`counters`] | a host's counters besides those of connections |
//! | [`layers`], [`records`] | the security layers of a stack, and the cipher above TCP of a connection |
//! | [`link`] | Ethernet: neighbours and routes |
//! | [`fragments`] | fragments of IP packets |
//! | `info` | [`TcpInfo`], an application's view of the state of a connection |
//! | [`packets`] | received packets, plans and jobs |
//! | [`shard`] | assignment of connections to drivers |
//! | `signature` | verification of the MD5 digests of segments |
//! | [`udp`] | UDP ports |
//! | [`transparent`], [`opening`] | a stack with all addresses, whose application decides about each SYN |
//! | `held` | driver calls about SYNs that wait for the decision |
//! | `table` | values by addresses and ports |
//! | `time_wait` | connections in TIME-WAIT |
//! | [`detached`] | the receive half of a connection on another processor |
//! | `delivery` | received data on their path to the application |
#![forbid(unsafe_code)]

pub mod application;
pub mod connection;
pub mod counters;
mod delivery;
pub mod detached;
pub mod fragments;
pub mod handle;
mod held;
mod info;
pub mod layers;
pub mod link;
pub mod listener;
pub mod listeners;
pub mod opening;
pub mod packets;
pub mod protocol;
pub mod records;
pub mod shard;
mod signature;
mod table;
mod time_wait;
pub mod transparent;
pub mod udp;

pub use application::{Closed, Connect, Limits, TcpApplication, TcpCell, TcpShared, WriteError};
pub use connection::TcpConnection;
pub use counters::{Count, HostCounters};
pub use handle::{Runtime, StreamHandle};
pub use info::TcpInfo;
pub use layers::Layers;
pub use listener::ListenerHandle;
pub use listeners::{Listen, ListenError, ListeningPorts};
pub use opening::OpeningHandle;
pub use packets::{OpenSegment, Received, SegmentPlan};
pub use protocol::{LocalAddress, Tcp};
pub use records::{RecordJob, RecordOutput};
pub use shard::Shard;
pub use transparent::{Transparent, TransparentBounds};
