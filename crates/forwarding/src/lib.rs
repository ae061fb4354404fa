//! Forwarding of connections over one connection of Litz, live: sockets, streams and datagrams. The protocol and the
//! decisions are in the crate `forward`, without input and output. The futures need a runtime of tokio. Nothing is
//! printed: what becomes of connections is reported to [`events::Events`].
//!
//! | module | contents |
//! |---|---|
//! | [`carry`] | data of a connection, both ways |
//! | [`frames`] | messages on streams |
//! | [`session`] | one connection between both ends: requests and answers, the same for both: start here |
//! | [`sessions`] | the connection that there is now, which may be away and come back |
//! | [`events`] | what the user is told |
//! | [`listener`], `datagrams`, [`socks`] | where connections and packets come in |
//! | [`handshakes`] | clients of the proxy that wait for their answers |
//! | [`listeners`] | those that a client asks its server for |
//! | [`dial`], [`sources`] | where they go, and from which address |
//! | [`published`] | connections to a program's own listening sockets |
//! | [`socket`] | a socket of this host, as its data are carried |
//! | [`udp`], `packet_runs` | packets of flows, several at a time |
#![forbid(unsafe_code)]

pub mod carry;
mod datagrams;
pub mod dial;
pub mod events;
pub mod frames;
pub mod handshakes;
pub mod listener;
pub mod listeners;
mod packet_runs;
pub mod published;
pub mod session;
pub mod sessions;
pub mod socket;
pub mod socks;
pub mod sources;
pub mod udp;
