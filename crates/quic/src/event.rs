//! Events of a connection, for the application.

use wire::quic::{Dir, PathId, StreamId};

use crate::error::ConnectionError;
use crate::queue::Queue;
use crate::stats::PathState;

/// An event that the application may react to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Our side of the handshake is complete: the peer is authenticated, and streams can be used.
    Connected,
    /// At a client that has sent 0-RTT, or could have: the server has not taken it. All streams from
    /// [`open_early`](crate::Connection::open_early) are gone with what was written to them, and
    /// their IDs are used again: if the application still wants what it asked for, it asks again.
    /// Comes before [`Connected`](Self::Connected).
    EarlyRejected,
    /// Both sides know that the handshake is complete.
    Confirmed,
    /// The peer opened a stream, for `accept`.
    Opened(Dir),
    /// The peer allows more streams of this kind.
    StreamsAvailable(Dir),
    /// Bytes, the end or a reset can be read from a stream. Reported once until the stream is read
    /// empty.
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
    /// A path was opened by us or by the peer.
    PathOpened(PathId),
    /// The state of a path has changed.
    PathState(PathId, PathState),
    /// The path has moved to the addresses of [`migrate`](crate::Connection::migrate): the peer responds
    /// there.
    Migrated(PathId),
    /// A datagram can be taken. Reported once until all of them are taken.
    DatagramReceived,
    /// The connection ended. Always the last event.
    Closed(ConnectionError),
}

/// The events not yet taken by the application. Its length is bounded by the streams and paths that
/// exist: each event about a stream is reported once until the application reacts, and the state of
/// a path changes by timers and round trips.
#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: Queue<Event>,
    /// The last event was pushed.
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

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
