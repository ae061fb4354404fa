//! Connections: streams, datagrams, messages, the end.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    AcceptStreamError, Closed, ConnectionHandle, DatagramError, Engine, MessageError, OpenError, Placement, RecvHandle,
    SendHandle,
};
use quic::session::ExportError;
use quic::{Class, Dir, PathId, RateLimit, Side, Stats};
use rustls::pki_types::CertificateDer;

use crate::stream::{RecvStream, SendStream};

/// A connection to a peer, encrypted and authenticated.
///
/// Clones are the same connection, and its streams count as clones: when the last of them is dropped, the connection is
/// closed with code 0, at once. To end without losing anything, [`finish`](SendStream::finish) the streams and wait for the
/// peer to have them ([`wait_finished`](SendStream::wait_finished)), or for its answer.
///
/// What has arrived before the end can be read after it.
///
/// A blocking call waits as long as the connection lives, unless it has a timeout. Calls that end in `_async` fail with
/// [`Closed::Configuration`] under [`Placement::Inline`], which has nothing that could run them.
#[derive(Clone, Debug)]
pub struct Connection {
    handle: ConnectionHandle,
}

/// Under [`Placement::Inline`] nobody would ever wake a task.
pub(crate) fn not_inline(engine: &Engine) -> Result<(), Closed> {
    match engine.placement() {
        Placement::Inline => Err(Closed::Configuration(
            "asynchronous calls need an endpoint with a thread: placement is Inline".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// What a wait without deadline gives when there is nothing left to wait for: cannot happen, but need not be a panic.
pub(crate) const GONE: Closed = Closed::EndpointClosed;

impl Connection {
    pub(crate) fn new(handle: ConnectionHandle) -> Self {
        Self { handle }
    }

    pub(crate) fn wait<T>(&self, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        self.handle.engine().block_on(None, poll)
    }

    fn wait_for<T>(&self, timeout: Duration, poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        let engine = self.handle.engine();
        engine.block_on(Some(engine.now() + timeout.into()), poll)
    }

    pub(crate) fn can_async(&self) -> Result<(), Closed> {
        not_inline(self.handle.engine())
    }

    // ── Paths ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Wants another path, from the socket of this place among [`EndpointConfig::sockets`](crate::EndpointConfig::sockets) to
    /// `remote`; only the side that connected can. Nothing waits for it: it is opened if the peer takes several paths
    /// (`transport.max_paths` on both sides), used once it has answered, and asked at least once a second until it does and
    /// whenever it falls silent. [`Stats::paths`] tells how each is doing. `is_backup` asks both sides to use it only if no
    /// other works.
    ///
    /// # Errors
    /// If there is no such socket, too much is wanted at once, or the connection is over.
    pub fn open_path(&self, socket: usize, remote: SocketAddr, is_backup: bool) -> Result<(), Closed> {
        self.handle.open_path(socket, remote, is_backup)
    }

    /// Gives a path up for good, telling the peer `code`; the last one stays. Its identifier stands in [`Stats::paths`].
    ///
    /// # Errors
    /// If too much is wanted at once, or the connection is over.
    pub fn abandon_path(&self, path: PathId, code: u64) -> Result<(), Closed> {
        self.handle.abandon_path(path, code)
    }

    /// Asks both sides to use a path only if no other works, or like the others.
    ///
    /// # Errors
    /// If too much is wanted at once, or the connection is over.
    pub fn set_path_backup(&self, path: PathId, is_backup: bool) -> Result<(), Closed> {
        self.handle.set_path_backup(path, is_backup)
    }

    // ── Classes of service ───────────────────────────────────────────────────────────────────────────────────────────

    /// Connections of a higher priority go first where they share a processor, equal ones take turns. Zero if never set. Nobody
    /// is forgotten: lower ones have one turn in nine.
    ///
    /// # Errors
    /// If the connection is over.
    pub fn set_priority(&self, priority: i32) -> Result<(), Closed> {
        self.handle.set_priority(priority)
    }

    /// Limits how fast the bytes of all streams and messages together leave for the first time, or lifts the limit. Within it they
    /// go by their priorities. What is lost goes again beyond it, and datagrams are not counted.
    ///
    /// # Errors
    /// If the connection is over.
    pub fn set_rate(&self, limit: Option<RateLimit>) -> Result<(), Closed> {
        self.handle.set_rate(limit)
    }

    // ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Opens a stream both sides send on; waits while the peer allows no more. The peer hears of it with the first bytes.
    ///
    /// # Errors
    /// If the connection is over, or more than 4096 callers wait.
    pub fn open_bi(&self) -> Result<(SendStream, RecvStream), OpenError> {
        let mut opening = self.handle.open(Dir::Bi);
        self.wait(|waker| opening.poll(waker)).unwrap_or(Err(OpenError::ConnectionClosed(GONE))).map(both)
    }

    /// As [`open_bi`](Self::open_bi).
    ///
    /// # Errors
    /// As [`open_bi`](Self::open_bi).
    pub async fn open_bi_async(&self) -> Result<(SendStream, RecvStream), OpenError> {
        self.can_async().map_err(OpenError::ConnectionClosed)?;
        let mut opening = self.handle.open(Dir::Bi);
        poll_fn(|context| opening.poll(context.waker())).await.map(both)
    }

    /// Opens a stream only this side sends on; waits while the peer allows no more.
    ///
    /// # Errors
    /// As [`open_bi`](Self::open_bi).
    pub fn open_uni(&self) -> Result<SendStream, OpenError> {
        let mut opening = self.handle.open(Dir::Uni);
        let opened = self.wait(|waker| opening.poll(waker)).unwrap_or(Err(OpenError::ConnectionClosed(GONE)));
        opened.map(|(send, _)| SendStream::new(send))
    }

    /// As [`open_uni`](Self::open_uni).
    ///
    /// # Errors
    /// As [`open_bi`](Self::open_bi).
    pub async fn open_uni_async(&self) -> Result<SendStream, OpenError> {
        self.can_async().map_err(OpenError::ConnectionClosed)?;
        let mut opening = self.handle.open(Dir::Uni);
        poll_fn(|context| opening.poll(context.waker())).await.map(|(send, _)| SendStream::new(send))
    }

    /// The peer's next bidirectional stream, in the order in which it opened them.
    ///
    /// # Errors
    /// If the connection is over.
    pub fn accept_bi(&self) -> Result<(SendStream, RecvStream), AcceptStreamError> {
        let accepted = self.wait(|waker| self.poll_accept_bi(waker));
        accepted.unwrap_or(Err(AcceptStreamError::ConnectionClosed(GONE)))
    }

    /// As [`accept_bi`](Self::accept_bi); none if there is none within `timeout`.
    ///
    /// # Errors
    /// If the connection is over.
    pub fn accept_bi_timeout(&self, timeout: Duration) -> Result<Option<(SendStream, RecvStream)>, AcceptStreamError> {
        self.wait_for(timeout, |waker| self.poll_accept_bi(waker)).transpose()
    }

    /// As [`accept_bi`](Self::accept_bi).
    ///
    /// # Errors
    /// If the connection is over.
    pub async fn accept_bi_async(&self) -> Result<(SendStream, RecvStream), AcceptStreamError> {
        self.can_async().map_err(AcceptStreamError::ConnectionClosed)?;
        poll_fn(|context| self.poll_accept_bi(context.waker())).await
    }

    fn poll_accept_bi(&self, waker: &Waker) -> Poll<Result<(SendStream, RecvStream), AcceptStreamError>> {
        self.handle.poll_accept_bi(waker).map_ok(|(send, recv)| (SendStream::new(send), RecvStream::new(recv)))
    }

    /// The peer's next unidirectional stream, in the order in which it opened them. The first call on a connection decides
    /// that they are not messages: from then on [`get_message`](Self::get_message) fails.
    ///
    /// # Errors
    /// If the connection is over, or takes messages.
    pub fn accept_uni(&self) -> Result<RecvStream, AcceptStreamError> {
        let accepted = self.wait(|waker| self.handle.poll_accept_uni(waker));
        accepted.unwrap_or(Err(AcceptStreamError::ConnectionClosed(GONE))).map(RecvStream::new)
    }

    /// As [`accept_uni`](Self::accept_uni); none if there is none within `timeout`.
    ///
    /// # Errors
    /// As [`accept_uni`](Self::accept_uni).
    pub fn accept_uni_timeout(&self, timeout: Duration) -> Result<Option<RecvStream>, AcceptStreamError> {
        let accepted = self.wait_for(timeout, |waker| self.handle.poll_accept_uni(waker));
        Ok(accepted.transpose()?.map(RecvStream::new))
    }

    /// As [`accept_uni`](Self::accept_uni).
    ///
    /// # Errors
    /// As [`accept_uni`](Self::accept_uni).
    pub async fn accept_uni_async(&self) -> Result<RecvStream, AcceptStreamError> {
        self.can_async().map_err(AcceptStreamError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_accept_uni(context.waker())).await.map(RecvStream::new)
    }

    // ── Datagrams ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends a datagram (RFC 9221): it may be lost or overtaken, and is never repeated. Never waits.
    ///
    /// # Errors
    /// If the peer takes none, it is too large, too many wait to be sent, or the connection is over.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), DatagramError> {
        self.handle.send_datagram(data)
    }

    /// The oldest datagram received. When nobody takes them, newer ones push out older ones.
    ///
    /// # Errors
    /// If the connection is over and all were taken.
    pub fn recv_datagram(&self) -> Result<Bytes, Closed> {
        self.wait(|waker| self.handle.poll_recv_datagram(waker)).unwrap_or(Err(GONE))
    }

    /// As [`recv_datagram`](Self::recv_datagram); none if there is none within `timeout`.
    ///
    /// # Errors
    /// As [`recv_datagram`](Self::recv_datagram).
    pub fn recv_datagram_timeout(&self, timeout: Duration) -> Result<Option<Bytes>, Closed> {
        self.wait_for(timeout, |waker| self.handle.poll_recv_datagram(waker)).transpose()
    }

    /// As [`recv_datagram`](Self::recv_datagram).
    ///
    /// # Errors
    /// As [`recv_datagram`](Self::recv_datagram).
    pub async fn recv_datagram_async(&self) -> Result<Bytes, Closed> {
        self.can_async()?;
        poll_fn(|context| self.handle.poll_recv_datagram(context.waker())).await
    }

    /// The most bytes a datagram may have now; none if the peer takes none.
    pub fn datagram_len_max(&self) -> Option<usize> {
        self.handle.datagram_len_max()
    }

    // ── Messages ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends a message: it arrives whole or not at all, and messages may overtake each other, because each travels on a
    /// unidirectional stream of its own. Returns when the engine has it, which waits while 4 MiB of messages wait there.
    /// The peer must take messages ([`get_message`](Self::get_message)), not streams.
    ///
    /// # Errors
    /// If the message is longer than `message_len_max`, or the connection is over.
    pub fn send_message(&self, message: Bytes) -> Result<(), MessageError> {
        let mut message = Some(message);
        let sent = self.wait(|waker| self.handle.poll_send_message(&mut message, waker));
        sent.unwrap_or(Err(MessageError::ConnectionClosed(GONE)))
    }

    /// As [`send_message`](Self::send_message).
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn send_message_async(&self, message: Bytes) -> Result<(), MessageError> {
        self.can_async().map_err(MessageError::ConnectionClosed)?;
        let mut message = Some(message);
        poll_fn(|context| self.handle.poll_send_message(&mut message, context.waker())).await
    }

    /// As [`send_message`](Self::send_message), with a class: messages of a higher priority leave before others, those too that
    /// wait already; a rate holds for each message by itself; and a message can be confined to paths. An urgent message finds
    /// room where 4 MiB of less urgent ones wait.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_message_as(&self, message: Bytes, class: &Class) -> Result<(), MessageError> {
        let mut message = Some(message);
        let sent = self.wait(|waker| self.handle.poll_send_message_as(&mut message, class, waker));
        sent.unwrap_or(Err(MessageError::ConnectionClosed(GONE)))
    }

    /// As [`send_message_as`](Self::send_message_as).
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn send_message_as_async(&self, message: Bytes, class: &Class) -> Result<(), MessageError> {
        self.can_async().map_err(MessageError::ConnectionClosed)?;
        let mut message = Some(message);
        poll_fn(|context| self.handle.poll_send_message_as(&mut message, class, context.waker())).await
    }

    /// Waits until the peer has every message sent so far, or has refused it as too long.
    ///
    /// # Errors
    /// If the connection ended before.
    pub fn flush_messages(&self) -> Result<(), Closed> {
        self.wait(|waker| self.handle.poll_messages_flushed(waker)).unwrap_or(Err(GONE))
    }

    /// As [`flush_messages`](Self::flush_messages).
    ///
    /// # Errors
    /// As [`flush_messages`](Self::flush_messages).
    pub async fn flush_messages_async(&self) -> Result<(), Closed> {
        self.can_async()?;
        poll_fn(|context| self.handle.poll_messages_flushed(context.waker())).await
    }

    /// The next message, in the order in which they became whole. The first call on a connection decides that the peer's
    /// unidirectional streams are messages: from then on [`accept_uni`](Self::accept_uni) fails. A message longer than
    /// `message_len_max` is refused and not heard of.
    ///
    /// # Errors
    /// If the connection is over and all were taken, or takes streams.
    pub fn get_message(&self) -> Result<Bytes, MessageError> {
        let message = self.wait(|waker| self.handle.poll_get_message(waker));
        message.unwrap_or(Err(MessageError::ConnectionClosed(GONE)))
    }

    /// As [`get_message`](Self::get_message); none if there is none within `timeout`.
    ///
    /// # Errors
    /// As [`get_message`](Self::get_message).
    pub fn get_message_timeout(&self, timeout: Duration) -> Result<Option<Bytes>, MessageError> {
        self.wait_for(timeout, |waker| self.handle.poll_get_message(waker)).transpose()
    }

    /// As [`get_message`](Self::get_message).
    ///
    /// # Errors
    /// As [`get_message`](Self::get_message).
    pub async fn get_message_async(&self) -> Result<Bytes, MessageError> {
        self.can_async().map_err(MessageError::ConnectionClosed)?;
        poll_fn(|context| self.handle.poll_get_message(context.waker())).await
    }

    // ── The end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Ends the connection: the peer gets `code` and `reason`, and what was not acknowledged is lost. Never waits; later
    /// calls do nothing.
    pub fn close(&self, code: u64, reason: &str) {
        self.handle.close(code, reason);
    }

    /// Waits for the end and says why it came.
    pub fn closed(&self) -> Closed {
        self.wait(|waker| self.handle.poll_closed(waker)).unwrap_or(GONE)
    }

    /// As [`closed`](Self::closed); none if it does not come within `timeout`.
    pub fn closed_timeout(&self, timeout: Duration) -> Option<Closed> {
        self.wait_for(timeout, |waker| self.handle.poll_closed(waker))
    }

    /// As [`closed`](Self::closed).
    pub async fn closed_async(&self) -> Closed {
        match self.can_async() {
            Ok(()) => poll_fn(|context| self.handle.poll_closed(context.waker())).await,
            Err(error) => error,
        }
    }

    /// Why the connection is over, if it is.
    pub fn close_reason(&self) -> Option<Closed> {
        self.handle.closed()
    }

    // ── Questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The state of the moment; after the end, the last one. Waits for the engine to answer, some microseconds.
    ///
    /// # Panics
    /// Never: a connection that was handed out has a state.
    pub fn stats(&self) -> Stats {
        self.handle.stats().expect("a connection that was handed out has a state")
    }

    /// The peer's certificate chain, leaf first, as TLS has authenticated it; or its raw public key (RFC 7250), alone. Empty
    /// if it showed none. See [`peer_public_key`](crate::identity::peer_public_key).
    pub fn peer_identity(&self) -> Vec<CertificateDer<'static>> {
        self.handle.peer_identity().into_iter().map(CertificateDer::from).collect()
    }

    /// Fills `out` with keying material that both sides and nobody else can compute (RFC 8446, section 7.5). Waits for the
    /// engine to answer, some microseconds.
    ///
    /// # Errors
    /// If the connection is over.
    pub fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        self.handle.export_keying_material(label, context, out)
    }

    /// Which of the processors of [`Placement::Connection`](crate::Placement::Connection) serves it, counted from zero; zero under
    /// the other placements. Who connects may choose ([`ConnectOptions`](crate::ConnectOptions)); of a connection that was accepted
    /// the system has chosen.
    pub fn processor(&self) -> usize {
        self.handle.processor()
    }

    /// Our address on this connection, where the system tells it; otherwise what the socket is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local_addr()
    }

    /// The peer's address.
    pub fn remote_addr(&self) -> SocketAddr {
        self.handle.remote_addr()
    }

    /// Which role we play.
    pub fn side(&self) -> Side {
        self.handle.side()
    }
}

/// A stream that both sides send on.
fn both((send, recv): (SendHandle, Option<RecvHandle>)) -> (SendStream, RecvStream) {
    (SendStream::new(send), RecvStream::new(recv.expect("a bidirectional stream has two sides")))
}
