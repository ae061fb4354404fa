//! [`ConnectionCell`]: the state of one connection that its handles and the driver share.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;

use bytes::Bytes;
use driver::protocol::Place;
use driver::sync::{WakerSet, lock};
use quic::session::ExportError;
use quic::{Addresses, DatagramPaths, Dir, PathId, RateLimit, ReceivedDatagram, Stats, StreamId};

use super::message_queue::{MESSAGE_OVERHEAD, MessageQueues};
use super::reply::{ReplyReceiver, ReplySender};
use super::stream::{StreamCells, StreamRequest};
use crate::application::QuicShared;
use crate::error::{Closed, DatagramError, OpenError};
use crate::path_events::PathEvents;

/// Maximum number of the peer's streams of one direction that wait for `accept`. Others stay in the
/// connection, where QUIC's stream limit bounds them.
pub(crate) const ACCEPTED_MAX: usize = 64;

/// Maximum number of callers that wait until the peer permits another stream.
pub(crate) const OPENS_WAITING_MAX: usize = 4096;

/// Maximum size in bytes of received datagrams that wait for the application. Others stay in the
/// connection, which drops the oldest.
pub(crate) const DATAGRAMS_IN_BYTES_MAX: usize = 1 << 20;

/// Maximum size in bytes of datagrams that wait until the connection takes them;
/// `datagram_send_buffer` applies instead if it is less. Further datagrams wait or are refused, at
/// the caller's choice.
pub(crate) const DATAGRAMS_OUT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of datagrams for certain paths that wait for the driver: the queues of two paths.
pub(crate) const URGENT_DATAGRAMS_MAX: usize = 128;

/// Maximum size in bytes of received messages that wait for the application. Beyond it, flow
/// control stops the peer.
pub(crate) const MESSAGES_IN_BYTES_MAX: usize = 4 << 20;

/// Bytes added to the length of each datagram in a queue.
pub(crate) const DATAGRAM_OVERHEAD: usize = 64;

/// State shared by all handles of a connection and the driver.
pub struct ConnectionCell {
    pub(crate) shared: Arc<QuicShared>,
    pub(crate) remote: SocketAddr,
    pub(crate) side: quic::Side,
    /// Place of the connection in the driver's table, set once when the driver adds it.
    pub(crate) place: OnceLock<Place>,
    /// Whether the driver has yet to apply [`ConnectionState::rate`]. It is set with the state
    /// locked. The driver reads this before each plan instead of taking the lock.
    rate_changed: AtomicBool,
    state: Mutex<ConnectionState>,
}

/// The event that a waker is registered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Connected,
    Closed,
    AcceptBi,
    AcceptUni,
    Datagram,
    DatagramSpace,
    Message,
    MessageSpace,
    MessagesFlushed,
    PathEvent,
}

impl Interest {
    pub(crate) const fn accept(dir: Dir) -> Self {
        match dir {
            Dir::Bi => Self::AcceptBi,
            Dir::Uni => Self::AcceptUni,
        }
    }
}

/// Use of the peer's unidirectional streams. The first call that depends on it decides. Until then
/// no such stream is taken from the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum MessageMode {
    #[default]
    Undecided,
    Streams,
    Messages,
}

/// A query that the driver answers.
pub(crate) enum Query {
    Stats(ReplySender<Option<Stats>>),
    Export { label: Vec<u8>, context: Vec<u8>, len: usize, answer: ReplySender<Result<Vec<u8>, ExportError>> },
    MayBeReplayed { id: StreamId, answer: ReplySender<Option<bool>> },
}

/// Maximum number of path requests that wait for the driver: far more than a connection has paths.
pub(crate) const PATH_REQUESTS_MAX: usize = 256;

/// A request that concerns a path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PathRequest {
    Open { addresses: Addresses, is_backup: bool },
    Migrate { addresses: Addresses },
    Abandon { path: PathId, code: u64 },
    SetBackup { path: PathId, is_backup: bool },
}

/// A request to open a stream.
pub(crate) struct OpenRequest {
    pub(crate) dir: Dir,
    /// Whether its data may leave in 0-RTT packets.
    pub(crate) is_early: bool,
    pub(crate) answer: OpenReplySender,
}

pub(crate) type OpenReplyReceiver = ReplyReceiver<Result<StreamCells, OpenError>>;
pub(crate) type OpenReplySender = ReplySender<Result<StreamCells, OpenError>>;

