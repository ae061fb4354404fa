//! A tunnel for IP packets over a multipath QUIC connection: the formats and the decisions, without IO.
//!
//! ```text
//!  TUN ─▶ packet ─▶ [FlowQueues] ─▶ [Packer] ─▶ datagrams ═══ paths ═══▶ [Unpacker] ─▶ packet ─▶ TUN
//!                    order, drop     items                                order, join
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`control`] | the messages of the control stream |
//! | [`item`] | the payload of a datagram |
//! | [`inner`] | the headers of inner packets |
//! | [`intake`] | what becomes of the packets that are read |
//! | [`queue`], `codel` | the packets that wait for a connection: flow queues with CoDel |
//! | [`packer`] | packets to datagrams |
//! | [`outbox`] | what waits for one peer, or for one of its paths: the queues, and the next datagrams |
//! | [`outboxes`] | the outboxes of one peer, and of its paths |
//! | [`path_choice`] | which flow takes which path |
//! | [`urgent`] | the packets that leave on two paths |
//! | [`unpacker`], `run`, `runs` | datagrams to packets |
//! | [`meter`] | the rate of a peer, which all its bytes share |
//! | [`resequencer`] | the order of a flow that several paths carry |
//! | [`selector`] | which TCP connections are terminated |
//! | [`mtu`] | packets that are too large for the other end |
//! | [`prefix`], [`host_address`] | networks, and which peer has which address |
//! | [`policy`], [`own_networks`] | what a client takes of what a server assigns |
//! | [`upkeep`] | settings of the host that stay as they were made |
//! | [`kill_switch`] | the packet filter that refuses what leaves outside |
//!
//! The formats are specified in `docs/spec/tunnel.md`.
#![forbid(unsafe_code)]

mod arena;
mod codel;
pub mod control;
pub mod host_address;
pub mod inner;
pub mod intake;
pub mod item;
pub mod kill_switch;
pub mod meter;
pub mod mtu;
pub mod outbox;
pub mod outboxes;
pub mod own_networks;
pub mod packer;
pub mod path_choice;
pub mod policy;
pub mod prefix;
pub mod queue;
#[cfg(test)]
mod rate_model;
pub mod resequencer;
mod run;
mod runs;
#[cfg(test)]
mod samples;
pub mod selector;
pub mod unpacker;
pub mod upkeep;
pub mod urgent;

pub use control::{Message, PROTOCOL};
pub use inner::Inner;
pub use outbox::Outbox;
pub use outboxes::Outboxes;
pub use packer::{Packer, Packet, PacketHead};
pub use path_choice::PathView;
pub use prefix::{Prefix, PrefixMap};
pub use queue::{FlowQueues, Queued};
pub use selector::Selector;
pub use unpacker::{Arrived, Sink, Unpacker};
pub use urgent::UrgentKinds;
