//! Journals of connections of any protocol: all inputs of a connection, recorded for a replay.
//! Sans-IO: a [`JournalSink`] takes blocks, and a replay reads them.
//!
//! ```text
//!   live     Connection ── entries ──▶ Writer ──▶ Out ── blocks ──▶ JournalSink ──▶ file
//!                                        ▲
//!            its detached half ── Writer ┘
//!   replay   file ──▶ Blocks ── entries ──▶ Replay ──▶ a type that implements Replayed
//! ```
//!
//! A protocol defines its entries, and their effect on a connection in a replay.
//!
//! | module | content |
//! |---|---|
//! | [`format`](mod@format) | constants and basic elements of the format (`docs/spec/replay.md`) |
//! | [`digest`] | digests of plans and blocks |
//! | [`sink`] | destinations of journals |
//! | [`out`] | the log of a connection, to which both its halves may write |
//! | [`writer`] | the entries of a connection, or of its detached receive half |
//! | [`blocks`] | checked blocks of a log |
//! | [`memory`] | journals kept in memory, for tests |
//! | [`planned`] | the result of a request for a plan |
//! | [`replay`] | the replay of a log, entry by entry |
//! | [`stopped`] | the end of a replay |
//! | [`transit`] | messages between a connection and its detached receive half |
//! | [`zeros`] | bytes in place of payload |
#![forbid(unsafe_code)]

pub mod blocks;
pub mod digest;
pub mod format;
pub mod memory;
pub mod out;
pub mod planned;
pub mod replay;
pub mod sink;
pub mod stopped;
pub mod transit;
pub mod writer;
pub mod zeros;

pub use blocks::{JournalError, JournalErrorKind};
pub use sink::{JournalSink, JournalSource};
pub use stopped::{Difference, LogEnd, Stopped};
/// The role of a connection: a client has opened it, a server has accepted it.
pub use wire::quic::Side;
