//! The streams of a connection of the engine, as applications take them: nothing waits, and wakers say when to look again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};

use bytes::Bytes;
use engine::{ConnectionHandle, Opening, RecvHandle, SendHandle};
use quic::{Chunk, Dir, Event, ReadError, StreamId, WriteError};
use scenario::apps::Streams;
use units::Instant;

/// Streams that are asked for ahead of the application, which takes them one at a time: the engine answers in its next turn, and
/// what begins at one time shall not take a turn each.
const AHEAD: usize = 16;

/// What has happened at a host and nobody has looked at yet.
#[derive(Default)]
pub(crate) struct Bell(Mutex<VecDeque<Event>>);

struct Ring {
    bell: Arc<Bell>,
    event: Event,
}

impl Bell {
    /// A waker that says that this has happened.
    pub(crate) fn waker(self: &Arc<Self>, event: Event) -> Waker {
        Arc::new(Ring { bell: Arc::clone(self), event }).into()
    }

    /// The oldest.
    pub(crate) fn pop(&self) -> Option<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.bell.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.event.clone());
    }
}

/// The streams of one host's connection.
pub(crate) struct Desk {
    bell: Arc<Bell>,
    pub(crate) connection: ConnectionHandle,
    opening: [Opens; 2],
    accepting: [Waker; 2],
    sending: BTreeMap<StreamId, (SendHandle, Waker)>,
    receiving: BTreeMap<StreamId, (RecvHandle, Waker)>,
}

/// Streams that were asked for.
struct Opens {
    asked: VecDeque<Opening>,
    ready: VecDeque<(SendHandle, Option<RecvHandle>)>,
    waker: Waker,
}

impl Opens {
    /// Asks for as many as are to be there.
    fn ask(&mut self, connection: &ConnectionHandle, dir: Dir) {
        while self.asked.len() + self.ready.len() < AHEAD {
            let mut opening = connection.open(dir);
            match opening.poll(&self.waker) {
                Poll::Pending => self.asked.push_back(opening),
                // The call did the turn that answers.
                Poll::Ready(Ok(opened)) if self.asked.is_empty() => self.ready.push_back(opened),
                Poll::Ready(opened) => panic!("before others, or never: {}", opened.is_ok()),
            }
        }
    }
}

impl Desk {
    pub(crate) fn new(bell: &Arc<Bell>, connection: ConnectionHandle) -> Self {
        let accepting = Dir::ALL.map(|dir| bell.waker(Event::Opened(dir)));
        // Nobody has asked yet, so nobody would be woken.
        accepting.iter().for_each(Waker::wake_by_ref);
        let opens = |dir| {
            let waker = bell.waker(Event::StreamsAvailable(dir));
            Opens { asked: VecDeque::new(), ready: VecDeque::new(), waker }
        };
        let mut opening = Dir::ALL.map(opens);
        for (opens, dir) in opening.iter_mut().zip(Dir::ALL) {
            opens.ask(&connection, dir);
        }
        let bell = Arc::clone(bell);
        Self { bell, connection, opening, accepting, sending: BTreeMap::new(), receiving: BTreeMap::new() }
    }

    fn keep(&mut self, send: Option<SendHandle>, recv: Option<RecvHandle>) {
        if let Some(send) = send {
            let waker = self.bell.waker(Event::Writable(send.id()));
            self.sending.insert(send.id(), (send, waker));
        }
        if let Some(recv) = recv {
            let waker = self.bell.waker(Event::Readable(recv.id()));
            // Nobody has asked for its bytes yet, so nobody would be woken.
            waker.wake_by_ref();
            self.receiving.insert(recv.id(), (recv, waker));
        }
    }
}

impl Streams for Desk {
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
        self.keep(Some(send), recv);
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
        self.keep(send, Some(recv));
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
            // If the peer does not want it, or is gone, nobody waits for its end.
            let _is_open = send.finish();
        }
    }

    fn is_taken(&mut self, id: StreamId) -> bool {
        let Some((send, waker)) = self.sending.get_mut(&id) else { return true };
        let is_taken = send.poll_taken(waker).is_ready();
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
