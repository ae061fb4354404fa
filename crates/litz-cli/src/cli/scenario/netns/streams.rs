//! The application's view of the streams of a live connection. No call blocks; wakers report when
//! to retry.

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

use super::wakeups::{WakeQueue, Wakeup};

/// Maximum bytes to move in one turn of a connection. Further data waits for the next turn, so that
/// a busy stream delays neither the other host nor the time of a fault.
const TURN_BYTES: usize = 1 << 20;

/// The streams of one host's connection.
pub(super) struct LiveStreams {
    host: usize,
    wake_queue: Arc<WakeQueue>,
    connection: Connection,
    pending: [PendingOpen; 2],
    accepting: [Waker; 2],
    sending: BTreeMap<StreamId, Half<SendStream>>,
    receiving: BTreeMap<StreamId, Half<RecvStream>>,
    /// The rest of [`TURN_BYTES`] in this turn.
    turn_bytes: usize,
}

/// One direction of a stream, and the waker for its progress.
struct Half<S> {
    stream: S,
    waker: Waker,
}

/// A request to open a stream, which the engine answers later, even if the peer allows the stream
/// at once.
struct PendingOpen {
    request: Option<Pin<Box<dyn Future<Output = Opened>>>>,
    waker: Waker,
}

type Opened = Result<(SendStream, Option<RecvStream>), OpenError>;

/// Polls a future once.
pub(super) fn poll_once<F: Future>(waker: &Waker, future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

impl LiveStreams {
    /// The streams of this host's connection.
    pub(super) fn new(host: usize, wake_queue: &Arc<WakeQueue>, connection: Connection) -> Self {
        let waker = |event| wake_queue.waker(host, Wakeup::Stream(event));
        let accepting = Dir::ALL.map(|dir| waker(Event::Opened(dir)));
        // Nothing has polled yet, so no waker is registered.
        accepting.iter().for_each(Waker::wake_by_ref);
        Self {
            host,
            wake_queue: Arc::clone(wake_queue),
            connection,
            pending: Dir::ALL.map(|dir| PendingOpen { request: None, waker: waker(Event::StreamsAvailable(dir)) }),
            accepting,
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
            turn_bytes: TURN_BYTES,
        }
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Begins another turn.
    pub(super) const fn begin_turn(&mut self) {
        self.turn_bytes = TURN_BYTES;
    }

    fn keep(&mut self, send: Option<SendStream>, recv: Option<RecvStream>) {
        let waker = |event| self.wake_queue.waker(self.host, Wakeup::Stream(event));
        if let Some(stream) = send {
            let waker = waker(Event::Writable(stream.id()));
            self.sending.insert(stream.id(), Half { stream, waker });
        }
        if let Some(stream) = recv {
            let waker = waker(Event::Readable(stream.id()));
            // Nothing has read yet, so no waker is registered.
            waker.wake_by_ref();
            self.receiving.insert(stream.id(), Half { stream, waker });
        }
    }
}

impl Streams for LiveStreams {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let PendingOpen { request, waker } = &mut self.pending[dir.index()];
        let asked = request.get_or_insert_with(|| {
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
        *request = None;
        // The end of the connection is reported separately.
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
            // If the peer has stopped the stream or is gone, nothing waits for its end.
            let _is_open = half.stream.finish();
        }
    }

    fn read(&mut self, _now: Instant, id: StreamId) -> Result<Chunk, ReadError> {
        let half = self.receiving.get_mut(&id).ok_or(ReadError::Closed)?;
        if self.turn_bytes == 0 {
            half.waker.wake_by_ref();
            return Err(ReadError::Blocked);
        }
        let Poll::Ready(read) = poll_once(&half.waker, half.stream.read_strided_async()) else {
            return Err(ReadError::Blocked);
        };
        if let Ok(Some(chunk)) = read {
            self.turn_bytes = self.turn_bytes.saturating_sub(chunk.len());
            return Ok(Chunk::Bytes(chunk));
        }
        self.receiving.remove(&id);
        if read.is_ok() { Ok(Chunk::End) } else { Err(ReadError::Closed) }
    }
}
