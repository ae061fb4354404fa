//! The frames of a replicated stream on its channels.
//!
//! ```text
//!   sender ──▶ hello   16 bytes: the stream; 1 byte: the number of channels
//!              chunk   8 bytes: number, 4 bytes: length, data; the end of the stream has no data
//!   sender ◀── news    8 bytes: the number of the first chunk that the application has not taken
//! ```
//!
//! Numbers are big-endian and count from zero.

use bytes::{Buf, Bytes};

/// Length of a hello.
pub(super) const HELLO_LEN: usize = 17;

/// Length of the header before the data of a chunk.
pub(super) const CHUNK_HEADER_LEN: usize = 12;

/// Length of a news frame.
pub(super) const NEWS_LEN: usize = 8;

/// Limit on data bytes in a chunk. A lower one makes more work, and a higher one keeps the end of a
/// stream on a slow channel for longer.
pub(super) const CHUNK_MAX: usize = 64 << 10;

/// Identifier that distinguishes the streams of a listener.
pub(super) type StreamId = [u8; 16];

pub(super) fn hello(id: &StreamId, channels: u8) -> Bytes {
    [&id[..], &[channels]].concat().into()
}

pub(super) fn chunk_header(number: u64, len: usize) -> Bytes {
    debug_assert!(len <= CHUNK_MAX);
    [&number.to_be_bytes()[..], &(len as u32).to_be_bytes()].concat().into()
}

pub(super) fn news(next: u64) -> Bytes {
    Bytes::copy_from_slice(&next.to_be_bytes())
}

/// Collects pieces of fixed length from received data.
#[derive(Debug, Default)]
pub(super) struct Collector<const LEN: usize> {
    bytes: Vec<u8>,
}

impl<const LEN: usize> Collector<LEN> {
    /// Removes bytes from `from` until a piece is complete.
    pub(super) fn take(&mut self, from: &mut Bytes) -> Option<[u8; LEN]> {
        let count = (LEN - self.bytes.len()).min(from.len());
        self.bytes.extend_from_slice(&from[..count]);
        from.advance(count);
        let piece = self.bytes.as_slice().try_into().ok()?;
        self.bytes.clear();
        Some(piece)
    }
}
