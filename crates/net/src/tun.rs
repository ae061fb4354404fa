//! TUN devices: IP packets of the kernel's, as they leave it and as they come back in.
//!
//! The kernel hands out what a fast network card would get: packets whose checksum is not computed yet, and super-packets
//! of up to 64 KiB that are to be cut into segments. Without these offloads it would do that work for each packet before
//! we see it, and refuse the UDP batches of applications (`EIO`). Each packet has an [offload header](OFFLOAD_HEADER_BYTES)
//! before it that says what is left to do.
//!
//! ```text
//!  kernel ─▶ read ─▶ super-packet ─▶ [Cut] ─▶ segments ─ ... ─▶ [Joiner] ─▶ super-packet ─▶ write ─▶ kernel
//!                                                  unfinished checksums stay unfinished
//! ```
//!
//! A checksum that the kernel left unfinished is handed back unfinished: nobody looks at the payload, and the receiving
//! kernel takes it for good. Who changes the payload must [finish it first](TunPacket::finish_checksum).
//!
//! | item | what it holds |
//! |---|---|
//! | [`TunDevice`] | the trait: read and write |
//! | [`Tun`] | a device of the kernel (Linux) |
//! | [`MemoryTun`] | the twin |
//! | [`Cut`] | super-packets into segments |
//! | [`Joiner`] | segments into super-packets |
//! | [`TunPacket`] | one packet with its offload header |

mod checksum;
mod cut;
mod header;
mod join;
#[cfg(target_os = "linux")]
mod kernel;
mod memory;
mod packet;
#[cfg(test)]
mod samples;

use std::io;

pub use cut::{Cut, MalformedPacket};
pub use header::OFFLOAD_HEADER_BYTES;
pub use join::Joiner;
#[cfg(target_os = "linux")]
pub use kernel::{OpenTunError, Tun};
pub use memory::{MemoryTun, PACKETS_WAITING_MAX};
pub use packet::TunPacket;

/// A buffer of this size holds every packet and every super-packet with its offload header.
pub const TUN_BUFFER_BYTES: usize = OFFLOAD_HEADER_BYTES + 65_535;

/// A device that hands out and takes IP packets without blocking, each with its offload header before it.
pub trait TunDevice: Send {
    /// The next packet or super-packet that the kernel sends over this device; its length, offload header included.
    /// Buffers want [`TUN_BUFFER_BYTES`]; what does not fit is cut off.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; otherwise what the system reports.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Hands a packet or super-packet to the kernel, as if it had arrived on this device.
    ///
    /// # Errors
    /// What the system reports: the device is down or gone, or memory is short. The packet is dropped.
    fn write(&mut self, packet: &[u8]) -> io::Result<()>;
}
