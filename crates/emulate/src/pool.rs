//! Memory of packets that have left, for those that come.

/// Buffers kept at most; of 1500 bytes, 6 MiB.
const SPARE_MAX: usize = 4096;

/// A buffer that a super-packet has stretched is not kept: 4096 of them would be 256 MiB.
const SPARE_BYTES_MAX: usize = 16 * 1024;

/// Spare buffers.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    spare: Vec<Vec<u8>>,
}

impl Pool {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn put(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            self.spare.push(buffer);
        }
    }
}
