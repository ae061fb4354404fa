//! [`Steps`]: a host whose driver decides in no time, and whose processors perform the steps of
//! each packet.
//!
//! ```text
//!   line ─▶ link in ─▶ stage ─ in order ─▶ connection ─▶ Driver ─▶ Stream ─▶ application
//!   line ◀─ link out ◀─ in order ─ stage ◀─ connection ◀─ plan ┘│ ▲
//!                                                    records  ▼ │ in order
//!                                                             stage
//! ```
//!
//! Each step costs time on a processor. The division determines the processor.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use driver::pipeline::{BegunJob, Carrier, Pipeline, Planned};
use driver::protocol::Plan;
use driver::{Driver, Flush, Place};
use sim::stream::Stream;
use sim::{ProcessWaker, Sequencer, wait_for_wake};
use tcp::SuperPacket;
use tcp_driver::{Received, SegmentPlan, Tcp};
use units::Duration;

use crate::common::{Common, LIMITS};
use crate::costs::bytes;
use crate::device::{HostClock, HostEnv, data_len};
use crate::processor::{Kind, On, Pool, Stall};

/// Limit on packets in progress for each processor, in each direction, like the batches for each
/// thread of a simulated QUIC host.
const PACKETS_MAX: usize = 4;

type TcpPipeline = Pipeline<Tcp, SealedPackets>;

/// Assignment of a packet's steps to processors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Division {
    pub(crate) link_in: usize,
    pub(crate) link_out: usize,
    /// Processor of the connection, and of the application that reads.
    pub(crate) received: usize,
    /// Processor of the connection, and of the application that writes.
    pub(crate) sent: usize,
    /// Whether any processor does connection-independent work. Otherwise the link's processors do
    /// it, and the connection's processor does records.
    pub(crate) shares_stages: bool,
}

/// Seals plans when they are made. The bytes do not depend on the time; the cost is charged to the
/// stage.
#[derive(Default)]
struct SealedPackets {
    buffer: SuperPacket,
}

impl SealedPackets {
    fn of(packets: &SuperPacket) -> Vec<Bytes> {
        let mut all = Vec::with_capacity(1);
        packets.packets(|packet| all.push(Bytes::copy_from_slice(packet)));
        all
    }
}

impl Carrier<Tcp> for SealedPackets {
    type Packets = Vec<Bytes>;

    fn carry(&mut self, _worker: usize, plan: &mut SegmentPlan) -> Vec<Bytes> {
        plan.seal(&mut self.buffer);
        Self::of(&self.buffer)
    }

    fn carry_reply(&mut self, packets: &SuperPacket) -> Option<Vec<Bytes>> {
        Some(Self::of(packets))
    }
}

/// Processors of a host and their steps.
pub(crate) struct Steps {
    common: Rc<Common>,
    driver: RefCell<Driver<HostEnv<TcpPipeline>>>,
    clock: HostClock,
    pipeline: TcpPipeline,
    division: Division,
    processors: Pool,
    /// Packets delivered by the network.
    delivered: RefCell<VecDeque<Bytes>>,
    /// Number of received packets not processed yet.
    receiving: Cell<usize>,
    sender: ProcessWaker,
    receiver: ProcessWaker,
    order_out: Sequencer,
    order_in: Sequencer,
    spread: RefCell<Stream>,
    stall: Stall,
}

impl Steps {
    pub(crate) fn begin(
        common: &Rc<Common>,
        name: &str,
        protocol: Tcp,
        processors: usize,
        division: Division,
    ) -> Rc<Self> {
        let processors = Pool::new(&common.sim, name, processors);
        let pipeline = Pipeline::with_jobs(1, PACKETS_MAX * processors.len(), SealedPackets::default());
        let clock = HostClock::default();
        let driver = Driver::new(
            HostEnv::new(clock.clone()),
            Arc::clone(&common.shared),
            Vec::new(),
            protocol,
            // There is no segmentation offload: each segment is a plan.
            vec![Place::Offloaded { worker: 0, batch_max: 1 }],
            (),
            pipeline.clone(),
            LIMITS,
        );
        let steps = Rc::new(Self {
            common: Rc::clone(common),
            driver: RefCell::new(driver),
            clock,
            pipeline,
            division,
            processors,
            delivered: RefCell::default(),
            receiving: Cell::new(0),
            sender: ProcessWaker::default(),
            receiver: ProcessWaker::default(),
            order_out: Sequencer::default(),
            order_in: Sequencer::default(),
            spread: RefCell::new(common.sim.stream(&format!("{name} stages"))),
            stall: Stall::default(),
        });
        common.sim.spawn(Rc::clone(&steps).plan());
        common.sim.spawn(Rc::clone(&steps).receive());
        steps
    }

    /// Makes the driver run, because work is due.
    pub(crate) fn wake(&self) {
        self.sender.wake(&self.common.sim);
    }

    /// Delivers a packet.
    pub(crate) fn arrive(&self, packet: Bytes) {
        self.delivered.borrow_mut().push_back(packet);
        self.receiver.wake(&self.common.sim);
    }

    /// Spends the time of an application call that writes or reads.
    pub(crate) async fn call(&self, writes: bool) {
        let processor = if writes { self.division.sent } else { self.division.received };
        self.processors.run_last(processor, self.common.costs.call).await;
    }

