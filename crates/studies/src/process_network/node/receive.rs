//! The receive side, from the network to the application.

use std::rc::Rc;

use sim::hardware::Process;

use super::super::setup::{Application, micros};
use super::{ACKNOWLEDGE_AFTER, Acknowledgements, CALL_WORDS, Fields, Node, WORD_BYTES};

impl Node {
    pub(super) async fn ip_intrsvc(self: Rc<Self>) {
        loop {
            let packet = self.input.take().await;
            self.work.ip_intrsvc.run(micros(self.setup.costs.ip_intrsvc_us)).await;
            self.handoff(&self.work.ip_intrsvc, &self.work.ip_demux, &self.to_demux, packet).await;
        }
    }

    pub(super) async fn ip_demux(self: Rc<Self>) {
        loop {
            let packet = self.receive_handoff(&self.work.ip_intrsvc, &self.work.ip_demux, &self.to_demux).await;
            self.work.ip_demux.run(micros(self.setup.costs.ip_demux_us)).await;
            self.handoff(&self.work.ip_demux, &self.work.tcp_recv, &self.to_tcp, packet).await;
        }
    }

    pub(super) async fn tcp_recv(self: Rc<Self>) {
        let costs = self.setup.costs;
        loop {
            let packet = self.receive_handoff(&self.work.ip_demux, &self.work.tcp_recv, &self.to_tcp).await;
            let checksum = if packet.has_data { costs.checksum_us } else { 0.0 };
            self.work.tcp_recv.run(micros(costs.tcp_recv_us + checksum)).await;
            {
                let mut fields = self.receive_side.borrow_mut();
                fields.acknowledged = fields.acknowledged.max(packet.acknowledged);
                fields.edge = fields.edge.max(packet.edge);
                fields.received += u64::from(packet.has_data);
                self.being_delivered.set(self.being_delivered.get() + u64::from(packet.has_data));
            }
            self.poke_transmit_side().await;
            if !packet.has_data {
                continue;
            }
            // There is space: the peer does not send beyond the edge.
            self.received.put(()).await;
            self.being_delivered.set(self.being_delivered.get() - 1);
            let waiting = self.receive_side.borrow().received - self.reported.get();
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
            self.being_delivered.set(self.being_delivered.get() + 1);
            self.work.user_task.run(micros(cost)).await;
            self.read.put(()).await;
            self.being_delivered.set(self.being_delivered.get() - 1);
        }
    }

    /// Takes received segments in the workstation; does nothing in scenario 1.
    pub(super) async fn reading_workstation(self: Rc<Self>) {
        loop {
            self.read.take().await;
            self.being_delivered.set(self.being_delivered.get() + 1);
            if let Application::OnWorkstation { us_per_segment } = self.setup.application
                && us_per_segment > 0.0
            {
                self.workstation.serve(micros(us_per_segment)).await;
            }
            self.being_delivered.set(self.being_delivered.get() - 1);
            self.delivered.set(self.delivered.get() + 1);
            self.delivered_at.set(self.sim.now());
            self.receive_side.borrow_mut().read += 1;
            if self.must_open_the_window() {
                self.count(|counts| counts.by_reading += 1);
                self.call_for_acknowledgement(&self.work.user_task).await;
            }
        }
    }

    /// Returns whether the application has read enough for a window update. This is needed if no
    /// acknowledgement of data will carry it, because the peer knows of no space for that many
    /// segments.
    fn must_open_the_window(&self) -> bool {
        let every = u64::from(self.setup.acknowledge_every);
        let (read, reported_read) = (self.receive_side.borrow().read, self.reported_read.get());
        read - reported_read >= every && self.reported.get() + every > reported_read + u64::from(self.setup.window)
    }

    /// Acknowledges unacknowledged data when the timer expires.
    pub(super) async fn rtask(self: Rc<Self>) {
        loop {
            let due = self.reported_at.get() + ACKNOWLEDGE_AFTER;
            if self.sim.now() < due {
                self.sim.sleep_until(due).await;
                continue;
            }
            if self.receive_side.borrow().received > self.reported.get() {
                self.count(|counts| counts.by_timer += 1);
                self.call_for_acknowledgement(&self.work.user_task).await;
            }
            self.sim.sleep(ACKNOWLEDGE_AFTER).await;
        }
    }

    /// Passes the fields of the receive side to the transmit side: at once with shared memory,
    /// field by field otherwise.
    async fn poke_transmit_side(&self) {
        if self.is_whole() || self.setup.pokes == 0 {
            self.update_transmit_side(*self.receive_side.borrow());
            return;
        }
        for index in 1..=self.setup.pokes {
            self.work.tcp_recv.run(micros(self.setup.costs.poke_us)).await;
            // The last one completes the update.
            let fields = (index == self.setup.pokes).then(|| *self.receive_side.borrow());
            self.pokes.send(fields, WORD_BYTES).await;
        }
    }

    /// Requests an acknowledgement from the transmit side, and waits for its confirmation.
    async fn call_for_acknowledgement(&self, caller: &Process) {
        let fields = *self.receive_side.borrow();
        self.update_receive_side(fields);
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
            let reported = self.pokes_back.receive().await;
            self.work.peek_poke[0].run(micros(self.setup.poked_us)).await;
            if let Some(reported) = reported {
                self.update_receive_side(reported);
            }
        }
    }

    /// Updates the receive side with acknowledged segments and the granted window.
    pub(super) fn update_receive_side(&self, reported: Fields) {
        self.reported_read.set(self.reported_read.get().max(reported.read));
        if reported.received > self.reported.get() {
            self.reported.set(reported.received);
            self.reported_at.set(self.sim.now());
        }
    }

    fn count(&self, change: impl FnOnce(&mut Acknowledgements)) {
        let mut counts = self.acknowledgements.get();
        change(&mut counts);
        self.acknowledgements.set(counts);
    }
}
