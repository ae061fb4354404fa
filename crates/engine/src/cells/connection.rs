//! A connection, between the application's threads and the driver.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;

use bytes::Bytes;
use quic::session::ExportError;
use quic::{Addresses, ConnectionKey, Dir, PathId, RateLimit, Stats};

use super::{Answer, MessageQueues, Reply, StreamCells, StreamTask};
use crate::error::{Closed, OpenError};
use crate::shared::Shared;
use crate::sync::{WakerSet, lock};

/// Streams of one direction that are ready for `accept`. QUIC's own limit holds back the rest.
pub(crate) const ACCEPTED_MAX: usize = 64;

/// Callers that wait for the peer to allow another stream.
pub(crate) const OPENS_WAITING_MAX: usize = 4096;

/// Datagrams received and not taken, in bytes; more stay with the connection, which drops the oldest.
pub(crate) const DATAGRAMS_IN_BYTES_MAX: usize = 1 << 20;

/// Datagrams the driver has not taken, in bytes. It takes them at once: this is a burst, and more are refused.
pub(crate) const DATAGRAMS_OUT_BYTES_MAX: usize = 1 << 20;

/// Messages the driver has not handed to streams, in bytes; senders wait beyond, unless it is a single one. As much again may
/// wait of messages that are more urgent than others in the queue, and the whole again of those whose class may hold them back.
pub(crate) const MESSAGES_OUT_BYTES_MAX: usize = 4 << 20;

/// Messages received and not taken, in bytes; flow control holds the peer back beyond.
pub(crate) const MESSAGES_IN_BYTES_MAX: usize = 4 << 20;

/// A message counts as this many bytes more than it has, so that the number of empty ones is bounded.
pub(crate) const MESSAGE_OVERHEAD: usize = 64;

/// The same for a datagram.
pub(crate) const DATAGRAM_OVERHEAD: usize = 64;

/// Shared by all handles of a connection and the driver.
pub(crate) struct ConnectionCell {
    pub(crate) shared: Arc<Shared>,
    pub(crate) remote: SocketAddr,
    pub(crate) side: quic::Side,
    /// Set once by the driver, when it takes the connection.
    pub(crate) place: OnceLock<Place>,
    state: Mutex<ConnectionState>,
}

/// Where a connection lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) key: ConnectionKey,
    pub(crate) local: SocketAddr,
}

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Connected,
    Closed,
    AcceptBi,
    AcceptUni,
    Datagram,
    Message,
    MessageRoom,
    MessagesFlushed,
}

impl Interest {
    pub(crate) const fn accept(dir: Dir) -> Self {
        match dir {
            Dir::Bi => Self::AcceptBi,
            Dir::Uni => Self::AcceptUni,
        }
    }
}

/// What the peer's unidirectional streams are. The first use decides, and until then none is taken from the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum MessageMode {
    #[default]
    Undecided,
    Streams,
    Messages,
}

/// A question that only the driver can answer.
pub(crate) enum Query {
    Stats(Answer<Option<Stats>>),
    Export { label: Vec<u8>, context: Vec<u8>, len: usize, answer: Answer<Result<Vec<u8>, ExportError>> },
}

/// Wishes about paths that the driver has not taken, at most: far more than there can be paths.
pub(crate) const PATH_TASKS_MAX: usize = 256;

/// A wish about a path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PathTask {
    Open { addresses: Addresses, is_backup: bool },
    Abandon { path: PathId, code: u64 },
    SetBackup { path: PathId, is_backup: bool },
}

/// A wish for a stream.
pub(crate) struct OpenRequest {
    pub(crate) dir: Dir,
    pub(crate) answer: OpenAnswer,
}

pub(crate) type OpenReply = Reply<Result<StreamCells, OpenError>>;
pub(crate) type OpenAnswer = Answer<Result<StreamCells, OpenError>>;

/// What the driver has to do for a connection.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) streams: Vec<StreamTask>,
    pub(crate) opens: Vec<OpenRequest>,
    pub(crate) datagrams: VecDeque<Bytes>,
    pub(crate) queries: Vec<Query>,
    pub(crate) paths: Vec<PathTask>,
    /// The application takes more of what has arrived than it did.
    pub(crate) inbound: bool,
    pub(crate) close: Option<(u64, String)>,
    /// Among the connections of its driver.
    pub(crate) priority: Option<i32>,
}

/// What is behind the lock.
#[derive(Default)]
pub(crate) struct ConnectionState {
    pub(crate) connected: bool,
    pub(crate) closed: Option<Closed>,
    pub(crate) todo: Todo,
    /// A limit that the driver has not set, or lifted.
    pub(crate) rate: Option<Option<RateLimit>>,
    /// The driver knows that it has work here.
    queued: bool,
    pub(crate) accepted: [VecDeque<StreamCells>; 2],
    /// More streams wait in the connection than the application has room for.
    pub(crate) accept_paused: [bool; 2],
    /// Callers whose wish for a stream was not answered.
    pub(crate) opens_waiting: usize,
    pub(crate) mode: MessageMode,
    pub(crate) datagrams: VecDeque<Bytes>,
    pub(crate) datagrams_bytes: usize,
    pub(crate) datagrams_out_bytes: usize,
    pub(crate) datagram_len_max: Option<usize>,
    pub(crate) messages: VecDeque<Bytes>,
    pub(crate) messages_bytes: usize,
    pub(crate) messages_out: MessageQueues,
    /// Messages on streams of their own that the peer has not acknowledged.
    pub(crate) messages_in_flight: usize,
    /// From the handshake.
    pub(crate) identity: Arc<[Vec<u8>]>,
    /// The last state, kept for questions after the end; most of a connection's life there is none.
    last_stats: Option<Box<Stats>>,
    /// Those who wait, each for one thing. Bounded by the threads and tasks; most of the time nobody does.
    wakers: Vec<(Interest, Waker)>,
}

