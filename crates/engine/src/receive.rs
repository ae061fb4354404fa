//! Receive buffers.
//!
//! The kernel writes batches of up to 64 KiB. A large batch goes to its connection in the very buffer it arrived in, because
//! what the application reads later are references into it; a small one is copied out, so that an acknowledgement of 50
//! bytes does not hold 64 KiB.
//!
//! ```text
//!   free ──▶ ready (64 KiB each) ── recv ──▶ large: lent ── all references gone ──▶ free
//!                                        └▶ small: copied to the arena, buffer stays ready
//! ```

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use net::{RECV_BUFFER_BYTES, RecvMeta};
use quic::ReceiveBuffer;

use crate::sync::lock;

/// Buffers that one call to the socket fills at most: a megabyte, which the caches of one core hold.
pub(crate) const RECV_BUFFERS: usize = 16;

/// Batches shorter than this are copied. Copying 16 KiB takes about a microsecond, a tenth of what opening it takes.
pub(crate) const COPY_BELOW: usize = 16 << 10;

/// Bytes handed to an application that are fewer than this are copied out of their buffer, which an application may
/// otherwise keep alive by not reading: with it, what waits in an inbox pins at most four times its size.
pub(crate) const COMPACT_BELOW: usize = COPY_BELOW;

/// Copied batches share pieces of memory of this size. A larger one saves allocations, a smaller one pins less when an
/// application holds on to a little.
const ARENA_BYTES: usize = 16 << 10;

/// Returned buffers kept for the next batches (16 MiB); those beyond are freed.
const FREE_MAX: usize = 256;

/// The buffers of one driver.
pub(crate) struct Buffers {
    /// Whole; filled from the front, so that the one that was used last, and is in the cache, is used first.
    ready: [Option<Box<[u8]>>; RECV_BUFFERS],
    free: Arc<Free>,
    arena: BytesMut,
    pub(crate) metas: [RecvMeta; RECV_BUFFERS],
}

/// Buffers that nobody refers to. Readers give them back, on whatever thread they are.
#[derive(Default)]
struct Free(Mutex<Vec<Box<[u8]>>>);

impl Free {
    fn take(&self) -> Box<[u8]> {
        let last = lock(&self.0).pop();
        last.unwrap_or_else(|| vec![0; RECV_BUFFER_BYTES].into())
    }

    fn give_back(&self, memory: Box<[u8]>) {
        let mut free = lock(&self.0);
        if free.len() < FREE_MAX {
            free.push(memory);
        }
    }
}

/// A batch as memory of its own.
pub(crate) enum Arrived {
    Copied(BytesMut),
    Lent(Lent),
}

/// A batch in the buffer it arrived in, which goes back to the driver when the last reference is dropped.
pub(crate) struct Lent {
    memory: Box<[u8]>,
    len: usize,
    free: Arc<Free>,
}

impl Arrived {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Lent(lent) => lent.as_ref(),
        }
    }
}

impl ReceiveBuffer for Arrived {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Lent(lent) => &mut lent.memory[..lent.len],
        }
    }

    fn freeze(self) -> Bytes {
        match self {
            Self::Copied(bytes) => bytes.freeze(),
            Self::Lent(lent) => Bytes::from_owner(lent),
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.free.give_back(std::mem::take(&mut self.memory));
    }
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            ready: [const { None }; RECV_BUFFERS],
            free: Arc::default(),
            arena: BytesMut::new(),
            metas: [RecvMeta::default(); RECV_BUFFERS],
        }
    }

    /// Lets `recv` fill buffers; see [`net::DatagramSocket::recv`].
    pub(crate) fn fill<T>(&mut self, recv: impl FnOnce(&mut [&mut [u8]], &mut [RecvMeta]) -> T) -> T {
        let free = &self.free;
        let mut slices = self.ready.each_mut().map(|ready| &mut ready.get_or_insert_with(|| free.take())[..]);
        recv(&mut slices, &mut self.metas)
    }

    /// The batch in buffer `index` after a [`fill`](Self::fill).
    ///
    /// # Panics
    /// If it was taken already.
    pub(crate) fn take(&mut self, index: usize) -> Arrived {
        let len = self.metas[index].len;
        let ready = &mut self.ready[index];
        if len >= COPY_BELOW {
            let memory = ready.take().expect("a filled buffer is taken once");
            return Arrived::Lent(Lent { memory, len, free: self.free.clone() });
        }
        let memory = ready.as_ref().expect("a filled buffer is taken once");
        if self.arena.capacity() < len {
            self.arena.reserve(ARENA_BYTES.max(len));
        }
        self.arena.extend_from_slice(&memory[..len]);
        Arrived::Copied(self.arena.split())
    }
}

#[cfg(test)]
mod tests {
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
    fn batches_come_out_as_they_arrived_whatever_their_size() {
        let mut buffers = Buffers::new();
        let lens = [50, RECV_BUFFER_BYTES, 1200, COPY_BELOW, COPY_BELOW - 1];
        for _ in 0..100 {
            arrive(&mut buffers, &lens);
            for (index, len) in lens.iter().enumerate() {
                let mut arrived = buffers.take(index);
                assert_eq!((arrived.bytes().len(), arrived.bytes_mut().len()), (*len, *len));
                let frozen = arrived.freeze();
                assert!(frozen.len() == *len && frozen.iter().all(|byte| *byte == index as u8 + 1));
            }
        }
    }

    #[test]
    fn a_returned_buffer_is_the_next_one_used_and_a_held_one_is_not() {
        let mut buffers = Buffers::new();
        arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
        let first = buffers.take(0);
        let address = first.bytes().as_ptr();
        drop(first.freeze());
        arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
        let held = buffers.take(0).freeze();
        assert_eq!(held.as_ptr(), address);
        for _ in 0..10 {
            arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
            assert_ne!(buffers.take(0).bytes().as_ptr(), address);
        }
        assert!(held.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn a_hoard_that_returns_is_not_kept() {
        let mut buffers = Buffers::new();
        let mut hoard = Vec::new();
        while hoard.len() < FREE_MAX + 100 {
            arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
            hoard.push(buffers.take(0).freeze());
        }
        drop(hoard);
        assert_eq!(lock(&buffers.free.0).len(), FREE_MAX);
    }
}
