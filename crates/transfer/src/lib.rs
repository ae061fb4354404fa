//! The file protocol: a tree of files over one authenticated connection, resumable, verified, in
//! parallel segments.
//!
//! ```text
//!   sender                                       receiver
//!   Hello (proof) ─────────── control ─────────▶ decide: ticket or list of keys
//!          ◀───────────────── control ────────── Accepted (proof back) | Refused
//!   Entries… EntriesEnd ───── control ─────────▶ the names and sizes, checked
//!          ◀───────────────── control ────────── Plan per file: the segments it holds already
//!   segments ═══ unidirectional streams ═══════▶ write at offset, verify, journal
//!   FileDone (root hash) ──── control ─────────▶ compare, sync, rename
//!          ◀───────────────── control ────────── Result per entry, or that it is left out
//!   Finish ────────────────── control ─────────▶
//!          ◀───────────────── control ────────── Bye
//! ```
//!
//! Both ends authenticate before any file name is sent. The calls block and use a few threads a
//! side. The formats are specified in `docs/spec/transfer.md` and `docs/spec/ticket.md`.
//!
//! # Sending a file
//!
//! The receiver issues a [`Ticket`], which a person carries to the sender. The ticket names the
//! receiver's addresses and key and holds a secret; the secret itself is never sent ([`proof`]).
//! [`TicketStore`] remembers issued tickets across restarts, so that an interrupted transfer can be
//! resumed.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use quic_endpoint::identity::{KeyPair, client_config, server_config};
//! use quic_endpoint::{Endpoint, EndpointConfig, TransportConfig};
//! use transfer::{ConnectionLink, Credential, Source, Ticket, TicketAddress, TicketAuthoriser, TicketStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (outbox, inbox) = (folder.path().join("out"), folder.path().join("in"));
//! # std::fs::create_dir(&outbox)?;
//! # std::fs::create_dir(&inbox)?;
//! # let file = outbox.join("file");
//! # std::fs::write(&file, vec![7; 300_000])?;
//! let transport = transfer::transport(TransportConfig::default());
//! let config = EndpointConfig::loopback().with_transport(transport);
//!
//! // The receiver.
//! let receiver_key = KeyPair::generate()?;
//! let server = Endpoint::bind(config.clone().with_server_tls(server_config(&receiver_key, transfer::PROTOCOLS)?))?;
//! let store = TicketStore::open(&folder.path().join("state"))?;
//! let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
//! let issued = store.issue(now, &inbox, server.local_addr().port(), now + 3600)?;
//! let addresses = vec![TicketAddress::Socket(server.local_addr())];
//! let fingerprint = receiver_key.public().fingerprint();
//! let ticket = Ticket::new(addresses, fingerprint, issued.secret, issued.expires_unix);
//! let text = ticket.to_text()?;
//! # let inbox_after = inbox.clone();
//! let receiving = std::thread::spawn(move || -> Result<transfer::Summary, String> {
//!     let message = |error: &dyn std::fmt::Display| error.to_string();
//!     let connection = server.accept().map_err(|error| message(&error))?;
//!     let streams = connection.accept_bi().map_err(|error| message(&error))?;
//!     let sender = transfer::peer_key(&connection).map_err(|error| message(&error))?;
//!     let own = receiver_key.public().fingerprint();
//!     let context = transfer::proof_context(&connection, sender, own).map_err(|error| message(&error))?;
//!     let mut authoriser = TicketAuthoriser::new(store, inbox.clone(), now);
//!     let (link, control) = (ConnectionLink::new(&connection), transfer::control(streams));
//!     let options = transfer::ReceiveOptions::default();
//!     transfer::receive::run(&link, control, &context, &inbox, &options, &mut authoriser, &())
//!         .map_err(|error| message(&error))
//! });
//!
//! // The sender, which was given the ticket's text.
//! let ticket: Ticket = text.parse()?;
//! let TicketAddress::Socket(address) = ticket.addresses[0] else { unreachable!("it names an address") };
//! let sender_key = KeyPair::generate()?;
//! let client = Endpoint::bind(config)?;
//! let tls = client_config(&sender_key, &[ticket.receiver], transfer::PROTOCOLS)?;
//! let connection = client.connect(address, "litz", tls.config.clone())?;
//! let context = transfer::proof_context(&connection, sender_key.public(), ticket.receiver)?;
//! let options = transfer::SendOptions::default();
//! let source = Source::scan(&[file], &options.cancel)?;
//! let (link, control) = (ConnectionLink::new(&connection), transfer::control(connection.open_bi()?));
//! let credential = Credential::Ticket(ticket.secret);
//! let sent = transfer::send::run(&link, control, &context, &credential, &source, &options, &())?;
//! assert_eq!(sent.files_done, 1);
//!
//! receiving.join().expect("the receiver does not panic")?;
//! assert_eq!(std::fs::read(inbox_after.join("file"))?, vec![7; 300_000]);
//! # Ok(())
//! # }
//! ```
//!
//! A server that accepts a list of known keys needs no ticket: [`KeyAuthoriser`] and
//! [`Credential::Key`]. To follow a transfer's progress, implement [`Events`].
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`mod@send`], [`receive`] | the two ends: start here |
//! | [`connection`], [`link`] | the protocol over a Litz connection, and the interface it requires of any connection |
//! | [`ticket`], [`proof`], [`store`] | invitations, the proof of their secret, and the receiver's store of them |
//! | [`authorise`], [`run_id`] | the decision to accept a sender; recognition of a reconnecting sender |
//! | [`revision`] | features supported by both ends |
//! | [`keep`], [`link_target`] | optional links, holes and modes |
//! | [`manifest`], [`names`] | the list of files to send, and the accepted names |
//! | [`filter`] | patterns that leave files out of the list |
//! | [`left_out`] | entries that a receiver leaves out, and reasons to delete nothing |
//! | [`stream_io`] | the input and the output of a file of unknown length |
//! | [`open_files`], [`room`] | the limits on open files, and on stored bytes |
//! | [`events`], [`error`] | progress, the final summary, and failures |
#![forbid(unsafe_code)]

