//! The application's streams on the handles of a connection. No call blocks; wakers queue events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};

use bytes::Bytes;
use quic::{Chunk, Dir, Event, ReadError, StreamId, WriteError};
use quic_driver::{ConnectionHandle, PendingOpen, RecvHandle, Runtime, SendHandle};
use units::Instant;

use super::Streams;

/// Number of streams requested in advance. A driver opens streams in its next turn, and items that
/// begin at one time should not take one turn each.
const OPEN_AHEAD: usize = 16;

/// Events that the application has not handled, in order. Each waker queues its event at most once
/// until it is polled again, so the length is bounded by the number of streams.
#[derive(Debug, Default)]
pub struct EventQueue {
    events: Mutex<VecDeque<Event>>,
    /// Whether there are events. Set with the events locked.
    has_some: AtomicBool,
}

struct EventWaker {
    events: Arc<EventQueue>,
    event: Event,
}

impl EventQueue {
    fn push(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push_back(event);
        self.has_some.store(true, Ordering::Release);
    }

    /// Returns whether there are events.
    pub fn has_some(&self) -> bool {
        self.has_some.load(Ordering::Acquire)
    }

    /// Takes the oldest event.
    pub fn pop(&self) -> Option<Event> {
        if !self.has_some() {
            return None;
        }
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let event = events.pop_front();
        self.has_some.store(!events.is_empty(), Ordering::Release);
        event
    }

    /// Returns a waker that queues this event.
    fn waker(self: &Arc<Self>, event: Event) -> Waker {
        Arc::new(EventWaker { events: Arc::clone(self), event }).into()
    }
}

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.events.push(self.event.clone());
    }
}

/// The streams of one host's connection.
pub struct HandleStreams<R: Runtime> {
    events: Arc<EventQueue>,
    connection: ConnectionHandle<R>,
    opening: [Opens<R>; 2],
    accepting: [Waker; 2],
    sending: BTreeMap<StreamId, (SendHandle<R>, Waker)>,
    receiving: BTreeMap<StreamId, (RecvHandle<R>, Waker)>,
    /// Bytes that the application may read, if its reading is limited. Negative after a longer
    /// read.
    allowance: Option<i64>,
    /// Streams whose reading the allowance stopped.
    unread: Vec<StreamId>,
}

/// Requested streams of one direction.
struct Opens<R: Runtime> {
    requested: VecDeque<PendingOpen<R>>,
    ready: VecDeque<(SendHandle<R>, Option<RecvHandle<R>>)>,
    waker: Waker,
}

impl<R: Runtime> Opens<R> {
    /// Requests streams up to [`OPEN_AHEAD`]. A closed connection opens none.
    fn request(&mut self, connection: &ConnectionHandle<R>, dir: Dir) {
        while self.requested.len() + self.ready.len() < OPEN_AHEAD {
            let mut opening = connection.open(dir);
            match opening.poll(&self.waker) {
                Poll::Pending => self.requested.push_back(opening),
                // Under `inline` the call runs the turn that opens the stream. Requests are
                // answered in order, so earlier ones can be taken too.
                Poll::Ready(Ok(opened)) => {
                    self.take_opened();
                    self.ready.push_back(opened);
                }
                Poll::Ready(Err(_)) => return,
            }
        }
    }

    /// Takes the streams that were opened. Returns true if the connection can open more.
    fn take_opened(&mut self) -> bool {
        while let Some(Poll::Ready(opened)) = self.requested.front_mut().map(|opening| opening.poll(&self.waker)) {
            self.requested.pop_front();
            let Ok(opened) = opened else { return false };
            self.ready.push_back(opened);
        }
        true
    }
}

impl<R: Runtime> HandleStreams<R> {
    /// Creates the streams of `connection`. Events are queued in `events`.
    pub fn new(events: &Arc<EventQueue>, connection: ConnectionHandle<R>) -> Self {
        // No stream has been polled yet, so no waker is registered: queue the first events here.
        Dir::ALL.into_iter().for_each(|dir| events.push(Event::Opened(dir)));
        let opens = |dir| Opens {
            requested: VecDeque::new(),
            ready: VecDeque::new(),
            waker: events.waker(Event::StreamsAvailable(dir)),
        };
        Self {
            events: Arc::clone(events),
            connection,
            opening: Dir::ALL.map(opens),
            accepting: Dir::ALL.map(|dir| events.waker(Event::Opened(dir))),
            sending: BTreeMap::new(),
            receiving: BTreeMap::new(),
            allowance: None,
            unread: Vec::new(),
        }
    }

