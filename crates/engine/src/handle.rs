//! What the application holds: a connection, the sides of its streams, a wish for a stream.
//!
//! Calls that may have to wait are `poll` functions: ready, or the waker is left behind. Handles can be used from any thread.

mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use quic::session::ExportError;
use quic::{Addresses, Class, Dir, PathId, RateLimit, Side, Stats, Strip};

use crate::cells::connection::{
    DATAGRAM_OVERHEAD, DATAGRAMS_OUT_BYTES_MAX, OPENS_WAITING_MAX, OpenReply, OpenRequest, PATH_TASKS_MAX, PathTask,
    Query,
};
use crate::cells::{ConnectionCell, Interest, MessageMode, OutMessage, StreamCells, question};
use crate::driver::Tails;
use crate::engine::Engine;
use crate::error::{AcceptStreamError, Closed, DatagramError, MessageError, OpenError};
use crate::messages::join;

pub use stream::{RecvHandle, SendHandle};

/// A connection. Clones are the same connection; handles of its streams count as clones. When the last one is dropped, the
/// connection is closed with code 0.
#[derive(Clone)]
pub struct ConnectionHandle {
    guard: Arc<Guard>,
}

struct Guard {
    cell: Arc<ConnectionCell>,
    engine: Engine,
}

impl Drop for Guard {
    fn drop(&mut self) {
        close(&self.cell, &self.engine, 0, "");
    }
}

fn close(cell: &Arc<ConnectionCell>, engine: &Engine, code: u64, reason: &str) {
    let submitted = cell.submit(|state| {
        state.todo.close.get_or_insert_with(|| (code, reason.to_owned()));
    });
    // A connection that is over needs no end.
    if submitted.is_ok() {
        engine.kick(&cell.shared, Tails::Sent);
    }
}

impl ConnectionHandle {
    pub(crate) fn new(cell: Arc<ConnectionCell>, engine: Engine) -> Self {
        Self { guard: Arc::new(Guard { cell, engine }) }
    }

    fn cell(&self) -> &Arc<ConnectionCell> {
        &self.guard.cell
    }

    /// The engine it lives on.
    pub fn engine(&self) -> &Engine {
        &self.guard.engine
    }

    /// Which of the processors of [`Placement::Connection`](crate::Placement::Connection) serves it, counted from zero; zero under
    /// the other placements.
    pub fn processor(&self) -> usize {
        self.cell().shared.index
    }

    /// Changes what the driver has to do and tells it.
    fn submit(&self, change: impl FnOnce(&mut crate::cells::ConnectionState)) -> Result<(), Closed> {
        self.submit_with(Tails::Sent, change)
    }

    /// As [`submit`](Self::submit), and says whether data to be sent may wait for more.
    fn submit_with(&self, tails: Tails, change: impl FnOnce(&mut crate::cells::ConnectionState)) -> Result<(), Closed> {
        if self.cell().submit(change)? {
            self.engine().kick(&self.cell().shared, tails);
        }
        Ok(())
    }

    /// Asks the driver to look again, because a queue has room.
    fn refill(&self, needed: bool) {
        if needed {
            // A connection that is over brings nothing more.
            let _over = self.submit(|state| state.todo.inbound = true);
        }
    }

    /// Ready when the handshake is complete.
    pub fn poll_connected(&self, waker: &Waker) -> Poll<Result<(), Closed>> {
        let mut state = self.cell().lock();
        if let Some(closed) = &state.closed {
            return Poll::Ready(Err(closed.clone()));
        }
        if state.connected {
            return Poll::Ready(Ok(()));
        }
        state.add_waker(Interest::Connected, waker);
        Poll::Pending
    }

    /// Ready when the connection is over.
    pub fn poll_closed(&self, waker: &Waker) -> Poll<Closed> {
        let mut state = self.cell().lock();
        if let Some(closed) = &state.closed {
            return Poll::Ready(closed.clone());
        }
        state.add_waker(Interest::Closed, waker);
        Poll::Pending
    }

    /// Why the connection is over, if it is.
    pub fn closed(&self) -> Option<Closed> {
        self.cell().lock().closed.clone()
    }

    /// Ends the connection: the peer's application gets `code` and `reason`, and what was not acknowledged is lost. The
    /// first call counts.
    pub fn close(&self, code: u64, reason: &str) {
        close(self.cell(), self.engine(), code, reason);
    }

    // ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// A wish for a stream of our own.
    pub fn open(&self, dir: Dir) -> Opening {
        Opening { connection: self.clone(), dir, reply: None }
    }

