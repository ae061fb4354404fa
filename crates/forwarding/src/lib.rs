//! Forwarding of connections over one connection of Litz, live: sockets and streams. The protocol and the decisions are
//! in the crate `forward`, without input and output.
//!
//! | module | contents |
//! |---|---|
//! | [`carry`] | data of a connection, both ways: start here |
//! | [`frames`] | messages on streams |
#![forbid(unsafe_code)]

pub mod carry;
pub mod frames;
