//! IPv4 (RFC 791) and IPv6 (RFC 8200): packets with their headers.
//!
//! [`Packet::parse`] parses a packet of either version, [`Header::emit`] writes a header. IPv4
//! options and IPv6 extension headers are skipped; none is ever written. Fragments are parsed but
//! not reassembled. After the caller has reassembled them, an IPv6 payload may still begin with
//! extension headers: see [`skip_extensions`].
//!
//! ```text
//!            header_len               payload
//! |--------------------------------|-----------|
//! IPv4 header, options             | TCP, UDP ...| padding of the link, ignored
//! IPv6 header, extension headers   |
//! ```

mod error;
mod extensions;
mod header;
mod packet;
pub(crate) mod protocol;
#[cfg(test)]
mod tests;

pub use error::{OptionReport, ParseError};
pub use extensions::{EXTENSIONS_MAX, skip_extensions};
pub use header::Header;
pub use packet::{Fragment, IPV4_HEADER_LEN, IPV6_HEADER_LEN, Packet};
pub use protocol::Protocol;
