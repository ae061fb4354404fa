//! [`Flows`]: the terminated connections of a peer, for its status.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forwarding::carry::Carried;

/// Connections that a status lists, at most.
const LISTED_MAX: usize = 64;

/// The terminated connections of a peer.
#[derive(Debug, Default)]
pub struct Flows {
    open: Mutex<BTreeMap<u64, Flow>>,
    /// Connections that began, and attempts that failed.
    begun: AtomicU64,
    failed: AtomicU64,
    /// Bytes of the connections that have ended, into and out of the tunnel.
    ended_in: AtomicU64,
    ended_out: AtomicU64,
}

/// A connection that is carried.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The address of the program that has opened it.
    pub source: SocketAddr,
    /// The address that the program has connected to.
    pub target: SocketAddr,
    carried: Arc<Carried>,
}

/// What a peer's connections have carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections now.
    pub open: usize,
    /// Connections that began.
    pub begun: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Bytes into the tunnel.
    pub bytes_in: u64,
    /// Bytes out of it.
    pub bytes_out: u64,
}

impl Flow {
    /// Bytes into the tunnel and out of it.
    pub fn bytes(&self) -> (u64, u64) {
        (self.carried.sent.load(Ordering::Relaxed), self.carried.received.load(Ordering::Relaxed))
    }
}

impl Flows {
    /// Counts a connection until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>, source: SocketAddr, target: SocketAddr) -> FlowGuard {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let carried = Arc::<Carried>::default();
        self.lock().insert(number, Flow { source, target, carried: Arc::clone(&carried) });
        FlowGuard { flows: Arc::clone(self), number, carried }
    }

    /// Counts an attempt that has failed.
    pub(crate) fn on_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The sums over all connections, also those that have ended.
    pub fn totals(&self) -> Totals {
        let open = self.lock();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ended = Totals {
            open: open.len(),
            begun: get(&self.begun),
            failed: get(&self.failed),
            bytes_in: get(&self.ended_in),
            bytes_out: get(&self.ended_out),
        };
        open.values().map(Flow::bytes).fold(ended, |sum, (bytes_in, bytes_out)| Totals {
            bytes_in: sum.bytes_in + bytes_in,
            bytes_out: sum.bytes_out + bytes_out,
            ..sum
        })
    }

    /// The oldest connections that are open, at most 64.
    pub fn oldest(&self) -> Vec<Flow> {
        self.lock().values().take(LISTED_MAX).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Flow>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection of the peer, while it exists.
pub(crate) struct FlowGuard {
    flows: Arc<Flows>,
    number: u64,
    pub(crate) carried: Arc<Carried>,
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        let mut open = self.flows.lock();
        if let Some(flow) = open.remove(&self.number) {
            let (bytes_in, bytes_out) = flow.bytes();
            self.flows.ended_in.fetch_add(bytes_in, Ordering::Relaxed);
            self.flows.ended_out.fetch_add(bytes_out, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_ended_connections_stay_in_the_sums() {
        let flows = Arc::<Flows>::default();
        let address: SocketAddr = "10.0.0.1:80".parse().expect("an address");
        let [one, two] = [0, 1].map(|_| flows.begin(address, address));
        one.carried.sent.store(5, Ordering::Relaxed);
        two.carried.received.store(7, Ordering::Relaxed);
        flows.on_failed();
        let totals = Totals { open: 2, begun: 2, failed: 1, bytes_in: 5, bytes_out: 7 };
        assert_eq!(flows.totals(), totals);
        drop(one);
        assert_eq!((flows.totals(), flows.oldest().len()), (Totals { open: 1, ..totals }, 1));
    }
}