    /// The next bidirectional stream of the peer.
    pub fn poll_accept_bi(&self, waker: &Waker) -> Poll<Result<(SendHandle, RecvHandle), AcceptStreamError>> {
        let polled = {
            let mut state = self.cell().lock();
            match (state.take_accepted(Dir::Bi), &state.closed) {
                (Some(taken), _) => Poll::Ready(Ok(taken)),
                (None, Some(closed)) => Poll::Ready(Err(AcceptStreamError::ConnectionClosed(closed.clone()))),
                (None, None) => {
                    state.add_waker(Interest::AcceptBi, waker);
                    Poll::Pending
                }
            }
        };
        polled.map_ok(|(cells, refill)| {
            self.refill(refill);
            self.bi(cells)
        })
    }

    /// The next unidirectional stream of the peer. The first call decides that they are not messages.
    pub fn poll_accept_uni(&self, waker: &Waker) -> Poll<Result<RecvHandle, AcceptStreamError>> {
        if let Err(closed) = self.decide(MessageMode::Streams) {
            return Poll::Ready(
                Err(closed.map_or(AcceptStreamError::MessageMode, AcceptStreamError::ConnectionClosed)),
            );
        }
        let polled = {
            let mut state = self.cell().lock();
            match (state.take_accepted(Dir::Uni), &state.closed) {
                (Some(taken), _) => Poll::Ready(Ok(taken)),
                (None, Some(closed)) => Poll::Ready(Err(AcceptStreamError::ConnectionClosed(closed.clone()))),
                (None, None) => {
                    state.add_waker(Interest::AcceptUni, waker);
                    Poll::Pending
                }
            }
        };
        polled.map_ok(|(cells, refill)| {
            self.refill(refill);
            let recv = cells.recv.expect("a stream of the peer can be read");
            RecvHandle::new(recv, self.clone())
        })
    }

    /// Decides what the peer's unidirectional streams are, unless it was decided.
    ///
    /// # Errors
    /// If it was decided otherwise.
    fn decide(&self, wanted: MessageMode) -> Result<(), Option<Closed>> {
        let mode = self.cell().lock().mode;
        if mode == MessageMode::Undecided {
            // After the end there is nothing to decide: what has arrived is taken either way.
            let _over = self.submit(|state| {
                state.todo.inbound = true;
                if state.mode == MessageMode::Undecided {
                    state.mode = wanted;
                }
            });
        }
        let state = self.cell().lock();
        match state.mode {
            MessageMode::Undecided => Ok(()),
            mode if mode == wanted => Ok(()),
            _ => Err(state.closed.clone()),
        }
    }

    fn bi(&self, cells: StreamCells) -> (SendHandle, RecvHandle) {
        let send = SendHandle::new(cells.send.expect("a bidirectional stream can be written"), self.clone());
        let recv = RecvHandle::new(cells.recv.expect("a bidirectional stream can be read"), self.clone());
        (send, recv)
    }

