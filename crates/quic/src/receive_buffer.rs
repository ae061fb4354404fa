//! Memory in which datagrams arrive.

use bytes::{Bytes, BytesMut};

/// Memory with datagrams that arrived. Packets are opened in place, and the application reads
/// references into it.
pub trait ReceiveBuffer {
    /// The datagrams.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// The same bytes, shared from now on.
    fn freeze(self) -> Bytes;
}

impl ReceiveBuffer for BytesMut {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn freeze(self) -> Bytes {
        Self::freeze(self)
    }
}