/// Requests of the handles that the driver has not processed.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) streams: Vec<StreamRequest>,
    pub(crate) opens: Vec<OpenRequest>,
    pub(crate) datagrams: VecDeque<Bytes>,
    /// Datagrams that are pinned to a path.
    pub(crate) pinned_datagrams: Vec<(PathId, Bytes)>,
    /// Datagrams for certain paths, which overtake the others.
    pub(crate) urgent_datagrams: Vec<(Bytes, DatagramPaths)>,
    pub(crate) queries: Vec<Query>,
    pub(crate) paths: Vec<PathRequest>,
    /// Whether the application has taken received data, so that more can be delivered.
    pub(crate) wants_delivery: bool,
    pub(crate) close: Option<(u64, String)>,
    /// The new priority among the driver's connections.
    pub(crate) priority: Option<i32>,
}

/// The state behind the lock.
#[derive(Default)]
pub(crate) struct ConnectionState {
    pub(crate) connected: bool,
    pub(crate) closed: Option<Closed>,
    pub(crate) requests: Requests,
    /// A new rate limit that the driver has not applied; `Some(None)` removes the limit.
    rate: Option<Option<RateLimit>>,
    /// Whether the cell is in the driver's list of connections with requests.
    queued: bool,
    pub(crate) accepted: [VecDeque<StreamCells>; 2],
    /// Whether further streams of the peer wait in the connection because the queue is full, by
    /// direction.
    pub(crate) accept_paused: [bool; 2],
    /// Number of stream requests without an answer.
    pub(crate) opens_waiting: usize,
    pub(crate) mode: MessageMode,
    pub(crate) datagrams: VecDeque<ReceivedDatagram>,
    pub(crate) datagrams_bytes: usize,
    /// Datagrams to be sent on any path.
    datagrams_out: DatagramsOut,
    /// Datagrams to be sent that are pinned to a path, by path, until the path is abandoned.
    pinned_out: BTreeMap<PathId, DatagramsOut>,
    /// Limit of each of these queues in bytes, if it is not [`DATAGRAMS_OUT_BYTES_MAX`].
    pub(crate) datagrams_out_max: Option<usize>,
    pub(crate) datagram_len_max: Option<usize>,
    pub(crate) messages: VecDeque<Bytes>,
    pub(crate) messages_bytes: usize,
    pub(crate) messages_out: MessageQueues,
    /// Number of messages that have a stream and are not acknowledged by the peer.
    pub(crate) messages_in_flight: usize,
    pub(crate) path_events: PathEvents,
    /// The peer's certificates or raw public key, from the handshake.
    pub(crate) identity: Arc<[Vec<u8>]>,
    /// The final statistics of a closed connection.
    last_stats: Option<Box<Stats>>,
    /// Registered wakers. Their number is bounded by the application's threads and tasks.
    wakers: Vec<(Interest, Waker)>,
}

/// Datagrams that wait until the connection takes them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DatagramsOut {
    /// Their size in bytes, including overhead and datagrams that the driver has taken from the
    /// requests.
    bytes: usize,
    /// Limit for callers that wait for space: enough bytes to keep the paths busy.
    window: Option<usize>,
    /// Number of datagrams that have left the connection.
    departed: u64,
}

impl DatagramsOut {
    /// Returns the limit in bytes; if `waits`, the limit for callers that wait for space. Never
    /// exceeds `most`.
    fn bytes_max(&self, most: usize, waits: bool) -> usize {
        self.window.filter(|_| waits).map_or(most, |window| window.min(most))
    }

    /// Adds a datagram of `len` bytes if there is space. An empty queue accepts one of any length.
    fn add(&mut self, len: usize, most: usize, waits: bool) -> bool {
        let bytes = self.bytes + len + DATAGRAM_OVERHEAD;
        let has_space = self.bytes == 0 || bytes <= self.bytes_max(most, waits);
        if has_space {
            self.bytes = bytes;
        }
        has_space
    }
}

impl ConnectionCell {
    pub(crate) fn new(shared: Arc<QuicShared>, remote: SocketAddr, side: quic::Side) -> Self {
        let (place, rate_changed, state) = (OnceLock::new(), AtomicBool::new(false), Mutex::default());
        Self { shared, remote, side, place, rate_changed, state }
    }

