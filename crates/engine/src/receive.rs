//! Receive buffers.
//!
//! The kernel writes batches of up to 64 KiB. A large batch goes to its connection in the very buffer it arrived in, because
//! what the application reads later are references into it; a small one is copied out, so that an acknowledgement of 50
//! bytes does not hold 64 KiB.
//!
//! ```text
//!   ready (64 KiB each) ── recv ──▶ large: buffer leaves ──▶ lent ── all references gone ──▶ ready
//!                                └▶ small: copied to the arena, buffer stays
//! ```

use std::collections::VecDeque;

use bytes::BytesMut;
use net::{RECV_BUFFER_BYTES, RecvMeta};

/// Buffers that one call to the socket fills at most: a megabyte, which the caches of one core hold.
pub(crate) const RECV_BUFFERS: usize = 16;

/// Batches shorter than this are copied. Copying 16 KiB takes about a microsecond, a tenth of what opening it takes.
const COPY_BELOW: usize = 16 << 10;

/// Copied batches share pieces of memory of this size. A larger one saves allocations, a smaller one pins less when an
/// application holds on to a little.
const ARENA_BYTES: usize = 16 << 10;

/// Buffers watched for their return; those beyond are forgotten and freed by their last reader.
const LENT_MAX: usize = 256;

/// How many of those are looked at for one buffer: they mostly return in the order in which they left.
const RETURNS_LOOKED_AT: usize = 4;

/// The buffers of one driver.
pub(crate) struct Buffers {
    /// Whole and initialised.
    ready: Vec<BytesMut>,
    /// Empty ends of buffers whose front is with a connection: the memory is ours again when the front is dropped.
    lent: VecDeque<BytesMut>,
    arena: BytesMut,
    pub(crate) metas: [RecvMeta; RECV_BUFFERS],
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self {
            ready: Vec::with_capacity(RECV_BUFFERS),
            lent: VecDeque::new(),
            arena: BytesMut::new(),
            metas: [RecvMeta::default(); RECV_BUFFERS],
        }
    }

    /// Lets `recv` fill buffers; see [`net::DatagramSocket::recv`].
    pub(crate) fn fill<T>(&mut self, recv: impl FnOnce(&mut [&mut [u8]], &mut [RecvMeta]) -> T) -> T {
        while self.ready.len() < RECV_BUFFERS {
            let buffer = self.reclaim().unwrap_or_else(|| BytesMut::zeroed(RECV_BUFFER_BYTES));
            self.ready.push(buffer);
        }
        let mut filled = self.ready.iter_mut();
        let mut slices: [&mut [u8]; RECV_BUFFERS] =
            std::array::from_fn(|_| filled.next().map_or(&mut [][..], |buffer| &mut buffer[..]));
        recv(&mut slices, &mut self.metas)
    }

    /// A lent buffer that nobody refers to any more.
    fn reclaim(&mut self) -> Option<BytesMut> {
        for _ in 0..self.lent.len().min(RETURNS_LOOKED_AT) {
            let mut end = self.lent.pop_front()?;
            if end.try_reclaim(RECV_BUFFER_BYTES) {
                // Safe code cannot take over what the last round left in it, so this clears it: 2 us per 64 KiB, where the
                // cipher takes 7.
                end.resize(RECV_BUFFER_BYTES, 0);
                return Some(end);
            }
            self.lent.push_back(end);
        }
        None
    }

    /// The batch in buffer `index` after a [`fill`](Self::fill), as memory of its own. Indices must be taken in descending
    /// order.
    pub(crate) fn take(&mut self, index: usize) -> BytesMut {
        let len = self.metas[index].len;
        if len < COPY_BELOW {
            if self.arena.capacity() < len {
                self.arena.reserve(ARENA_BYTES.max(len));
            }
            self.arena.extend_from_slice(&self.ready[index][..len]);
            return self.arena.split();
        }
        let mut buffer = self.ready.swap_remove(index);
        let data = buffer.split_to(len);
        buffer.clear();
        self.lent.push_back(buffer);
        if self.lent.len() > LENT_MAX {
            self.lent.pop_front();
        }
        data
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
            for (index, len) in lens.iter().enumerate().rev() {
                let data = buffers.take(index);
                assert_eq!(data.len(), *len);
                assert!(data.iter().all(|byte| *byte == index as u8 + 1));
            }
        }
    }

    #[test]
    fn returned_buffers_are_used_again_and_held_ones_are_not() {
        let mut buffers = Buffers::new();
        arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
        let first = buffers.take(0);
        let address = first.as_ptr();
        drop(first);
        arrive(&mut buffers, &[]);
        assert!(buffers.ready.iter().any(|buffer| buffer.as_ptr() == address));

        arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
        let held = buffers.take(0).freeze();
        for _ in 0..10 {
            arrive(&mut buffers, &[RECV_BUFFER_BYTES]);
            drop(buffers.take(0));
        }
        assert!(held.iter().all(|byte| *byte == 1));
        assert!(buffers.lent.len() <= LENT_MAX);
    }
}
