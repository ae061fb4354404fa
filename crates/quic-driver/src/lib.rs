//! QUIC for the driver: an implementation of [`driver::Protocol`], and the handles through which
//! applications use QUIC connections.
//!
//! ```text
//!   handles ── cells ──▶ Connection: streams, messages, datagrams, requests ──▶ quic::Connection
//!                        Quic: routes, accepts, connects, replies           ──▶ quic::Endpoint
//! ```
//!
//! The crate is sans-IO, like the driver. The owner of the drivers implements [`Runtime`], which
//! lets handles wake a driver and wait for it: `litz-quic-endpoint` on threads, a simulator in
//! virtual time.
//!
//! | module | content |
//! |---|---|
//! | [`quic_protocol`] | [`Quic`], the protocol. Start here |
//! | `application` | state shared with applications: [`Limits`], [`Connect`], [`QuicShared`] |
//! | [`connection`] | [`Connection`]: a QUIC connection together with the state of its handles |
//! | [`handle`] | the handles of connections and streams |
//! | [`incoming`] | connection attempts that wait for the application's decision |
//! | `cells` | the state that handles and the driver share, behind short locks |
//! | `delivery` | received streams and datagrams, passed from the connection to the cells |
//! | `messages` | messages, each on a unidirectional stream of its own |
//! | `path_events` | [`PathEvent`]: events of the paths of a connection |
//! | [`detached`] | a receive half that runs on another processor |
//! | `detached_state` | the state that a connection keeps while its receive half is detached |
//! | [`leases`] | keys leased to workers, which open packets where they are received |
//! | [`packets`] | [`Packets`]: the representation of packets, as bytes or as lengths |
//! | [`routing`] | connection IDs, read without keys |
//! | [`error`] | the errors of the handles |
#![forbid(unsafe_code)]

mod application;
mod cells;
pub mod connection;
mod delivery;
pub mod detached;
mod detached_state;
pub mod error;
pub mod handle;
pub mod incoming;
pub mod leases;
mod messages;
pub mod packets;
mod path_events;
pub mod quic_protocol;
mod refusals;
pub mod routing;

pub use application::{COMPACT_BELOW, Connect, Limits, QuicApplication, QuicShared};
pub use cells::ConnectionCell;
pub use connection::Connection;
pub use handle::{
    BidiStream, ConnectionHandle, IncomingHandle, OpenedStream, PendingOpen, RecvHandle, RetryError, Runtime,
    SendHandle,
};
pub use incoming::{Decision, HeldAttempts, IncomingInfo, IncomingQueue};
pub use packets::{ByteDatagrams, DatagramBuffer, Datagrams, Packets, SealedDatagrams};
pub use path_events::PathEvent;
pub use quic_protocol::{EventObserver, Quic};