impl ConnectionCell {
    pub(crate) fn new(shared: Arc<Shared>, remote: SocketAddr, side: quic::Side) -> Self {
        Self { shared, remote, side, place: OnceLock::new(), state: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        lock(&self.state)
    }

    /// Changes what the driver has to do, and names the connection to it. True if the driver did not know of anything
    /// before: then it must be woken.
    ///
    /// # Errors
    /// If the connection is over; then nothing is changed.
    pub(crate) fn submit(self: &Arc<Self>, change: impl FnOnce(&mut ConnectionState)) -> Result<bool, Closed> {
        {
            let mut state = self.lock();
            if let Some(closed) = &state.closed {
                return Err(closed.clone());
            }
            change(&mut state);
            if std::mem::replace(&mut state.queued, true) {
                return Ok(false);
            }
        }
        self.shared.push_dirty(Arc::clone(self));
        Ok(true)
    }

    /// The connection is over: tells everybody. What has arrived stays for them to take.
    pub(crate) fn close(&self, closed: Closed, last_stats: Option<Stats>) {
        let (todo, wakers) = {
            let mut state = self.lock();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(closed.clone());
            state.last_stats = last_stats.map(Box::new);
            (std::mem::take(&mut state.todo), state.take_all_wakers())
        };
        wakers.wake();
        // Refusing wakes, so the lock must be free again.
        let last_stats = self.lock().last_stats();
        todo.refuse(&closed, last_stats.as_ref());
    }
}

impl ConnectionState {
    pub(crate) fn add_waker(&mut self, interest: Interest, waker: &Waker) {
        if !self.wakers.iter().any(|(of, known)| *of == interest && known.will_wake(waker)) {
            self.wakers.push((interest, waker.clone()));
        }
    }

    #[must_use]
    pub(crate) fn take_wakers(&mut self, interest: Interest) -> WakerSet {
        self.take_wakers_if(|of| of == interest)
    }

    fn take_all_wakers(&mut self) -> WakerSet {
        self.take_wakers_if(|_| true)
    }

    fn take_wakers_if(&mut self, mut wanted: impl FnMut(Interest) -> bool) -> WakerSet {
        let mut taken = WakerSet::default();
        for (_, waker) in self.wakers.extract_if(.., |(of, _)| wanted(*of)) {
            taken.add(&waker);
        }
        if self.wakers.is_empty() {
            self.wakers = Vec::new();
        }
        taken
    }

    /// The last state of a connection that is over.
    pub(crate) fn last_stats(&self) -> Option<Stats> {
        self.last_stats.as_deref().cloned()
    }

    /// The driver looks: later changes must tell it again.
    pub(crate) fn begin_service(&mut self) -> Todo {
        self.queued = false;
        self.datagrams_out_bytes = 0;
        std::mem::take(&mut self.todo)
    }

    /// The oldest datagram, and whether the driver should bring more.
    pub(crate) fn take_datagram(&mut self) -> Option<(Bytes, bool)> {
        let datagram = self.datagrams.pop_front()?;
        let before = self.datagrams_bytes;
        self.datagrams_bytes -= datagram.len() + DATAGRAM_OVERHEAD;
        Some((datagram, falls_to_half(before, self.datagrams_bytes, DATAGRAMS_IN_BYTES_MAX)))
    }

    pub(crate) fn put_datagram(&mut self, datagram: Bytes) {
        self.datagrams_bytes += datagram.len() + DATAGRAM_OVERHEAD;
        self.datagrams.push_back(datagram);
    }

    /// The oldest message, and whether the driver should bring more.
    pub(crate) fn take_message(&mut self) -> Option<(Bytes, bool)> {
        let message = self.messages.pop_front()?;
        let before = self.messages_bytes;
        self.messages_bytes -= message.len() + MESSAGE_OVERHEAD;
        Some((message, falls_to_half(before, self.messages_bytes, MESSAGES_IN_BYTES_MAX)))
    }

    /// The peer's oldest stream, and whether the driver should bring more.
    pub(crate) fn take_accepted(&mut self, dir: Dir) -> Option<(StreamCells, bool)> {
        let queue = &mut self.accepted[dir.index()];
        let cells = queue.pop_front()?;
        let refill = queue.len() <= ACCEPTED_MAX / 2 && std::mem::take(&mut self.accept_paused[dir.index()]);
        Some((cells, refill))
    }
}

/// A queue that was over half full is no longer: time to fill it again, many at a time.
fn falls_to_half(before: usize, after: usize, max: usize) -> bool {
    before > max / 2 && after <= max / 2
}

impl Todo {
    /// Answers what can no longer be done.
    pub(crate) fn refuse(self, closed: &Closed, stats: Option<&Stats>) {
        for request in self.opens {
            let _nobody_waits = request.answer.put(Err(OpenError::ConnectionClosed(closed.clone())));
        }
        for query in self.queries {
            match query {
                Query::Stats(answer) => drop(answer.put(stats.cloned())),
                Query::Export { answer, .. } => drop(answer.put(Err(ExportError))),
            }
        }
        for task in self.streams {
            match task {
                StreamTask::Send(cell) => cell.end(super::send::SendEnd::Closed(closed.clone())),
                StreamTask::Recv(cell) => cell.end(super::recv::RecvEnd::Closed(closed.clone())),
            }
        }
    }
}
