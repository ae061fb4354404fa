//! Connections: streams, datagrams, messages, and how they end.

pub(crate) mod waiting;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use quic::session::ExportError;
use quic::{Class, DatagramPaths, Dir, PathId, RateLimit, ReceivedDatagram, Side, Stats};
use quic_driver::PathEvent;
use quic_driver::error::{AcceptStreamError, Closed, DatagramError, MessageError, OpenError};
use rustls::pki_types::CertificateDer;

use self::waiting::GONE;
use crate::runtime::{ConnectionHandle, RecvHandle, SendHandle};
use crate::stream::{RecvStream, SendStream};

/// A connection to a peer, encrypted and authenticated.
///
/// Clones refer to the same connection, and its streams count as clones: when the last of them is
/// dropped, the connection closes immediately with code 0. To close without losing data,
/// [`finish`](SendStream::finish) the streams and wait until the peer has received them
/// ([`wait_finished`](SendStream::wait_finished)), or for its answer.
///
/// Data that arrived before the connection ended can still be read afterwards.
///
/// A blocking call waits until the connection ends, unless it has a timeout. Calls that end in
/// `_async` fail with [`Closed::Configuration`] under
/// [`Placement::Inline`](crate::Placement::Inline), because no thread would wake their tasks.
#[derive(Clone, Debug)]
pub struct Connection {
    handle: ConnectionHandle,
}

impl Connection {
    pub(crate) fn new(handle: ConnectionHandle) -> Self {
        Self { handle }
    }

    // ── Paths ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Requests another path to `remote`, from the socket with this index in
    /// [`EndpointConfig::sockets`](crate::EndpointConfig::sockets). Only the side that connected
    /// can open paths. The call does not wait: the path is opened if the peer accepts several paths
    /// (`transport.max_paths` on both sides) and is used once it is validated. It is probed at
    /// least once a second until the peer answers, and again whenever the peer stops answering.
    /// [`next_path_event`](Self::next_path_event) reports whether the path is opened, waits for the
    /// peer, or is refused; [`Stats::paths`] has the state of each path. With `is_backup`, both
    /// sides use the path only if no other path works.
    ///
    /// # Errors
    /// If there is no such socket, too many path requests are pending, or the connection is closed.
    pub fn open_path(&self, socket: usize, remote: SocketAddr, is_backup: bool) -> Result<(), Closed> {
        self.handle.open_path(socket, remote, is_backup)
    }

    /// Requests that the connection moves to `remote` and the socket with this index in
    /// [`EndpointConfig::sockets`](crate::EndpointConfig::sockets), for instance because its network
    /// is going away. Only the side that connected can move a connection, and only one with a single
    /// path: with several, [open](Self::open_path) another one instead. The call does not wait: the
    /// peer is probed at its address until it responds, and the connection moves then; until then it
    /// stays where it is. Another call replaces an attempt that has not succeeded.
    /// [`next_path_event`](Self::next_path_event) reports that it moved, or why not.
    ///
    /// # Errors
    /// If there is no such socket, too many path requests are pending, or the connection is closed.
    pub fn migrate(&self, socket: usize, remote: SocketAddr) -> Result<(), Closed> {
        self.handle.migrate(socket, remote)
    }

    /// Abandons a path permanently and sends `code` to the peer; the last path stays.
    /// [`Stats::paths`] has the identifiers.
    ///
    /// # Errors
    /// If too many requests are pending, or the connection is closed.
    pub fn abandon_path(&self, path: PathId, code: u64) -> Result<(), Closed> {
        self.handle.abandon_path(path, code)
    }

    /// Makes a path a backup, which both sides use only if no other path works, or an ordinary path
    /// again.
    ///
    /// # Errors
    /// If too many requests are pending, or the connection is closed.
    pub fn set_path_backup(&self, path: PathId, is_backup: bool) -> Result<(), Closed> {
        self.handle.set_path_backup(path, is_backup)
    }

    /// Returns the next event of the connection's paths, in the order in which they happened: a
    /// path is opened, its state changes, a requested path waits or is refused. A connection
    /// without the multipath extension reports refusals and migrations only. If the application
    /// does not take them, the newest 256 are kept.
    ///
    /// # Errors
    /// If the connection is closed and all events were taken.
    pub fn next_path_event(&self) -> Result<PathEvent, Closed> {
        self.wait(|waker| self.handle.poll_path_event(waker)).unwrap_or(Err(GONE))
    }

