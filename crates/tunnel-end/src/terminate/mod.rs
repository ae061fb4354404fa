//! Terminated TCP connections: each ends in the TCP of this process, and travels as a stream.
//!
//! ```text
//!  program ── kernel ── TUN ── our TCP ══ stream ══ our TCP ── TUN ── kernel ── program, or a network
//!             SYN ────────────▶ OpenFrom ─────────▶ SYN ─────────────▶
//!             SYN, ACK ◀─────── Connected ◀──────── SYN, ACK ◀────────
//! ```
//!
//! A SYN is answered only when the far end is connected. The addresses are those of the programs at both
//! ends, so neither sees a difference but in the round trip.
//!
//! | module | content |
//! |---|---|
//! | [`terminator`] | the stack of this end: which packets are its own, and what begins a connection |
//! | [`ends`] | both ends of a connection: who asks, and who answers |
//! | [`local`] | a connection of the stack, as it is carried |
//! | `class` | differentiated services (RFC 2474): what the peer is told of a connection |
//! | `choice` | the class of the stream, by the DSCP |
//! | `told` | what the peer tells |
//! | `side` | what this side has |
//! | `in_place` | a future that the drivers' threads run |
//! | `pace` | the rate of one direction of a connection |
//! | [`flows`] | the connections of a peer, counted |

pub(crate) mod choice;
mod class;
pub mod ends;
pub mod flows;
mod in_place;
pub mod local;
mod pace;
mod side;
pub mod terminator;
pub(crate) mod told;
