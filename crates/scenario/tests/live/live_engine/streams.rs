//! Implements the applications' stream interface on the handles of an engine's connection. No call
//! blocks; wakers queue events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};

use bytes::Bytes;
use engine::{ConnectionHandle, PendingOpen, RecvHandle, SendHandle};
use quic::{Chunk, Dir, Event, ReadError, StreamId, WriteError};
use scenario::apps::Streams;
use units::Instant;

/// Number of streams that are requested in advance. The engine opens streams in its next turn, and
/// items that begin at one time should not take one turn each.
const OPEN_AHEAD: usize = 16;

/// Events of a host that the application has not handled.
#[derive(Default)]
pub(crate) struct EventQueue(Mutex<VecDeque<Event>>);

struct EventWaker {
    events: Arc<EventQueue>,
    event: Event,
}

impl EventQueue {
    /// A waker that queues this event.
    pub(crate) fn waker(self: &Arc<Self>, event: Event) -> Waker {
        Arc::new(EventWaker { events: Arc::clone(self), event }).into()
    }

    /// Takes the oldest event.
    pub(crate) fn pop(&self) -> Option<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        self.events.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.event.clone());
    }
}

/// The streams of one host's connection.
pub(crate) struct EngineStreams {
    events: Arc<EventQueue>,
    pub(crate) connection: ConnectionHandle,
    opening: [Opens; 2],
    accepting: [Waker; 2],
    sending: BTreeMap<StreamId, (SendHandle, Waker)>,
    receiving: BTreeMap<StreamId, (RecvHandle, Waker)>,
}

/// Requested streams of one direction.
struct Opens {
    asked: VecDeque<PendingOpen>,
    ready: VecDeque<(SendHandle, Option<RecvHandle>)>,
    waker: Waker,
}

impl Opens {
    /// Requests streams up to [`OPEN_AHEAD`].
    fn ask(&mut self, connection: &ConnectionHandle, dir: Dir) {
        while self.asked.len() + self.ready.len() < OPEN_AHEAD {
            let mut opening = connection.open(dir);
            match opening.poll(&self.waker) {
                Poll::Pending => self.asked.push_back(opening),
                // The call ran the turn that opened the stream.
                Poll::Ready(Ok(opened)) if self.asked.is_empty() => self.ready.push_back(opened),
                Poll::Ready(opened) => panic!("before others, or never: {}", opened.is_ok()),
            }
        }
    }
}

impl EngineStreams {
    pub(crate) fn new(events: &Arc<EventQueue>, connection: ConnectionHandle) -> Self {
        let accepting = Dir::ALL.map(|dir| events.waker(Event::Opened(dir)));
        // Nothing has been polled yet, so no waker is registered: queue the first event here.
        accepting.iter().for_each(Waker::wake_by_ref);
        let opens = |dir| {
            let waker = events.waker(Event::StreamsAvailable(dir));
            Opens { asked: VecDeque::new(), ready: VecDeque::new(), waker }
        };
        let mut opening = Dir::ALL.map(opens);
        for (opens, dir) in opening.iter_mut().zip(Dir::ALL) {
            opens.ask(&connection, dir);
        }
        let events = Arc::clone(events);
        Self { events, connection, opening, accepting, sending: BTreeMap::new(), receiving: BTreeMap::new() }
    }

    fn register(&mut self, send: Option<SendHandle>, recv: Option<RecvHandle>) {
        if let Some(send) = send {
            let waker = self.events.waker(Event::Writable(send.id()));
            self.sending.insert(send.id(), (send, waker));
        }
        if let Some(recv) = recv {
            let waker = self.events.waker(Event::Readable(recv.id()));
            // The stream has not been polled yet, so no waker is registered: queue the first event
            // here.
            waker.wake_by_ref();
            self.receiving.insert(recv.id(), (recv, waker));
        }
    }
}

impl Streams for EngineStreams {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        let opens = &mut self.opening[dir.index()];
        while let Some(Poll::Ready(opened)) = opens.asked.front_mut().map(|opening| opening.poll(&opens.waker)) {
            opens.asked.pop_front();
            opens.ready.push_back(opened.ok()?);
        }
        let taken = opens.ready.pop_front();
        opens.ask(&self.connection, dir);
        let (send, recv) = taken?;
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
            Poll::Ready(Ok(true)) => Ok(Chunk::Bytes(std::mem::take(recv.front_mut()))),
            Poll::Ready(over) => {
                self.receiving.remove(&id);
                if over.is_ok() { Ok(Chunk::End) } else { Err(ReadError::Closed) }
            }
        }
    }
}
