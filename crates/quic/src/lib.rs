//! QUIC v1 as a sans-IO state machine with three owners.
//!
//! Nothing here opens a socket, reads a clock, spawns, locks a shared state or draws from a global generator: datagrams,
//! time and commands come in; plans, deadlines and events go out. The calling contract stands on [`Connection`].
//!
//! ```text
//!  application ── write ──▶ ┌────────────┐  plan   ┌────────┐  datagrams
//!                           │ SendHalf   │ ──────▶ │ seal   │ ──────────▶ link
//!                           ├────────────┤         └────────┘ (any processor)
//!                           │ Control    │
//!                           ├────────────┤ records ┌────────┐  datagrams
//!  application ◀── read ─── │ ReceiveHalf│ ◀────── │ open   │ ◀────────── link
//!                           └────────────┘         └────────┘ (any processor)
//! ```
//!
//! | where | what |
//! |---|---|
//! | [`connection`] | the three owners together, and what a driver calls: start here |
//! | [`endpoint`] | which connection a datagram belongs to |
//! | `send`, `receive`, `control` | the owners |
//! | `exchange` | the values they exchange |
//! | [`plan`], [`mod@seal`] | what is to be sent, and the stage that seals it |
//! | [`unsealed`] | both stages without bytes, for simulations |
//! | [`open`] | the stage that opens and parses what arrives |
//! | [`part`] | the receive half on a processor of its own |
//! | [`class`] | what a stream may ask of the connection: priority, rate, paths |
//! | [`policy`] | what is decided path by path, and what once for all paths |
//! | [`session`] | what QUIC asks of TLS |
//! | [`journal`] | everything that goes into a connection, written down and made to happen again |
//! | [`script`] | an end that only pretends, to measure the other one |
#![forbid(unsafe_code)]

pub mod class;
pub mod config;
pub mod connection;
pub(crate) mod control;
mod earliest;
pub mod endpoint;
pub mod error;
pub mod event;
pub(crate) mod exchange;
pub mod journal;
pub mod open;
pub mod part;
pub mod plan;
pub mod policy;
pub(crate) mod queue;
pub mod range_set;
pub(crate) mod receive;
pub(crate) mod rest;
pub mod script;
pub mod seal;
pub mod secret;
pub(crate) mod send;
pub mod session;
mod spaces;
pub mod stats;
pub(crate) mod stream_map;
pub mod strip;
pub mod unsealed;
mod watched;

pub use class::{BURST_LEAST, Class, PATH_SET_MAX, PathSet, PathSetError, RateLimit, RateLimitError};
pub use config::{TraceSink, TransportConfig};
pub use connection::{Connection, LeaseTerms, OpenLease, ReceiveBuffer, WRITE_LEN_MAX};
pub use control::RouteChange;
pub use control::ids::LOCAL_ID_LEN;
pub use control::paths::{OpenPathError, PATHS_MAX};
pub use endpoint::{BeginError, ConnectionKey, Endpoint, Route};
pub use error::{ConnectionError, TransportError};
pub use event::Event;
pub use journal::{JournalSink, JournalSource, Replay};
pub use open::OpenJob;
pub use part::{Findings, Orders, ReceivePart, Strange};
pub use plan::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Plan, Receipt};
pub use policy::{AckPolicy, ParsePolicyError, Policy, RetransmissionPolicy};
pub use receive::streams::{Chunk, ReadError};
pub use scheduler::Strategy;
pub use script::{NotScripted, ScriptKeys, ScriptReader, ScriptedEar, ScriptedPeer, Unopened};
pub use seal::seal;
pub use secret::{SHARDS_MAX, SecretSource};
pub use send::SendDatagramError;
pub use send::path::Addresses;
pub use send::streams::WriteError;
pub use stats::{PathState, PathStats, ReceiveStats, SendStats, Stats};
pub use strip::Strip;
pub use unsealed::Unsealed;
pub use wire::quic::{ConnectionId, Dir, ErrorCode, PathId, Side, StreamId};
