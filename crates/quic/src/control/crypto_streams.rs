//! The peer's handshake data, and the levels at which the session reads and writes.

use bytes::Bytes;
use wire::quic::{ErrorCode, Space};

use crate::error::TransportError;
use crate::receive::assembler::Assembler;
use crate::spaces::Spaces;

/// Handshake bytes out of order that are kept, at each level (RFC 9000, section 7.5, asks for at
/// least 4096).
pub(crate) const CRYPTO_BUFFER_MAX: u64 = 64 * 1024;

/// CRYPTO bytes by space.
pub(super) struct CryptoStreams {
    pub(super) by_space: Spaces<Assembler>,
}

/// The spaces that the session reads from and writes to. Apart from the streams, where they would take a
/// word of every connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionSpaces {
    read: Space,
    pub(super) write: Space,
}

impl SessionSpaces {
    pub(super) const FIRST: Self = Self { read: Space::Initial, write: Space::Initial };
}

impl CryptoStreams {
    pub(super) fn new() -> Self {
        Self { by_space: Spaces::default() }
    }

    /// A CRYPTO frame; false if it has nothing new.
    pub(super) fn insert(
        &mut self,
        spaces: SessionSpaces,
        space: Space,
        offset: u64,
        bytes: Bytes,
    ) -> Result<bool, TransportError> {
        let buffer = &mut self.by_space[space.index()];
        let end = offset + bytes.len() as u64;
        if end > buffer.read_offset() + CRYPTO_BUFFER_MAX {
            return Err(TransportError::new(
                ErrorCode::CRYPTO_BUFFER_EXCEEDED,
                "too many handshake bytes out of order",
            ));
        }
        if space < spaces.read {
            // Only repetitions may still arrive at a level that TLS has left (RFC 9001, section
            // 4.1.3).
            if end > buffer.ready_end() {
                return Err(TransportError::violation("new handshake bytes at an old level"));
            }
            return Ok(false);
        }
        buffer.insert(offset, bytes.into(), false);
        buffer.pending().check_crypto().map_err(|_| {
            TransportError::new(ErrorCode::CRYPTO_BUFFER_EXCEEDED, "handshake bytes in too many small pieces")
        })?;
        Ok(true)
    }

    /// The bytes that are in order at the level that the session reads.
    pub(super) fn read(&mut self, spaces: SessionSpaces) -> Option<Bytes> {
        self.by_space[spaces.read.index()].read(usize::MAX).map(|bytes| bytes.to_bytes())
    }

    /// The session reads at this level from now on.
    pub(super) fn move_read_space(&self, spaces: &mut SessionSpaces, wanted: Space) -> Result<(), TransportError> {
        if wanted > spaces.read {
            let left = &self.by_space[spaces.read.index()];
            // Also beyond a gap, which nothing may fill any more (RFC 9001, section 4.1.3).
            if left.is_ready() || !left.pending().is_empty() {
                return Err(TransportError::violation("handshake bytes left over at the end of their level"));
            }
            spaces.read = wanted;
        }
        Ok(())
    }
}
