//! The driver with other processors: what it gives them, and how it carries on with what they have done.
//!
//! A batch goes to another processor only while there is more to do: a single one is done here, so what comes alone is never
//! handed over, and the driver is a processor like the others.

use std::sync::Arc;

use net::RecvMeta;
use quic::{ConnectionKey, PathId, Plan, ReceiveBuffer, seal};

use super::Driver;
use super::transmit::Left;
use crate::arrival::arrived_at;
use crate::meter::Stage;
use crate::port::NearPort;
use crate::receive::Arrived;
use crate::stage::{Finished, Job, Lane, Way};

/// Received batches smaller than this are opened here: opening them takes no longer than handing them over, a microsecond.
const OPEN_ELSEWHERE_FROM: usize = 8 << 10;

/// Plans with fewer datagrams are sealed here, for the same reason.
const SEAL_ELSEWHERE_FROM: usize = 6;

impl Driver {
    /// Whether anything more may be taken in: what is under way is bounded.
    pub(super) fn takes_more(&self) -> bool {
        self.stage.as_ref().is_none_or(|stage| !stage.has_enough_to_open())
    }

    /// Plans of a connection, sealed by whoever has room: all but the last of a visit by others.
    pub(super) fn send_by_stage(&mut self, key: ConnectionKey, mut plans_max: usize) -> (usize, Left) {
        let mut planned = 0;
        let mut kept: Option<Arc<Plan>> = None;
        let left = loop {
            // What became due meanwhile goes first, and makes room. Whether processors have room is known from their reports.
            self.take_all_reports();
            self.carry_on();
            let Some(stage) = &mut self.stage else { break Left::Nothing };
            if stage.is_full() {
                // Processors of paths have their own work, and help no sooner than they come to it: nobody waits for that.
                if !self.processors.is_empty() && stage.take_back_awaited() {
                    continue;
                }
                if !self.await_stage.contains(&key) {
                    self.await_stage.push(key);
                }
                break Left::Nothing;
            }
            if planned >= plans_max * stage.processors() {
                break Left::More;
            }
            if let Err(left) = self.plan(key) {
                break left;
            }
            planned += 1;
            if self.plan.is_background() && self.courtesy.wants_pause(self.clock.now()) {
                // One for each processor.
                plans_max = 1;
            }
            if let Some(processor) =
                self.plan.addresses.and_then(|ends| self.ports[usize::from(ends.socket)].processor())
            {
                self.send_there(key, processor);
                continue;
            }
            let Some(stage) = &mut self.stage else { break Left::Nothing };
            let plan = Arc::new(std::mem::replace(&mut self.plan, stage.spare_plan()));
            if let Some(plan) = kept.replace(plan) {
                self.seal_plan(key, plan, true);
            }
        };
        if let Some(plan) = kept {
            self.seal_plan(key, plan, false);
        }
        (planned, left)
    }

    /// A plan is sealed by another processor, if there `may` be one and it has room, or here.
    fn seal_plan(&mut self, key: ConnectionKey, plan: Arc<Plan>, may: bool) {
        let (Some(stage), Some(slot)) = (&mut self.stage, self.slots.get_mut(key.0)) else { return };
        let lane = Lane { key, path: plan.path, way: Way::Out };
        let cell = Arc::clone(&slot.cell);
        let mut sealed = stage.spare_buffer();
        for (index, processor) in self.processors.iter().enumerate() {
            stage.set_load(index, processor.send_count());
        }
        if may && plan.datagram_count() >= SEAL_ELSEWHERE_FROM && stage.has_room() {
            stage.give(self.clock.now(), lane, cell, Job::Seal { plan, sealed });
            self.shared.lap(Stage::Route);
            return;
        }
        seal(&plan, &mut sealed);
        self.shared.lap(Stage::Seal);
        if stage.is_busy(lane) || !self.ports_have_room(&plan) {
            let now = self.clock.now();
            if let Some(stage) = &mut self.stage {
                stage.put(now, lane, cell, Finished::Sealed { plan, sealed });
            }
            return;
        }
        self.emit(key, &plan, &sealed);
        if let Some(stage) = &mut self.stage {
            stage.keep(plan, sealed);
        }
    }

