//! The transmit side, from the application to the network.

use std::rc::Rc;

use super::super::setup::{Application, Mover, micros};
use super::{CALL_WORDS, Fields, HEADER_WORDS, Node, Packet, WORD_BYTES};

impl Node {
    pub(super) async fn write(self: Rc<Self>) {
        let costs = self.setup.costs;
        let cost = match self.setup.application {
            Application::OnAdapter => costs.write_us + costs.copy_us(),
            Application::OnWorkstation { .. } => costs.write_us,
            Application::None => 0.0,
        };
        loop {
            self.sim.sleep(micros(self.setup.pause_us)).await;
            self.send_buffer.put(()).await;
            self.written.set(self.written.get() + 1);
            self.in_progress.set(self.in_progress.get() + 1);
            if let Application::OnWorkstation { us_per_segment } = self.setup.application
                && us_per_segment > 0.0
            {
                self.workstation.serve(micros(us_per_segment)).await;
            }
            self.work.write.run(micros(cost)).await;
            self.in_progress.set(self.in_progress.get() - 1);
            self.unsent.set(self.unsent.get() + 1);
            self.ring_doorbell();
        }
    }

    pub(super) async fn xtask(self: Rc<Self>) {
        let costs = self.setup.costs;
        let mut freed = 0;
        loop {
            self.doorbell.take().await;
            loop {
                let fields = *self.transmit_side.borrow();
                while freed < fields.acknowledged {
                    self.send_buffer.try_take().expect("acknowledged segments were in the buffer");
                    freed += 1;
                    self.freed.set(freed);
                }
                let has_data = self.unsent.get() > 0 && self.sent.get() < fields.edge;
                if !has_data && !self.must_acknowledge.get() {
                    break;
                }
                if has_data {
                    self.unsent.set(self.unsent.get() - 1);
                    self.sent.set(self.sent.get() + 1);
                }
                let checksum = if has_data { costs.checksum_us } else { 0.0 };
                self.work.xtask.run(micros(costs.tcp_snd_data_us + checksum)).await;
                self.must_acknowledge.set(false);
                let fields = *self.transmit_side.borrow();
                let edge = fields.read + u64::from(self.setup.window);
                let packet = Packet { has_data, acknowledged: fields.received, edge };
                self.poke_receive_side(fields).await;
                self.handoff(&self.work.xtask, &self.work.ip_send, &self.to_driver, packet).await;
            }
        }
    }

    /// Reports to the receive side the segments sent, including the acknowledgement carried.
    async fn poke_receive_side(&self, fields: Fields) {
        if self.is_whole() || self.setup.pokes_back == 0 {
            self.update_receive_side(fields);
            return;
        }
        for index in 1..=self.setup.pokes_back {
            self.work.xtask.run(micros(self.setup.costs.poke_us)).await;
            let reported = (index == self.setup.pokes_back).then_some(fields);
            self.pokes_back.send(reported, WORD_BYTES).await;
        }
    }

    pub(super) async fn peek_poke_of_transmit_side(self: Rc<Self>) {
        loop {
            let fields = self.pokes.receive().await;
            self.work.peek_poke[1].run(micros(self.setup.poked_us)).await;
            if let Some(fields) = fields {
                self.update_transmit_side(fields);
            }
        }
    }

    /// Updates the transmit side's copy with `fields`. Older values are ignored.
    pub(super) fn update_transmit_side(&self, fields: Fields) {
        let mut copy = self.transmit_side.borrow_mut();
        *copy = Fields {
            received: copy.received.max(fields.received),
            read: copy.read.max(fields.read),
            acknowledged: copy.acknowledged.max(fields.acknowledged),
            edge: copy.edge.max(fields.edge),
        };
        self.ring_doorbell();
    }

    pub(super) async fn rpc_process(self: Rc<Self>) {
        loop {
            // The call carries the values to acknowledge.
            let fields = self.calls.receive().await;
            self.must_acknowledge.set(true);
            self.update_transmit_side(fields);
            self.work.rpc_process.run(micros(self.setup.costs.poke_us)).await;
            self.answers.send((), CALL_WORDS * WORD_BYTES).await;
        }
    }

    pub(super) async fn ip_send(self: Rc<Self>, peer: Rc<Self>) {
        let costs = self.setup.costs;
        loop {
            let packet = self.receive_handoff(&self.work.xtask, &self.work.ip_send, &self.to_driver).await;
            let moving = match self.setup.mover {
                Mover::Interface => 0.0,
                Mover::Processor => costs.network_word_us * self.words(packet) as f64,
            };
            self.work.ip_send.run(micros(costs.ip_send_us + costs.driver_send_us + moving)).await;
            match self.setup.mover {
                Mover::Interface => self.output.put(packet).await,
                Mover::Processor => self.deliver(&peer, packet),
            }
        }
    }

    /// Runs the network interface and the line: 118 Mb/s, one packet at a time.
    pub(super) async fn interface(self: Rc<Self>, peer: Rc<Self>) {
        loop {
            let packet = self.output.take().await;
            self.sim.sleep(micros(self.setup.costs.network_word_us * self.words(packet) as f64)).await;
            self.deliver(&peer, packet);
        }
    }

    const fn words(&self, packet: Packet) -> u64 {
        HEADER_WORDS + if packet.has_data { self.setup.costs.words } else { 0 }
    }

    fn deliver(&self, peer: &Self, packet: Packet) {
        if peer.input.try_put(packet).is_err() {
            peer.dropped.set(peer.dropped.get() + 1);
        }
    }

    /// Makes `xtask` check its state again. A pending token is enough.
    pub(super) fn ring_doorbell(&self) {
        let _rings_already = self.doorbell.try_put(());
    }
}
