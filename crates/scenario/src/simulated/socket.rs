//! A simulated UDP socket: the receive queue of one path.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use netem::Packet;
use quic::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX};
use sim::{Level, ProcessWaker, Sim};
use units::{Duration, Instant};

use crate::components::{Component, ServiceStats};
use crate::memory::datagram::{Body, Datagram, InFlightBatch};
use crate::memory::turns::COALESCED_MAX;

/// Capacity of a socket in bytes, as the library requests from the system. Excess datagrams are
/// dropped.
pub(crate) const SOCKET_BYTES_MAX: usize = 8 << 20;

/// The socket of one path at a host.
pub(crate) struct Socket {
    name: String,
    /// Interrupt coalescing: time for which the first datagram waits for others before a sleeping
    /// receiver is woken.
    coalesce: Duration,
    datagrams: RefCell<VecDeque<(Instant, Datagram)>>,
    bytes: RefCell<Level>,
    /// Waiting times of the received datagrams.
    taken: Cell<ServiceStats>,
    /// Datagrams dropped because the socket was full, and those dropped for a wrong UDP checksum.
    overflowed: Cell<u64>,
    damaged: Cell<u64>,
    /// Waker of the process that receives.
    pub(crate) receiver: ProcessWaker,
    /// Number of received batches not completely processed.
    pub(crate) receiving: Cell<usize>,
}

/// Datagrams that one receive call returns together.
pub(crate) struct ReceivedBatch {
    pub(crate) in_flight: Rc<InFlightBatch>,
    pub(crate) datagrams: Range<usize>,
}

impl Socket {
    pub(crate) fn new(host: &str, path: usize, coalesce: Duration) -> Self {
        Self {
            name: format!("host {host}, socket {path}"),
            coalesce,
            datagrams: RefCell::default(),
            bytes: RefCell::default(),
            taken: Cell::default(),
            overflowed: Cell::new(0),
            damaged: Cell::new(0),
            receiver: ProcessWaker::default(),
            receiving: Cell::new(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.borrow().is_empty()
    }

    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed.get()
    }

    /// Returns the number of datagrams that arrived here and were not passed to the connection.
    pub(crate) fn untaken(&self) -> u64 {
        self.datagrams.borrow().len() as u64 + self.overflowed.get() + self.damaged.get()
    }

    /// Queues an arriving datagram.
    pub(crate) fn arrive(&self, sim: &Sim, datagram: Datagram) {
        let bytes = self.bytes.borrow().value() + datagram.len_bytes() as u64;
        if bytes > SOCKET_BYTES_MAX as u64 {
            self.overflowed.set(self.overflowed.get() + 1);
            return;
        }
        self.set_bytes(sim, bytes);
        self.datagrams.borrow_mut().push_back((sim.now(), datagram));
        let waiting = self.datagrams.borrow().len();
        if self.coalesce.is_zero() || waiting >= COALESCED_MAX {
            self.receiver.wake(sim);
        } else if waiting == 1 {
            self.receiver.wake_at(sim, sim.now() + self.coalesce);
        }
    }

    fn set_bytes(&self, sim: &Sim, bytes: u64) {
        self.bytes.borrow_mut().set(sim.now(), bytes);
        sim.trace(|trace| trace.level(&format!("{}: bytes", self.name), sim.now(), bytes));
    }

    /// Returns the next batch of a receive call: consecutive datagrams, joined as by generic
    /// receive offload.
    pub(crate) fn take_batch(&self, sim: &Sim) -> Option<ReceivedBatch> {
        let mut datagrams = self.datagrams.borrow_mut();
        let (now, mut taken) = (sim.now(), self.taken.get());
        let left = |bytes: usize| self.bytes.borrow().value() - bytes as u64;
        let (mut batch, mut bytes) = loop {
            let (arrived, datagram) = datagrams.pop_front()?;
            let bytes = datagram.len_bytes();
            match datagram.body() {
                Body::Unsealed(in_flight, first) => {
                    taken.add(now.saturating_since(arrived), Duration::ZERO);
                    break (ReceivedBatch { in_flight: Rc::clone(in_flight), datagrams: first..first + 1 }, bytes);
                }
                // A flipped bit: the UDP checksum fails and the system drops the datagram.
                Body::Bytes(_) => {
                    self.set_bytes(sim, left(bytes));
                    self.damaged.set(self.damaged.get() + 1);
                }
            }
        };
        while let Some((arrived, next)) = datagrams.front()
            && let Body::Unsealed(in_flight, number) = next.body()
            && Rc::ptr_eq(in_flight, &batch.in_flight)
            && number == batch.datagrams.end
            && !in_flight.unsealed().is_sealed(number)
            && !in_flight.unsealed().is_sealed(batch.datagrams.start)
            && batch.datagrams.len() < PLAN_DATAGRAMS_MAX
            && bytes + next.len_bytes() <= PLAN_BYTES_MAX
        {
            bytes += next.len_bytes();
            batch.datagrams.end += 1;
            taken.add(now.saturating_since(*arrived), Duration::ZERO);
            datagrams.pop_front();
        }
        self.taken.set(taken);
        self.set_bytes(sim, left(bytes));
        Some(batch)
    }

    /// Returns the waiting times of datagrams. The utilisation is the occupied share of the
    /// capacity.
    pub(crate) fn component(&self, now: Instant) -> Component {
        let used_share = self.bytes.borrow().mean(now) / SOCKET_BYTES_MAX as f64;
        self.taken.get().component("socket", self.name.clone(), Some(used_share), now)
    }
}

#[cfg(test)]
mod tests {
    use sim::Simulation;

    use super::*;

    #[test]
    fn a_socket_full_of_damaged_datagrams_is_emptied_by_one_call() {
        let simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let socket = Socket::new("a", 0, Duration::ZERO);
        // About 400,000 datagrams of the minimum size for a short header and a tag.
        let datagram = Datagram::with_bytes(0, vec![0; 21]);
        while socket.overflowed() == 0 {
            socket.arrive(&sim, datagram.clone());
        }
        assert_eq!(socket.datagrams.borrow().len(), SOCKET_BYTES_MAX / 21);
        assert!(socket.take_batch(&sim).is_none());
        assert_eq!((socket.bytes.borrow().value(), socket.is_empty()), (0, true));
        assert_eq!(socket.untaken(), (SOCKET_BYTES_MAX / 21) as u64 + 1, "damaged, and one too many");
    }
}
