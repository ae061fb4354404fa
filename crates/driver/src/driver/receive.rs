//! Receives batches from sockets, other drivers and workers, and routes them to connections.

use std::sync::Arc;

use super::Driver;
use super::limits::RECV_CALLS_PER_TURN;
use crate::activity::Activity;
use crate::env::Env;
use crate::in_flight::ConnectionRef;
use crate::inlet::MisroutedBatch;
use crate::offload::{Direction, Offload, PathFlow};
use crate::protocol::{Batch, BatchDrop, Connection, ConnectionKey, OpenJob, Protocol, Route};

/// Limit of batches taken from other drivers in one turn.
const MISROUTED_PER_TURN: usize = 32;

type BatchOf<E> = <<E as Env>::Protocol as Protocol>::Batch;

impl<E: Env> Driver<E> {
    /// Receives arrived packets. Returns the number of batches.
    pub(super) fn receive(&mut self) -> usize {
        let mut received = 0;
        if !self.offload.has_space_for_arrivals() {
            return received;
        }
        for index in 0..self.sockets.len() {
            let Some(socket) = self.sockets[index].as_local_mut() else { continue };
            if !socket.take_readable() {
                continue;
            }
            for _ in 0..RECV_CALLS_PER_TURN {
                if !self.sockets[index].as_local().is_some_and(|socket| socket.is_readable()) {
                    break;
                }
                received += self.receive_from(index);
            }
        }
        for _ in 0..MISROUTED_PER_TURN {
            let Some((MisroutedBatch { socket, batch }, has_more)) = self.inlet().and_then(|inlet| inlet.pop()) else {
                break;
            };
            self.has_more_arrivals = has_more;
            received += 1;
            self.deliver(socket, batch);
        }
        received + self.receive_from_workers()
    }

    /// Makes one receive call.
    fn receive_from(&mut self, index: usize) -> usize {
        let mut arrived = std::mem::take(&mut self.arrived);
        let Some(socket) = self.sockets[index].as_local_mut() else { return 0 };
        self.env.lap(Activity::Route);
        socket.receive(&mut self.buffers, &mut arrived);
        self.env.lap(Activity::RecvCall);
        self.env.note_received(&arrived);
        let count = arrived.len();
        if count > 0 {
            // This socket may have received an acknowledgement of packets that a worker has sent.
            self.take_reports();
        }
        let mut remaining = count;
        for batch in arrived.drain(..) {
            remaining -= 1;
            self.has_more_arrivals = remaining > 0;
            self.deliver(index, batch);
        }
        self.arrived = arrived;
        count
    }

    /// Passes the packets of a batch to their connections.
    pub(super) fn deliver(&mut self, socket: usize, mut batch: BatchOf<E>) {
        // Receive offload joins packets from one address, which two connections may share. Each
        // then gets its part of the batch.
        while batch.len_bytes() > 0 {
            let (len_bytes, route) = self.protocol.route(&batch);
            if len_bytes == batch.len_bytes() {
                return self.deliver_to(route, socket, batch);
            }
            let front = batch.split_front(len_bytes);
            self.deliver_to(route, socket, front);
        }
    }

    fn deliver_to(&mut self, route: Route, socket: usize, batch: BatchOf<E>) {
        match route {
            Route::Known(key) => self.absorb(key, socket, batch),
            Route::Begins => self.admit(socket, batch),
            Route::Reply => {
                self.note_unrouted(batch.packet_count());
                self.reply(socket, &batch);
            }
            Route::Fragment => {
                let now = self.env.now();
                if let Some(whole) = self.protocol.reassemble(now, socket, batch) {
                    self.deliver(socket, whole);
                }
            }
            Route::Unknown => self.pass_on(socket, batch),
        }
    }

