//! The frames of a replicated stream, as they are on its channels.
//!
//! ```text
//!   sender ──▶ hello   16 bytes: the stream; 1 byte: the number of channels
//!              chunk   8 bytes: number, 4 bytes: length, data; the end of the stream has no data
//!   sender ◀── news    8 bytes: the number of the first chunk that the application has not taken
//! ```
//!
//! Numbers are big-endian and count from zero.

use bytes::{Buf, Bytes};

/// The length of a hello.
pub(super) const HELLO_LEN: usize = 17;

/// The length of what precedes the data of a chunk.
pub(super) const CHUNK_HEADER_LEN: usize = 12;

/// The length of news.
pub(super) const NEWS_LEN: usize = 8;

/// Bytes of data in a chunk, at most. Less makes more work, and more keeps the end of a stream on a slow
/// channel for longer.
pub(super) const CHUNK_MAX: usize = 64 << 10;

/// What tells the streams of a listener apart.
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

/// Collects pieces of fixed length from what arrives.
#[derive(Debug, Default)]
pub(super) struct Collector<const LEN: usize> {
    bytes: Vec<u8>,
}

impl<const LEN: usize> Collector<LEN> {
    /// Takes bytes off `from` until a piece is complete.
    pub(super) fn take(&mut self, from: &mut Bytes) -> Option<[u8; LEN]> {
        let count = (LEN - self.bytes.len()).min(from.len());
        self.bytes.extend_from_slice(&from[..count]);
        from.advance(count);
        let piece = self.bytes.as_slice().try_into().ok()?;
        self.bytes.clear();
        Some(piece)
    }
}
