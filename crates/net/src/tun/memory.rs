//! An in-memory TUN device.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{OFFLOAD_HEADER_BYTES, TunDevice};

/// Capacity of each direction in packets; further packets are dropped, as by the kernel.
pub const PACKETS_WAITING_MAX: usize = 1024;

/// A device with a test in the place of the kernel: packets [injected](Self::inject) by the test
/// are read, and written packets are [taken](Self::take_written) by the test. Clones refer to the
/// same device.
#[derive(Clone, Debug, Default)]
pub struct MemoryTun {
    queues: Arc<Mutex<Queues>>,
}

#[derive(Debug, Default)]
struct Queues {
    from_kernel: VecDeque<Vec<u8>>,
    to_kernel: VecDeque<Vec<u8>>,
    dropped: u64,
}

impl MemoryTun {
    /// A device without packets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a packet with its offload header over this device, in the kernel's place.
    pub fn inject(&self, packet: Vec<u8>) {
        let mut queues = self.queues();
        if queues.from_kernel.len() < PACKETS_WAITING_MAX {
            queues.from_kernel.push_back(packet);
        } else {
            queues.dropped += 1;
        }
    }

    /// The next written packet, with its offload header.
    #[must_use]
    pub fn take_written(&self) -> Option<Vec<u8>> {
        self.queues().to_kernel.pop_front()
    }

    /// Packets dropped because [`PACKETS_WAITING_MAX`] were waiting.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queues().dropped
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TunDevice for MemoryTun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let packet = self.queues().from_kernel.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        let bytes = packet.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&packet[..bytes]);
        Ok(bytes)
    }

    fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        let mut queues = self.queues();
        if queues.to_kernel.len() >= PACKETS_WAITING_MAX {
            queues.dropped += 1;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        queues.to_kernel.push_back(packet.to_vec());
        Ok(())
    }

    fn write_parts(&mut self, header: &[u8; OFFLOAD_HEADER_BYTES], packet: &[u8]) -> io::Result<()> {
        self.write(&[header, packet].concat())
    }
}
