//! The streams of a live connection as applications take them: nothing waits, and wakers say when to look again.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use litz::{Connection, OpenError, RecvStream, SendStream, StreamId};
use quic::{Chunk, Dir, Event, ReadError, WriteError};
use scenario::apps::Streams;
use units::Instant;

use super::inbox::{Happening, Inbox};

/// Bytes that one look at a connection moves at most. Whoever wants more gets its next turn after all others had theirs, so
/// that neither the other host nor a fault's time waits for a stream that never runs dry.
const TURN_BYTES: usize = 1 << 20;

/// The streams of one host's connection.
pub(super) struct LiveStreams {
    host: usize,
    inbox: Arc<Inbox>,
    connection: Connection,
    opening: [Opening; 2],
    accepting: [Waker; 2],
    sending: BTreeMap<StreamId, Half<SendStream>>,
    receiving: BTreeMap<StreamId, Half<RecvStream>>,
    /// What is left of [`TURN_BYTES`].
    turn_bytes: usize,
}

/// One side of a stream, and who is told when it can go on.
struct Half<S> {
    stream: S,
    waker: Waker,
}

/// A wish for a stream: the engine has to answer, even if the peer would allow many.
struct Opening {
    wish: Option<Pin<Box<dyn Future<Output = Opened>>>>,
    waker: Waker,
}

type Opened = Result<(SendStream, Option<RecvStream>), OpenError>;

/// Asks once.
pub(super) fn poll_once<F: Future>(waker: &Waker, future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

impl LiveStreams {
    /// Of this host's connection.
    pub(super) fn new(host: usize, inbox: &Arc<Inbox>, connection: Connection) -> Self {
        let waker = |event| inbox.waker(host, Happening::Stream(event));
        let accepting = Dir::ALL.map(|dir| waker(Event::Opened(dir)));
        // Nobody has asked yet, so nobody would be woken.
        accepting.iter().for_each(Waker::wake_by_ref);
        Self {
            host,
            inbox: Arc::clone(inbox),
            connection,
            opening: Dir::ALL.map(|dir| Opening { wish: None, waker: waker(Event::StreamsAvailable(dir)) }),
            accepting,
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
            turn_bytes: TURN_BYTES,
        }
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Another look begins.
    pub(super) const fn begin_turn(&mut self) {
        self.turn_bytes = TURN_BYTES;
    }

    fn keep(&mut self, send: Option<SendStream>, recv: Option<RecvStream>) {
        let waker = |event| self.inbox.waker(self.host, Happening::Stream(event));
        if let Some(stream) = send {
            let waker = waker(Event::Writable(stream.id()));
            self.sending.insert(stream.id(), Half { stream, waker });
        }
        if let Some(stream) = recv {
            let waker = waker(Event::Readable(stream.id()));
            // Nobody has asked for its bytes yet, so nobody would be woken.
            waker.wake_by_ref();
            self.receiving.insert(stream.id(), Half { stream, waker });
        }
    }
}

impl Streams for LiveStreams {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let Opening { wish, waker } = &mut self.opening[dir.index()];
        let asked = wish.get_or_insert_with(|| {
            let connection = self.connection.clone();
            match dir {
                Dir::Uni => Box::pin(async move { Ok((connection.open_uni_async().await?, None)) }),
                Dir::Bi => Box::pin(async move {
                    let (send, recv) = connection.open_bi_async().await?;
                    Ok((send, Some(recv)))
                }),
            }
        });
        let Poll::Ready(answer) = poll_once(waker, asked.as_mut()) else { return None };
        *wish = None;
        // A connection that is over says so by itself.
        let (send, recv) = answer.ok()?;
        let id = send.id();
        self.keep(Some(send), recv);
        Some(id)
    }

    fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        let waker = &self.accepting[dir.index()];
        let accepted = match dir {
            Dir::Uni => poll_once(waker, self.connection.accept_uni_async()).map_ok(|recv| (None, recv)),
            Dir::Bi => poll_once(waker, self.connection.accept_bi_async()).map_ok(|(send, recv)| (Some(send), recv)),
        };
        let Poll::Ready(Ok((send, recv))) = accepted else { return None };
        let id = recv.id();
        self.keep(send, Some(recv));
        Some(id)
    }

    fn set_priority(&mut self, id: StreamId, priority: i32) {
        if let Some(half) = self.sending.get_mut(&id) {
            half.stream.set_priority(priority);
        }
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let half = self.sending.get_mut(&id).ok_or(WriteError::Closed)?;
        if self.turn_bytes == 0 {
            half.waker.wake_by_ref();
            return Err(WriteError::Blocked);
        }
        match poll_once(&half.waker, half.stream.write_chunk_async(data.clone())) {
            Poll::Pending => Err(WriteError::Blocked),
            Poll::Ready(Ok(())) => {
                self.turn_bytes = self.turn_bytes.saturating_sub(data.len());
                *data = Bytes::new();
                Ok(())
            }
            Poll::Ready(Err(_)) => {
                self.sending.remove(&id);
                Err(WriteError::Closed)
            }
        }
    }

    fn finish(&mut self, id: StreamId) {
        if let Some(mut half) = self.sending.remove(&id) {
            // If the peer does not want it, or is gone, nobody waits for its end.
            let _is_open = half.stream.finish();
        }
    }

    fn read(&mut self, _now: Instant, id: StreamId) -> Result<Chunk, ReadError> {
        let half = self.receiving.get_mut(&id).ok_or(ReadError::Closed)?;
        if self.turn_bytes == 0 {
            half.waker.wake_by_ref();
            return Err(ReadError::Blocked);
        }
        let Poll::Ready(read) = poll_once(&half.waker, half.stream.read_strip_async()) else {
            return Err(ReadError::Blocked);
        };
        if let Ok(Some(strip)) = read {
            self.turn_bytes = self.turn_bytes.saturating_sub(strip.len());
            return Ok(Chunk::Bytes(strip));
        }
        self.receiving.remove(&id);
        if read.is_ok() { Ok(Chunk::End) } else { Err(ReadError::Closed) }
    }
}
