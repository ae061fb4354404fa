//! Buffers that are filled, passed to a stream without a copy, and reused after the stream has
//! released them.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// The buffers of one thread.
///
/// A stream holds a buffer until the peer has acknowledged it. Buffers are released in the order in
/// which they were passed on, so only the oldest is checked. A reused buffer is not cleared,
/// because its user tracks how much of it is filled.
pub(crate) struct Buffers {
    len: usize,
    /// Buffers held by streams, oldest first.
    in_use: VecDeque<Bytes>,
}

impl Buffers {
    /// Creates an empty collection of buffers of `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        Self { len, in_use: VecDeque::new() }
    }

    /// Returns a buffer with unspecified content.
    pub(crate) fn take(&mut self) -> BytesMut {
        match self.in_use.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(buffer)) => return buffer,
            Some(Err(shared)) => self.in_use.push_front(shared),
            None => {}
        }
        BytesMut::zeroed(self.len)
    }

    /// Returns the first `used` bytes of `buffer`, to pass to a stream.
    ///
    /// # Panics
    /// Panics if the buffer has fewer.
    pub(crate) fn share(&mut self, buffer: BytesMut, used: usize) -> Bytes {
        let whole = buffer.freeze();
        let front = whole.slice(..used);
        if self.in_use.len() < REUSED_MAX {
            self.in_use.push_back(whole);
        }
        front
    }
}

/// Number of buffers of one thread kept for reuse. A path with more bytes in flight allocates and
/// frees the rest each time.
const REUSED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_buffer_is_reused_in_full() {
        let mut buffers = Buffers::new(1000);
        let mut buffer = buffers.take();
        buffer[..3].copy_from_slice(b"abc");
        let (address, out) = (buffer.as_ptr(), buffers.share(buffer, 3));
        assert_eq!((out.as_ptr(), &out[..]), (address, &b"abc"[..]));
        drop(out);
        let again = buffers.take();
        assert_eq!((again.as_ptr(), again.len()), (address, 1000));
    }

    #[test]
    fn a_buffer_that_is_held_stays_as_it_is() {
        let mut buffers = Buffers::new(4);
        let mut buffer = buffers.take();
        buffer.copy_from_slice(b"held");
        let out = buffers.share(buffer, 4);
        let part = out.slice(1..2);
        drop(out);
        buffers.take().copy_from_slice(b"else");
        assert_eq!(&part[..], b"e");
    }

    #[test]
    fn buffers_kept_for_reuse_are_bounded() {
        let mut buffers = Buffers::new(1);
        let mut out = Vec::new();
        for _ in 0..2 * REUSED_MAX {
            let buffer = buffers.take();
            out.push(buffers.share(buffer, 1));
        }
        assert_eq!(buffers.in_use.len(), REUSED_MAX);
    }
}
