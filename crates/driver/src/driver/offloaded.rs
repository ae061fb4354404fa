//! Processes the events of workers: reports about sent packets, batches from their sockets, and
//! events of receive halves.

use super::Driver;
use crate::activity::Activity;
use crate::env::Env;
use crate::in_flight::InFlightBatch;
use crate::offload::{Arrival, Offload, ReceiveHalfEvent, SendReport};
use crate::protocol::{Batch, Connection, ConnectionKey, EndReason, Protocol, SocketsLost};

/// Maximum number of events of receive halves that are taken at a time: the size of their ring.
const UPDATES_MAX: usize = 512;

impl<E: Env> Driver<E> {
    /// Processes the events of workers in this turn. Returns the number of batches and reports.
    pub(super) fn receive_from_workers(&mut self) -> usize {
        self.take_reports();
        if self.is_receiver_paused {
            // A connection has panicked before all of the work was done for which the worker
            // paused.
            self.detach_all();
        }
        let updates = self.take_half_events();
        self.offload.begin_arrivals();
        updates + self.take_arrivals()
    }

    fn take_arrivals(&mut self) -> usize {
        let mut received = 0;
        while let Some(arrival) = self.offload.poll_arrival(self.env.now()) {
            // Reports of all workers go first, because an acknowledgement may arrive on another
            // path than the packets that it acknowledges. Events of receive halves are next,
            // because the half of a batch may have returned before the batch.
            self.take_reports();
            self.take_half_events();
            match arrival {
                Arrival::Batch { socket, batch, has_more } => {
                    received += 1;
                    self.has_more_arrivals = has_more;
                    self.deliver(socket, batch);
                }
                Arrival::Opened { worker, opened, batch, has_more } => {
                    received += 1;
                    self.has_more_arrivals = has_more;
                    self.absorb_leased(worker, opened, batch);
                }
                Arrival::Lost { worker, is_gone, unsent } => self.on_worker_lost(worker, is_gone, unsent),
                Arrival::Back { worker } => self.schedule_waiting_for(worker),
                Arrival::ReceiverLost => self.on_receiver_lost(),
            }
        }
        received
    }

    /// Processes the reports of workers about packets that they send.
    pub(super) fn take_reports(&mut self) {
        while let Some(report) = self.offload.poll_report() {
            match report {
                SendReport::Emitted { batch, at, follows_refusal, worker } => {
                    if let Some(entry) = self.entry_of(&batch.connection) {
                        entry.connection.handle_emitted(at, &batch.contents);
                        if !follows_refusal {
                            entry.on_taken();
                        }
                        self.schedule(batch.connection.key);
                    }
                    self.schedule_waiting_for(worker);
                }
                SendReport::EmittedLate { batch, at } => {
                    if let Some(entry) = self.entry_of(&batch.connection) {
                        entry.connection.handle_emitted(at, &batch.contents);
                        self.schedule(batch.connection.key);
                    }
                }
                SendReport::Refused { batch, at, error } => self.on_late_refusal(at, &batch, &error),
            }
        }
    }

    /// Absorbs a batch that a worker opened with a lease.
    fn absorb_leased(
        &mut self,
        worker: usize,
        opened: InFlightBatch<E::Protocol, Box<<E::Protocol as Protocol>::OpenJob>>,
        batch: <E::Protocol as Protocol>::Batch,
    ) {
        let InFlightBatch { connection, contents: mut job } = opened;
        let key = connection.key;
        let len_bytes = batch.len_bytes();
        self.begin_arrival(key, len_bytes);
        let now = self.env.now();
        self.env.lap(Activity::Route);
        // The route, and with it the connection, may have been removed since.
        let is_routed = self.protocol.leads_to(&batch, key);
        if is_routed && self.entry_of(&connection).is_some() {
            self.visited = Some(key);
            if let Some(entry) = self.entry_of(&connection) {
                entry.connection.absorb_leased(now, &mut job, batch);
            }
            self.visited = None;
            self.schedule(key);
            self.end_arrival(key, len_bytes);
        } else {
            self.drop_late(batch.packet_count());
        }
        self.offload.return_job(worker, job);
        self.env.lap(Activity::OpenAbsorb);
    }

    /// Schedules, in order, the connections that wait for the sockets of a worker with space.
    fn schedule_waiting_for(&mut self, worker: usize) {
        for index in 0..self.sockets.len() {
            if self.sockets[index].worker() == Some(worker) && self.socket_has_space(index) {
                self.schedule_waiting(index);
            }
        }
    }

    /// Handles a worker that does not respond. Other paths carry the data that the worker held. A
    /// connection without another path ends.
    fn on_worker_lost(&mut self, worker: usize, is_gone: bool, unsent: Vec<InFlightBatch<E::Protocol>>) {
        let now = self.env.now();
        tracing::error!(worker = worker + 1, is_gone, "a worker does not respond: its paths are unusable");
        if is_gone {
            let gone = self.sockets.iter_mut().filter(|slot| slot.worker() == Some(worker));
            gone.for_each(|slot| slot.waiting.clear());
        }
        for batch in unsent {
            if let Some(entry) = self.entry_of(&batch.connection) {
                entry.connection.handle_unsent(&batch.contents);
                self.schedule(batch.connection.key);
            }
        }
        let keys: Vec<u32> = self.entries.keys().collect();
        for key in keys {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            let (sockets, offload) = (&self.sockets, &self.offload);
            let lost = SocketsLost {
                is_lost: &|index| sockets[index].worker() == Some(worker),
                is_served: &|index| {
                    sockets[index].worker().is_none_or(|other| other != worker && !offload.is_gone(other))
                },
                is_gone,
            };
            if entry.connection.handle_sockets_lost(now, &lost) {
                self.schedule(ConnectionKey(key));
            }
        }
    }

