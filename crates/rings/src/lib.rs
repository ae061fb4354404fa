//! Rings of bytes in memory that a process shares with the daemon of its host, and the sockets that
//! pass them.
//!
//! ```text
//!   program                        memory                         daemon
//!   Writer ── bytes ──▶ ring to the daemon ──────────────────▶ Consumer
//!          ◀─ socket: wakes the side that sleeps; its end says that a side has gone ─▶
//!   Reader ◀─────────── ring to the program ◀─────── bytes ─── Producer
//!          ◀─ socket ─▶
//! ```
//!
//! Neither side trusts the other: [`Violation`] reports an impossible count. Bytes are copied out
//! of the memory before they are inspected.
//!
//! | item | holds |
//! |---|---|
//! | [`ring`] | the algorithm, over any words of memory: start here |
//! | [`memory`] | memory of two processes |
//! | [`ends`] | a new connection |
//! | [`blocking`] | ends with blocking calls |
//! | [`wake`](mod@wake) | wake-ups |
//! | [`packets`] | sockets that preserve message boundaries and pass descriptors |

pub mod blocking;
mod copy;
pub mod ends;
pub mod memory;
pub mod packets;
mod primitives;
pub mod ring;
#[cfg(test)]
mod tests;
pub mod wake;

pub use blocking::{Reader, Writer};
pub use memory::Memory;
pub use ring::Violation;
