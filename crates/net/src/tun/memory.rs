//! An in-memory TUN device.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::device::TunDevice;

/// Capacity of each direction in packets; further packets are dropped, as the kernel does.
pub const PACKETS_WAITING_MAX: usize = 1024;

/// A device with a test in the place of the kernel: packets [injected](Self::inject) by the test
/// are read, and written packets are [taken](Self::take_written) by the test. It can also be one of
/// two devices that are [connected](Self::pair) with each other. Clones refer to the same device.
#[derive(Clone, Debug, Default)]
pub struct MemoryTun {
    /// Packets to be read from this device.
    arriving: Arc<Mutex<Queue>>,
    /// Packets that were written to it.
    written: Arc<Mutex<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Vec<u8>>,
    dropped: u64,
    /// Waker for arriving packets.
    waker: Option<Waker>,
}

impl Queue {
    /// Adds a packet. Returns false if it is dropped.
    fn push(&mut self, packet: Vec<u8>) -> bool {
        let has_space = self.packets.len() < PACKETS_WAITING_MAX;
        if has_space {
            self.packets.push_back(packet);
        } else {
            self.dropped += 1;
        }
        has_space
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a packet and wakes the reader. Returns false if it is dropped.
fn push(queue: &Mutex<Queue>, packet: Vec<u8>) -> bool {
    let (has_space, waker) = {
        let mut queue = lock(queue);
        (queue.push(packet), queue.waker.clone())
    };
    if let Some(waker) = waker {
        waker.wake();
    }
    has_space
}

impl MemoryTun {
    /// Creates a device without packets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates two connected devices: packets written to one are read from the other.
    #[must_use]
    pub fn pair() -> [Self; 2] {
        let one = Self::new();
        let other = Self { arriving: Arc::clone(&one.written), written: Arc::clone(&one.arriving) };
        [one, other]
    }

    /// Sends a packet with its offload header over this device, in the kernel's place.
    pub fn inject(&self, packet: Vec<u8>) {
        push(&self.arriving, packet);
    }

    /// Returns the next written packet, with its offload header.
    #[must_use]
    pub fn take_written(&self) -> Option<Vec<u8>> {
        lock(&self.written).packets.pop_front()
    }

    /// Returns the number of packets dropped because [`PACKETS_WAITING_MAX`] were waiting.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        lock(&self.arriving).dropped + lock(&self.written).dropped
    }

    /// Sets the waker that is called when a packet arrives.
    pub fn set_waker(&self, waker: Waker) {
        lock(&self.arriving).waker = Some(waker);
    }
}

impl TunDevice for MemoryTun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let packet = lock(&self.arriving).packets.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        let bytes = packet.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&packet[..bytes]);
        Ok(bytes)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let mut packet = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
        pieces.iter().for_each(|piece| packet.extend_from_slice(piece));
        if push(&self.written, packet) { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }
}
