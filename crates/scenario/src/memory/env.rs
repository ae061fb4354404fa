//! The environment of a simulated host's drivers: virtual time and sockets in memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;

use driver::socket::Received;
use driver::{Clock, Env, Offload, RECV_BATCHES_MAX, SendError, Socket};
use netem::Packet;
use quic::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, Side};
use quic_driver::Quic;
use units::Instant;

use super::datagram::Datagram;
use super::representation::Representation;

/// Virtual time. Its owner sets it; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct VirtualClock(Rc<Cell<Instant>>);

impl VirtualClock {
    pub(crate) fn set(&self, now: Instant) {
        self.0.set(now);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}

/// The environment of a driver with packets of representation `K` and the other processors `O`.
pub(crate) struct VirtualEnv<K, O> {
    clock: VirtualClock,
    kinds: PhantomData<fn() -> (K, O)>,
}

impl<K, O> VirtualEnv<K, O> {
    pub(crate) const fn new(clock: VirtualClock) -> Self {
        Self { clock, kinds: PhantomData }
    }
}

impl<K: Representation, O: Offload<Quic<K>>> Env for VirtualEnv<K, O> {
    type Protocol = Quic<K>;
    type Socket = VirtualSocket;
    type Offload = O;
    type Clock = VirtualClock;

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn isolates_panics(&self) -> bool {
        false
    }
}

/// Datagrams that a host has sent, in order, until its owner passes them to the links.
pub(crate) type SentQueue = Rc<RefCell<VecDeque<Datagram>>>;

/// The receive queue of a socket.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    waiting: RefCell<VecDeque<Datagram>>,
    /// Datagrams that receive calls have returned.
    taken: Cell<u64>,
}

impl ReceiveQueue {
    /// Adds a datagram that arrives.
    pub(crate) fn push(&self, datagram: Datagram) {
        self.waiting.borrow_mut().push_back(datagram);
    }

    /// Returns the number of waiting datagrams.
    pub(crate) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Returns the number of datagrams that receive calls have returned.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }
}

/// The socket of one path. Clones share the queues.
#[derive(Clone)]
pub(crate) struct VirtualSocket {
    path: usize,
    side: Side,
    arrivals: Rc<ReceiveQueue>,
    sent: SentQueue,
    /// Whether consecutive datagrams are joined, as by generic receive offload (GRO).
    joins: bool,
}

impl VirtualSocket {
    /// Creates the socket of a path at one side.
    pub(crate) const fn new(path: usize, side: Side, arrivals: Rc<ReceiveQueue>, sent: SentQueue, joins: bool) -> Self {
        Self { path, side, arrivals, sent, joins }
    }
}

impl<K: Representation> Socket<Quic<K>> for VirtualSocket {
    type Buffers = ();

    fn receive(&mut self, (): &mut (), batches: &mut Vec<K::Batch>) -> Received {
        let mut waiting = self.arrivals.waiting.borrow_mut();
        for _ in 0..RECV_BATCHES_MAX {
            let count = batch_len(&waiting, self.joins);
            if count == 0 {
                return Received::NoMore;
            }
            self.arrivals.taken.set(self.arrivals.taken.get() + count as u64);
            batches.push(K::received(self.side, waiting.drain(..count)));
        }
        Received::MayHaveMore
    }

    fn send(&mut self, packets: &K::Sealed) -> Result<(), SendError> {
        let mut sent = self.sent.borrow_mut();
        K::sent(packets, self.path, |datagram| sent.push_back(datagram));
        Ok(())
    }

    fn batch_max(&self) -> usize {
        PLAN_DATAGRAMS_MAX
    }

    fn announces_space(&self) -> bool {
        false
    }

    fn has_arrived(&self) -> bool {
        !self.arrivals.waiting.borrow().is_empty()
    }

    fn take_arrived(&mut self) -> bool {
        !self.arrivals.waiting.borrow().is_empty()
    }
}

/// Returns the number of datagrams at the front that form one batch. If they are joined, all have
/// the length of the first, except the last, which may be shorter.
fn batch_len(waiting: &VecDeque<Datagram>, joins: bool) -> usize {
    let Some(first) = waiting.front() else { return 0 };
    if !joins {
        return 1;
    }
    let stride = first.len_bytes();
    let (mut count, mut bytes) = (1, stride);
    for next in waiting.iter().skip(1).map(Packet::len_bytes) {
        if next > stride || count == PLAN_DATAGRAMS_MAX || bytes + next > PLAN_BYTES_MAX {
            break;
        }
        (count, bytes) = (count + 1, bytes + next);
        if next < stride {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(lens: &[usize]) -> VecDeque<Datagram> {
        lens.iter().map(|len| Datagram::with_bytes(0, vec![0; *len])).collect()
    }

    #[test]
    fn datagrams_of_equal_length_are_joined_up_to_a_shorter_one() {
        assert_eq!(batch_len(&waiting(&[]), true), 0);
        assert_eq!(batch_len(&waiting(&[100]), true), 1);
        assert_eq!(batch_len(&waiting(&[100, 100, 40, 40]), true), 3);
        assert_eq!(batch_len(&waiting(&[40, 100]), true), 1);
        assert_eq!(batch_len(&waiting(&[100, 100]), false), 1);
    }

    #[test]
    fn a_batch_is_bounded_in_datagrams_and_bytes() {
        assert_eq!(batch_len(&waiting(&[100; 70]), true), 64);
        assert_eq!(batch_len(&waiting(&[1472; 64]), true), 44);
    }
}