    /// Passes packets without a connection here to the driver that may have it.
    pub(super) fn pass_on(&mut self, socket: usize, batch: BatchOf<E>) {
        let count = self.inlets.len();
        let shard = if count > 1 { self.protocol.shard_of(&batch, count) } else { None };
        match shard.filter(|index| *index != self.shared.index) {
            Some(index) => {
                let packets = batch.packet_count();
                if !self.inlets[index].push(MisroutedBatch { socket, batch }) {
                    self.protocol.note_dropped(BatchDrop::QueueFull);
                    self.note_unrouted(packets);
                }
            }
            None => self.note_unrouted(batch.packet_count()),
        }
    }

    /// Counts packets that are passed to no connection.
    pub(super) fn note_unrouted(&mut self, packets: usize) {
        self.unrouted_packets += packets as u64;
    }

    /// Drops a batch whose connection has ended.
    pub(super) fn drop_late(&mut self, packets: usize) {
        self.protocol.note_dropped(BatchDrop::Ended);
        self.note_unrouted(packets);
    }

    /// Opens and absorbs a batch of one connection, or passes it to the crypto pool for opening.
    fn absorb(&mut self, key: ConnectionKey, socket: usize, batch: BatchOf<E>) {
        if self.offload.opens() {
            return self.open_in_pool(key, socket, batch);
        }
        if let Some(worker) = self.sockets[socket].worker()
            && let Some(entry) = self.entries.get_mut(key.0)
        {
            // Granting a lease calls the application's TLS session, which may panic.
            self.visited = Some(key);
            self.offload.lease(worker, key, &mut entry.connection, &batch);
            self.visited = None;
        }
        let len_bytes = batch.len_bytes();
        self.begin_arrival(key, len_bytes);
        let now = self.env.now();
        let Some(entry) = self.entries.get_mut(key.0) else { return self.drop_late(batch.packet_count()) };
        entry.connection.note_arrived(len_bytes);
        if entry.connection.is_detached() {
            let packets = batch.packet_count();
            if !entry.connection.defer(socket, batch) {
                self.note_unrouted(packets);
            }
            return self.schedule(key);
        }
        self.env.lap(Activity::Route);
        self.visited = Some(key);
        entry.connection.absorb(now, socket, batch);
        self.visited = None;
        self.env.lap(Activity::OpenAbsorb);
        self.schedule(key);
        self.end_arrival(key, len_bytes);
    }

    /// Opens a batch: on another processor if one has space and more batches follow, otherwise on
    /// this one. A lone batch therefore stays on the driver.
    fn open_in_pool(&mut self, key: ConnectionKey, socket: usize, mut batch: BatchOf<E>) {
        // Finished work makes space: one receive call returns more batches than the pool may have
        // in flight.
        self.take_finished(None);
        let len_bytes = batch.len_bytes();
        self.begin_arrival(key, len_bytes);
        let Some(entry) = self.entries.get_mut(key.0) else { return self.drop_late(batch.packet_count()) };
        let now = self.env.now();
        self.env.lap(Activity::Route);
        let mut job = self.offload.spare_job();
        self.visited = Some(key);
        if entry.connection.begin_open(now, socket, &batch, &mut job) {
            let flow = PathFlow { key, path: job.path(), direction: Direction::In };
            let connection = ConnectionRef { key, cell: Arc::clone(&entry.cell) };
            if self.has_more_arrivals {
                match self.offload.open(now, flow, &connection, job, batch) {
                    Ok(()) => return self.visited = None,
                    Err(refused) => (job, batch) = refused,
                }
            }
            job.open(&mut batch);
            if let Err((mut job, batch)) = self.offload.queue_opened(now, flow, &connection, job, batch) {
                let now = self.env.now();
                entry.connection.absorb_opened(now, &mut job, batch);
                self.offload.keep_job(job);
                self.schedule(key);
            }
        } else {
            self.offload.keep_job(job);
            entry.connection.absorb(now, socket, batch);
            self.schedule(key);
        }
        self.visited = None;
        self.env.lap(Activity::OpenAbsorb);
        self.end_arrival(key, len_bytes);
    }
}
