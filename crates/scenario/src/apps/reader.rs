//! Reads one stream, finds out what it is, and checks every byte.

use quic::{Chunk, ReadError, StreamId};
use units::Instant;

use super::Streams;
use crate::content::{HEADER_BYTES, Name};
use crate::recorder::Recorder;
use crate::world::Stages;

#[derive(Debug)]
pub(super) struct Reader {
    header: [u8; HEADER_BYTES as usize],
    /// Bytes read.
    offset: u64,
    known: Option<Known>,
    stages: Stages,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    name: Name,
    /// `None` is without end.
    len: Option<u64>,
    counts: bool,
}

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// More will come.
    Blocked,
    /// To the end of this thing.
    End(Name),
    /// It is nothing that was sent, or it broke off.
    Foreign,
}

impl Reader {
    pub(super) fn new(stages: Stages) -> Self {
        Self { header: [0; HEADER_BYTES as usize], offset: 0, known: None, stages }
    }

    /// Reads until nothing is left.
    pub(super) fn pump(
        &mut self,
        now: Instant,
        id: StreamId,
        connection: &mut dyn Streams,
        recorder: &mut Recorder,
    ) -> Read {
        loop {
            match connection.read(now, id) {
                Ok(Chunk::Bytes(bytes)) => {
                    for piece in bytes.pieces() {
                        if !self.take(now, piece, recorder) {
                            return Read::Foreign;
                        }
                    }
                }
                Ok(Chunk::End) => return self.end(now, recorder),
                Err(ReadError::Blocked) => return Read::Blocked,
                Err(_) => return Read::Foreign,
            }
        }
    }

    /// False if it is nothing that was sent.
    fn take(&mut self, now: Instant, bytes: &[u8], recorder: &mut Recorder) -> bool {
        let mut fresh = bytes;
        if self.known.is_none() {
            let want = (self.header.len() - self.offset as usize).min(bytes.len());
            self.header[self.offset as usize..][..want].copy_from_slice(&bytes[..want]);
            if self.offset as usize + want < self.header.len() {
                self.offset += want as u64;
                return true;
            }
            let Some(name) = Name::from_header(&self.header) else {
                recorder.on_foreign();
                return false;
            };
            let Ok(len) = recorder.on_begun(name) else { return false };
            self.known = Some(Known { name, len, counts: recorder.counts(name) });
            // Those of the header count with the first that follow.
            let header = self.header;
            self.check(now, 0, &header, recorder);
            self.offset = HEADER_BYTES;
            fresh = &bytes[want..];
        }
        self.check(now, self.offset, fresh, recorder);
        self.offset += fresh.len() as u64;
        true
    }

    fn check(&self, now: Instant, offset: u64, bytes: &[u8], recorder: &mut Recorder) {
        let Some(known) = self.known else { return };
        let part = usize::from(known.name.part);
        let room = known.len.map_or(u64::MAX, |len| len.saturating_sub(offset));
        let (good, surplus) = bytes.split_at(room.min(bytes.len() as u64) as usize);
        recorder.on_surplus(part, surplus.len() as u64);
        let wrong = if self.stages == Stages::Bytes { known.name.count_wrong(offset, good) } else { 0 };
        if known.counts {
            recorder.on_bytes(now, part, good.len() as u64, wrong);
        } else {
            recorder.on_wrong(part, wrong);
        }
    }

    fn end(&self, now: Instant, recorder: &mut Recorder) -> Read {
        let Some(known) = self.known else {
            recorder.on_foreign();
            return Read::Foreign;
        };
        if known.len.is_some_and(|len| self.offset < len) {
            // It ended too early: what is missing is counted in the end.
            return Read::Foreign;
        }
        if known.counts {
            recorder.on_item(now, known.name);
        }
        Read::End(known.name)
    }
}
