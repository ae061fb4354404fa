//! Multipath QUIC for applications: endpoints over UDP sockets, connections, streams, and the
//! identity of hosts. The library `litz` re-exports this crate and contains the guide for its
//! users.
//!
//! | module | content |
//! |---|---|
//! | `endpoint`, `config` | [`Endpoint`], [`EndpointConfig`]: sockets, limits, connecting and accepting. Start here |
//! | `connection` | [`Connection`]: streams, datagrams, messages, closing; blocking and asynchronous calls |
//! | `stream` | [`SendStream`], [`RecvStream`]; with the feature `tokio`, tokio's traits for them |
//! | [`identity`] | host keys, TLS settings without certificates |
//! | [`local_ends`] | the device and the address of each socket, for the user |
//! | [`paths`] | the choice of the address pairs that a connection uses |
//! | [`runtime`] | QUIC as a protocol of the crate `engine`, the basis of the handles above |
#![forbid(unsafe_code)]

mod config;
mod connection;
mod endpoint;
pub mod identity;
pub mod local_ends;
pub mod paths;
pub mod runtime;
mod stream;

pub use crate::config::EndpointConfig;
pub use crate::connection::Connection;
pub use crate::endpoint::{BindError, ConnectError, Endpoint};
pub use crate::runtime::{ConnectOptions, Incoming, LiveSocket, ReplaceableSocket, RetryError, SocketSwitch};
pub use crate::stream::{RecvStream, SendStream};
pub use engine::{
    Activity, ActivityKind, Costs, EventHandler, JournalFolder, LAP_MAX, PROCESSORS_MAX, Placement, PlacementError,
    Readiness, ReceiveWorkerStats, StartError, Traffic, WorkerPoolStats, WorkerStats,
};
pub use net::{Interface, InterfaceAddress, OpenError as SocketOpenError, UdpSocket, UdpSocketOptions};
pub use quic::session::{ExportError, SessionSummary};
pub use quic::{
    AckPolicy, AddressValidation, Addresses, BURST_MIN, Class, ConnectionId, DatagramPaths, EcnState, ErrorCode,
    JournalSink, JournalSource, MigrateError, OpenPathError, PATH_SET_MAX, PATHS_MAX, PathId, PathSet, PathSetError,
    PathState, PathStats, PathWait, Policy, RateLimit, RateLimitError, ReceiveStats, ReceivedDatagram,
    RetransmissionPolicy, SendStats, Side, Stats, Strategy, StreamId, StridedBytes, TraceSink, TransportConfig,
    TransportError, Version, Versions,
};
pub use quic_driver::PathEvent;
pub use quic_driver::error::{
    AcceptStreamError, Closed, DatagramError, MessageError, OpenError, ReadError, WriteError,
};
pub use recovery::{Algorithm, CongestionSnapshot, RateCap};
/// Durations, rates and sizes used by [`TransportConfig`].
pub use units;
