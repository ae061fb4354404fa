//! How connections begin.

use std::sync::Arc;

use bytes::BytesMut;
use net::{RecvMeta, Transmit};
use quic::{Addresses, ConnectionKey, Side};
use units::Instant;

use super::Driver;
use crate::arrival::arrived_at;
use crate::cells::ConnectionCell;
use crate::cells::connection::Place;
use crate::error::Closed;
use crate::port::PortPlace;
use crate::processor::PathProcessor;
use crate::receive::Arrived;
use crate::shared::ConnectRequest;
use crate::slot::Slot;

impl Driver {
    /// Begins a connection for the application.
    pub(super) fn connect(&mut self, request: ConnectRequest) {
        let ConnectRequest { cell, server_name, factory, socket } = request;
        let _told = TellOnPanic { cell: &cell, panicked_before: std::thread::panicking() };
        let refusal = match self.socket_for(&cell, socket) {
            _ if self.goodbyes_said => Closed::EndpointClosed,
            Err(refusal) => refusal,
            Ok(port) => {
                let now = self.clock.now();
                let addresses = Addresses { socket: port as u16, ..Addresses::of(cell.remote) };
                match self.shared.common.enter(self.limits.connections_max) {
                    None => Closed::TooMany,
                    Some(entered) => match self.endpoint.connect(now, &*factory, &server_name, addresses) {
                        Ok(connection) => {
                            self.install(now, Slot::new(connection, Arc::clone(&cell), entered), port);
                            return;
                        }
                        Err(error) => error.into(),
                    },
                }
            }
        };
        cell.close(refusal, None);
    }

    /// The socket a connection begins at: the one that is `wanted`, or the first of its address family. One whose processor is
    /// gone is none, and one whose processor does not answer is better than none.
    fn socket_for(&self, cell: &ConnectionCell, wanted: Option<usize>) -> Result<usize, Closed> {
        let is_v4 = cell.remote.is_ipv4();
        let processor = |index: usize| self.ports[index].processor().map(|processor| &self.processors[processor]);
        let is_gone = |index: usize| processor(index).is_some_and(PathProcessor::is_gone);
        let is_well = |index: usize| processor(index).is_none_or(PathProcessor::is_well);
        let suits =
            |index: &usize| wanted.map_or(self.ports[*index].local.is_ipv4() == is_v4, |wanted| *index == wanted);
        let suited: Vec<usize> = (0..self.ports.len()).filter(suits).collect();
        let live = || suited.iter().copied().filter(|index| !is_gone(*index));
        let none = if suited.is_empty() { Closed::NoSocket } else { Closed::ProcessorGone };
        live().find(|index| is_well(*index)).or_else(|| live().next()).ok_or(none)
    }

    /// A datagram that may begin a client's connection.
    pub(super) fn admit(&mut self, port: usize, meta: &RecvMeta, datagram: BytesMut) {
        let waiting = self.shared.common.half_open_count() + self.shared.accepted_len();
        let refuses = self.goodbyes_said || waiting >= self.limits.half_open_max;
        let entered = self.shared.common.enter(self.limits.connections_max).filter(|_| !refuses);
        let Some(entered) = entered else {
            // Not answered: the client tries again, and an attacker gets nothing for its packet.
            tracing::debug!(source = %meta.source, "no room for another connection");
            return;
        };
        let now = self.clock.now();
        let addresses = arrived_at(port, meta);
        // Where drivers share a port it may be the answer to a client's first datagram of another driver.
        let copy = (self.shared.driver_count() > 1).then(|| datagram.clone());
        match self.endpoint.accept(now, addresses, datagram) {
            Ok(connection) => {
                let cell = ConnectionCell::new(Arc::clone(&self.shared), meta.source, Side::Server);
                self.install(now, Slot::new(connection, Arc::new(cell), entered), port);
            }
            Err(error) => match copy {
                Some(copy) => self.pass_on(
                    port,
                    &RecvMeta { len: copy.len(), stride: copy.len(), ..*meta },
                    Arrived::Copied(copy),
                ),
                None => tracing::debug!(source = %meta.source, %error, "not accepted"),
            },
        }
    }

    fn install(&mut self, now: Instant, mut slot: Slot, port: usize) {
        let is_server = slot.connection.side() == Side::Server;
        let mut local = self.ports[port].local;
        if let Some(ip) = slot.connection.addresses().local_ip {
            local.set_ip(ip);
        }
        slot.handshake_until = Some(now + self.limits.handshake_timeout);
        slot.half_open = is_server.then(|| self.shared.common.half_open());
        let cell = Arc::clone(&slot.cell);
        let key = self.slots.insert(slot).expect("the table holds as many as may enter");
        let place = Place { key: ConnectionKey(key), local };
        cell.place.set(place).expect("a cell belongs to one connection");
        // At once: the rest of the batch that began it may belong to it.
        self.apply_routes(place.key);
        // The application may have asked for something, such as the end, before there was a place to look for it.
        if let Some(slot) = self.slots.get_mut(key) {
            slot.serve_todo(now);
        }
        self.schedule(place.key);
    }

    pub(super) fn apply_routes(&mut self, key: ConnectionKey) {
        let Some(slot) = self.slots.get_mut(key.0) else { return };
        while let Some(change) = slot.connection.poll_route() {
            self.endpoint.apply(key, change);
        }
    }

    /// Answers a version we do not speak (RFC 9000, section 6).
    pub(super) fn negotiate(&mut self, port: usize, meta: &RecvMeta, datagram: &[u8]) {
        if !self.endpoint.version_negotiation(datagram, &mut self.sealed) || !self.port_has_room(port) {
            return;
        }
        let now = self.clock.now();
        let transmit = Transmit {
            destination: meta.source,
            source_ip: meta.destination_ip,
            ecn: None,
            contents: &self.sealed,
            segment_size: None,
        };
        match &mut self.ports[port].place {
            // The client asks again if it is lost.
            PortPlace::Near(near) => drop(near.send(now, &transmit, || None)),
            PortPlace::Far { processor, .. } => {
                self.processors[*processor].reply(port, meta.source, meta.destination_ip, &self.sealed);
            }
        }
    }
}

/// The application's session factory may panic while the connection belongs to nobody but the caller who waits for it.
struct TellOnPanic<'a> {
    cell: &'a ConnectionCell,
    /// A turn may run while a thread unwinds for reasons of its own.
    panicked_before: bool,
}

impl Drop for TellOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.panicked_before {
            self.cell.close(Closed::EndpointClosed, None);
        }
    }
}
