//! Makes plans, has them sealed by the driver or by workers, and sends them.

use std::cell::Cell;
use std::sync::Arc;

use units::Instant;

use super::limits::PLAN_PACKETS_MAX;
use super::{Driver, Flush};
use crate::activity::Activity;
use crate::entry::ConnectionEntry;
use crate::env::Env;
use crate::in_flight::{ConnectionRef, InFlightBatch, Receipt};
use crate::offload::{Direction, Finished, Offload, PathFlow};
use crate::protocol::{Batch, Connection, ConnectionKey, Plan, Protocol};
use crate::socket::{SendError, Sent, Socket, SocketPlace};

/// Limit of batches that a connection sends in one visit: at most 256 packets.
pub(crate) const PLANS_PER_VISIT: usize = 4;

/// The data that a connection still has to send after a visit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remaining {
    /// No data, or none that may be sent now.
    Nothing,
    /// More than a visit allows, or a [corked](Flush::Cork) tail.
    More,
    /// More than the sockets accept.
    NoSpace,
}

impl<E: Env> Driver<E> {
    /// Makes and sends at most `plans_max` plans of a connection. Returns the number of plans.
    pub(super) fn send_plans(&mut self, key: ConnectionKey, flush: Flush, plans_max: usize) -> (usize, Remaining) {
        let Some(entry) = self.entries.get_mut(key.0) else { return (0, Remaining::Nothing) };
        if entry.refused_until.is_some_and(|until| until > self.env.now()) {
            return (0, Remaining::Nothing);
        }
        // The wait is over, even if there is nothing to send: a deadline in the past would fire in
        // every turn.
        entry.refused_until = None;
        if let Some(sealers) = self.offload.sealers() {
            return self.send_through_pool(key, plans_max, sealers);
        }
        let mut sent = 0;
        // The packet limit of the last plan, if the plan was full.
        let mut was_full = None;
        for _ in 0..plans_max {
            if let Some(packets_max) = was_full.filter(|_| flush == Flush::Cork)
                && self.has_only_a_tail(key, packets_max)
            {
                return (sent, Remaining::More);
            }
            if let Err(left) = self.make_plan(key) {
                return (sent, left);
            }
            sent += 1;
            let packets_max = self.plan.socket().map_or(PLAN_PACKETS_MAX, |index| self.batch_max(index));
            was_full = self.plan.is_full(packets_max).then_some(packets_max);
            if let Some(worker) = self.plan.socket().and_then(|index| self.sockets[index].worker()) {
                self.send_by_worker(key, worker);
                continue;
            }
            let is_background = self.plan.is_background();
            let (index, receipt) = (self.plan.socket(), receipt_of::<E>(&self.plan));
            let mut packets = std::mem::take(&mut self.packets);
            self.plan.seal_once(&mut packets);
            let may_continue = self.emit(key, index, &receipt, &mut packets);
            self.packets = packets;
            if !may_continue {
                return (sent, Remaining::Nothing);
            }
            if is_background && self.interactive.wants_pause(self.env.now()) {
                break;
            }
        }
        (sent, Remaining::More)
    }

    /// Returns the number of packets that a socket accepts at a time.
    fn batch_max(&self, index: usize) -> usize {
        match &self.sockets[index].place {
            SocketPlace::Local(socket) => socket.socket.batch_max().min(PLAN_PACKETS_MAX),
            SocketPlace::Offloaded { batch_max, .. } => *batch_max,
        }
    }

    /// Makes plans of a connection for the crypto pool. Workers with space seal all but the last of
    /// a visit.
    fn send_through_pool(&mut self, key: ConnectionKey, mut plans_max: usize, sealers: usize) -> (usize, Remaining) {
        let mut planned = 0;
        let mut kept: Option<Arc<<E::Protocol as Protocol>::Plan>> = None;
        let left = loop {
            // Finished plans are sent first, which makes space. Reports show whether workers have
            // space.
            self.take_reports();
            self.take_finished(Some(key));
            if self.offload.is_full() {
                if self.offload.make_space() {
                    continue;
                }
                if !self.await_pool.contains(&key) {
                    self.await_pool.push(key);
                }
                break Remaining::Nothing;
            }
            if planned >= plans_max * sealers {
                break Remaining::More;
            }
            if let Err(left) = self.make_plan(key) {
                break left;
            }
            planned += 1;
            if self.plan.is_background() && self.interactive.wants_pause(self.env.now()) {
                // Make one plan for each processor.
                plans_max = 1;
            }
            if let Some(worker) = self.plan.socket().and_then(|index| self.sockets[index].worker()) {
                self.send_by_worker(key, worker);
                continue;
            }
            let plan = Arc::new(std::mem::replace(&mut self.plan, self.offload.spare_plan()));
            if let Some(plan) = kept.replace(plan) {
                self.seal_plan(key, plan, true);
            }
        };
        if let Some(plan) = kept {
            self.seal_plan(key, plan, false);
        }
        (planned, left)
    }