    // ── Datagrams ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends a datagram (RFC 9221): it may be lost or overtaken, and is never repeated.
    ///
    /// # Errors
    /// If the peer takes none, it is too large, too many wait, or the connection is over.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), DatagramError> {
        let mut result = Ok(());
        let submitted = self.submit(|state| {
            let cost = data.len() + DATAGRAM_OVERHEAD;
            result = match state.datagram_len_max {
                None => Err(DatagramError::Unsupported),
                Some(len_max) if data.len() > len_max => Err(DatagramError::TooLarge { len_max }),
                Some(_) if state.datagrams_out_bytes + cost > DATAGRAMS_OUT_BYTES_MAX => Err(DatagramError::QueueFull),
                Some(_) => {
                    state.datagrams_out_bytes += cost;
                    state.todo.datagrams.push_back(data);
                    Ok(())
                }
            };
        });
        submitted.map_err(DatagramError::ConnectionClosed)?;
        result
    }

    /// The oldest datagram received.
    pub fn poll_recv_datagram(&self, waker: &Waker) -> Poll<Result<Bytes, Closed>> {
        let (datagram, refill) = {
            let mut state = self.cell().lock();
            match (state.take_datagram(), &state.closed) {
                (Some(taken), _) => taken,
                (None, Some(closed)) => return Poll::Ready(Err(closed.clone())),
                (None, None) => {
                    state.add_waker(Interest::Datagram, waker);
                    return Poll::Pending;
                }
            }
        };
        self.refill(refill);
        Poll::Ready(Ok(datagram))
    }

    /// The most bytes a datagram may have now; none if the peer takes none.
    pub fn datagram_len_max(&self) -> Option<usize> {
        self.cell().lock().datagram_len_max
    }

    // ── Messages ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Hands a message to the engine, once it has room for it; takes `message` when ready.
    pub fn poll_send_message(&self, message: &mut Option<Bytes>, waker: &Waker) -> Poll<Result<(), MessageError>> {
        self.poll_send_message_as(message, &Class::default(), waker)
    }

    /// As [`poll_send_message`](Self::poll_send_message), with what its stream asks for. Messages of a higher priority leave
    /// first, those too that are handed over later, and find room where others wait.
    pub fn poll_send_message_as(
        &self,
        message: &mut Option<Bytes>,
        class: &Class,
        waker: &Waker,
    ) -> Poll<Result<(), MessageError>> {
        let Some(taken) = message.take() else { return Poll::Ready(Ok(())) };
        let len_max = self.cell().shared.limits.message_len_max;
        if taken.len() > len_max {
            return Poll::Ready(Err(MessageError::TooLong { len_max }));
        }
        let mut left = Some(OutMessage { bytes: taken, class: class.clone() });
        let submitted = self.submit(|state| {
            state.messages_out.put(&mut left);
            if left.is_some() {
                state.add_waker(Interest::MessageRoom, waker);
            }
        });
        if let Err(closed) = submitted {
            return Poll::Ready(Err(MessageError::ConnectionClosed(closed)));
        }
        *message = left.map(|message| message.bytes);
        if message.is_some() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Ready when the peer has every message that was handed over so far, or has refused it.
    pub fn poll_messages_flushed(&self, waker: &Waker) -> Poll<Result<(), Closed>> {
        let mut state = self.cell().lock();
        if state.messages_out.is_empty() && state.messages_in_flight == 0 {
            return Poll::Ready(Ok(()));
        }
        if let Some(closed) = &state.closed {
            return Poll::Ready(Err(closed.clone()));
        }
        state.add_waker(Interest::MessagesFlushed, waker);
        Poll::Pending
    }

    /// The next whole message. The first call decides that the peer's unidirectional streams are messages.
    pub fn poll_get_message(&self, waker: &Waker) -> Poll<Result<Bytes, MessageError>> {
        if let Err(closed) = self.decide(MessageMode::Messages) {
            return Poll::Ready(Err(closed.map_or(MessageError::StreamMode, MessageError::ConnectionClosed)));
        }
        let (message, refill) = {
            let mut state = self.cell().lock();
            match (state.take_message(), &state.closed) {
                (Some(taken), _) => taken,
                (None, Some(closed)) => {
                    let closed = closed.clone();
                    return Poll::Ready(state.take_late_message().ok_or(MessageError::ConnectionClosed(closed)));
                }
                (None, None) => {
                    state.add_waker(Interest::Message, waker);
                    return Poll::Pending;
                }
            }
        };
        self.refill(refill);
        Poll::Ready(Ok(message))
    }

    // ── Classes of service ───────────────────────────────────────────────────────────────────────────────────────────

    /// Connections of a higher priority are visited first by their driver, equal ones take turns. Zero if never set. Lower ones
    /// have a visit in nine and more.
    ///
    /// # Errors
    /// If the connection is over.
    pub fn set_priority(&self, priority: i32) -> Result<(), Closed> {
        self.submit(|state| state.todo.priority = Some(priority))
    }

    /// Limits how fast the bytes of all streams and messages together leave for the first time, or lifts the limit; what is lost
    /// goes again beyond it. Datagrams are not counted.
    ///
    /// # Errors
    /// If the connection is over.
    pub fn set_rate(&self, limit: Option<RateLimit>) -> Result<(), Closed> {
        self.submit(|state| state.rate = Some(limit))
    }

    // ── Paths ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Wants another path: from the socket of place `socket` among those the engine was started with, to `remote`. Nothing
    /// waits for it: the connection opens it once the handshake is confirmed, if the peer takes it, and asks until it answers.
    /// What has become of it stands in [`Stats::paths`].
    ///
    /// # Errors
    /// If there is no such socket, too much is wanted at once, or the connection is over.
    pub fn open_path(&self, socket: usize, remote: SocketAddr, is_backup: bool) -> Result<(), Closed> {
        if socket >= self.engine().local_addrs().len() {
            return Err(Closed::NoSocket);
        }
        let socket = u16::try_from(socket).map_err(|_| Closed::NoSocket)?;
        let addresses = Addresses { socket, ..Addresses::of(remote) };
        self.submit_path_task(PathTask::Open { addresses, is_backup })
    }

    /// Gives a path up, for the reason `code` (multipath draft-21, section 4.2.1). The last one stays.
    ///
    /// # Errors
    /// If too much is wanted at once, or the connection is over.
    pub fn abandon_path(&self, path: PathId, code: u64) -> Result<(), Closed> {
        self.submit_path_task(PathTask::Abandon { path, code })
    }

    /// Asks both sides to use a path only if no other works, or like the others.
    ///
    /// # Errors
    /// If too much is wanted at once, or the connection is over.
    pub fn set_path_backup(&self, path: PathId, is_backup: bool) -> Result<(), Closed> {
        self.submit_path_task(PathTask::SetBackup { path, is_backup })
    }

    fn submit_path_task(&self, task: PathTask) -> Result<(), Closed> {
        let mut is_taken = true;
        self.submit(|state| {
            is_taken = state.todo.paths.len() < PATH_TASKS_MAX;
            if is_taken {
                state.todo.paths.push(task);
            }
        })?;
        if is_taken { Ok(()) } else { Err(Closed::TooMany) }
    }

    // ── Questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The state of the moment, or the last one; none if the connection never was. Waits for the driver.
    pub fn stats(&self) -> Option<Stats> {
        let (reply, answer) = question();
        let query = Query::Stats(answer);
        match self.submit(|state| state.todo.queries.push(query)) {
            Ok(()) => self.engine().block_on(None, |waker| reply.poll(waker)).flatten(),
            Err(_) => self.cell().lock().last_stats(),
        }
    }

    /// Keying material that both sides and nobody else can compute (RFC 8446, section 7.5). Waits for the driver.
    ///
    /// # Errors
    /// While the handshake is not complete, and when the connection is over.
    pub fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        let (reply, answer) = question();
        let query = Query::Export { label: label.to_vec(), context: context.to_vec(), len: out.len(), answer };
        self.submit(|state| state.todo.queries.push(query)).map_err(|_| ExportError)?;
        let material = self.engine().block_on(None, |waker| reply.poll(waker)).ok_or(ExportError)??;
        out.copy_from_slice(&material);
        Ok(())
    }

    /// The peer's certificate chain or raw public key, leaf first, as TLS has authenticated it; empty if it showed none, and
    /// before the handshake is complete.
    pub fn peer_identity(&self) -> Vec<Vec<u8>> {
        self.cell().lock().identity.to_vec()
    }

    /// Our address: the one the peer sees unless it is translated on the way; the wildcard address until packets have said
    /// which it is.
    pub fn local_addr(&self) -> SocketAddr {
        self.cell().place.get().map_or_else(|| self.engine().local_addrs()[0], |place| place.local)
    }

    /// The peer's address.
    pub fn remote_addr(&self) -> SocketAddr {
        self.cell().remote
    }

    /// Which role we play.
    pub fn side(&self) -> Side {
        self.cell().side
    }
}

