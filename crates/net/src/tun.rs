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
//! A partial checksum is passed back as it is: the payload is not read, and the receiving kernel
//! accepts the packet as valid. Code that changes the payload must [complete the
//! checksum](TunPacket::finish_checksum) first.
//!
//! | item | holds |
//! |---|---|
//! | [`TunDevice`] | the trait: read and write |
//! | [`Tun`] | a device of the kernel (Linux) |
//! | [`Tap`] | a device of the kernel for Ethernet frames |
//! | [`MemoryTun`] | an in-memory device |
//! | [`Segments`] | splits super-packets into segments (GSO) |
//! | [`Coalescer`] | merges segments into super-packets (GRO) |
//! | [`TunPacket`] | one packet with its offload header |

mod coalesce;
mod header;
#[cfg(target_os = "linux")]
mod kernel;
mod memory;
mod packet;
#[cfg(test)]
mod samples;
mod segment;

use std::io::{self, IoSlice};

pub use coalesce::Coalescer;
pub use header::{OFFLOAD_HEADER_BYTES, ReadOffload, tcp_offload, udp_offload};
#[cfg(target_os = "linux")]
pub use kernel::{OpenTunError, Tap, Tun};
pub use memory::{MemoryTun, PACKETS_WAITING_MAX};
pub use packet::TunPacket;
pub use segment::{MalformedPacket, Segments};

/// Length of an Ethernet header.
const ETHERNET_HEADER_BYTES: usize = 14;

/// A buffer of this size holds every packet, frame and super-packet including its offload header.
pub const TUN_BUFFER_BYTES: usize = OFFLOAD_HEADER_BYTES + ETHERNET_HEADER_BYTES + 65_535;

/// A non-blocking device for IP packets, or for Ethernet frames ([`Tap`]), each with its offload header.
pub trait TunDevice: Send {
    /// Reads the next packet or super-packet that the kernel sends over this device. Returns its
    /// length, including the offload header. Buffers should have [`TUN_BUFFER_BYTES`]; data that
    /// does not fit is truncated.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; otherwise the system's error.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Passes a packet or super-packet with its offload header to the kernel, as received on this
    /// device. It may lie in several pieces.
    ///
    /// # Errors
    /// The system's error: the device is down or removed, or memory is short. The packet is
    /// dropped.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()>;
}
