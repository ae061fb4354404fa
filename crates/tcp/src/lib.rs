//! TCP as a state machine in two halves. Sans-IO: it has no sockets, clock or threads; the caller
//! passes segments and times and takes plans, events and deadlines.
//!
//! | module | content |
//! |---|---|
//! | [`connection`] | [`Connection`]: the state machine of RFC 9293. Start here |
//! | [`arrival`] | [`Arrival`]: a received segment. Parsing it needs no connection |
//! | [`plan`] | [`Plan`]: segments to send. Writing them needs no connection |
//! | [`config`] | [`TcpConfig`] |
//! | [`budget`] | [`BufferBudget`]: the memory of the buffers of all connections |
//! | [`state`] | the states of RFC 9293 |
//! | [`icmp`] | ICMP errors about a connection, and the answers of a host |
//! | [`md5`] | the MD5 signature option |
//! | [`reply`] | answers without a connection: resets, TIME-WAIT |
//! | [`listen`] | segments for a listening port |
//! | [`sources`] | addresses that are invalid as a source |
//! | [`secret`] | initial sequence numbers and ports that cannot be guessed |
//! | [`detached`] | the receive half on another processor |
//! | [`journal`](mod@journal) | all inputs of a connection, recorded for a replay |
//! | `send` | the send half: sent log, losses, congestion, timers |
//! | `receive` | the receive half: placement, windows, acknowledgements |
//! | `event` | events for the application |
//! | `negotiated`, `results` | result of the handshake, results of calls |
//! | `accurate_ecn` | RFC 9768: counters of marks, their flags and their option |
//! | `position`, `timestamps`, `tuple` | sequence numbers that do not wrap, RFC 7323, addresses |
#![forbid(unsafe_code)]

mod accurate_ecn;
pub mod arrival;
pub mod budget;
pub mod config;
pub mod connection;
pub mod detached;
mod event;
pub mod icmp;
pub mod journal;
pub mod listen;
pub mod md5;
mod negotiated;
pub mod plan;
mod position;
mod receive;
pub mod reply;
mod results;
pub mod secret;
mod send;
pub mod sources;
pub mod state;
mod timestamps;
mod tuple;

pub use crate::journal::{JournalSink, JournalSource, Replay};
pub use arrival::{Arrival, OpenError, SegmentHead};
pub use budget::BufferBudget;
pub use config::{
    AckPolicy, AckThreshold, AckTimer, DSCP_MAX, KeepAlive, LossRecovery, Nagle, RtoFormula, TcpConfig, WindowGrowth,
};
pub use connection::{COOKIE_LIFETIME, CloseReason, Connection, Read, Stats, WriteError};
pub use detached::{DetachedReceiveHalf, ReceiveCommands, ReceiveReport};
pub use event::{Event, SoftError};
pub use icmp::{IcmpError, IcmpErrorKind};
pub use md5::{Md5Key, Md5KeyError};
pub use plan::{HeaderBelow, PLAN_BYTES_MAX, Plan, SuperPacket};
pub use receive::ReceiveStats;
pub use reply::TimeWait;
pub use secret::HostSecret;
pub use send::SendStats;
pub use state::State;
pub use tuple::Tuple;