    /// Seals a plan: on another processor if it may be offloaded and one has space, otherwise on
    /// this one.
    fn seal_plan(&mut self, key: ConnectionKey, mut plan: Arc<<E::Protocol as Protocol>::Plan>, may_offload: bool) {
        let Some(entry) = self.entries.get_mut(key.0) else { return };
        let flow = PathFlow { key, path: plan.path(), direction: Direction::Out };
        let connection = ConnectionRef { key, cell: Arc::clone(&entry.cell) };
        if may_offload {
            let now = self.env.now();
            match self.offload.seal(now, flow, &connection, plan) {
                Ok(()) => return self.env.lap(Activity::Route),
                Err(refused) => plan = refused,
            }
        }
        let mut packets = self.offload.spare_packets();
        plan.seal(&mut packets);
        self.env.lap(Activity::Seal);
        let has_space = plan.socket().is_none_or(|index| self.socket_has_space(index));
        let now = self.env.now();
        if let Err((plan, mut packets)) = self.offload.queue_sealed(now, flow, &connection, plan, packets, has_space) {
            self.emit(key, plan.socket(), &receipt_of::<E>(&plan), &mut packets);
            self.offload.keep_sealed(plan, packets);
        }
    }

    /// Passes the plan to the worker that serves its socket.
    fn send_by_worker(&mut self, key: ConnectionKey, worker: usize) {
        let Some(entry) = self.entries.get_mut(key.0) else { return };
        let now = self.env.now();
        let connection = ConnectionRef { key, cell: Arc::clone(&entry.cell) };
        self.offload.send(now, worker, connection, &mut self.plan);
        self.env.lap(Activity::Route);
    }

    fn has_only_a_tail(&mut self, key: ConnectionKey, packets_max: usize) -> bool {
        self.entries.get_mut(key.0).is_some_and(|entry| entry.connection.has_only_a_tail(packets_max))
    }

    /// Fills the plan with packets that the connection may send now.
    ///
    /// Returns the reason if there are none.
    fn make_plan(&mut self, key: ConnectionKey) -> Result<(), Remaining> {
        let Some(entry) = self.entries.get_mut(key.0) else { return Err(Remaining::Nothing) };
        let is_full = Cell::new(false);
        let (sockets, offload) = (&self.sockets, &self.offload);
        let space = |index: usize| {
            let (has_space, batch_max) = match &sockets[index].place {
                SocketPlace::Local(socket) => (socket.has_space(), socket.socket.batch_max()),
                SocketPlace::Offloaded { worker, batch_max } => (offload.has_space(*worker), *batch_max),
            };
            is_full.set(is_full.get() || !has_space);
            if has_space { batch_max } else { 0 }
        };
        let is_planned = entry.connection.poll_plan(self.env.now(), &space, &mut self.plan);
        self.env.lap(Activity::Plan);
        match is_planned {
            true => {
                let now = self.env.now();
                if entry.connection.has_detached_half() && entry.connection.must_update_half() {
                    // Space for the update is reserved.
                    self.offload.update_receive_half(now, key, &mut entry.connection);
                    self.env.lap(Activity::HandOver);
                }
                Ok(())
            }
            false if is_full.get() => Err(Remaining::NoSpace),
            false => Err(Remaining::Nothing),
        }
    }

    /// Sends sealed packets. Returns false if the connection may not send more now.
    fn emit(
        &mut self,
        key: ConnectionKey,
        socket: Option<usize>,
        receipt: &Receipt<E::Protocol>,
        packets: &mut <E::Protocol as Protocol>::Sealed,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(key.0) else { return false };
        let now = self.env.now();
        self.env.lap(Activity::Seal);
        self.env.note_sent(packets);
        // The report precedes the system call, so that no acknowledgement overtakes it.
        entry.connection.handle_emitted(now, receipt);
        let Some(index) = socket else { return true };
        self.env.lap(Activity::Report);
        let Some(socket) = self.sockets[index].as_local_mut() else { return true };
        let cell = &entry.cell;
        let owner = || Some(InFlightBatch::new(ConnectionRef { key, cell: Arc::clone(cell) }, receipt.clone()));
        // A panic in the socket is not the fault of the connection.
        let visited = self.visited.take();
        let outcome = socket.send(now, packets, owner);
        self.visited = visited;
        self.env.lap(Activity::SendCall);
        match outcome {
            Sent::Taken => {
                entry.on_taken();
                true
            }
            Sent::Lost(error) => on_not_emitted::<E>(entry, now, receipt, &error),
        }
    }

