//! Sockets of a driver: the sockets that it serves itself, with the state of their send buffers,
//! and the sockets of workers.

use std::collections::VecDeque;
use std::net::SocketAddr;

use units::{Duration, Instant};

use crate::protocol::{ConnectionKey, Protocol};
pub use crate::send_error::SendError;

/// Wait after a queue below the socket was full, because the system does not announce when it has
/// space: about one burst at 1 Gb/s.
const NO_BUFFERS_RETRY: Duration = Duration::from_micros(500);

/// Number of consecutive errors after which the driver does not receive from a socket until an
/// arrival is announced.
const RECV_ERRORS_MAX: u32 = 16;

/// The result of a receive call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// More batches may be available.
    MayHaveMore,
    /// No more batches are available. The next arrival is announced.
    NoMore,
    /// Receiving failed; the text is the system's error, usually about a packet sent earlier.
    Failed(String),
}

/// A socket, real or simulated.
pub trait Socket<P: Protocol> {
    /// Memory into which batches are received.
    type Buffers: Default;

    /// Makes one receive call and appends the batches to `batches`.
    fn receive(&mut self, buffers: &mut Self::Buffers, batches: &mut Vec<P::Batch>) -> Received;

    /// Sends packets.
    ///
    /// # Errors
    /// If the system does not accept them.
    fn send(&mut self, packets: &P::Sealed) -> Result<(), SendError>;

    /// Sends packets that the socket has accepted and delayed.
    ///
    /// # Errors
    /// Same errors as [`send`](Self::send).
    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    /// Returns the number of packets that one call accepts, at least one.
    fn batch_max(&self) -> usize;

    /// Returns whether the system announces when there is space again after
    /// [`SendError::WouldBlock`].
    fn announces_space(&self) -> bool;

    /// Returns whether a packet has arrived since the last [`take_arrived`](Self::take_arrived).
    /// Returns false for sockets whose arrivals are announced by [`LocalSocket::note_ready`].
    fn has_arrived(&self) -> bool {
        false
    }

    /// Returns whether a packet has arrived since the last call.
    fn take_arrived(&mut self) -> bool {
        false
    }
}

/// State of a socket's send buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Free,
    /// Full until the system reports that the socket is writable.
    UntilWritable,
    /// Full until this time.
    Until(Instant),
}

/// Packets that wait for socket space, and their owner.
struct Held<P: Protocol, T> {
    packets: P::Sealed,
    owner: T,
}

/// A socket that the driver or a worker serves, with its state. `T` identifies the owner of held
/// packets.
pub struct LocalSocket<P: Protocol, S, T> {
    /// The socket.
    pub socket: S,
    /// Whether packets are received from it, and not only sent.
    pub receives: bool,
    /// Whether packets may have arrived.
    readable: bool,
    /// The number of consecutive receive errors.
    recv_errors: u32,
    /// Whether the system has announced that there may be space.
    became_writable: bool,
    space: Space,
    /// Packets that wait for space. No others are sent before them.
    held: Option<Held<P, T>>,
}

/// The outcome of sending packets.
#[derive(Debug)]
pub enum Sent {
    /// The packets are sent, or will be as soon as there is space.
    Taken,
    /// The packets are dropped, for this reason.
    Lost(SendError),
}

impl<P: Protocol, S: Socket<P>, T> LocalSocket<P, S, T> {
    /// Creates the state of a socket that sends and receives.
    pub fn new(socket: S) -> Self {
        Self {
            socket,
            receives: true,
            readable: true,
            recv_errors: 0,
            became_writable: false,
            space: Space::Free,
            held: None,
        }
    }

    /// Creates the state of a socket that only sends, because another processor receives.
    pub fn only_sending(socket: S) -> Self {
        Self { receives: false, readable: false, ..Self::new(socket) }
    }

    /// Makes this processor receive, because the other one no longer does.
    pub fn receive_here(&mut self) {
        (self.receives, self.readable) = (true, true);
    }

    /// Handles the system's announcement that packets may have arrived, or that there may be space.
    pub fn note_ready(&mut self, readable: bool, writable: bool) {
        self.readable |= readable && self.receives;
        self.became_writable |= writable;
    }

    /// Returns whether a receive call may return packets.
    pub fn is_readable(&self) -> bool {
        self.readable || (self.receives && self.socket.has_arrived())
    }

    /// Queries like [`is_readable`](Self::is_readable), and processes the announcements of
    /// arrivals.
    pub fn take_readable(&mut self) -> bool {
        self.readable |= self.receives && self.socket.take_arrived();
        self.readable
    }

    /// Returns whether it accepts packets now.
    pub fn has_space(&self) -> bool {
        self.space == Space::Free
    }