    /// Permits the application to read `bytes` more bytes over all streams. Reading is limited from
    /// the first call on.
    pub fn allow_reading(&mut self, bytes: usize) {
        // Unused allowance accumulates, because bytes behind a gap become readable only when the
        // gap is filled.
        self.allowance = Some(self.allowance.unwrap_or(0).saturating_add_unsigned(bytes as u64));
        // Round robin, so that the first stream does not use the whole allowance every time.
        if !self.unread.is_empty() {
            self.unread.rotate_left(1);
        }
        self.unread.drain(..).for_each(|id| self.events.push(Event::Readable(id)));
    }

    fn register(&mut self, send: Option<SendHandle<R>>, recv: Option<RecvHandle<R>>) {
        if let Some(send) = send {
            let waker = self.events.waker(Event::Writable(send.id()));
            self.sending.insert(send.id(), (send, waker));
        }
        if let Some(recv) = recv {
            let id = recv.id();
            // The stream has not been polled yet, so no waker is registered: queue the first event
            // here.
            self.events.push(Event::Readable(id));
            self.receiving.insert(id, (recv, self.events.waker(Event::Readable(id))));
        }
    }
}

impl<R: Runtime> Streams for HandleStreams<R> {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let opens = &mut self.opening[dir.index()];
        if !opens.take_opened() {
            return None;
        }
        let taken = opens.ready.pop_front();
        opens.request(&self.connection, dir);
        let (send, recv) = taken.or_else(|| opens.ready.pop_front())?;
        let id = send.id();
        self.register(Some(send), recv);
        Some(id)
    }

    fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        let waker = &self.accepting[dir.index()];
        let accepted = match dir {
            Dir::Uni => self.connection.poll_accept_uni(waker).map_ok(|recv| (None, recv)),
            Dir::Bi => self.connection.poll_accept_bi(waker).map_ok(|(send, recv)| (Some(send), recv)),
        };
        let Poll::Ready(Ok((send, recv))) = accepted else { return None };
        let id = recv.id();
        self.register(send, Some(recv));
        Some(id)
    }

    fn set_priority(&mut self, id: StreamId, priority: i32) {
        if let Some((send, _)) = self.sending.get_mut(&id) {
            send.set_priority(priority);
        }
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let (send, waker) = self.sending.get_mut(&id).ok_or(WriteError::Closed)?;
        match send.poll_write_chunk(&mut Some(data.clone()), waker) {
            Poll::Pending => Err(WriteError::Blocked),
            Poll::Ready(Ok(())) => {
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
        if let Some((send, _)) = self.sending.get_mut(&id) {
            // If the peer stopped the stream or closed the connection, the end is irrelevant.
            let _is_open = send.finish();
        }
    }

    fn is_taken(&mut self, id: StreamId) -> bool {
        let Some((send, waker)) = self.sending.get_mut(&id) else { return true };
        let is_taken = send.poll_drained(waker).is_ready();
        if is_taken {
            self.sending.remove(&id);
        }
        is_taken
    }

    fn read(&mut self, _now: Instant, id: StreamId) -> Result<Chunk, ReadError> {
        let (recv, waker) = self.receiving.get_mut(&id).ok_or(ReadError::Closed)?;
        match recv.poll_ready(waker) {
            Poll::Pending => Err(ReadError::Blocked),
            Poll::Ready(Ok(true)) if self.allowance.is_some_and(|allowance| allowance <= 0) => {
                if !self.unread.contains(&id) {
                    self.unread.push(id);
                }
                Err(ReadError::Blocked)
            }
            Poll::Ready(Ok(true)) => {
                let bytes = std::mem::take(recv.front_mut());
                if let Some(allowance) = &mut self.allowance {
                    *allowance -= bytes.len() as i64;
                }
                Ok(Chunk::Bytes(bytes))
            }
            Poll::Ready(ended) => {
                self.receiving.remove(&id);
                if ended.is_ok() { Ok(Chunk::End) } else { Err(ReadError::Closed) }
            }
        }
    }
}
