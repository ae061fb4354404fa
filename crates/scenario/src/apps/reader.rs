//! Reads one stream, identifies its item by the header, and checks every byte.

use quic::{Chunk, ReadError, StreamId};
use units::Instant;

use super::Streams;
use crate::content::{HEADER_BYTES, ItemName};
use crate::measurements::Measurements;
use crate::world::PayloadMode;

#[derive(Debug)]
pub(super) struct Reader {
    header: [u8; HEADER_BYTES as usize],
    /// Bytes read.
    offset: u64,
    known: Option<Known>,
    payload_mode: PayloadMode,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    name: ItemName,
    /// Length; `None` has no end.
    len: Option<u64>,
    counts: bool,
}

/// The state of a stream after reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// No more data now.
    Blocked,
    /// The item arrived completely.
    End(ItemName),
    /// The stream is not an expected item, or it ended early.
    Foreign,
}

impl Reader {
    pub(super) fn new(payload_mode: PayloadMode) -> Self {
        Self { header: [0; HEADER_BYTES as usize], offset: 0, known: None, payload_mode }
    }

    /// Reads all available data.
    pub(super) fn pump(
        &mut self,
        now: Instant,
        id: StreamId,
        connection: &mut dyn Streams,
        measurements: &mut Measurements,
    ) -> Read {
        loop {
            match connection.read(now, id) {
                Ok(Chunk::Bytes(bytes)) => {
                    for piece in bytes.pieces() {
                        if !self.take(now, piece, measurements) {
                            return Read::Foreign;
                        }
                    }
                }
                Ok(Chunk::End) => return self.end(now, measurements),
                Err(ReadError::Blocked) => return Read::Blocked,
                Err(_) => return Read::Foreign,
            }
        }
    }

    /// Processes bytes; returns false if the stream is not an expected item.
    fn take(&mut self, now: Instant, bytes: &[u8], measurements: &mut Measurements) -> bool {
        let mut fresh = bytes;
        if self.known.is_none() {
            let want = (self.header.len() - self.offset as usize).min(bytes.len());
            self.header[self.offset as usize..][..want].copy_from_slice(&bytes[..want]);
            if self.offset as usize + want < self.header.len() {
                self.offset += want as u64;
                return true;
            }
            let Some(name) = ItemName::from_header(&self.header) else {
                measurements.on_foreign();
                return false;
            };
            let Ok(len) = measurements.on_begun(name) else { return false };
            self.known = Some(Known { name, len, counts: measurements.counts(name) });
            // The header counts as delivered together with the first bytes after it.
            let header = self.header;
            self.check(now, 0, &header, measurements);
            self.offset = HEADER_BYTES;
            fresh = &bytes[want..];
        }
        self.check(now, self.offset, fresh, measurements);
        self.offset += fresh.len() as u64;
        true
    }

    fn check(&self, now: Instant, offset: u64, bytes: &[u8], measurements: &mut Measurements) {
        let Some(known) = self.known else { return };
        let part = usize::from(known.name.part);
        let remaining = known.len.map_or(u64::MAX, |len| len.saturating_sub(offset));
        let (good, surplus) = bytes.split_at(remaining.min(bytes.len() as u64) as usize);
        measurements.on_surplus(part, surplus.len() as u64);
        let wrong = if self.payload_mode == PayloadMode::Bytes { known.name.count_wrong(offset, good) } else { 0 };
        if known.counts {
            measurements.on_bytes(now, part, good.len() as u64, wrong);
        } else {
            measurements.on_wrong(part, wrong);
        }
    }

    fn end(&self, now: Instant, measurements: &mut Measurements) -> Read {
        let Some(known) = self.known else {
            measurements.on_foreign();
            return Read::Foreign;
        };
        if known.len.is_some_and(|len| self.offset < len) {
            // The stream ended too early. The missing bytes are counted at the end of the run.
            return Read::Foreign;
        }
        if known.counts {
            measurements.on_item(now, known.name);
        }
        Read::End(known.name)
    }
}