    /// Makes one receive call.
    pub fn receive(&mut self, buffers: &mut S::Buffers, batches: &mut Vec<P::Batch>) {
        match self.socket.receive(buffers, batches) {
            Received::MayHaveMore => (self.readable, self.recv_errors) = (true, 0),
            Received::NoMore => (self.readable, self.recv_errors) = (false, 0),
            Received::Failed(error) => {
                // The socket remains in use. After repeated errors it waits for the next arrival.
                tracing::debug!(%error, "receiving failed");
                self.recv_errors += 1;
                self.readable = self.recv_errors < RECV_ERRORS_MAX;
            }
        }
    }

    /// Returns whether it waits until the system announces that it is writable.
    pub fn awaits_writable(&self) -> bool {
        self.space == Space::UntilWritable
    }

    /// Returns the time of the next retry, if there will be no announcement.
    pub fn retry_at(&self) -> Option<Instant> {
        match self.space {
            Space::Until(at) => Some(at),
            _ => None,
        }
    }

    /// Returns whether it is time to retry. Resets the announcement.
    pub fn take_retry_due(&mut self, now: Instant) -> bool {
        let writable = std::mem::take(&mut self.became_writable) && self.awaits_writable();
        writable || self.retry_at().is_some_and(|at| at <= now)
    }

    /// Sends packets of `owner`. If there is no space they are held, and `packets` is left empty.
    pub fn send(&mut self, now: Instant, packets: &mut P::Sealed, owner: impl FnOnce() -> T) -> Sent {
        match self.socket.send(packets) {
            Ok(()) => {
                P::release(packets);
                Sent::Taken
            }
            Err(error) if error.is_temporary() => {
                self.note_full(now, &error);
                self.held = Some(Held { packets: std::mem::take(packets), owner: owner() });
                Sent::Taken
            }
            Err(error) => {
                P::release(packets);
                Sent::Lost(error)
            }
        }
    }

    fn note_full(&mut self, now: Instant, error: &SendError) {
        let waits = self.socket.announces_space() && *error == SendError::WouldBlock;
        self.space = if waits { Space::UntilWritable } else { Space::Until(now + NO_BUFFERS_RETRY) };
    }

    /// Returns the owner of the held packets.
    pub fn held(&self) -> Option<&T> {
        self.held.as_ref().map(|held| &held.owner)
    }

    /// Sends the held packets, because there may be space again. If they are dropped, returns their
    /// owner and the reason.
    pub fn retry(&mut self, now: Instant) -> Option<(T, SendError)> {
        self.space = Space::Free;
        self.flush(now);
        if self.has_space()
            && let Some(held) = self.held.take()
        {
            match self.socket.send(&held.packets) {
                Ok(()) => {}
                Err(error) if error.is_temporary() => {
                    self.note_full(now, &error);
                    self.held = Some(held);
                }
                Err(error) => return Some((held.owner, error)),
            }
        }
        None
    }

    /// Sends packets that the socket has delayed.
    pub fn flush(&mut self, now: Instant) {
        if !self.has_space() {
            return;
        }
        match self.socket.flush() {
            Ok(()) => {}
            Err(error) if error.is_temporary() => self.note_full(now, &error),
            Err(error) => tracing::debug!(%error, "the rest of a batch was lost"),
        }
    }
}

/// One socket of a driver's endpoint.
pub(crate) struct SocketSlot<L> {
    pub(crate) local: SocketAddr,
    pub(crate) place: SocketPlace<L>,
    /// Connections with packets to send once there is space.
    pub(crate) waiting: VecDeque<ConnectionKey>,
}

/// Processor that serves a socket.
pub(crate) enum SocketPlace<L> {
    /// The driver serves it.
    Local(Box<L>),
    /// A worker serves it.
    Offloaded {
        worker: usize,
        /// Number of packets that it accepts at a time.
        batch_max: usize,
    },
}

impl<L> SocketSlot<L> {
    pub(crate) fn as_local(&self) -> Option<&L> {
        match &self.place {
            SocketPlace::Local(socket) => Some(socket),
            SocketPlace::Offloaded { .. } => None,
        }
    }

    pub(crate) fn as_local_mut(&mut self) -> Option<&mut L> {
        match &mut self.place {
            SocketPlace::Local(socket) => Some(socket),
            SocketPlace::Offloaded { .. } => None,
        }
    }

    /// Returns the worker that serves it, if any.
    pub(crate) fn worker(&self) -> Option<usize> {
        match &self.place {
            SocketPlace::Local(_) => None,
            SocketPlace::Offloaded { worker, .. } => Some(*worker),
        }
    }
}
