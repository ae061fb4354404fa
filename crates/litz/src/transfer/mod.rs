//! The file protocol: a tree of files over one authenticated connection, resumable, verified, in parallel segments.
//!
//! ```text
//!   sender                                       receiver
//!   Hello (proof) ─────────── control ─────────▶ decide: ticket or list of keys
//!          ◀───────────────── control ────────── Accepted (proof back) | Refused
//!   Entries… EntriesEnd ───── control ─────────▶ the names and sizes, checked
//!          ◀───────────────── control ────────── Plan per file: the segments it holds already
//!   segments ═══ unidirectional streams ═══════▶ write at offset, verify, journal
//!   FileDone (root hash) ──── control ─────────▶ compare, sync, rename
//!          ◀───────────────── control ────────── Result per entry
//!   Finish ────────────────── control ─────────▶
//!          ◀───────────────── control ────────── Bye
//! ```
//!
//! The code blocks and uses a few threads a side; the connection behind it is a [`Link`]. Nothing about files is said
//! before both ends are authenticated. Start with [`send::run`] and [`receive::run`]; the formats stand in
//! `docs/spec/transfer.md`.

pub mod authorise;
mod buffers;
mod control;
pub mod error;
pub mod events;
mod journal;
pub mod link;
pub mod manifest;
mod message;
pub mod names;
mod part_file;
mod progress;
mod queue;
pub mod receive;
mod record;
mod room;
mod segment;
pub mod send;
mod transport;
mod tree;

#[cfg(test)]
mod memory;
#[cfg(test)]
mod tests;

pub use authorise::{Authoriser, Credential, KeyAuthoriser, TicketAuthoriser};
pub use error::{FileError, FileErrorKind, TransferError};
pub use events::{Events, Summary, TransferEvent};
pub use link::{CancelToken, Control, Link, SendStream};
pub use manifest::{Entry, EntryKind, Source};
pub use names::{NameError, RelativePath};
pub use receive::ReceiveOptions;
pub use segment::FileHash;
pub use send::SendOptions;
pub use transport::{STREAMS_MAX, transport};