impl std::fmt::Debug for ConnectionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionHandle").field("side", &self.side()).field("remote", &self.remote_addr()).finish()
    }
}

/// A wish for a stream. Dropping it gives the wish up.
#[derive(Debug)]
pub struct Opening {
    connection: ConnectionHandle,
    dir: Dir,
    reply: Option<OpenReply>,
}

impl Opening {
    /// Ready when the peer lets us open the stream. The receiving side is there for bidirectional streams. After it was
    /// ready, another call begins anew.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Result<(SendHandle, Option<RecvHandle>), OpenError>> {
        if self.reply.is_none()
            && let Err(error) = self.begin()
        {
            return Poll::Ready(Err(error));
        }
        let Some(reply) = &self.reply else { return Poll::Pending };
        match reply.poll(waker) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(result) => {
                self.reply = None;
                Poll::Ready(result.map(|cells| self.handles(cells)))
            }
        }
    }

    fn begin(&mut self) -> Result<(), OpenError> {
        let (reply, answer) = question();
        let request = OpenRequest { dir: self.dir, answer };
        let mut accepted = false;
        let submitted = self.connection.submit(|state| {
            if state.opens_waiting < OPENS_WAITING_MAX {
                state.opens_waiting += 1;
                state.todo.opens.push(request);
                accepted = true;
            }
        });
        submitted.map_err(OpenError::ConnectionClosed)?;
        if !accepted {
            return Err(OpenError::TooManyWaiting);
        }
        self.reply = Some(reply);
        Ok(())
    }

    fn handles(&self, cells: StreamCells) -> (SendHandle, Option<RecvHandle>) {
        let send = SendHandle::new(cells.send.expect("a stream of ours can be written"), self.connection.clone());
        (send, cells.recv.map(|recv| RecvHandle::new(recv, self.connection.clone())))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // A stream that was opened meanwhile is ended by the drop of its handles.
        if let Some(Ok(cells)) = self.reply.take().and_then(|reply| reply.abandon()) {
            drop(self.handles(cells));
        }
    }
}

impl crate::cells::ConnectionState {
    /// A message that came with the end, before it was decided that streams are messages.
    fn take_late_message(&mut self) -> Option<Bytes> {
        while let Some(cells) = self.accepted[Dir::Uni.index()].pop_front() {
            if let Some(strips) = cells.recv.and_then(|recv| recv.take_whole()) {
                let len = strips.iter().map(Strip::len).sum();
                return Some(join(strips.iter(), len));
            }
        }
        None
    }
}
