//! Begins connections, and answers packets that belong to no connection.

use std::sync::Arc;

use units::Instant;

use super::Driver;
use crate::entry::ConnectionEntry;
use crate::env::Env;
use crate::offload::Offload;
use crate::protocol::{Batch, BatchDrop, Begun, Cell, CellOf, Connection, ConnectionKey, EndReason, Place, Protocol};
use crate::shared::{ConnectRequest, Entered};
use crate::socket::{Sent, SocketPlace};

/// Divisor of the limit of peers in the handshake: a driver is busy above that part of the limit.
/// The rest is reserved for peers that have proved their address, so that packets with forged
/// addresses cannot use it up.
const BUSY_DIVISOR: usize = 2;

type BatchOf<E> = <<E as Env>::Protocol as Protocol>::Batch;

impl<E: Env> Driver<E> {
    /// Begins a connection for the application.
    pub(super) fn connect(&mut self, request: ConnectRequest<<E::Protocol as Protocol>::Application>) {
        let ConnectRequest { cell, connect, socket } = request;
        let _guard = RefuseOnPanic { cell: &*cell, panicked_before: std::thread::panicking() };
        let refusal = match self.socket_for(&cell, socket) {
            _ if self.closes_all => EndReason::EndpointClosed,
            Err(refusal) => refusal,
            Ok(socket) => match self.shared.common.enter(self.limits.connections_max) {
                None => EndReason::TooMany,
                Some(entered) => {
                    let now = self.env.now();
                    if let Some(connection) = self.protocol.connect(now, connect, &cell, socket) {
                        self.install(now, connection, Arc::clone(&cell), entered, socket);
                    }
                    return;
                }
            },
        };
        cell.refuse(refusal);
    }

    /// Returns the socket at which a connection begins: the requested one, or the first one of the
    /// peer's address family. A socket whose worker has ended is not used. A socket whose worker
    /// does not respond is used only if there is no other.
    fn socket_for(&self, cell: &CellOf<E::Protocol>, wanted: Option<usize>) -> Result<usize, EndReason> {
        let is_v4 = cell.remote().is_ipv4();
        let is_gone = |index: usize| self.sockets[index].worker().is_some_and(|worker| self.offload.is_gone(worker));
        let is_well = |index: usize| self.sockets[index].worker().is_none_or(|worker| self.offload.is_well(worker));
        let suits =
            |index: &usize| wanted.map_or(self.sockets[*index].local.is_ipv4() == is_v4, |wanted| *index == wanted);
        let candidates: Vec<usize> = (0..self.sockets.len()).filter(suits).collect();
        let live = || candidates.iter().copied().filter(|index| !is_gone(*index));
        let none = if candidates.is_empty() { EndReason::NoSocket } else { EndReason::ProcessorGone };
        live().find(|index| is_well(*index)).or_else(|| live().next()).ok_or(none)
    }

    /// Processes a batch that may begin a peer's connection.
    pub(super) fn admit(&mut self, socket: usize, batch: BatchOf<E>) {
        let waiting = self.shared.common.half_open_count() + self.shared.accepted_len();
        let entered = self.shared.common.enter(self.limits.connections_max).filter(|_| !self.closes_all);
        let Some(entered) = entered else { return self.refuse(socket, &batch) };
        if waiting >= self.limits.half_open_max {
            // The shortage is brief, so the peer gets no answer and retries.
            tracing::debug!(socket, "a connection must wait: too many peers are in the handshake");
            self.protocol.note_dropped(BatchDrop::Limit);
            return self.note_unrouted(batch.packet_count());
        }
        let now = self.env.now();
        let may_be_foreign = self.inlets.len() > 1;
        let is_busy = waiting >= self.limits.half_open_max.div_ceil(BUSY_DIVISOR);
        let packets = batch.packet_count();
        match self.protocol.accept(now, &self.shared, socket, batch, may_be_foreign, is_busy) {
            Begun::Connection(connection, cell) => self.install(now, connection, cell, entered, socket),
            Begun::Reply(mut reply) => {
                self.note_unrouted(packets);
                self.send_reply(now, socket, &mut reply);
            }
            Begun::Foreign(batch) => self.pass_on(socket, batch),
            Begun::Held => {}
            Begun::Nothing => self.note_unrouted(packets),
        }
    }

