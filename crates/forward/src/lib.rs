//! Forwarding of connections over one connection of Litz: the protocol, SOCKS5, and the decisions.
//!
//! Nothing here opens a socket or reads a clock: bytes and times are arguments. The crate
//! `forwarding` does the input and output. The format is specified in `docs/spec/forward.md`.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | the messages of the control stream and the headers of forwarded streams: start here |
//! | [`packet`] | forwarded UDP packets in datagrams and messages |
//! | [`address`] | hosts, ports and paths, as text and as bytes |
//! | [`spec`] | `-L`, `-R` and `-D`, as ssh writes them |
//! | [`policy`] | targets and listeners that a server permits |
//! | [`socks`] | SOCKS5 (RFC 1928) |
//! | [`daemon`] | the messages between `litz daemon` and programs of the same host |
//! | [`flows`] | UDP flows with an idle time and a bound |
#![forbid(unsafe_code)]

pub mod address;
pub mod daemon;
pub mod flows;
mod malformed;
pub mod message;
pub mod packet;
pub mod policy;
pub mod socks;
pub mod spec;

pub use malformed::Malformed;

/// The application protocol of TLS (ALPN, RFC 7301). A later version gets a different name.
pub const ALPN: &[u8] = b"litz-forward/1";
