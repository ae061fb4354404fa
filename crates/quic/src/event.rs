//! What a connection tells the application.

use wire::quic::{Dir, PathId, StreamId};

use crate::error::ConnectionError;
use crate::queue::Queue;
use crate::stats::PathState;

/// Something the application may want to react to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Our side of the handshake is complete: the peer is who TLS says it is, and streams can be used.
    Connected,
    /// Both sides know that the handshake is complete.
    Confirmed,
    /// The peer opened a stream: take it with `accept`.
    Opened(Dir),
    /// The peer lets us open more streams of this kind.
    StreamsAvailable(Dir),
    /// Bytes, the end or a reset can be read from a stream. Said once until the stream is read empty.
    Readable(StreamId),
    /// A stream that answered `Blocked` takes bytes again.
    Writable(StreamId),
    /// The peer has everything that was sent on the stream, the end included.
    Finished(StreamId),
    /// The peer asked us to stop sending on a stream.
    Stopped {
        /// The stream.
        id: StreamId,
        /// The peer application's code.
        code: u64,
    },
    /// A path has begun: by our wish, or by the peer's.
    PathOpened(PathId),
    /// What has become of a path.
    PathState(PathId, PathState),
    /// A datagram can be taken. Said once until they are all taken.
    DatagramReceived,
    /// The connection ended. Always the last event.
    Closed(ConnectionError),
}

/// The events not yet taken by the application. Its length is bounded by the streams and paths that exist: each event about a
/// stream is said once until the application reacts, and the state of a path changes by timers and round trips.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: Queue<Event>,
    /// The last event was said.
    closed: bool,
}

impl Events {
    /// Adds an event; nothing follows [`Event::Closed`].
    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        if !self.closed {
            self.closed = matches!(event, Event::Closed(_));
            self.queue.push_back(event);
        }
    }

    /// Frees room that is not used.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink();
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