pub mod authorise;
mod buffers;
pub mod connection;
mod control;
mod directory_journal;
mod disk;
mod disk_space;
pub mod error;
pub mod events;
mod extent;
pub mod filter;
mod journal;
pub mod keep;
pub mod left_out;
mod limits;
pub mod link;
pub mod link_target;
pub mod manifest;
mod measure;
mod message;
pub mod names;
pub mod open_files;
mod own_file;
mod part_file;
mod peer_waits;
mod progress;
pub mod proof;
mod queue;
pub mod receive;
mod record;
pub mod revision;
pub mod room;
pub mod run_id;
mod segment;
pub mod send;
mod source_file;
mod stamp;
pub mod store;
mod stream;
pub mod stream_io;
pub mod ticket;
mod transport;
mod tree;

#[cfg(test)]
mod faulty_disk;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod tests;

pub use authorise::{Authoriser, Credential, KeyAuthoriser, TicketAuthoriser};
pub use connection::{CLOSE_CODE, ConnectionLink, control, peer_key, proof_context};
pub use error::{FileError, FileErrorKind, TransferError};
pub use events::{Events, Summary, TransferEvent};
pub use filter::{Filter, FilterError};
pub use keep::Keep;
pub use left_out::{LeftOutReason, NothingDeletedReason};
pub use link::{CancelToken, Control, Link, SendStream};
pub use link_target::LinkTarget;
pub use manifest::{Entry, EntryKind, SkippedCounts, Source};
pub use names::{NameError, RelativePath};
pub use open_files::OpenFiles;
pub use proof::{EXPORTER_LABEL, Proof, ProofContext, Role};
pub use receive::ReceiveOptions;
pub use revision::{PROTOCOLS, Revision};
pub use room::Room;
pub use run_id::RunId;
pub use segment::FileHash;
pub use send::SendOptions;
pub use store::{Accepted, Refusal, StoreError, TicketStore};
pub use stream_io::{StreamInput, StreamOutput};
pub use ticket::{Secret, Ticket, TicketAddress, TicketError};
pub use transport::{STREAMS_MAX, transport};
