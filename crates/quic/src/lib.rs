//! QUIC v1 and v2 as a sans-IO state machine: a connection whose state has three owners.
//!
//! The crate opens no socket, reads no clock, starts no thread and uses no global random generator.
//! Nothing is shared between threads but the tokens of address validation. Datagrams, time and
//! calls go in; plans, timeouts and events come out.
//!
//! Start with [`Connection`], whose documentation has the calling contract. An [`Endpoint`] makes
//! connections and routes datagrams to them. A driver passes each datagram to its connection, asks
//! for a [`Plan`], [seals](fn@seal) it and sends the result.
//!
//! ```text
//!  application ── write ──▶ ┌────────────┐  plan   ┌────────┐  datagrams
//!                           │ SendHalf   │ ──────▶ │ seal   │ ──────────▶ network
//!                           ├────────────┤         └────────┘ (any processor)
//!                           │ Control    │
//!                           ├────────────┤ records ┌────────┐  datagrams
//!  application ◀── read ─── │ ReceiveHalf│ ◀────── │ open   │ ◀────────── network
//!                           └────────────┘         └────────┘ (any processor)
//! ```
//!
//! The three owners are the send half (what is in flight), the receive half (what has arrived) and
//! control (handshake, keys, connection IDs, paths, the idle timer and the close). They share
//! nothing and exchange values. Sealing and opening packets are stages without state of the
//! connection, so other processors can run them.
//!
//! | module | content |
//! |---|---|
//! | [`connection`] | the three owners together, and the calls of a driver and an application: start here |
//! | [`endpoint`] | routing of datagrams to connections, and how connections begin |
//! | [`config`], [`policy`], [`class`] | configuration of connections, multipath policies, classes of service of streams |
//! | [`event`], [`error`], [`stats`] | what a connection reports |
//! | [`address_tokens`] | tokens with which a later connection begins with a validated address |
//! | `send`, `receive`, `control` | the three owners |
//! | `exchange` | the values that they exchange |
//! | `receive_core`, [`detached`] | the receive half with its output, and the receive half on another processor |
//! | `cached_send_half`, `quiet_timer` | shortcuts for connections that only receive, and for quiet ones |
//! | [`plan`], [`mod@seal`] | datagrams to be sent, and the stage that seals them |
//! | [`open`] | the stage that opens and parses datagrams |
//! | [`unsealed`] | both stages without bytes, for simulations |
//! | [`session`], [`secret`] | the interface to TLS; connection IDs and reset tokens |
//! | [`journal`] | recording all inputs of a connection, and replaying them |
//! | [`strided_bytes`], [`range_set`], `queue`, `stream_map`, `spaces`, `earliest` | data structures |
#![forbid(unsafe_code)]

pub mod address_tokens;
mod addresses;
mod batch_meta;
mod cached_send_half;
pub mod class;
pub mod config;
pub mod connection;
pub(crate) mod control;
pub mod detached;
#[doc(hidden)] // For the crate `scripted-peer`: see the module.
pub mod dismantle;
mod earliest;
mod early_state;
pub mod endpoint;
pub mod error;
pub mod event;
pub(crate) mod exchange;
pub mod journal;
mod observed;
pub mod open;
pub mod plan;
pub mod policy;
pub(crate) mod queue;
mod quiet_timer;
pub mod range_set;
pub(crate) mod receive;
mod receive_buffer;
mod receive_core;
mod received_datagram;
pub mod seal;
pub mod secret;
mod seed;
pub(crate) mod send;
pub mod session;
mod spaces;
pub mod stats;
pub(crate) mod stream_map;
pub mod strided_bytes;
pub mod unsealed;

pub use crate::journal::{JournalSink, JournalSource, Replay};
pub use address_tokens::TokenMemory;
pub use addresses::Addresses;
pub use batch_meta::BatchMeta;
pub use class::{BURST_MIN, Class, PATH_SET_MAX, PathSet, PathSetError, RateLimit, RateLimitError};
pub use config::{PATHS_MAX, PreferredAddresses, TraceSink, TransportConfig};
pub use connection::{Connection, LeaseTerms, OpenLease};
pub use control::ids::{LOCAL_ID_LEN, ResetToken, RouteChange};
pub use control::paths::migrate::MigrateError;
pub use control::paths::open::{OpenPathError, PathWait};
pub use detached::{DetachedReceiveHalf, NeedsConnection, ReceiveCommands, ReceiveReport};
pub use early_state::EarlyState;
pub use endpoint::{
    AddressValidation, BeginError, ConnectionKey, Endpoint, INCOMING_DATAGRAMS_MAX, Incoming, RESETS_MAX, Route,
};
pub use error::{ConnectionError, TransportError};
pub use event::Event;
pub use open::OpenJob;
pub use plan::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Plan, Receipt};
pub use policy::{AckPolicy, ParsePolicyError, Policy, RetransmissionPolicy};
pub use receive::streams::{Chunk, ReadError};
pub use receive_buffer::ReceiveBuffer;
pub use received_datagram::ReceivedDatagram;
pub use scheduler::Strategy;
pub use seal::seal;
pub use secret::{SHARDS_MAX, SecretSource};
pub use send::datagrams::{DatagramPaths, SendDatagramError};
pub use send::streams::{WRITE_LEN_MAX, WriteError};
pub use session::Versions;
pub use stats::{EcnState, PathState, PathStats, ReceiveStats, SendStats, Stats};
pub use strided_bytes::StridedBytes;
pub use unsealed::Unsealed;
pub use wire::quic::{ConnectionId, Dir, ErrorCode, PathId, Side, StreamId, Version};
