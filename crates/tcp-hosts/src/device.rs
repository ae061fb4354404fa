//! The environment of a host's driver: virtual time that passes while segments are sent, and a
//! device that is a queue in memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;

use bytes::Bytes;
use driver::socket::Received as ReceiveOutcome;
use driver::{Clock, Env, Offload, SendError, Socket};
use tcp::SuperPacket;
use tcp_driver::{Received, Tcp};
use units::{Duration, Instant};

use crate::costs::SegmentCost;

/// Limit on packets in one receive call.
const RECEIVED_MAX: usize = 16;

/// Length of a packet's headers: IPv4 and TCP without options. Costs count the options as data.
const HEADERS_LEN: usize = 40;

/// Time at a host. In a turn it is ahead of the simulation's by the cost of the turn so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostClock(Rc<Cell<Instant>>);

impl HostClock {
    /// Advances to `now`, never backwards.
    pub(crate) fn advance_to(&self, now: Instant) {
        self.0.set(self.0.get().max(now));
    }

    fn spend(&self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}

impl Clock for HostClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}

/// The environment of a host's driver with the other processors `O`.
pub(crate) struct HostEnv<O> {
    clock: HostClock,
    kind: PhantomData<fn() -> O>,
}

impl<O> HostEnv<O> {
    pub(crate) const fn new(clock: HostClock) -> Self {
        Self { clock, kind: PhantomData }
    }
}

impl<O: Offload<Tcp>> Env for HostEnv<O> {
    type Protocol = Tcp;
    type Socket = Device;
    type Offload = O;
    type Clock = HostClock;

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn isolates_panics(&self) -> bool {
        false
    }
}

/// Queues of a device.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Packets delivered by the network, not taken by an interrupt yet.
    pub(crate) delivered: RefCell<VecDeque<Bytes>>,
    /// Packets taken by interrupts, not by a turn yet.
    pub(crate) arrived: RefCell<VecDeque<Bytes>>,
    /// Outgoing packets and their times.
    pub(crate) sent: RefCell<VecDeque<(Instant, Bytes)>>,
}

/// Device of a host, as used by one of its processors.
pub(crate) struct Device {
    pub(crate) queues: Rc<Queues>,
    pub(crate) clock: HostClock,
    /// Costs of an outgoing packet, all of which apply.
    pub(crate) costs: [SegmentCost; 2],
}

pub(crate) const fn data_len(packet: &[u8]) -> usize {
    packet.len().saturating_sub(HEADERS_LEN)
}

impl Socket<Tcp> for Device {
    type Buffers = ();

    fn receive(&mut self, (): &mut (), batches: &mut Vec<Received>) -> ReceiveOutcome {
        let mut arrived = self.queues.arrived.borrow_mut();
        for _ in 0..RECEIVED_MAX {
            let Some(packet) = arrived.pop_front() else { return ReceiveOutcome::NoMore };
            batches.push(Received::new(packet, None, false));
        }
        ReceiveOutcome::MayHaveMore
    }

    fn send(&mut self, packets: &SuperPacket) -> Result<(), SendError> {
        let mut sent = self.queues.sent.borrow_mut();
        packets.packets(|packet| {
            self.costs.iter().for_each(|cost| self.clock.spend(cost.of(data_len(packet))));
            sent.push_back((self.clock.now(), Bytes::copy_from_slice(packet)));
        });
        Ok(())
    }

    /// Returns one: the host has no segmentation offload, so each segment is a plan.
    fn batch_max(&self) -> usize {
        1
    }

    fn announces_space(&self) -> bool {
        false
    }

    fn has_arrived(&self) -> bool {
        !self.queues.arrived.borrow().is_empty()
    }

    fn take_arrived(&mut self) -> bool {
        self.has_arrived()
    }
}