    /// Processes the finished work of the pool in order. If `only` is given, processes the work of
    /// that connection alone.
    pub(super) fn take_finished(&mut self, only: Option<ConnectionKey>) {
        if self.offload.sealers().is_none() {
            return;
        }
        // A panic here may be the fault of a connection other than the visited one.
        let visited = self.visited.take();
        self.offload.collect(self.env.now());
        self.visited = visited;
        loop {
            let (sockets, offload) = (&self.sockets, &mut self.offload);
            let has_space = |index: usize| sockets[index].as_local().is_none_or(|socket| socket.has_space());
            let Some(finished) = offload.poll_finished(only, &has_space) else { break };
            match finished {
                Finished::Sealed { connection, plan, packets } => {
                    let key = connection.key;
                    if self.entry_of(&connection).is_some() {
                        let visited = self.visited.replace(key);
                        let mut packets = packets.unwrap_or_else(|| {
                            let mut packets = self.offload.spare_packets();
                            plan.seal(&mut packets);
                            packets
                        });
                        self.emit(key, plan.socket(), &receipt_of::<E>(&plan), &mut packets);
                        self.visited = visited;
                        self.offload.keep_sealed(plan, packets);
                    }
                    self.schedule(key);
                }
                Finished::Opened { connection, mut job, batch } => {
                    let (key, now) = (connection.key, self.env.now());
                    let visited = self.visited.replace(key);
                    if let Some(entry) = self.entry_of(&connection) {
                        entry.connection.absorb_opened(now, &mut job, batch);
                    } else {
                        self.drop_late(batch.packet_count());
                    }
                    self.visited = visited;
                    self.offload.keep_job(job);
                    self.env.lap(Activity::OpenAbsorb);
                    self.schedule(key);
                }
                Finished::Lost { key } => self.schedule(key),
                Finished::Ran { connection, job, output } => self.finish_job(&connection, &job, output),
            }
        }
        if !self.await_pool.is_empty() && !self.offload.is_full() {
            std::mem::take(&mut self.await_pool).into_iter().for_each(|key| self.schedule(key));
        }
    }

    /// Retries a socket that may have space again.
    pub(super) fn retry_socket(&mut self, now: Instant, index: usize) {
        // Round trips are measured from now, because the packets were not sent when they were
        // planned.
        let held = self.sockets[index].as_local().and_then(|socket| socket.held().cloned()).flatten();
        if let Some(batch) = &held
            && let Some(entry) = self.entry_of(&batch.connection)
        {
            entry.connection.handle_emitted(now, &batch.contents);
        }
        let refused = self.sockets[index].as_local_mut().and_then(|socket| socket.retry(now));
        if let Some((Some(batch), error)) = refused {
            self.on_late_refusal(now, &batch, &error);
        }
        if self.socket_has_space(index) {
            self.schedule_waiting(index);
        }
    }

    /// Handles a batch that waited for socket space and will not be sent.
    pub(super) fn on_late_refusal(&mut self, now: Instant, batch: &InFlightBatch<E::Protocol>, error: &SendError) {
        if let Some(entry) = self.entry_of(&batch.connection) {
            tracing::debug!(%error, "a batch that waited for socket space was dropped");
            on_not_emitted::<E>(entry, now, &batch.contents, error);
            self.schedule(batch.connection.key);
        }
    }

    /// Schedules, in order, the connections that wait for a socket.
    pub(super) fn schedule_waiting(&mut self, index: usize) {
        while let Some(key) = self.sockets[index].waiting.pop_front() {
            // The key may have been reused for another connection, whose visit does no harm.
            if let Some(entry) = self.entries.get_mut(key.0) {
                entry.awaits_space &= !(1 << index);
                self.schedule(key);
            }
        }
    }

    /// Returns the entry of this connection, unless it was removed.
    pub(super) fn entry_of(
        &mut self,
        connection: &ConnectionRef<E::Protocol>,
    ) -> Option<&mut ConnectionEntry<E::Protocol>> {
        self.entries.get_mut(connection.key.0).filter(|entry| Arc::ptr_eq(&entry.cell, &connection.cell))
    }
}

fn receipt_of<E: Env>(plan: &<E::Protocol as Protocol>::Plan) -> Receipt<E::Protocol> {
    <E::Protocol as Protocol>::Connection::receipt(plan)
}

/// Reports to the connection that the system refused a batch. This is not a loss in the network:
/// the same content is planned again. Returns true if that may happen at once.
pub(super) fn on_not_emitted<E: Env>(
    entry: &mut ConnectionEntry<E::Protocol>,
    now: Instant,
    receipt: &Receipt<E::Protocol>,
    error: &SendError,
) -> bool {
    let may_continue = entry.connection.handle_not_emitted(now, receipt, error);
    if !may_continue {
        tracing::debug!(%error, "a batch was dropped");
        entry.on_refused(now);
    }
    may_continue
}
