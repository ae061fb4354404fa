//! The connection interface that applications use.

use bytes::Bytes;
use quic::{Chunk, Connection, Dir, ReadError, StreamId, WriteError};
use units::Instant;

/// Maximum bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// The streams of a connection. No call blocks; an application retries after an
/// [`Event`](quic::Event).
///
/// [`quic::Connection`] implements it; worlds with sockets have their own implementations.
pub trait Streams {
    /// Opens a stream. `None` if the limit is reached;
    /// [`StreamsAvailable`](quic::Event::StreamsAvailable) follows when the peer raises it.
    fn open(&mut self, dir: Dir) -> Option<StreamId>;

    /// The next stream that the peer opened. `None` if there is none;
    /// [`Opened`](quic::Event::Opened) follows.
    fn accept(&mut self, dir: Dir) -> Option<StreamId>;

    /// Sets the priority of a stream. Streams with higher priority are sent first.
    fn set_priority(&mut self, id: StreamId, priority: i32);

    /// Writes bytes from the front of `data`, possibly not all of them.
    ///
    /// # Errors
    /// `Blocked` if the stream takes no more now; [`Writable`](quic::Event::Writable) follows. All
    /// other errors are final.
    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError>;

    /// Ends a stream after the written bytes. No effect on a closed stream.
    fn finish(&mut self, id: StreamId);

    /// Whether the connection has taken all bytes written to a stream. If not,
    /// [`Writable`](quic::Event::Writable) follows, possibly early. True where this is unknown.
    fn is_taken(&mut self, id: StreamId) -> bool {
        let _unused = id;
        true
    }

    /// The next bytes.
    ///
    /// # Errors
    /// `Blocked` if no data is available; [`Readable`](quic::Event::Readable) follows. All other
    /// errors are final.
    fn read(&mut self, now: Instant, id: StreamId) -> Result<Chunk, ReadError>;
}

impl Streams for Connection {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        self.open(dir)
    }

    fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.accept(dir)
    }

    fn set_priority(&mut self, id: StreamId, priority: i32) {
        // A closed stream needs no priority.
        let _is_open = self.set_priority(id, priority);
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        self.write_some(id, data)
    }

    fn finish(&mut self, id: StreamId) {
        let _is_open = self.finish(id);
    }

    fn read(&mut self, now: Instant, id: StreamId) -> Result<Chunk, ReadError> {
        self.read(now, id, READ_BYTES)
    }
}