    pub(crate) fn look_at_connections(&self, look: impl FnMut(&tcp::Connection)) {
        self.driver.borrow().connections().map(tcp_driver::TcpConnection::tcp).for_each(look);
    }

    /// Runs turns of the driver while they are due, and begins its jobs for others.
    fn run_driver(self: &Rc<Self>) {
        let now = self.common.sim.now();
        self.clock.advance_to(now);
        let mut driver = self.driver.borrow_mut();
        let mut has_run = false;
        while driver.due_at(now).is_some_and(|at| at <= now) {
            self.stall.count(now);
            driver.turn(Flush::Now);
            has_run = true;
        }
        drop(driver);
        while let Some(job) = self.pipeline.take_job() {
            self.common.sim.spawn(Rc::clone(self).run_job(job));
        }
        if has_run {
            self.common.wake_applications();
            // There may be plans.
            self.wake();
        }
    }

    /// Runs the process that plans: the driver's serial part of sending.
    async fn plan(self: Rc<Self>) {
        let sim = self.common.sim.clone();
        self.sender.register(&sim);
        loop {
            self.run_driver();
            while let Some(planned) = self.pipeline.take_planned() {
                let time = self.common.costs.sent.of_all(lens(&planned));
                self.processors.run(On::This(self.division.sent), time).await;
                let planned = Rc::new(planned);
                sim.spawn(Rc::clone(&self).emit(Rc::clone(&planned), self.order_out.join()));
                self.pipeline.finish_serial_step(&planned);
                self.run_driver();
            }
            let next = self.driver.borrow().due_at(sim.now());
            if let Some(at) = next {
                self.sender.wake_at(&sim, at);
            }
            wait_for_wake().await;
        }
    }

    /// Carries planned packets to the line.
    async fn emit(self: Rc<Self>, planned: Rc<Planned<Tcp, SealedPackets>>, place: u64) {
        let (sim, costs) = (&self.common.sim, &self.common.costs);
        let time = self.varied(costs.stage.of_all(lens(&planned)));
        self.processors.run(self.stage(Kind::Packet, self.division.link_out), time).await;
        self.order_out.wait(sim, place).await;
        self.processors.run(On::This(self.division.link_out), costs.link_out.of_all(lens(&planned))).await;
        self.order_out.leave(sim);
        self.pipeline.report_emitted(sim.now(), &planned);
        planned.packets.iter().cloned().for_each(|packet| self.common.send(packet));
        self.pipeline.finish_sending(&planned);
        self.run_driver();
    }

    /// Runs the process that takes packets from the device.
    async fn receive(self: Rc<Self>) {
        self.receiver.register(&self.common.sim);
        let packets_max = PACKETS_MAX * self.processors.len();
        loop {
            while self.receiving.get() < packets_max {
                let Some(packet) = self.delivered.borrow_mut().pop_front() else { break };
                self.receiving.set(self.receiving.get() + 1);
                let time = self.common.costs.link_in.of(data_len(&packet));
                self.processors.run(On::This(self.division.link_in), time).await;
                self.common.sim.spawn(Rc::clone(&self).absorb(packet, self.order_in.join()));
            }
            wait_for_wake().await;
        }
    }

    /// Carries a received packet to its connection.
    async fn absorb(self: Rc<Self>, packet: Bytes, place: u64) {
        let (sim, costs, len) = (&self.common.sim, &self.common.costs, data_len(&packet));
        let time = self.varied(costs.stage.of(len));
        self.processors.run(self.stage(Kind::Packet, self.division.link_in), time).await;
        self.order_in.wait(sim, place).await;
        self.processors.run(On::This(self.division.received), costs.received.of(len)).await;
        self.order_in.leave(sim);
        self.pipeline.push_arrival(0, Received::new(packet, None, false));
        self.receiving.set(self.receiving.get() - 1);
        self.receiver.wake(sim);
        self.run_driver();
    }

    /// Seals or opens records.
    async fn run_job(self: Rc<Self>, begun: BegunJob<Tcp>) {
        let time = self.varied(bytes(self.common.costs.record_byte_ps, begun.job.data_len()));
        self.processors.run(self.stage(Kind::Record, self.division.sent), time).await;
        self.pipeline.finish_job(&begun);
        self.run_driver();
    }

    /// Returns the processor for connection-independent work.
    const fn stage(&self, kind: Kind, own: usize) -> On {
        if self.division.shares_stages { On::Any(kind) } else { On::This(own) }
    }

    /// Returns the cost of connection-independent work, with its random spread.
    fn varied(&self, time: Duration) -> Duration {
        let spread = time.as_nanos() * u64::from(self.common.costs.spread_percent) / 100;
        let [low, high] = [time.as_nanos() - spread, time.as_nanos() + spread].map(Duration::from_nanos);
        if spread == 0 { time } else { self.spread.borrow_mut().between(low, high) }
    }
}

/// Returns the number of data bytes in each packet.
fn lens(planned: &Planned<Tcp, SealedPackets>) -> impl Iterator<Item = usize> + '_ {
    planned.packets.iter().map(|packet| data_len(packet))
}