    /// Sets a new rate limit in the locked state.
    pub(crate) fn set_rate(&self, state: &mut ConnectionState, limit: Option<RateLimit>) {
        state.rate = Some(limit);
        self.rate_changed.store(true, Ordering::Release);
    }

    /// Takes the rate limit that the driver has not applied.
    pub(crate) fn take_rate(&self) -> Option<Option<RateLimit>> {
        if !self.rate_changed.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        self.rate_changed.store(false, Ordering::Relaxed);
        state.rate.take()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        lock(&self.state)
    }

    /// Applies `change` to the state and adds the cell to the driver's list. Returns true if the
    /// cell was not in the list: the caller then wakes the driver.
    ///
    /// # Errors
    /// If the connection is closed. `change` is not called then.
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

    /// Marks the connection as closed, refuses all requests and wakes all waiters. Received data
    /// stays available.
    pub(crate) fn close(&self, closed: Closed, last_stats: Option<Stats>) {
        let (requests, wakers) = {
            let mut state = self.lock();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(closed.clone());
            state.last_stats = last_stats.map(Box::new);
            (std::mem::take(&mut state.requests), state.take_all_wakers())
        };
        wakers.wake();
        // Refusing the requests calls wakers, so the lock must not be held.
        let last_stats = self.lock().last_stats();
        requests.refuse(&closed, last_stats.as_ref());
    }
}

impl driver::protocol::Cell for ConnectionCell {
    fn place(&self) -> &OnceLock<Place> {
        &self.place
    }

    fn remote(&self) -> SocketAddr {
        self.remote
    }

