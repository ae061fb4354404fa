//! An end of a tunnel, live: one thread takes packets from the TUN device and puts them into the connections of the
//! peers, one for each peer takes them out and writes them to the device. Where there are few, the thread of the
//! connection's driver reads and writes them. The formats and the decisions are in the crate `tunnel`, without input
//! and output; control streams, addresses and routes are the user's.
//!
//! ```text
//!  TUN ─ read ─▶ [entry] ─ route by destination ─▶ queue ─▶ datagrams ─▶ connection of the peer
//!  TUN ◀ write ─ [exit], one for each peer: order, join, check the source ◀─ connection
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`end`] | a device and the threads that serve it: start here |
//! | `entry` | reads the device |
//! | [`destination`] | a peer, and the packets that wait for it |
//! | [`device_events`] | announces packets of the device to the driver |
//! | [`exit`] | the loop that writes it |
//! | [`meters`] | the rate of a peer |
//! | [`path_views`] | the paths of a peer, and what they are used for |
//! | [`peers`] | the peers and which addresses they have |
//! | [`rates`], `contact` | the rates of the paths of a peer, and when something came from it |
//! | [`terminate`] | TCP connections that end at each side |
//! | [`device`] | packets as the device has them |
//! | `wake` | wakes a thread that waits for the device |

#![forbid(unsafe_code)]

mod contact;
pub mod destination;
pub mod device;
pub mod device_events;
pub mod end;
mod entry;
pub mod exit;
pub mod meters;
pub mod path_views;
pub mod peers;
pub mod rates;
pub mod terminate;
mod wake;

/// Bytes of packets that the thread of a driver reads from the device, or writes to it, at a time. Where there are more,
/// another thread does: it has a processor of its own, and the driver goes on to send or receive meanwhile. On hosts
/// with one or two processors, programs and drivers need these, and to wake the other thread would only cost time.
pub(crate) fn in_place_bytes_max() -> usize {
    if net::processors::count() > 2 { 16 << 10 } else { usize::MAX }
}