    fn ports_have_room(&self, plan: &Plan) -> bool {
        plan.addresses.is_none_or(|addresses| self.port_has_room(usize::from(addresses.socket)))
    }

    /// Datagrams of a connection are opened by another processor if it has room, or here.
    pub(super) fn open_by_stage(&mut self, port: usize, key: ConnectionKey, meta: &RecvMeta, mut batch: Arrived) {
        // What is done makes room for more: one call to a socket brings more batches than workers may have.
        self.carry_on();
        let (Some(stage), Some(slot)) = (&mut self.stage, self.slots.get_mut(key.0)) else { return };
        let now = self.clock.now();
        let len = batch.bytes().len();
        self.shared.lap(Stage::Route);
        let mut open = stage.spare_open();
        let addresses = arrived_at(port, meta);
        self.attended = Some(key);
        if !slot.connection.begin_open(now, addresses, batch.bytes(), meta.stride, &mut open) {
            slot.connection.handle_datagrams(now, addresses, batch, meta.stride);
            self.attended = None;
            self.shared.lap(Stage::OpenAbsorb);
            self.schedule(key);
            self.tell_of_little(key, len);
            return;
        }
        let lane = Lane { key, path: open.path().unwrap_or(PathId::ZERO), way: Way::In };
        let cell = Arc::clone(&slot.cell);
        if self.others_may_open && len >= OPEN_ELSEWHERE_FROM && stage.has_room() {
            stage.give(now, lane, cell, Job::Open { open, batch });
            self.attended = None;
            return;
        }
        open.open(batch.bytes_mut());
        if stage.is_busy(lane) {
            stage.put(now, lane, cell, Finished::Opened { open, batch });
        } else {
            slot.connection.handle_opened(self.clock.now(), &mut open, &batch.freeze());
            stage.keep_open(open);
            self.schedule(key);
        }
        self.attended = None;
        self.shared.lap(Stage::OpenAbsorb);
        self.tell_of_little(key, len);
    }

    /// Carries on, in order, with what was done by other processors.
    pub(super) fn carry_on(&mut self) {
        let now = self.clock.now();
        match &mut self.stage {
            Some(stage) if !stage.is_empty() || stage.has_news() => stage.collect(now),
            _ => return,
        }
        loop {
            let Some(stage) = &mut self.stage else { return };
            let ports = &self.ports;
            let may_go = |finished: &Finished| match finished {
                Finished::Sealed { plan, .. } => {
                    let port = plan.addresses.map(|addresses| &ports[usize::from(addresses.socket)]);
                    port.and_then(|port| port.as_near()).is_none_or(NearPort::has_room)
                }
                Finished::Opened { .. } | Finished::Lost => true,
            };
            let Some((lane, cell, finished)) = stage.take(may_go) else { break };
            // The connection may be gone, and its key another's.
            let slot = self.slots.get_mut(lane.key.0).filter(|slot| Arc::ptr_eq(&slot.cell, &cell));
            // Whoever was attended to when this was called goes on afterwards.
            let attended = std::mem::replace(&mut self.attended, slot.is_some().then_some(lane.key));
            match (finished, slot) {
                (Finished::Sealed { plan, sealed }, slot) => {
                    if slot.is_some() {
                        self.emit(lane.key, &plan, &sealed);
                    }
                    if let Some(stage) = &mut self.stage {
                        stage.keep(plan, sealed);
                    }
                }
                (Finished::Opened { mut open, batch }, slot) => {
                    if let Some(slot) = slot {
                        slot.connection.handle_opened(self.clock.now(), &mut open, &batch.freeze());
                    }
                    stage.keep_open(open);
                    self.shared.lap(Stage::OpenAbsorb);
                }
                (Finished::Lost, _) => {}
            }
            self.attended = attended;
            self.schedule(lane.key);
        }
        if self.stage.as_ref().is_none_or(|stage| !stage.is_full()) {
            for key in std::mem::take(&mut self.await_stage) {
                self.schedule(key);
            }
        }
    }
}