    /// Executes the application's decisions about waiting peers. Each accepted peer costs a key
    /// exchange, so their number per turn is limited.
    pub(super) fn take_decisions(&mut self, max: usize) {
        self.shared.clear_decisions();
        for _ in 0..max {
            let entered = self.shared.common.enter(self.limits.connections_max).filter(|_| !self.closes_all);
            let now = self.env.now();
            let Some((socket, begun)) = self.protocol.poll_decided(now, &self.shared, entered.is_some()) else {
                return;
            };
            match (begun, entered) {
                (Begun::Connection(connection, cell), Some(entered)) => {
                    self.install(now, connection, cell, entered, socket);
                }
                (Begun::Reply(mut reply), _) => self.send_reply(now, socket, &mut reply),
                _ => {}
            }
        }
        self.shared.note_decision();
    }

    /// Refuses a batch that may begin a peer's connection.
    fn refuse(&mut self, socket: usize, batch: &BatchOf<E>) {
        tracing::debug!(socket, "connection refused: a limit is reached, or the endpoint is closing");
        self.protocol.note_dropped(BatchDrop::Limit);
        self.note_unrouted(batch.packet_count());
        let mut packets = std::mem::take(&mut self.packets);
        if self.protocol.refuse(batch, &mut packets) && self.socket_has_space(socket) {
            self.send_reply(self.env.now(), socket, &mut packets);
        }
        self.packets = packets;
    }

    fn install(
        &mut self,
        now: Instant,
        connection: <E::Protocol as Protocol>::Connection,
        cell: Arc<CellOf<E::Protocol>>,
        entered: Entered<<E::Protocol as Protocol>::Application>,
        socket: usize,
    ) {
        let mut local = self.sockets[socket].local;
        if let Some(ip) = connection.local_ip() {
            local.set_ip(ip);
        }
        let mut entry: ConnectionEntry<E::Protocol> = ConnectionEntry::new(connection, Arc::clone(&cell), entered);
        entry.half_open = entry.connection.is_accepted().then(|| self.shared.common.half_open());
        let key = self.entries.insert(entry).expect("the table holds as many connections as are counted");
        let place = Place { key: ConnectionKey(key), local };
        assert!(cell.place().set(place).is_ok(), "a cell belongs to one connection");
        // Routes are updated at once, because the rest of the batch that began the connection may
        // belong to it.
        self.update_routes(place.key);
        // The application may have made a request, such as to close, before the cell had a place.
        if let Some(entry) = self.entries.get_mut(key) {
            let served = entry.connection.serve(now);
            entry.priority = served.priority.unwrap_or(entry.priority);
        }
        self.schedule(place.key);
    }

    pub(super) fn update_routes(&mut self, key: ConnectionKey) {
        if let Some(entry) = self.entries.get_mut(key.0) {
            self.protocol.update_routes(key, &mut entry.connection);
        }
    }

    /// Answers packets that belong to no connection.
    pub(super) fn reply(&mut self, socket: usize, batch: &BatchOf<E>) {
        let mut packets = std::mem::take(&mut self.packets);
        let now = self.env.now();
        if self.protocol.reply(now, socket, batch, &mut packets) && self.socket_has_space(socket) {
            self.send_reply(now, socket, &mut packets);
        }
        self.packets = packets;
    }

    /// Sends due packets of the protocol itself.
    pub(super) fn send_replies(&mut self, now: Instant) {
        let mut packets = std::mem::take(&mut self.packets);
        while let Some(socket) = self.protocol.poll_reply(now, &mut packets) {
            self.send_reply(now, socket, &mut packets);
        }
        self.packets = packets;
    }

    fn send_reply(&mut self, now: Instant, socket: usize, packets: &mut <E::Protocol as Protocol>::Sealed) {
        match &mut self.sockets[socket].place {
            // A lost answer does no harm: the peer retries.
            SocketPlace::Local(socket) if socket.has_space() => {
                if matches!(socket.send(now, packets, || None), Sent::Taken) {
                    self.replies += 1;
                }
            }
            SocketPlace::Local(_) => {}
            SocketPlace::Offloaded { worker, .. } => self.offload.reply(*worker, socket, packets),
        }
    }
}

/// Refuses a connection if it panics while it begins. The application's TLS session may panic
/// before the connection is in the driver's table, and a caller waits for the cell.
struct RefuseOnPanic<'a, C: Cell> {
    cell: &'a C,
    /// Whether the thread was already panicking, because a turn may run during the unwinding of an
    /// unrelated panic.
    panicked_before: bool,
}

impl<C: Cell> Drop for RefuseOnPanic<'_, C> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicked_before {
            self.cell.refuse(EndReason::EndpointClosed);
        }
    }
}
