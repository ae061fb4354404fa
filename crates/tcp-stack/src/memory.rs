//! Memory for received packets of a device.

use bytes::Bytes;
use net::BufferPool;
use net::tun::TUN_BUFFER_BYTES;

/// Shorter packets are copied, so that an acknowledgement does not keep 64 KiB alive.
const COPY_BELOW: usize = 16 << 10;

/// Buffers of one driver or worker.
#[derive(Debug)]
pub struct ReceiveMemory {
    /// Buffer for the next read.
    ready: Option<Box<[u8]>>,
    pool: BufferPool,
}

impl Default for ReceiveMemory {
    fn default() -> Self {
        Self { ready: None, pool: BufferPool::new(TUN_BUFFER_BYTES) }
    }
}

impl ReceiveMemory {
    /// Reads a packet with `read`, which returns its length, and returns the packet.
    pub(crate) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>) -> std::io::Result<Bytes> {
        let mut memory = self.ready.take().unwrap_or_else(|| self.pool.take());
        match read(&mut memory) {
            Ok(len) if len < COPY_BELOW => {
                let packet = Bytes::copy_from_slice(&memory[..len]);
                self.ready = Some(memory);
                Ok(packet)
            }
            Ok(len) => Ok(Bytes::from_owner(self.pool.filled(memory, len))),
            Err(error) => {
                self.ready = Some(memory);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(memory: &mut ReceiveMemory, len: usize) -> Bytes {
        memory.fill(|buffer| Ok(buffer[..len].iter_mut().map(|byte| *byte = 7).count())).expect("a packet")
    }

    #[test]
    fn a_large_packet_keeps_its_buffer_until_the_last_reference_is_dropped() {
        let mut memory = ReceiveMemory::default();
        let packet = fill(&mut memory, 60_000);
        let part = packet.slice(59_000..);
        drop(packet);
        assert!(memory.ready.is_none() && memory.pool.free_count() == 0);
        assert_eq!(part[..], [7; 1000]);
        drop(part);
        assert_eq!(memory.pool.free_count(), 1);
        let small = fill(&mut memory, 40);
        assert!(memory.ready.is_some() && memory.pool.free_count() == 0);
        assert_eq!(small.len(), 40);
    }
}
