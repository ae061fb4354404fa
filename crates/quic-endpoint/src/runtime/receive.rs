//! Receive buffers.
//!
//! The kernel writes batches of up to 64 KiB. A large batch is passed to its connection in its
//! receive buffer, and the application later reads references into it. A small batch is copied out,
//! so that an acknowledgement of 50 bytes does not keep 64 KiB alive.
//!
//! ```text
//!   free ──▶ ready (64 KiB each) ── recv ──▶ large: passed on ── all references dropped ──▶ free
//!                                        └▶ small: copied to the arena, the buffer stays ready
//! ```
//!
//! The bytes of a small batch are copied up to three times. For 16 KiB, each copy takes about a
//! microsecond, and decryption takes ten:
//!
//! 1. The first copy is out of the receive buffer. The connection refers to the batch until the
//!    application has read it, and the next system call needs the buffer. Passing the buffer on
//!    would keep 64 KiB alive for less than 16 KiB.
//! 2. The second copy is out of the arena, without headers and tags, when the bytes are delivered
//!    to the application ([`COMPACT_BELOW`]). A chunk of the arena holds batches of many streams
//!    and connections. A single byte that is not read would keep 16 KiB alive, and a peer controls
//!    what shares a chunk. The copy cannot be limited to slices that are small compared to their
//!    memory, because a slice does not know the size of its memory.
//! 3. The third copy is into the slice of a reader (`Read`, `AsyncRead`). Reading chunks avoids
//!    this copy.

use bytes::{Bytes, BytesMut};
use net::{BufferPool, FilledBuffer, RECV_BUFFER_BYTES, RecvMeta};
use quic::ReceiveBuffer;
use quic_driver::{COMPACT_BELOW, DatagramBuffer, Datagrams};

/// Maximum number of buffers per system call: a megabyte in total, which fits into the caches of
/// one core.
pub(crate) const RECV_BUFFERS: usize = driver::RECV_BATCHES_MAX;

/// Length below which batches are copied. Copying 16 KiB takes about a microsecond, a tenth of the
/// time to decrypt it.
pub(crate) const COPY_BELOW: usize = COMPACT_BELOW;

/// The chunk size of the arena for copied batches. A larger value saves allocations. A smaller
/// value keeps less memory alive if an application holds a few bytes.
const ARENA_BYTES: usize = 16 << 10;

/// The receive buffers of one driver or worker.
pub(crate) struct Buffers {
    /// Buffers for the next system call, filled from the front, so that the most recently used
    /// buffer, which is in the cache, is used first.
    ready: [Option<Box<[u8]>>; RECV_BUFFERS],
    pool: BufferPool,
    arena: BytesMut,
    pub(crate) metas: [RecvMeta; RECV_BUFFERS],
}

/// The memory of a received batch.
pub(crate) enum ReceivedData {
    /// The batch was copied to the arena.
    Copied(BytesMut),
    /// The batch is in its receive buffer.
    FilledBuffer(FilledBuffer),
}

impl From<BytesMut> for ReceivedData {
    fn from(bytes: BytesMut) -> Self {
        Self::Copied(bytes)
    }
}

impl DatagramBuffer for ReceivedData {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::FilledBuffer(buffer) => buffer.as_ref(),
        }
    }

    fn into_bytes_mut(self) -> BytesMut {
        match self {
            Self::Copied(bytes) => bytes,
            Self::FilledBuffer(buffer) => BytesMut::from(buffer.as_ref()),
        }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}

impl ReceiveBuffer for ReceivedData {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::FilledBuffer(buffer) => buffer.as_mut(),
        }
    }

    fn freeze(self) -> Bytes {
        match self {
            Self::Copied(bytes) => bytes.freeze(),
            Self::FilledBuffer(buffer) => Bytes::from_owner(buffer),
        }
    }
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            ready: [const { None }; RECV_BUFFERS],
            pool: BufferPool::new(RECV_BUFFER_BYTES),
            arena: BytesMut::new(),
            metas: [RecvMeta::default(); RECV_BUFFERS],
        }
    }

    /// Calls `recv` with the buffers; see [`net::DatagramSocket::recv`].
    pub(crate) fn fill<T>(&mut self, recv: impl FnOnce(&mut [&mut [u8]], &mut [RecvMeta]) -> T) -> T {
        let pool = &self.pool;
        let mut slices = self.ready.each_mut().map(|ready| &mut ready.get_or_insert_with(|| pool.take())[..]);
        recv(&mut slices, &mut self.metas)
    }

    /// Takes the batch in buffer `index` after a [`fill`](Self::fill).
    ///
    /// # Panics
    /// If the batch was already taken.
    pub(crate) fn take(&mut self, index: usize) -> Datagrams<ReceivedData> {
        let RecvMeta { source, destination_ip, stride, ecn, .. } = self.metas[index];
        Datagrams { source, destination_ip, stride: stride.max(1), ecn, data: self.take_data(index) }
    }

    fn take_data(&mut self, index: usize) -> ReceivedData {
        let len = self.metas[index].len;
        let ready = &mut self.ready[index];
        if len >= COPY_BELOW {
            let memory = ready.take().expect("a filled buffer is taken once");
            return ReceivedData::FilledBuffer(self.pool.filled(memory, len));
        }
        let memory = ready.as_ref().expect("a filled buffer is taken once");
        if self.arena.capacity() < len {
            self.arena.reserve(ARENA_BYTES.max(len));
        }
        self.arena.extend_from_slice(&memory[..len]);
        ReceivedData::Copied(self.arena.split())
    }
}

#[cfg(test)]
mod tests {
    use net::buffer_pool::FREE_MAX;

    use super::*;

    fn arrive(buffers: &mut Buffers, lens: &[usize]) {
        buffers.fill(|slices, metas| {
            for (index, len) in lens.iter().enumerate() {
                assert_eq!(slices[index].len(), RECV_BUFFER_BYTES);
                slices[index][..*len].fill(index as u8 + 1);
                metas[index] = RecvMeta { len: *len, stride: 1200, ..RecvMeta::default() };
            }
        });
    }

    #[test]
    fn batches_of_any_size_keep_their_bytes() {
        let mut buffers = Buffers::new();
        let lens = [50, RECV_BUFFER_BYTES, 1200, COPY_BELOW, COPY_BELOW - 1];
        for _ in 0..100 {
            arrive(&mut buffers, &lens);
            for (index, len) in lens.iter().enumerate() {
                let mut arrived = buffers.take(index).data;
                assert_eq!((arrived.bytes().len(), arrived.bytes_mut().len()), (*len, *len));
                let frozen = arrived.freeze();
                assert!(frozen.len() == *len && frozen.iter().all(|byte| *byte == index as u8 + 1));
            }
        }
    }

    #[test]
    fn a_returned_buffer_is_reused_and_a_held_buffer_is_not() {
        let mut buffers = Buffers::new();
        arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
        let first = buffers.take(0).data;
        let address = first.bytes().as_ptr();
        drop(first.freeze());
        arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
        let held = buffers.take(0).data.freeze();
        assert_eq!(held.as_ptr(), address);
        for _ in 0..10 {
            arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
            assert_ne!(buffers.take(0).data.bytes().as_ptr(), address);
        }
        assert!(held.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn the_number_of_free_buffers_is_limited() {
        let mut buffers = Buffers::new();
        let mut held = Vec::new();
        while held.len() < FREE_MAX + 100 {
            arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
            held.push(buffers.take(0).data.freeze());
        }
        drop(held);
        assert_eq!(buffers.pool.free_count(), FREE_MAX);
    }
}
