//! Journals: all inputs of a connection, recorded for a replay.
//!
//! A connection is a deterministic function of its inputs. With
//! [`TcpConfig::journal`](crate::TcpConfig), its public methods record their arguments before they
//! take effect, and their outputs: a digest of each plan, the next timeout, events and answers.
//! [`Replay`] creates another connection with the same initial values, passes it the same inputs on
//! one thread and compares the outputs.
//!
//! Arriving segments are recorded as the open stage produced them: the header and the length of the
//! data. Grants of the [budget](crate::BufferBudget) of the buffers are recorded, too, because
//! other connections share it. So a journal contains no payload and no key of TCP-MD5. It does
//! reveal addresses, ports, sequence numbers, sizes and times; handle it like a packet capture.
//!
//! | file | content |
//! |---|---|
//! | `format` | the head of a log, and the tags of entries (`docs/spec/replay.md`) |
//! | `begin`, `segment`, `outcome` | parts of entries: the first entry, arrivals, output of the connection |
//! | `recording` | writing a journal |
//! | `entry` | reading entries |
//! | `text` | display of entries |
//! | `replay`, `apply` | the replay |
//!
//! The crate `journal` contains the protocol-independent parts.

mod apply;
pub(crate) mod begin;
mod entry;
mod format;
pub(crate) mod outcome;
pub(crate) mod recording;
mod replay;
mod segment;
mod text;

pub use begin::{BUFFER_MAX, JournalHead};
pub use format::{MAGIC, VERSION};
pub use replay::{Replay, Step};
pub use text::Entry;

pub use ::journal::{Difference, JournalError, JournalErrorKind, JournalSink, JournalSource, LogEnd, Side, Stopped};
