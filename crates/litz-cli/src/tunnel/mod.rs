//! The threads of a tunnel: one takes packets from the TUN device and puts them into the connections of
//! the peers, one for each peer takes them out and writes them to the device. Where few have arrived, the thread of the
//! connection's driver writes them.
//!
//! ```text
//!  TUN ─ read ─▶ [entry] ─ route by destination ─▶ queue ─▶ datagrams ─▶ connection of the peer
//!  TUN ◀ write ─ [exit], one for each peer: order, join, check the source ◀─ connection
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`end`] | a device and the threads that serve it |
//! | [`entry`] | the thread that reads the device |
//! | [`exit`] | the loop that writes it |
//! | [`peers`] | the peers and which addresses they have |
//! | [`rates`] | the rates of the paths of a peer |
//! | [`terminate`] | TCP connections that end at each side |
//! | [`device`] | packets as the device has them |
//! | [`wake`] | wakes a thread that waits for the device |

pub(crate) mod device;
pub(crate) mod end;
pub(crate) mod entry;
pub(crate) mod exit;
pub(crate) mod peers;
pub(crate) mod rates;
pub(crate) mod terminate;
pub(crate) mod wake;
