//! A pool of packet buffers.

/// Largest number of spare buffers: 6 MiB with 1500 bytes each.
const SPARE_MAX: usize = 4096;

/// A buffer that was enlarged for a super-packet is not kept: 4096 of them would be 256 MiB.
const SPARE_BYTES_MAX: usize = 16 * 1024;

/// Spare buffers for reuse.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    spare: Vec<Vec<u8>>,
}

impl BufferPool {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn put(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            self.spare.push(buffer);
        }
    }
}