    /// Like [`next_path_event`](Self::next_path_event), but returns `None` if there is none within
    /// `timeout`.
    ///
    /// # Errors
    /// Same errors as [`next_path_event`](Self::next_path_event).
    pub fn next_path_event_timeout(&self, timeout: Duration) -> Result<Option<PathEvent>, Closed> {
        self.wait_for(timeout, |waker| self.handle.poll_path_event(waker)).transpose()
    }

    /// Asynchronous form of [`next_path_event`](Self::next_path_event).
    ///
    /// # Errors
    /// Same errors as [`next_path_event`](Self::next_path_event).
    pub async fn next_path_event_async(&self) -> Result<PathEvent, Closed> {
        self.can_async()?;
        poll_fn(|context| self.handle.poll_path_event(context.waker())).await
    }

    // ── Classes of service ───────────────────────────────────────────────────────────────────────────────────────────

    /// Sets the priority of this connection. Connections with a higher priority are served first
    /// where they share a processor; those of equal priority take turns. The default is 0.
    /// Connections with a lower priority get one turn in nine, so each gets a share.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn set_priority(&self, priority: i32) -> Result<(), Closed> {
        self.handle.set_priority(priority)
    }

    /// Limits the rate at which all streams and messages together send new bytes; `None` removes
    /// the limit. Priorities apply within the limit. Retransmissions and datagrams are not counted.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn set_rate(&self, limit: Option<RateLimit>) -> Result<(), Closed> {
        self.handle.set_rate(limit)
    }

    // ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Opens a bidirectional stream; waits while the peer allows no more streams. The peer is
    /// notified of the stream when its first bytes arrive.
    ///
    /// # Errors
    /// If the connection is closed, or more than 4096 callers wait.
    pub fn open_bi(&self) -> Result<(SendStream, RecvStream), OpenError> {
        self.opened(self.handle.open(Dir::Bi)).map(both)
    }

    /// Asynchronous form of [`open_bi`](Self::open_bi).
    ///
    /// # Errors
    /// Same errors as [`open_bi`](Self::open_bi).
    pub async fn open_bi_async(&self) -> Result<(SendStream, RecvStream), OpenError> {
        self.opened_async(self.handle.open(Dir::Bi)).await.map(both)
    }

    /// Opens a bidirectional stream for an idempotent request: **an attacker may deliver it to the
    /// server again, and the server executes each copy.**
    ///
    /// On a connection of [`Endpoint::connect_early`](crate::Endpoint::connect_early) whose
    /// handshake is in progress, the request leaves in 0-RTT if that is possible. Otherwise this
    /// waits for the handshake. If the server rejects it, both sides of the stream fail with
    /// [`WriteError::EarlyRejected`](crate::WriteError::EarlyRejected) and
    /// [`ReadError::EarlyRejected`](crate::ReadError::EarlyRejected): send the request again on
    /// another stream.
    ///
    /// # Errors
    /// Same errors as [`open_bi`](Self::open_bi).
    pub fn open_bi_early(&self) -> Result<(SendStream, RecvStream), OpenError> {
        self.opened(self.handle.open_early(Dir::Bi)).map(both)
    }

    /// Asynchronous form of [`open_bi_early`](Self::open_bi_early).
    ///
    /// # Errors
    /// Same errors as [`open_bi`](Self::open_bi).
    pub async fn open_bi_early_async(&self) -> Result<(SendStream, RecvStream), OpenError> {
        self.opened_async(self.handle.open_early(Dir::Bi)).await.map(both)
    }

    /// Waits until the handshake is complete: the peer is authenticated, and its later data cannot
    /// be replayed. Returns at once unless the connection was made with
    /// [`Endpoint::connect_early`](crate::Endpoint::connect_early) or was [accepted
    /// early](crate::EndpointConfig::accepts_early).
    ///
    /// # Errors
    /// If the connection ended before.
    pub fn connected(&self) -> Result<(), Closed> {
        self.wait(|waker| self.handle.poll_connected(waker)).unwrap_or(Err(GONE))
    }

    /// Asynchronous form of [`connected`](Self::connected).
    ///
    /// # Errors
    /// Same errors as [`connected`](Self::connected).
    pub async fn connected_async(&self) -> Result<(), Closed> {
        self.can_async()?;
        poll_fn(|context| self.handle.poll_connected(context.waker())).await
    }

    /// Opens a unidirectional stream to the peer; waits while the peer allows no more streams.
    ///
    /// # Errors
    /// Same errors as [`open_bi`](Self::open_bi).
    pub fn open_uni(&self) -> Result<SendStream, OpenError> {
        self.opened(self.handle.open(Dir::Uni)).map(|(send, _)| SendStream::new(send))
    }

    /// Asynchronous form of [`open_uni`](Self::open_uni).
    ///
    /// # Errors
    /// Same errors as [`open_bi`](Self::open_bi).
    pub async fn open_uni_async(&self) -> Result<SendStream, OpenError> {
        self.opened_async(self.handle.open(Dir::Uni)).await.map(|(send, _)| SendStream::new(send))
    }

    /// Returns the peer's next bidirectional stream, in the order in which it opened them.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn accept_bi(&self) -> Result<(SendStream, RecvStream), AcceptStreamError> {
        let accepted = self.wait(|waker| self.poll_accept_bi(waker));
        accepted.unwrap_or(Err(AcceptStreamError::ConnectionClosed(GONE)))
    }

    /// Like [`accept_bi`](Self::accept_bi), but returns `None` if no stream arrives within
    /// `timeout`.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn accept_bi_timeout(&self, timeout: Duration) -> Result<Option<(SendStream, RecvStream)>, AcceptStreamError> {
        self.wait_for(timeout, |waker| self.poll_accept_bi(waker)).transpose()
    }

    /// Asynchronous form of [`accept_bi`](Self::accept_bi).
    ///
    /// # Errors
    /// If the connection is closed.
    pub async fn accept_bi_async(&self) -> Result<(SendStream, RecvStream), AcceptStreamError> {
        self.can_async().map_err(AcceptStreamError::ConnectionClosed)?;
        poll_fn(|context| self.poll_accept_bi(context.waker())).await
    }

    fn poll_accept_bi(&self, waker: &Waker) -> Poll<Result<(SendStream, RecvStream), AcceptStreamError>> {
        self.handle.poll_accept_bi(waker).map_ok(|(send, recv)| (SendStream::new(send), RecvStream::new(recv)))
    }

    /// Returns the peer's next unidirectional stream, in the order in which it opened them. The
    /// first call on a connection decides that they are not messages: from then on
    /// [`recv_message`](Self::recv_message) fails.
    ///
    /// # Errors
    /// If the connection is closed, or receives messages.
    pub fn accept_uni(&self) -> Result<RecvStream, AcceptStreamError> {
        let accepted = self.wait(|waker| self.handle.poll_accept_uni(waker));
        accepted.unwrap_or(Err(AcceptStreamError::ConnectionClosed(GONE))).map(RecvStream::new)
    }

    /// Like [`accept_uni`](Self::accept_uni), but returns `None` if no stream arrives within
    /// `timeout`.
    ///
    /// # Errors
    /// Same errors as [`accept_uni`](Self::accept_uni).
    pub fn accept_uni_timeout(&self, timeout: Duration) -> Result<Option<RecvStream>, AcceptStreamError> {
        let accepted = self.wait_for(timeout, |waker| self.handle.poll_accept_uni(waker));
        Ok(accepted.transpose()?.map(RecvStream::new))
    }

    /// Asynchronous form of [`accept_uni`](Self::accept_uni).
    ///
    /// # Errors
    /// Same errors as [`accept_uni`](Self::accept_uni).
    pub async fn accept_uni_async(&self) -> Result<RecvStream, AcceptStreamError> {
        self.can_async().map_err(AcceptStreamError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_accept_uni(context.waker())).await.map(RecvStream::new)
    }

    // ── Datagrams ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends a datagram (RFC 9221). It may be lost or reordered and is never retransmitted. Never
    /// waits.
    ///
    /// # Errors
    /// If the peer does not accept datagrams, it is too large, too many wait to be sent, or the
    /// connection is closed.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), DatagramError> {
        self.handle.send_datagram(data)
    }

    /// Sends a datagram like [`send_datagram`](Self::send_datagram), on certain paths, for example
    /// one copy on each of two paths, so that it arrives even if one path fails. The datagram
    /// overtakes earlier ones on those paths, or on any path.
    ///
    /// # Errors
    /// Same errors as [`send_datagram`](Self::send_datagram).
    pub fn send_datagram_on(&self, data: Bytes, paths: DatagramPaths) -> Result<(), DatagramError> {
        self.handle.send_datagram_on(data, paths)
    }

    /// Sends datagrams from the front of `batch` and removes them, until the queue is full; waits
    /// while it is full. The driver is notified once. Returns the number sent, which is zero only
    /// if `batch` is empty.
    ///
    /// # Errors
    /// Same errors as [`send_datagram`](Self::send_datagram), for the datagram in front. A full
    /// queue is not an error.
    pub fn send_datagrams(&self, batch: &mut VecDeque<Bytes>) -> Result<usize, DatagramError> {
        let sent = self.wait(|waker| self.handle.poll_send_datagrams(batch, waker));
        sent.unwrap_or(Err(DatagramError::ConnectionClosed(GONE)))
    }

    /// Sends datagrams like [`send_datagrams`](Self::send_datagrams) without waiting: if the queue
    /// is full, `waker` is called when half of it is free. Not available under
    /// [`Placement::Inline`](crate::Placement::Inline).
    ///
    /// # Errors
    /// Same errors as [`send_datagrams`](Self::send_datagrams).
    pub fn poll_send_datagrams(
        &self,
        batch: &mut VecDeque<Bytes>,
        waker: &Waker,
    ) -> Poll<Result<usize, DatagramError>> {
        self.handle.poll_send_datagrams(batch, waker)
    }

    /// Sends datagrams like [`poll_send_datagrams`](Self::poll_send_datagrams), all on one path and
    /// in this order: for a flow that must not be split, or whose receiver treats late packets as
    /// lost. Each path has a queue of its own. If the path does not work, or fails before they have
    /// left, they use any other path.
    ///
    /// # Errors
    /// Same errors as [`send_datagrams`](Self::send_datagrams).
    pub fn poll_send_datagrams_on(
        &self,
        batch: &mut VecDeque<Bytes>,
        path: PathId,
        waker: &Waker,
    ) -> Poll<Result<usize, DatagramError>> {
        self.handle.poll_send_datagrams_on(batch, path, waker)
    }

    /// Appends the received datagrams to `out`, oldest first; waits for at least one. Returns their
    /// number, at least one.
    ///
    /// # Errors
    /// Same errors as [`recv_datagram`](Self::recv_datagram).
    pub fn recv_datagrams(&self, out: &mut Vec<ReceivedDatagram>) -> Result<usize, Closed> {
        self.wait(|waker| self.handle.poll_recv_datagrams(out, waker)).unwrap_or(Err(GONE))
    }

    /// Asynchronous form of [`recv_datagrams`](Self::recv_datagrams). Nothing is lost if the future
    /// is dropped.
    ///
    /// # Errors
    /// Same errors as [`recv_datagram`](Self::recv_datagram).
    pub async fn recv_datagrams_async(&self, out: &mut Vec<ReceivedDatagram>) -> Result<usize, Closed> {
        self.can_async()?;
        poll_fn(|context| self.handle.poll_recv_datagrams(out, context.waker())).await
    }

    /// Like [`recv_datagrams`](Self::recv_datagrams), but returns zero if no datagram arrives
    /// within `timeout`.
    ///
    /// # Errors
    /// Same errors as [`recv_datagram`](Self::recv_datagram).
    pub fn recv_datagrams_timeout(&self, out: &mut Vec<ReceivedDatagram>, timeout: Duration) -> Result<usize, Closed> {
        self.wait_for(timeout, |waker| self.handle.poll_recv_datagrams(out, waker)).unwrap_or(Ok(0))
    }

    /// Returns the oldest datagram received. If the application does not read them, newer datagrams
    /// replace older ones.
    ///
    /// # Errors
    /// If the connection is closed and all datagrams were read.
    pub fn recv_datagram(&self) -> Result<Bytes, Closed> {
        self.wait(|waker| self.handle.poll_recv_datagram(waker)).unwrap_or(Err(GONE))
    }

    /// Like [`recv_datagram`](Self::recv_datagram), but returns `None` if no datagram arrives
    /// within `timeout`.
    ///
    /// # Errors
    /// Same errors as [`recv_datagram`](Self::recv_datagram).
    pub fn recv_datagram_timeout(&self, timeout: Duration) -> Result<Option<Bytes>, Closed> {
        self.wait_for(timeout, |waker| self.handle.poll_recv_datagram(waker)).transpose()
    }

    /// Asynchronous form of [`recv_datagram`](Self::recv_datagram).
    ///
    /// # Errors
    /// Same errors as [`recv_datagram`](Self::recv_datagram).
    pub async fn recv_datagram_async(&self) -> Result<Bytes, Closed> {
        self.can_async()?;
        poll_fn(|context| self.handle.poll_recv_datagram(context.waker())).await
    }

    /// Returns how many of the datagrams sent on any path, or pinned to this one, have left this
    /// side. The count may lag by one batch.
    pub fn datagrams_departed(&self, path: Option<PathId>) -> u64 {
        self.handle.datagrams_departed(path)
    }

    /// Returns the maximum length of a datagram now in bytes; `None` if the peer accepts no
    /// datagrams.
    pub fn datagram_len_max(&self) -> Option<usize> {
        self.handle.datagram_len_max()
    }

    // ── Messages ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends a message. It arrives complete or not at all. Messages may arrive in another order,
    /// because each uses a unidirectional stream of its own. Returns when the message is queued,
    /// and waits while 4 MiB of messages are queued. The peer must receive messages
    /// ([`recv_message`](Self::recv_message)), not streams.
    ///
    /// # Errors
    /// If the message is longer than `message_len_max` bytes, or the connection is closed.
    pub fn send_message(&self, message: Bytes) -> Result<(), MessageError> {
        let mut message = Some(message);
        let sent = self.wait(|waker| self.handle.poll_send_message(&mut message, waker));
        sent.unwrap_or(Err(MessageError::ConnectionClosed(GONE)))
    }

    /// Asynchronous form of [`send_message`](Self::send_message).
    ///
    /// # Errors
    /// Same errors as [`send_message`](Self::send_message).
    pub async fn send_message_async(&self, message: Bytes) -> Result<(), MessageError> {
        self.can_async().map_err(MessageError::ConnectionClosed)?;
        let mut message = Some(message);
        poll_fn(|context| self.handle.poll_send_message(&mut message, context.waker())).await
    }

    /// Sends a message like [`send_message`](Self::send_message), with a class: messages with a
    /// higher priority are sent before others, including those already queued; a rate applies to
    /// each message separately; and a message can be restricted to paths. An urgent message is
    /// queued even while 4 MiB of less urgent ones are waiting.
    ///
    /// # Errors
    /// Same errors as [`send_message`](Self::send_message).
    pub fn send_message_as(&self, message: Bytes, class: &Class) -> Result<(), MessageError> {
        let mut message = Some(message);
        let sent = self.wait(|waker| self.handle.poll_send_message_as(&mut message, class, waker));
        sent.unwrap_or(Err(MessageError::ConnectionClosed(GONE)))
    }

    /// Asynchronous form of [`send_message_as`](Self::send_message_as).
    ///
    /// # Errors
    /// Same errors as [`send_message`](Self::send_message).
    pub async fn send_message_as_async(&self, message: Bytes, class: &Class) -> Result<(), MessageError> {
        self.can_async().map_err(MessageError::ConnectionClosed)?;
        let mut message = Some(message);
        poll_fn(|context| self.handle.poll_send_message_as(&mut message, class, context.waker())).await
    }

    /// Waits until the peer has received every message sent so far, or has refused it as too long.
    ///
    /// # Errors
    /// If the connection closed before that.
    pub fn flush_messages(&self) -> Result<(), Closed> {
        self.wait(|waker| self.handle.poll_messages_flushed(waker)).unwrap_or(Err(GONE))
    }

    /// Asynchronous form of [`flush_messages`](Self::flush_messages).
    ///
    /// # Errors
    /// Same errors as [`flush_messages`](Self::flush_messages).
    pub async fn flush_messages_async(&self) -> Result<(), Closed> {
        self.can_async()?;
        poll_fn(|context| self.handle.poll_messages_flushed(context.waker())).await
    }

    /// Returns the next message, in the order in which messages became complete. The first call on
    /// a connection makes the peer's unidirectional streams messages: from then on
    /// [`accept_uni`](Self::accept_uni) fails. A message longer than `message_len_max` is refused
    /// and not reported.
    ///
    /// # Errors
    /// If the connection is closed and all messages were read, or the connection accepts streams.
    pub fn recv_message(&self) -> Result<Bytes, MessageError> {
        let message = self.wait(|waker| self.handle.poll_recv_message(waker));
        message.unwrap_or(Err(MessageError::ConnectionClosed(GONE)))
    }

    /// Like [`recv_message`](Self::recv_message), but returns `None` if no message arrives within
    /// `timeout`.
    ///
    /// # Errors
    /// Same errors as [`recv_message`](Self::recv_message).
    pub fn recv_message_timeout(&self, timeout: Duration) -> Result<Option<Bytes>, MessageError> {
        self.wait_for(timeout, |waker| self.handle.poll_recv_message(waker)).transpose()
    }

    /// Asynchronous form of [`recv_message`](Self::recv_message).
    ///
    /// # Errors
    /// Same errors as [`recv_message`](Self::recv_message).
    pub async fn recv_message_async(&self) -> Result<Bytes, MessageError> {
        self.can_async().map_err(MessageError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_recv_message(context.waker())).await
    }

    // ── The end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Closes the connection: the peer receives `code` and `reason`, and unacknowledged data is
    /// lost. Never waits; later calls do nothing.
    pub fn close(&self, code: u64, reason: &str) {
        self.handle.close(code, reason);
    }

    /// Waits until the connection is closed and returns the reason.
    pub fn closed(&self) -> Closed {
        self.wait(|waker| self.handle.poll_closed(waker)).unwrap_or(GONE)
    }

    /// Like [`closed`](Self::closed), but returns `None` if the connection is still open after
    /// `timeout`.
    pub fn closed_timeout(&self, timeout: Duration) -> Option<Closed> {
        self.wait_for(timeout, |waker| self.handle.poll_closed(waker))
    }

    /// Asynchronous form of [`closed`](Self::closed).
    pub async fn closed_async(&self) -> Closed {
        match self.can_async() {
            Ok(()) => poll_fn(|context| self.handle.poll_closed(context.waker())).await,
            Err(error) => error,
        }
    }

    /// Returns the reason why the connection is closed; `None` while it is open.
    pub fn close_reason(&self) -> Option<Closed> {
        self.handle.closed()
    }

    // ── State ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Returns a snapshot of the connection's state; after the connection closed, the last one.
    /// Waits some microseconds for the engine to answer.
    ///
    /// # Panics
    /// Never: an established connection always has a state.
    pub fn stats(&self) -> Stats {
        self.handle.stats().expect("an established connection always has a state")
    }

    /// Returns the peer's certificate chain, leaf first, as authenticated by TLS; or its raw public
    /// key (RFC 7250) alone. Empty if the peer presented none. See
    /// [`peer_public_key`](crate::identity::peer_public_key).
    pub fn peer_identity(&self) -> Vec<CertificateDer<'static>> {
        self.handle.peer_identity().into_iter().map(CertificateDer::from).collect()
    }

    /// Fills `out` with keying material that only the two sides can compute (RFC 8446, section
    /// 7.5). Waits some microseconds for the engine to answer.
    ///
    /// # Errors
    /// If the connection is closed.
    pub fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        self.handle.export_keying_material(label, context, out)
    }

    /// Returns the index, from 0, of the processor of
    /// [`Placement::Connection`](crate::Placement::Connection) that serves the connection; 0 under
    /// the other placements. The connecting side may choose it
    /// ([`ConnectOptions`](crate::ConnectOptions)); for an accepted connection the operating system
    /// chooses it.
    pub fn processor(&self) -> usize {
        self.handle.processor()
    }

    /// Returns the local address of this connection if the operating system reports it, otherwise
    /// the address that the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local_addr()
    }

    /// Returns the peer's address.
    pub fn remote_addr(&self) -> SocketAddr {
        self.handle.remote_addr()
    }

    /// Returns whether this side is the client or the server.
    pub fn side(&self) -> Side {
        self.handle.side()
    }
}

/// Wraps both halves of a bidirectional stream.
fn both((send, recv): (SendHandle, Option<RecvHandle>)) -> (SendStream, RecvStream) {
    (SendStream::new(send), RecvStream::new(recv.expect("a bidirectional stream has two sides")))
}
