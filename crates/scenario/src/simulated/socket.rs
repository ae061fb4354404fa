//! A simulated UDP socket: what has arrived on a path and was not taken yet.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use netem::Packet;
use quic::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX};
use sim::{Level, Sim};
use units::{Duration, Instant};

use super::alarm::Alarm;
use crate::components::{Books, Component};
use crate::memory::frame::{Body, Frame, Parcel};
use crate::memory::run::COALESCED_MAX;

/// Bytes that a socket holds: as much as the library asks the system for. More is lost.
pub(crate) const SOCKET_BYTES_MAX: usize = 8 << 20;

/// One of a host's sockets: each path has its own.
pub(crate) struct Socket {
    name: String,
    /// How long the first datagram waits for others before the receiver hears of them, if it sleeps: a network card's interrupts.
    coalesce: Duration,
    frames: RefCell<VecDeque<(Instant, Frame)>>,
    bytes: RefCell<Level>,
    /// How long those that were taken had waited.
    taken: Cell<Books>,
    /// Datagrams that found it full, and those that no checksum of the system lets pass.
    overflowed: Cell<u64>,
    damaged: Cell<u64>,
    /// The process that takes what arrives.
    pub(crate) receiver: Alarm,
    /// Batches that it has taken and that are not done.
    pub(crate) receiving: Cell<usize>,
}

/// Datagrams that the system hands over together.
pub(crate) struct Batch {
    pub(crate) parcel: Rc<Parcel>,
    pub(crate) datagrams: Range<usize>,
}

impl Socket {
    pub(crate) fn new(host: &str, path: usize, coalesce: Duration) -> Self {
        Self {
            name: format!("host {host}, socket {path}"),
            coalesce,
            frames: RefCell::default(),
            bytes: RefCell::default(),
            taken: Cell::default(),
            overflowed: Cell::new(0),
            damaged: Cell::new(0),
            receiver: Alarm::default(),
            receiving: Cell::new(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.borrow().is_empty()
    }

    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed.get()
    }

    /// Datagrams that have come here and were not handed on.
    pub(crate) fn untaken(&self) -> u64 {
        self.frames.borrow().len() as u64 + self.overflowed.get() + self.damaged.get()
    }

    /// A datagram arrives.
    pub(crate) fn arrive(&self, sim: &Sim, frame: Frame) {
        let bytes = self.bytes.borrow().value() + frame.len_bytes() as u64;
        if bytes > SOCKET_BYTES_MAX as u64 {
            self.overflowed.set(self.overflowed.get() + 1);
            return;
        }
        self.set_bytes(sim, bytes);
        self.frames.borrow_mut().push_back((sim.now(), frame));
        let waiting = self.frames.borrow().len();
        if self.coalesce.is_zero() || waiting >= COALESCED_MAX {
            self.receiver.ring(sim);
        } else if waiting == 1 {
            self.receiver.set(sim, sim.now() + self.coalesce);
        }
    }

    fn set_bytes(&self, sim: &Sim, bytes: u64) {
        self.bytes.borrow_mut().set(sim.now(), bytes);
        sim.trace(|trace| trace.level(&format!("{}: bytes", self.name), sim.now(), bytes));
    }

    /// The next datagrams that one call gets: one behind the other, as offloading in the system joins them.
    pub(crate) fn take_batch(&self, sim: &Sim) -> Option<Batch> {
        let mut frames = self.frames.borrow_mut();
        let (now, mut taken) = (sim.now(), self.taken.get());
        let left = |bytes: usize| self.bytes.borrow().value() - bytes as u64;
        let (mut batch, mut bytes) = loop {
            let (arrived, frame) = frames.pop_front()?;
            let bytes = frame.len_bytes();
            match frame.body() {
                Body::Unsealed(parcel, first) => {
                    taken.add(now.saturating_since(arrived), Duration::ZERO);
                    break (Batch { parcel: Rc::clone(parcel), datagrams: first..first + 1 }, bytes);
                }
                // It has a bit turned around, and no checksum of the system lets it pass.
                Body::Bytes(_) => {
                    self.set_bytes(sim, left(bytes));
                    self.damaged.set(self.damaged.get() + 1);
                }
            }
        };
        while let Some((arrived, next)) = frames.front()
            && let Body::Unsealed(parcel, number) = next.body()
            && Rc::ptr_eq(parcel, &batch.parcel)
            && number == batch.datagrams.end
            && !parcel.unsealed().is_sealed(number)
            && !parcel.unsealed().is_sealed(batch.datagrams.start)
            && batch.datagrams.len() < PLAN_DATAGRAMS_MAX
            && bytes + next.len_bytes() <= PLAN_BYTES_MAX
        {
            bytes += next.len_bytes();
            batch.datagrams.end += 1;
            taken.add(now.saturating_since(*arrived), Duration::ZERO);
            frames.pop_front();
        }
        self.taken.set(taken);
        self.set_bytes(sim, left(bytes));
        Some(batch)
    }

    /// How long datagrams waited here; its utilisation is the share of its room that was taken.
    pub(crate) fn component(&self, now: Instant) -> Component {
        let room = self.bytes.borrow().mean(now) / SOCKET_BYTES_MAX as f64;
        self.taken.get().component("socket", self.name.clone(), Some(room), now)
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
        // Some 400,000, the smallest that a short header and a tag allow.
        let frame = Frame::loose(0, vec![0; 21]);
        while socket.overflowed() == 0 {
            socket.arrive(&sim, frame.clone());
        }
        assert_eq!(socket.frames.borrow().len(), SOCKET_BYTES_MAX / 21);
        assert!(socket.take_batch(&sim).is_none());
        assert_eq!((socket.bytes.borrow().value(), socket.is_empty()), (0, true));
        assert_eq!(socket.untaken(), (SOCKET_BYTES_MAX / 21) as u64 + 1, "damaged, and one too many");
    }
}
