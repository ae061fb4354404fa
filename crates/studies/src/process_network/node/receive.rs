//! The receive side: from the network to the application.

use std::rc::Rc;

use sim::hardware::Process;

use super::super::setup::{Application, micros};
use super::{ACKNOWLEDGE_AFTER, Acknowledgements, CALL_WORDS, Fields, Node, WORD_BYTES};

impl Node {
    pub(super) async fn ip_intrsvc(self: Rc<Self>) {
        loop {
            let packet = self.input.take().await;
            self.work.ip_intrsvc.run(micros(self.setup.costs.ip_intrsvc_us)).await;
            self.hand_over(&self.work.ip_intrsvc, &self.work.ip_demux, &self.to_demux, packet).await;
        }
    }

    pub(super) async fn ip_demux(self: Rc<Self>) {
        loop {
            let packet = self.take_over(&self.work.ip_intrsvc, &self.work.ip_demux, &self.to_demux).await;
            self.work.ip_demux.run(micros(self.setup.costs.ip_demux_us)).await;
            self.hand_over(&self.work.ip_demux, &self.work.tcp_recv, &self.to_tcp, packet).await;
        }
    }

    pub(super) async fn tcp_recv(self: Rc<Self>) {
        let costs = self.setup.costs;
        loop {
            let packet = self.take_over(&self.work.ip_demux, &self.work.tcp_recv, &self.to_tcp).await;
            let checksum = if packet.has_data { costs.checksum_us } else { 0.0 };
            self.work.tcp_recv.run(micros(costs.tcp_recv_us + checksum)).await;
            {
                let mut fields = self.receive_side.borrow_mut();
                fields.acknowledged = fields.acknowledged.max(packet.acknowledged);
                fields.edge = fields.edge.max(packet.edge);
                fields.received += u64::from(packet.has_data);
                self.handed_up.set(self.handed_up.get() + u64::from(packet.has_data));
            }
            self.poke_transmit_side().await;
            if !packet.has_data {
                continue;
            }
            // There is room: nobody sends beyond the edge.
            self.received.put(()).await;
            self.handed_up.set(self.handed_up.get() - 1);
            let waiting = self.receive_side.borrow().received - self.told.get();
            if waiting >= u64::from(self.setup.acknowledge_every) {
                self.count(|counts| counts.by_receipt += 1);
                self.call_for_acknowledgement(&self.work.tcp_recv).await;
            }
        }
    }

    pub(super) async fn user_task(self: Rc<Self>) {
        let costs = self.setup.costs;
        let cost = match self.setup.application {
            Application::OnAdapter => costs.user_task_us + costs.copy_us(),
            Application::OnWorkstation { .. } => costs.user_task_us,
            Application::None => 0.0,
        };
        loop {
            self.received.take().await;
            self.handed_up.set(self.handed_up.get() + 1);
            self.work.user_task.run(micros(cost)).await;
            self.read.put(()).await;
            self.handed_up.set(self.handed_up.get() - 1);
        }
    }

    /// The workstation takes what was received; in scenario 1 there is nothing left to do.
    pub(super) async fn reading_workstation(self: Rc<Self>) {
        loop {
            self.read.take().await;
            self.handed_up.set(self.handed_up.get() + 1);
            if let Application::OnWorkstation { us_per_segment } = self.setup.application
                && us_per_segment > 0.0
            {
                self.workstation.serve(micros(us_per_segment)).await;
            }
            self.handed_up.set(self.handed_up.get() - 1);
            self.delivered.set(self.delivered.get() + 1);
            self.delivered_at.set(self.sim.now());
            self.receive_side.borrow_mut().read += 1;
            if self.must_open_the_window() {
                self.count(|counts| counts.by_reading += 1);
                self.call_for_acknowledgement(&self.work.user_task).await;
            }
        }
    }

    /// Whether the application has read enough for a packet of its own, and no acknowledgement of data will tell the peer, because it
    /// knows of no room for as many.
    fn must_open_the_window(&self) -> bool {
        let every = u64::from(self.setup.acknowledge_every);
        let (read, told_read) = (self.receive_side.borrow().read, self.told_read.get());
        read - told_read >= every && self.told.get() + every > told_read + u64::from(self.setup.window)
    }

    /// Acknowledges what nobody else did in time.
    pub(super) async fn rtask(self: Rc<Self>) {
        loop {
            let due = self.told_at.get() + ACKNOWLEDGE_AFTER;
            if self.sim.now() < due {
                self.sim.sleep_until(due).await;
                continue;
            }
            if self.receive_side.borrow().received > self.told.get() {
                self.count(|counts| counts.by_timer += 1);
                self.call_for_acknowledgement(&self.work.user_task).await;
            }
            self.sim.sleep(ACKNOWLEDGE_AFTER).await;
        }
    }

    /// Tells the transmit side what the receive side has written: at once if they share a memory, field by field if not.
    async fn poke_transmit_side(&self) {
        if self.is_whole() || self.setup.pokes == 0 {
            self.update_transmit_side(*self.receive_side.borrow());
            return;
        }
        for index in 1..=self.setup.pokes {
            self.work.tcp_recv.run(micros(self.setup.costs.poke_us)).await;
            // The last one completes them.
            let fields = (index == self.setup.pokes).then(|| *self.receive_side.borrow());
            self.pokes.send(fields, WORD_BYTES).await;
        }
    }

    /// Asks the transmit side for an acknowledgement, and waits for its word that it will be sent.
    async fn call_for_acknowledgement(&self, caller: &Process) {
        let fields = *self.receive_side.borrow();
        self.hear(fields);
        if self.is_whole() || self.setup.pokes == 0 {
            self.must_acknowledge.set(true);
            self.update_transmit_side(fields);
            return;
        }
        caller.run(micros(self.setup.costs.poke_us)).await;
        self.calls.send(fields, CALL_WORDS * WORD_BYTES).await;
        self.answers.receive().await;
    }

    pub(super) async fn peek_poke_of_receive_side(self: Rc<Self>) {
        loop {
            let told = self.pokes_back.receive().await;
            self.work.peek_poke[0].run(micros(self.setup.poked_us)).await;
            if let Some(told) = told {
                self.hear(told);
            }
        }
    }

    /// The receive side learns what has been acknowledged and granted.
    pub(super) fn hear(&self, told: Fields) {
        self.told_read.set(self.told_read.get().max(told.read));
        if told.received > self.told.get() {
            self.told.set(told.received);
            self.told_at.set(self.sim.now());
        }
    }

    fn count(&self, change: impl FnOnce(&mut Acknowledgements)) {
        let mut counts = self.acknowledgements.get();
        change(&mut counts);
        self.acknowledgements.set(counts);
    }
}
