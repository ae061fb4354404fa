//! Test applications: one writes a known pattern, one reads and checks it.

use bytes::Bytes;
use quic::{Chunk, Connection, Dir, ReadError, StreamId, WriteError};
use units::{Duration, Instant};

use super::Pair;

/// Byte `offset` of the pattern for stream `id`.
pub fn pattern_byte(id: StreamId, offset: u64) -> u8 {
    let mixed = (offset / 7).wrapping_mul(0x9e37_79b9).wrapping_add(id.raw()) ^ offset;
    (mixed ^ (mixed >> 11)) as u8
}

/// Writes the pattern into one stream.
pub struct Writer {
    pub id: StreamId,
    pub total: u64,
    pub written: u64,
    pub finished: bool,
    chunk_len: u64,
}

impl Writer {
    pub fn new(id: StreamId, total: u64) -> Self {
        Self { id, total, written: 0, finished: false, chunk_len: 16 * 1024 }
    }

    /// Writes until blocked.
    pub fn pump(&mut self, connection: &mut Connection) {
        while self.written < self.total {
            let len = self.chunk_len.min(self.total - self.written);
            let chunk: Vec<u8> =
                (self.written..self.written + len).map(|offset| pattern_byte(self.id, offset)).collect();
            match connection.write(self.id, Bytes::from(chunk)) {
                Ok(()) => self.written += len,
                Err(WriteError::Blocked) => return,
                Err(error) => panic!("stream {}: {error}", self.id),
            }
        }
        if !self.finished {
            connection.finish(self.id).expect("the stream is open");
            self.finished = true;
        }
    }
}

/// Reads a stream and checks the pattern.
pub struct Reader {
    pub id: StreamId,
    pub read: u64,
    pub ended: bool,
}

impl Reader {
    pub fn new(id: StreamId) -> Self {
        Self { id, read: 0, ended: false }
    }

    /// Reads until nothing is available.
    pub fn pump(&mut self, now: Instant, connection: &mut Connection) {
        self.pump_some(now, connection, u64::MAX);
    }

    /// Reads until nothing is available, if the stream exists already.
    pub fn pump_if_known(&mut self, now: Instant, connection: &mut Connection) {
        if self.read > 0 || connection.stats().receive.streams_open > 0 {
            self.pump(now, connection);
        }
    }

    /// Reads at most `budget` bytes.
    pub fn pump_some(&mut self, now: Instant, connection: &mut Connection, mut budget: u64) {
        while !self.ended && budget > 0 {
            match connection.read(now, self.id, budget.min(1 << 20) as usize) {
                Ok(Chunk::Bytes(bytes)) => {
                    for (index, byte) in bytes.iter().enumerate() {
                        let offset = self.read + index as u64;
                        assert_eq!(*byte, pattern_byte(self.id, offset), "stream {} at {offset}", self.id);
                    }
                    self.read += bytes.len() as u64;
                    budget -= bytes.len() as u64;
                }
                Ok(Chunk::End) => self.ended = true,
                Err(ReadError::Blocked) => return,
                Err(error) => panic!("stream {}: {error}", self.id),
            }
        }
    }
}

/// Moves `total` bytes from client to server on a stream of its own and returns the virtual time it
/// took.
pub fn transfer(pair: &mut Pair, total: u64, limit: Duration) -> Duration {
    let started = pair.now;
    let id = pair.client.connection(0).open(Dir::Uni).expect("a stream is allowed");
    let mut writer = Writer::new(id, total);
    let mut reader = None;
    let seed = pair.seed;
    let done = pair.run_until(limit, |pair| {
        writer.pump(pair.client.connection(0));
        if reader.is_none() {
            reader = pair.server.connection(0).accept(Dir::Uni).map(Reader::new);
        }
        let Some(reader) = &mut reader else { return false };
        reader.pump(pair.now, pair.server.connection(0));
        reader.ended
    });
    let read = reader.as_ref().map_or(0, |reader| reader.read);
    assert!(done, "seed {seed}: {read} of {total} bytes after {limit}: {:?}", pair.client.connection(0).stats());
    assert_eq!(read, total, "seed {seed}");
    pair.now - started
}
