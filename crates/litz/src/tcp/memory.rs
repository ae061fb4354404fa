//! The memory that packets of a device are received in.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use driver::sync::lock;
use net::tun::TUN_BUFFER_BYTES;

/// Free buffers, at most (16 MiB). Further ones are deallocated.
const FREE_MAX: usize = 256;

/// Shorter packets are copied, so that an acknowledgement does not keep 64 KiB alive.
const COPY_BELOW: usize = 16 << 10;

/// The buffers of one driver or worker.
#[derive(Debug, Default)]
pub struct ReceiveMemory {
    /// The buffer for the next read.
    ready: Option<Box<[u8]>>,
    free: Arc<Free>,
}

/// Free buffers. The last reference to a packet returns its buffer here.
#[derive(Debug, Default)]
struct Free(Mutex<Vec<Box<[u8]>>>);

/// A buffer with a packet.
struct Filled {
    memory: Option<Box<[u8]>>,
    len: usize,
    free: Arc<Free>,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_deref().map_or(&[], |memory| &memory[..self.len])
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let mut free = lock(&self.free.0);
        if free.len() < FREE_MAX {
            free.extend(self.memory.take());
        }
    }
}

impl ReceiveMemory {
    /// Reads a packet by `read`, which returns its length, and returns it.
    pub(super) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>) -> std::io::Result<Bytes> {
        let ready = self.ready.take();
        let mut memory =
            ready.or_else(|| lock(&self.free.0).pop()).unwrap_or_else(|| vec![0; TUN_BUFFER_BYTES].into_boxed_slice());
        match read(&mut memory) {
            Ok(len) if len < COPY_BELOW => {
                let packet = Bytes::copy_from_slice(&memory[..len]);
                self.ready = Some(memory);
                Ok(packet)
            }
            Ok(len) => {
                let free = Arc::clone(&self.free);
                Ok(Bytes::from_owner(Filled { memory: Some(memory), len, free }))
            }
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
        assert!(memory.ready.is_none() && lock(&memory.free.0).is_empty());
        assert_eq!(part[..], [7; 1000]);
        drop(part);
        assert_eq!(lock(&memory.free.0).len(), 1);
        let small = fill(&mut memory, 40);
        assert!(memory.ready.is_some() && lock(&memory.free.0).is_empty());
        assert_eq!(small.len(), 40);
    }
}
