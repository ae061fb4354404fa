//! One end of a connection that costs almost no processor time, to measure the performance of the
//! other end.
//!
//! A real handshake makes a real connection. One end then becomes a [`ScriptedPeer`]: it reads the
//! headers of arriving packets and acknowledges them, and it sends stream data that were sealed in
//! advance. It decrypts nothing, keeps nothing for retransmission and has no timers. So only the
//! other end is measured, and it is unchanged: an endpoint over [`ScriptSocket`]s, or a
//! [`quic::Connection`] driven by the caller.
//!
//! The channel between the two must neither lose nor reorder packets. Applications do not need this
//! crate.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`script`] | the scripted end of a connection, path by path: start here |
//! | [`peer`] | the real end that the script replaces, and the configuration of both ends |
//! | [`link`] | the peer, then the scripts of all paths |
//! | [`channel`], [`receive_side`] | one path: the data that its script sends and receives, and its acknowledgements |
//! | [`socket`] | a channel as the socket of the measured end |
//! | [`round`], [`pattern`] | data sealed in advance, and the bytes they consist of |
//! | [`tcp`](mod@tcp) | the same for TCP: a device whose other side is a script |
//! | [`cipher`] | the available ciphers, and TLS settings that agree on one of them |
#![forbid(unsafe_code)]

pub mod channel;
pub mod cipher;
pub mod link;
pub mod pattern;
pub mod peer;
pub mod receive_side;
pub mod round;
pub mod script;
pub mod socket;
pub mod tcp;

pub use cipher::{Cipher, Tls};
pub use link::Link;
pub use script::{AckObserver, NotScripted, ScriptKeys, ScriptReader, ScriptedPeer, Unopened, into_script};
pub use socket::ScriptSocket;
