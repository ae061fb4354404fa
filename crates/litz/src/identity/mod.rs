//! Who is at the other end: host keys, TLS with raw public keys, tickets and their proofs, and what a receiver
//! remembers.
//!
//! ```text
//!   ticket (addresses, fingerprint, secret, expiry) ── carried by a person ──▶ sender
//!   sender ── TLS 1.3, raw public keys both ways ──▶ receiver       the fingerprint says that it is the right host
//!   sender ── proof over the TLS exporter ──▶ receiver              the secret says that the sender was invited
//!   receiver ── proof back ──▶ sender                               and that the receiver wrote the ticket
//! ```
//!
//! Nothing here opens a connection or reads a clock: keys and state come from files, times are arguments. Start with
//! [`key`] and [`ticket`]; [`store`] is what makes a ticket survive a restart. Formats: `docs/spec/ticket.md`.

pub mod allowed;
mod base32;
pub mod key;
mod pem;
mod private_file;
pub mod proof;
pub mod store;
pub mod ticket;
pub mod tls;

pub use allowed::AllowList;
pub use key::{Fingerprint, KeyError, KeyPair, PublicKey};
pub use proof::{EXPORTER_LABEL, Proof, ProofContext, Role};
pub use store::{Accepted, Refusal, StoreError, TicketStore};
pub use ticket::{Secret, Ticket, TicketAddress, TicketError};
pub use tls::{ClientTls, TlsError, WrongHost, client_config, peer_public_key, server_config};
