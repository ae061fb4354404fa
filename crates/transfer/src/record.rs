//! Segments on data streams.
//!
//! ```text
//!   stream   1 | record ...          or   0          the last stream: no more follow
//!   record   file 4 | segment 4 | chunk ... | end
//!   chunk    length 4 (1 to CHUNK_LEN_MAX) | bytes
//!            2^31 + length 4                 a hole of that many zeros (1 to HOLE_LEN_MAX)
//!   end      0 (4) | value 32        or   2^32 - 1 (4)     the sender abandons the segment
//! ```
//!
//! The offset and length of a segment follow from the file's size and are not sent. Chunks let the
//! sender abandon a segment half-way (its source shrank) and continue with other segments on the
//! stream.

use std::io::{self, BufReader, Read};

use bytes::BytesMut;

use super::buffers::Buffers;
use super::control::read_exact_or_end;
use super::link::SendStream;
pub(crate) use super::segment::CHUNK_LEN_MAX;

/// The sending end of consecutive data streams. It collects up to a chunk, so that small records
/// share a write; a full chunk is sent without a copy.
pub(crate) struct RecordWriter {
    /// Present from the first record of a stream to its end.
    stream: Option<Box<dyn SendStream>>,
    buffers: Buffers,
    /// [`BUFFER_LEN`] bytes; the first `used` are waiting to be written.
    buffer: BytesMut,
    used: usize,
}

/// The receiving end of one data stream, after its first byte.
pub(crate) struct RecordReader {
    /// Reads several small records at a time. A longer chunk bypasses the buffer.
    stream: BufReader<Box<dyn Read + Send>>,
}

/// The next part of a record.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A number of bytes at the front of the buffer.
    Chunk(usize),
    /// A number of zeros, from a hole.
    Hole(u32),
    /// The segment is complete; its value.
    End([u8; 32]),
    /// The sender abandoned the segment.
    Abort,
}

impl RecordWriter {
    pub(crate) fn new() -> Self {
        let mut buffers = Buffers::new(BUFFER_LEN);
        Self { stream: None, buffer: buffers.take(), buffers, used: 0 }
    }

    /// Begins the record of `segment` of `file`, on a stream from `open` if none is open.
    pub(crate) fn begin(
        &mut self,
        open: impl FnOnce() -> io::Result<Box<dyn SendStream>>,
        file: u32,
        segment: u32,
    ) -> io::Result<()> {
        if self.stream.is_none() {
            self.stream = Some(open()?);
            self.put(&[STREAM_RECORDS])?;
        }
        self.put(&file.to_be_bytes())?;
        self.put(&segment.to_be_bytes())
    }

    /// Adds a chunk of `len` bytes (1 to [`CHUNK_LEN_MAX`]) that `fill` writes, and passes it to
    /// `seen`. If `fill` fails, its error is the inner one and nothing was added; the outer one is
    /// the stream's.
    pub(crate) fn chunk<E>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
        seen: impl FnOnce(&[u8]),
    ) -> io::Result<Result<(), E>> {
        debug_assert!((1..=CHUNK_LEN_MAX).contains(&len));
        if self.used + 4 + len > BUFFER_LEN {
            self.flush()?;
        }
        let start = self.used + 4;
        let bytes = &mut self.buffer[start..start + len];
        if let Err(error) = fill(bytes) {
            return Ok(Err(error));
        }
        seen(bytes);
        self.buffer[start - 4..start].copy_from_slice(&(len as u32).to_be_bytes());
        self.used = start + len;
        Ok(Ok(()))
    }

    /// Adds a hole of `len` bytes (1 to [`HOLE_LEN_MAX`]).
    pub(crate) fn hole(&mut self, len: u32) -> io::Result<()> {
        debug_assert!((1..=HOLE_LEN_MAX).contains(&len));
        self.put(&(HOLE | len).to_be_bytes())
    }

    /// Ends the record with the segment's value.
    pub(crate) fn end(&mut self, value: &[u8; 32]) -> io::Result<()> {
        self.put(&0_u32.to_be_bytes())?;
        self.put(value)
    }

    /// Ends the record without a segment.
    pub(crate) fn abort(&mut self) -> io::Result<()> {
        self.put(&ABORT.to_be_bytes())
    }

    /// Passes everything so far to the stream, because the next record may take long.
    pub(crate) fn push(&mut self) -> io::Result<()> {
        self.flush()?;
        self.stream.as_mut().map_or(Ok(()), |stream| stream.flush())
    }

    /// Ends the stream, if one is open.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.stream.take().map_or(Ok(()), SendStream::finish)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.used + bytes.len() > BUFFER_LEN {
            self.flush()?;
        }
        self.buffer[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let used = std::mem::take(&mut self.used);
        let Some(stream) = &mut self.stream else { return Ok(()) };
        if used < LEND_FROM {
            return stream.write_all(&self.buffer[..used]);
        }
        let filled = std::mem::replace(&mut self.buffer, self.buffers.take());
        stream.write_chunk(self.buffers.share(filled, used))
    }
}

