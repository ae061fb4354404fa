//! A connection as applications see it.

use bytes::Bytes;
use quic::{Chunk, Connection, Dir, ReadError, StreamId, WriteError};
use units::Instant;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The streams of a connection. No call waits: what cannot be done now is tried again after an [`Event`](quic::Event).
///
/// [`quic::Connection`] is one; worlds with sockets bring their own.
pub trait Streams {
    /// Opens a stream of ours; none if there is none yet, and then [`StreamsAvailable`](quic::Event::StreamsAvailable)
    /// follows as soon as there is.
    fn open(&mut self, dir: Dir) -> Option<StreamId>;

    /// The next stream of the peer; none if there is none yet, and then [`Opened`](quic::Event::Opened) follows.
    fn accept(&mut self, dir: Dir) -> Option<StreamId>;

    /// Streams of a higher number go first.
    fn set_priority(&mut self, id: StreamId, priority: i32);

    /// Takes bytes off the front of `data`, not necessarily all of them.
    ///
    /// # Errors
    /// `Blocked` if it takes no more now, and then [`Writable`](quic::Event::Writable) follows. After the others it never
    /// will.
    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError>;

    /// Ends a stream after what was written. Does nothing if it is over.
    fn finish(&mut self, id: StreamId);

    /// Whether all that was written to a stream has gone into the connection; if not, [`Writable`](quic::Event::Writable) follows, perhaps
    /// before it has. True where nobody can tell.
    fn is_taken(&mut self, id: StreamId) -> bool {
        let _nobody_asks = id;
        true
    }

    /// The next bytes.
    ///
    /// # Errors
    /// `Blocked` if there are none now, and then [`Readable`](quic::Event::Readable) follows. After the others nothing
    /// comes.
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
        // A stream that is over needs none.
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