    // ── Receive halves on the receive worker ─────────────────────────────────────────────────────

    /// Processes the events of receive halves. Called before a plan is made. Returns the number of
    /// reports.
    pub(super) fn take_half_events(&mut self) -> usize {
        let mut taken = 0;
        for _ in 0..UPDATES_MAX {
            let Some(event) = self.offload.poll_half_event() else { break };
            // An event may concern the acknowledgement of packets that another worker has sent.
            self.take_reports();
            let now = self.env.now();
            match event {
                ReceiveHalfEvent::Report { connection, mut report } => {
                    taken += 1;
                    let visited = self.visited.replace(connection.key);
                    if let Some(entry) = self.entry_of(&connection) {
                        entry.connection.handle_report(now, &mut report);
                        self.schedule(connection.key);
                        self.offload.return_report(report);
                    }
                    self.visited = visited;
                }
                ReceiveHalfEvent::Paused => self.detach_all(),
                ReceiveHalfEvent::Quiet { connection } => {
                    if let Some(entry) = self.entry_of(&connection).filter(|entry| entry.connection.is_detached()) {
                        entry.connection.note_quiet();
                        self.schedule(connection.key);
                    }
                }
                ReceiveHalfEvent::Returned { key, half } => self.attach(key, half),
                ReceiveHalfEvent::Broken { connection } => {
                    if let Some(entry) = self.entry_of(&connection) {
                        let dropped = entry.connection.lose_receive_half(now, EndReason::ProcessorGone);
                        self.note_unrouted(dropped);
                        self.schedule(connection.key);
                    }
                }
            }
            self.env.lap(Activity::OpenAbsorb);
        }
        taken
    }

    /// Attaches a receive half that has returned.
    fn attach(&mut self, key: ConnectionKey, half: <E::Protocol as Protocol>::ReceiveHalf) {
        let now = self.env.now();
        // Its connection may have panicked since, and the key may belong to another connection.
        let Some(entry) = self.entries.get_mut(key.0).filter(|entry| entry.connection.owns(&half)) else { return };
        self.visited = Some(key);
        let deferred = entry.connection.attach(now, half);
        self.visited = None;
        self.schedule(key);
        for (socket, batch) in deferred {
            self.deliver(socket, batch);
        }
    }

    /// Prepares to move the receive half of a connection to the receive worker, if the connection
    /// requests it. The half is not detached at once: the rings still contain batches of it, so the
    /// worker first pauses until the driver has processed them.
    pub(super) fn request_detach(&mut self, key: ConnectionKey) {
        if !self.offload.takes_receive_halves() {
            return;
        }
        let Some(entry) = self.entries.get_mut(key.0) else { return };
        let now = self.env.now();
        if !entry.connection.take_detach_request(now) {
            return;
        }
        if self.detaching.is_empty() {
            self.offload.pause(now);
        }
        self.detaching.push(key);
    }

    /// Detaches all receive halves that are due. Called when the receive worker has paused, after
    /// which no batch of theirs remains in the rings.
    fn detach_all(&mut self) {
        self.is_receiver_paused = true;
        self.offload.begin_all_arrivals();
        self.take_arrivals();
        let now = self.env.now();
        // Oldest first. A panic in one connection leaves the others.
        self.detaching.reverse();
        while let Some(key) = self.detaching.pop() {
            // Events about received data are processed while the half is attached.
            self.visited = Some(key);
            self.process_events(key);
            self.visited = None;
            if !self.offload.takes_receive_halves() {
                continue;
            }
            let entry = self.entries.get_mut(key.0).filter(|entry| !entry.connection.is_detached());
            if let Some(half) = entry.and_then(|entry| entry.connection.detach()) {
                self.offload.detach(now, key, half);
            }
        }
        self.is_receiver_paused = false;
        self.offload.resume(now);
        self.offload.wake();
    }

    /// Sends the pending updates to a detached receive half. Returns false if the ring is full.
    /// Then nothing may be sent, because the answer of the peer could arrive before the update.
    pub(super) fn update_receive_half(&mut self, key: ConnectionKey) -> bool {
        let Some(entry) = self.entries.get_mut(key.0).filter(|entry| entry.connection.has_detached_half()) else {
            // A recalled half gets the updates when it is attached.
            return true;
        };
        if !self.offload.has_space_for_updates() {
            if !self.await_receiver.contains(&key) {
                self.await_receiver.push(key);
            }
            return false;
        }
        let now = self.env.now();
        self.offload.update_receive_half(now, key, &mut entry.connection);
        true
    }

    /// Handles the loss of the receive worker: connections whose receive half ran there end, and
    /// the driver receives for the others.
    fn on_receiver_lost(&mut self) {
        let now = self.env.now();
        tracing::error!("the receive worker does not respond: connections whose receive half it has end");
        for slot in &mut self.sockets {
            if let Some(socket) = slot.as_local_mut().filter(|socket| !socket.receives) {
                socket.receive_here();
            }
        }
        self.offload.receive_instead();
        let keys: Vec<u32> = self.entries.keys().collect();
        for key in keys {
            if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.connection.is_detached()) {
                let dropped = entry.connection.lose_receive_half(now, EndReason::ProcessorGone);
                self.note_unrouted(dropped);
                self.schedule(ConnectionKey(key));
            }
        }
    }
}