/// Informs the receiver that no more streams follow.
pub(crate) fn write_last(mut stream: Box<dyn SendStream>) -> io::Result<()> {
    stream.write_all(&[STREAM_LAST])?;
    stream.finish()
}

impl RecordReader {
    /// Reads the first byte of a stream; returns `None` if it is the last stream.
    pub(crate) fn open(stream: Box<dyn Read + Send>) -> io::Result<Option<Self>> {
        let mut stream = BufReader::with_capacity(READ_LEN, stream);
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        match kind[0] {
            STREAM_RECORDS => Ok(Some(Self { stream })),
            // Reads to the end: dropping the stream earlier would send a stop to its sender, which
            // may be about to finish it.
            STREAM_LAST => match read_exact_or_end(&mut stream, &mut [0])? {
                true => Err(malformed("data after the end of the last stream")),
                false => Ok(None),
            },
            _ => Err(malformed("an unknown kind of stream")),
        }
    }

    /// Returns the file and segment of the next record, or `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> io::Result<Option<(u32, u32)>> {
        let mut file = [0; 4];
        if !read_exact_or_end(&mut self.stream, &mut file)? {
            return Ok(None);
        }
        let segment = self.u32()?;
        Ok(Some((u32::from_be_bytes(file), segment)))
    }

    /// Returns the next part of the record, with a chunk's bytes at the front of `buffer`. A chunk
    /// longer than `buffer` is malformed.
    pub(crate) fn part(&mut self, buffer: &mut [u8]) -> io::Result<Part> {
        match self.u32()? {
            0 => {
                let mut value = [0; 32];
                self.stream.read_exact(&mut value)?;
                Ok(Part::End(value))
            }
            ABORT => Ok(Part::Abort),
            hole if hole > HOLE && hole - HOLE <= HOLE_LEN_MAX => Ok(Part::Hole(hole - HOLE)),
            len if len as usize <= buffer.len().min(CHUNK_LEN_MAX) => {
                self.stream.read_exact(&mut buffer[..len as usize])?;
                Ok(Part::Chunk(len as usize))
            }
            _ => Err(malformed("a chunk is too long")),
        }
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.stream.read_exact(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }
}

/// Returns the error for a violation of the format. Its kind distinguishes it from a lost
/// connection.
pub(crate) fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A chunk with its length, and the rest of a short record before and after it.
const BUFFER_LEN: usize = CHUNK_LEN_MAX + 64;

/// Shorter data are copied, because in flight they would keep a whole buffer.
const LEND_FROM: usize = CHUNK_LEN_MAX / 4;

/// Number of bytes read from a data stream at a time, if the chunks are shorter.
const READ_LEN: usize = 16 * 1024;

const STREAM_LAST: u8 = 0;
const STREAM_RECORDS: u8 = 1;
const ABORT: u32 = u32::MAX;

/// A hole as long as the longest segment.
pub(crate) const HOLE_LEN_MAX: u32 = 1 << 30;

/// Flag in the length of a hole.
const HOLE: u32 = 1 << 31;

const _: () = assert!(HOLE + HOLE_LEN_MAX < ABORT);

#[cfg(test)]
mod tests;
