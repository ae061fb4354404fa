//! Journals: all inputs of a connection, recorded for a replay.
//!
//! A connection is a deterministic function of its inputs, whatever threads run its stages. A
//! journal contains these inputs in their order, with their times, and a digest of each plan that
//! came out. [`Replay`] makes another connection with the same initial values, passes it the same
//! inputs on one thread and compares the output.
//!
//! ```text
//!   live     calls ──▶ Connection ──▶ plans, events          Journal ──▶ JournalSink ──▶ file
//!              └─────────────┴──────────────┴─────────────────▶
//!   replay   file ──▶ Replay: entry ──▶ Connection ──▶ plans, events ──▶ equal?
//! ```
//!
//! Arriving packets are recorded opened, with the length of stream and datagram payload only:
//! planning never reads payload, and a replay seals nothing. The output of TLS is recorded, too. So
//! a journal contains neither payload nor packet protection keys. It does reveal addresses,
//! connection IDs, reset tokens, sizes and times; handle it like a packet capture.
//!
//! | file | content |
//! |---|---|
//! | `format` | constants, and the smallest parts of the format (`docs/spec/replay.md`) |
//! | `begin`, `records`, `session`, `outcome` | parts of entries: the first entry, opened packets, output of TLS, output of the connection |
//! | `recording` | a journal that is being written |
//! | `write`, `entry` | writing and reading entries |
//! | `replay`, `apply`, `detached` | the replay |
//! | `observe` | the packets of a replayed connection |
//! | `digest` | of plans |
//!
//! What does not depend on the protocol is in the crate `journal`.

mod apply;
mod begin;
mod detached;
mod digest;
mod entry;
pub(crate) mod format;
mod observe;
pub(crate) mod outcome;
pub(crate) mod recording;
mod records;
mod replay;
pub(crate) mod session;
pub(crate) mod write;

pub use crate::observed::{LossTrigger, LostPackets, PathMetrics};
pub use begin::{JournalHead, UNREAD_MAX};
pub use entry::Entry;
pub use format::{MAGIC, VERSION};
pub use observe::{FrameSummary, Observation, PacketSummary};
pub use replay::{Replay, Step};

pub use ::journal::{Difference, JournalError, JournalErrorKind, JournalSink, JournalSource, LogEnd, Stopped};
