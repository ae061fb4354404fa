//! The in-memory twin of a TUN device.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::TunDevice;

/// Packets that wait on one side at most; more are dropped, as the kernel drops them.
pub const PACKETS_WAITING_MAX: usize = 1024;

/// A device whose kernel is a test: what it [sends](Self::send_from_kernel) is read, what is written it
/// [takes](Self::take_in_kernel). Clones are the same device.
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

    /// The kernel sends a packet, its offload header before it, over this device.
    pub fn send_from_kernel(&self, packet: Vec<u8>) {
        let mut queues = self.queues();
        if queues.from_kernel.len() < PACKETS_WAITING_MAX {
            queues.from_kernel.push_back(packet);
        } else {
            queues.dropped += 1;
        }
    }

    /// The next packet that was written, with its offload header.
    #[must_use]
    pub fn take_in_kernel(&self) -> Option<Vec<u8>> {
        self.queues().to_kernel.pop_front()
    }

    /// Packets that found [`PACKETS_WAITING_MAX`] others.
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
}
