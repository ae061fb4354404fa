//! The connection interface that applications use.

use bytes::Bytes;
use quic::{Chunk, Dir, ReadError, StreamId, WriteError};
use units::Instant;

/// The streams of a connection. No call blocks; an application retries after an
/// [`Event`](quic::Event).
///
/// [`HandleStreams`](super::handles::HandleStreams) implements it for the handles of connections.
pub trait Streams {
    /// Opens a stream. Returns `None` if the limit is reached;
    /// [`StreamsAvailable`](quic::Event::StreamsAvailable) follows when the peer raises it.
    fn open(&mut self, dir: Dir) -> Option<StreamId>;

    /// Returns the next stream that the peer opened. Returns `None` if there is none;
    /// [`Opened`](quic::Event::Opened) follows.
    fn accept(&mut self, dir: Dir) -> Option<StreamId>;

    /// Sets the priority of a stream. Streams with higher priority are sent first.
    fn set_priority(&mut self, id: StreamId, priority: i32);

    /// Writes bytes from the front of `data`, possibly not all of them.
    ///
    /// # Errors
    /// Returns `Blocked` if the stream takes no more now; [`Writable`](quic::Event::Writable)
    /// follows. All other errors are final.
    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError>;

    /// Ends a stream after the written bytes. No effect on a closed stream.
    fn finish(&mut self, id: StreamId);

    /// Returns whether the connection has taken all bytes written to a stream. If not,
    /// [`Writable`](quic::Event::Writable) follows, possibly early. True where this is unknown.
    fn is_taken(&mut self, id: StreamId) -> bool {
        let _unused = id;
        true
    }

    /// Returns the next bytes.
    ///
    /// # Errors
    /// Returns `Blocked` if no data are available; [`Readable`](quic::Event::Readable) follows. All
    /// other errors are final.
    fn read(&mut self, now: Instant, id: StreamId) -> Result<Chunk, ReadError>;
}
