//! [`Turns`]: a host whose processors take turns, one processor for all its work or one for each
//! direction.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use driver::receive_worker::ReceiveWorker;
use driver::worker::{WorkerLoop, WorkerSocket};
use driver::workers::Workers;
use driver::{Clock, Driver, Flush, LocalSocket, Place};
use sim::wait_for_wake;
use tcp_driver::Tcp;
use units::Instant;

use crate::common::{Common, LIMITS};
use crate::device::{Device, HostEnv, Queues, data_len};
use crate::processor::{Processor, Stall};

/// Processors of a host and their turns.
pub(crate) struct Turns {
    common: Rc<Common>,
    driver: RefCell<Driver<HostEnv<Workers<Tcp>>>>,
    queues: Rc<Queues>,
    interrupts_max: usize,
    /// Processor of the driver.
    sending: Processor,
    receiving: Option<Receiving>,
}

/// Receiving processor, if it differs from the driver's.
struct Receiving {
    processor: Processor,
    worker: RefCell<Box<dyn WorkerLoop>>,
}

/// Work of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The driver's work, with the interrupts if no other processor has them.
    Sending,
    /// Interrupts, and the receive worker's work.
    Receiving,
}

impl Turns {
    /// Starts processors that take turns, two if `receives_apart`. At most `interrupts_max`
    /// interrupts precede a turn.
    pub(crate) fn begin(
        common: &Rc<Common>,
        name: &str,
        protocol: Tcp,
        receives_apart: bool,
        interrupts_max: usize,
    ) -> Rc<Self> {
        let queues = Rc::new(Queues::default());
        let costs = [common.costs.sent, common.costs.link_out];
        let sending = Processor::new(&common.sim, name);
        let device =
            |processor: &Processor| Device { queues: Rc::clone(&queues), clock: processor.clock.clone(), costs };
        let (place, offload, receiving) = if receives_apart {
            let processor = Processor::new(&common.sim, &format!("{name}, receiving"));
            let socket = WorkerSocket { index: 0, socket: LocalSocket::new(device(&processor)) };
            let (clock, waker) = (processor.clock.clone(), Waker::noop());
            let (receiver, worker) =
                ReceiveWorker::new::<HostEnv<Workers<Tcp>>>(clock, waker.clone(), waker.clone(), vec![socket]);
            let worker = RefCell::new(Box::new(worker) as Box<dyn WorkerLoop>);
            let only_sending = LocalSocket::only_sending(device(&sending));
            (only_sending, Workers::of_receiver(receiver), Some(Receiving { processor, worker }))
        } else {
            (LocalSocket::new(device(&sending)), Workers::default(), None)
        };
        let (env, places) = (HostEnv::new(sending.clock.clone()), vec![Place::Local(place)]);
        let driver = Driver::new(env, Arc::clone(&common.shared), Vec::new(), protocol, places, (), offload, LIMITS);
        let turns = Rc::new(Self {
            common: Rc::clone(common),
            driver: RefCell::new(driver),
            queues,
            interrupts_max,
            sending,
            receiving,
        });
        common.sim.spawn(run(Rc::clone(&turns), Side::Sending));
        if receives_apart {
            common.sim.spawn(run(Rc::clone(&turns), Side::Receiving));
        }
        turns
    }

    /// Makes the driver run, because work is due.
    pub(crate) fn wake(&self) {
        self.sending.process.wake(&self.common.sim);
    }

    /// Delivers a packet.
    pub(crate) fn arrive(&self, packet: Bytes) {
        self.queues.delivered.borrow_mut().push_back(packet);
        self.receiving().process.wake(&self.common.sim);
    }

    /// Spends the time of an application call that writes or reads.
    pub(crate) async fn call(&self, writes: bool) {
        let processor = if writes { &self.sending } else { self.receiving() };
        let held = processor.unit.acquire().await;
        self.common.sim.sleep(self.common.costs.call).await;
        drop(held);
    }

    pub(crate) fn look_at_connections(&self, look: impl FnMut(&tcp::Connection)) {
        self.driver.borrow().connections().map(tcp_driver::TcpConnection::tcp).for_each(look);
    }

    /// Returns the processor that takes interrupts, and whose applications read.
    fn receiving(&self) -> &Processor {
        self.receiving.as_ref().map_or(&self.sending, |receiving| &receiving.processor)
    }

    fn processor(&self, side: Side) -> &Processor {
        if side == Side::Receiving { self.receiving() } else { &self.sending }
    }

    /// Returns whether this side takes interrupts, and one is due.
    fn is_interrupted(&self, side: Side) -> bool {
        let takes = side == Side::Receiving || self.receiving.is_none();
        takes && !self.queues.delivered.borrow().is_empty()
    }

    fn due_at(&self, side: Side, now: Instant) -> Option<Instant> {
        if self.is_interrupted(side) {
            return Some(now);
        }
        match (side, &self.receiving) {
            (Side::Receiving, Some(receiving)) => receiving.worker.borrow().due_at(now),
            _ => self.driver.borrow().due_at(now),
        }
    }

    /// Takes arrived packets and runs a turn: its decisions are made now, and then its cost passes.
    async fn turn(&self, side: Side) {
        let (processor, sim) = (self.processor(side), &self.common.sim);
        let held = processor.unit.acquire_urgently().await;
        // Interrupts come first, even those of packets that arrive meanwhile.
        for _ in 0..self.interrupts_max {
            if !self.is_interrupted(side) {
                break;
            }
            let packet = self.queues.delivered.borrow_mut().pop_front().expect("there is a packet");
            let costs = &self.common.costs;
            sim.sleep(costs.link_in.of(data_len(&packet)) + costs.received.of(data_len(&packet))).await;
            self.queues.arrived.borrow_mut().push_back(packet);
        }
        processor.clock.advance_to(sim.now());
        match (side, &self.receiving) {
            (Side::Receiving, Some(receiving)) => receiving.worker.borrow_mut().counted_turn(),
            _ => {
                self.driver.borrow_mut().turn(Flush::Now);
                self.emit().await;
            }
        }
        sim.sleep_until(processor.clock.now()).await;
        drop(held);
        self.common.wake_applications();
        // Each side may have left work for the other.
        self.sending.process.wake(sim);
        self.receiving().process.wake(sim);
    }

    /// Passes the packets sent in a turn to the line, each at its time.
    async fn emit(&self) {
        let pop = || self.queues.sent.borrow_mut().pop_front();
        while let Some((at, packet)) = pop() {
            self.common.sim.sleep_until(at).await;
            self.common.send(packet);
        }
    }
}

/// Runs the process of a processor.
async fn run(turns: Rc<Turns>, side: Side) {
    let (sim, process) = (turns.common.sim.clone(), &turns.processor(side).process);
    process.register(&sim);
    let stall = Stall::default();
    loop {
        let now = sim.now();
        match turns.due_at(side, now) {
            Some(at) if at <= now => {
                stall.count(now);
                turns.turn(side).await;
            }
            due => {
                if let Some(at) = due {
                    process.wake_at(&sim, at);
                }
                wait_for_wake().await;
            }
        }
    }
}