    fn refuse(&self, reason: driver::EndReason) {
        self.close(reason.into(), None);
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

    /// Returns the final statistics of a closed connection.
    pub(crate) fn last_stats(&self) -> Option<Stats> {
        self.last_stats.as_deref().cloned()
    }

    /// Takes the requests. Later changes must wake the driver again.
    pub(crate) fn begin_service(&mut self) -> Requests {
        self.queued = false;
        std::mem::take(&mut self.requests)
    }

    /// Fails if a datagram cannot be sent at all.
    fn check_datagram(&self, data: &Bytes) -> Result<(), DatagramError> {
        match self.datagram_len_max {
            None => Err(DatagramError::Unsupported),
            Some(len_max) if data.len() > len_max => Err(DatagramError::TooLarge { len_max }),
            Some(_) => Ok(()),
        }
    }

    /// Returns the limit in bytes of datagrams that wait, for any path or pinned to one.
    fn datagrams_most(&self) -> usize {
        self.datagrams_out_max.unwrap_or(DATAGRAMS_OUT_BYTES_MAX)
    }

    /// Queues a datagram, or returns it if the queue has no space under the limit for callers that
    /// wait or for others.
    pub(crate) fn offer_datagram(&mut self, data: Bytes, waits: bool) -> Result<(), (Bytes, DatagramError)> {
        if let Err(error) = self.check_datagram(&data) {
            return Err((data, error));
        }
        let most = self.datagrams_most();
        if !self.datagrams_out.add(data.len(), most, waits) {
            return Err((data, DatagramError::QueueFull));
        }
        self.requests.datagrams.push_back(data);
        Ok(())
    }

    /// Queues a datagram like [`offer_datagram`](Self::offer_datagram), pinned to a path, for a
    /// caller that waits.
    pub(crate) fn offer_pinned_datagram(&mut self, data: Bytes, path: PathId) -> Result<(), (Bytes, DatagramError)> {
        if let Err(error) = self.check_datagram(&data) {
            return Err((data, error));
        }
        let most = self.datagrams_most();
        if !self.pinned_out.entry(path).or_default().add(data.len(), most, true) {
            return Err((data, DatagramError::QueueFull));
        }
        self.requests.pinned_datagrams.push((path, data));
        Ok(())
    }

    /// Returns how many of the datagrams for any path, or of those pinned to this one, have left
    /// the connection.
    pub(crate) fn datagrams_departed(&self, pinned: Option<PathId>) -> u64 {
        match pinned {
            None => self.datagrams_out.departed,
            Some(path) => self.pinned_out.get(&path).map_or(0, |out| out.departed),
        }
    }

    /// Handles the loss of path `id`. Datagrams pinned to it now count as datagrams for any path.
    pub(crate) fn unpin_datagrams(&mut self, id: PathId) {
        if let Some(out) = self.pinned_out.remove(&id) {
            self.datagrams_out.bytes += out.bytes;
            self.requests
                .datagrams
                .extend(self.requests.pinned_datagrams.extract_if(.., |(of, _)| *of == id).map(|(_, data)| data));
        }
    }

    /// Queues a datagram like [`offer_datagram`](Self::offer_datagram), for certain paths.
    pub(crate) fn offer_urgent_datagram(&mut self, data: Bytes, paths: DatagramPaths) -> Result<(), DatagramError> {
        self.check_datagram(&data)?;
        if self.requests.urgent_datagrams.len() >= URGENT_DATAGRAMS_MAX {
            return Err(DatagramError::QueueFull);
        }
        self.requests.urgent_datagrams.push((data, paths));
        Ok(())
    }

    /// Records that the connection has taken datagrams of `bytes`, overhead included, and wants
    /// `window` bytes to wait: of the datagrams pinned to this path, or of those for any. So far
    /// `departed` datagrams have left it. Returns the callers that wait for space, if half of it is
    /// free.
    #[must_use]
    pub(crate) fn on_datagrams_taken(
        &mut self,
        pinned: Option<PathId>,
        bytes: usize,
        departed: u64,
        window: u64,
    ) -> WakerSet {
        let most = self.datagrams_most();
        let out = match pinned {
            None => &mut self.datagrams_out,
            Some(path) => self.pinned_out.entry(path).or_default(),
        };
        out.bytes -= bytes;
        out.departed = departed;
        out.window = usize::try_from(window).ok();
        if out.bytes <= out.bytes_max(most, true) / 2 {
            self.take_wakers(Interest::DatagramSpace)
        } else {
            WakerSet::default()
        }
    }

    /// Returns the oldest datagram, and whether the driver should deliver more.
    pub(crate) fn take_datagram(&mut self) -> Option<(ReceivedDatagram, bool)> {
        let datagram = self.datagrams.pop_front()?;
        let before = self.datagrams_bytes;
        self.datagrams_bytes -= datagram.data.len() + DATAGRAM_OVERHEAD;
        Some((datagram, falls_to_half(before, self.datagrams_bytes, DATAGRAMS_IN_BYTES_MAX)))
    }

    pub(crate) fn put_datagram(&mut self, datagram: ReceivedDatagram) {
        self.datagrams_bytes += datagram.data.len() + DATAGRAM_OVERHEAD;
        self.datagrams.push_back(datagram);
    }

    /// Returns the oldest message, and whether the driver should deliver more.
    pub(crate) fn take_message(&mut self) -> Option<(Bytes, bool)> {
        let message = self.messages.pop_front()?;
        let before = self.messages_bytes;
        self.messages_bytes -= message.len() + MESSAGE_OVERHEAD;
        Some((message, falls_to_half(before, self.messages_bytes, MESSAGES_IN_BYTES_MAX)))
    }

    /// Returns the peer's oldest stream, and whether the driver should deliver more.
    pub(crate) fn take_accepted(&mut self, dir: Dir) -> Option<(StreamCells, bool)> {
        let queue = &mut self.accepted[dir.index()];
        let cells = queue.pop_front()?;
        let refill = queue.len() <= ACCEPTED_MAX / 2 && std::mem::take(&mut self.accept_paused[dir.index()]);
        Some((cells, refill))
    }
}

/// Returns whether the fill level falls to half with this change. Queues are refilled at that
/// point, several items at a time.
fn falls_to_half(before: usize, after: usize, max: usize) -> bool {
    before > max / 2 && after <= max / 2
}

impl Requests {
    /// Answers all requests of a connection that is closed.
    pub(crate) fn refuse(self, closed: &Closed, stats: Option<&Stats>) {
        for request in self.opens {
            let _canceled = request.answer.put(Err(OpenError::ConnectionClosed(closed.clone())));
        }
        for query in self.queries {
            match query {
                Query::Stats(answer) => drop(answer.put(stats.cloned())),
                Query::Export { answer, .. } => drop(answer.put(Err(ExportError))),
                Query::MayBeReplayed { answer, .. } => drop(answer.put(None)),
            }
        }
        for request in self.streams {
            match request {
                StreamRequest::Send(cell) => cell.end(super::send::SendEnd::Closed(closed.clone())),
                StreamRequest::Recv(cell) => cell.end(super::recv::RecvEnd::Closed(closed.clone())),
            }
        }
    }
}
