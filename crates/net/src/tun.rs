//! TUN devices: IP packets exchanged with the kernel.
//!
//! The kernel passes packets as to a network card with offloads: packets with a partial checksum,
//! and super-packets of up to 64 KiB that must be segmented. Without these offloads the kernel
//! would do that work for each packet, and reject the UDP batches of applications (`EIO`). Each
//! packet begins with an [offload header](OFFLOAD_HEADER_BYTES) that describes the remaining work.
//!
//! ```text
//!  kernel ─▶ read ─▶ super-packet ─▶ [Segments] ─▶ segments ─ ...
//!    ... ─▶ [Coalescer] ─▶ super-packet ─▶ write ─▶ kernel
//!
//!  Partial checksums stay partial.
//! ```
//!
//! A partial checksum is returned unchanged: the payload is not read, and the receiving kernel
//! accepts the packet as valid. Code that changes the payload must [complete the
//! checksum](TunPacket::finish_checksum) first.
//!
//! | item | holds |
//! |---|---|
//! | [`TunDevice`] | the trait: read and write |
//! | [`Tun`] | a device of the kernel (Linux) |
//! | [`Tap`] | a device of the kernel for Ethernet frames |
//! | [`PacketSocket`] | the Ethernet frames of an interface |
//! | [`MemoryTun`] | an in-memory device |
//! | [`Segments`] | splits super-packets into segments (GSO) |
//! | [`Coalescer`] | merges segments into super-packets (GRO) |
//! | [`TunPacket`] | one packet with its offload header |

mod coalesce;
mod device;
mod header;
#[cfg(target_os = "linux")]
mod kernel;
mod memory;
mod packet;
#[cfg(target_os = "linux")]
mod packet_socket;
#[cfg(test)]
mod samples;
mod segment;

pub use coalesce::Coalescer;
pub use device::{TUN_BUFFER_BYTES, TunDevice};
pub use header::{OFFLOAD_HEADER_BYTES, ReadOffload, tcp_offload, udp_offload};
#[cfg(target_os = "linux")]
pub use kernel::{OpenTunError, Tap, Tun};
pub use memory::{MemoryTun, PACKETS_WAITING_MAX};
pub use packet::TunPacket;
#[cfg(target_os = "linux")]
pub use packet_socket::{OpenInterfaceError, PacketSocket};
pub use segment::{MalformedPacket, Segments};
