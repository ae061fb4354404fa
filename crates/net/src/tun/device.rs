//! [`TunDevice`]: a device of packets with offload headers.

use std::io::{self, IoSlice};

use super::header::OFFLOAD_HEADER_BYTES;

/// Length of an Ethernet header.
const ETHERNET_HEADER_BYTES: usize = 14;

/// Size of a buffer that holds every packet, frame and super-packet including its offload header.
pub const TUN_BUFFER_BYTES: usize = OFFLOAD_HEADER_BYTES + ETHERNET_HEADER_BYTES + 65_535;

/// A non-blocking device for IP packets, or for Ethernet frames ([`Tap`](super::Tap), [`PacketSocket`](super::PacketSocket)), each with its offload header.
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
