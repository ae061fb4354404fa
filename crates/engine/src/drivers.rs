//! [`Drivers`]: the drivers of an endpoint on threads, for any protocol: starting, stopping and
//! waiting.

mod place;
mod start;
mod stepped;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use driver::Flush;
use driver::crypto_pool::{PoolCounters, WorkerPoolStats};
use driver::placement::Placement;
use driver::receive_worker::{ReceiveWorkerCounters, ReceiveWorkerStats};
use driver::sync::lock;
use units::Instant;

pub use self::stepped::SteppedDrivers;

use crate::clock::Clock;
use crate::device::{Device, SharedOf};
use crate::inline::Inline;
use crate::meter::{Costs, Meter};
use crate::parker::Parker;

/// A handle of the running drivers of one endpoint, over devices of type `D`. Clones refer to the
/// same drivers. They end when [`stop`](Self::stop) is called, or when the last handle is dropped,
/// in which case they do not wait for their last packets.
pub struct Drivers<D: Device> {
    core: Arc<Core<D>>,
}

impl<D: Device> Clone for Drivers<D> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

struct Core<D: Device> {
    /// The drivers, at least one.
    drivers: Vec<DriverHandle<D>>,
    clock: Clock,
    /// The driver that begins the next connection, modulo their number.
    next: AtomicUsize,
    placement: Placement,
    /// The counters of the crypto pool or the path workers, if there are any.
    counters: Option<Arc<PoolCounters>>,
    /// The counters of the receive worker, under `split`.
    receive_worker_counters: Option<Arc<ReceiveWorkerCounters>>,
}

/// A driver, as seen by handles.
struct DriverHandle<D: Device> {
    shared: Arc<SharedOf<D>>,
    meter: Option<Arc<Meter>>,
    host: Host<D>,
}

/// Host of a driver.
enum Host<D: Device> {
    Thread(Mutex<Option<JoinHandle<()>>>),
    Inline(Box<Inline<D>>),
}

impl<D: Device> Drivers<D> {
    /// Returns the first driver. There are others only under [`Placement::Connection`].
    fn first(&self) -> &DriverHandle<D> {
        &self.core.drivers[0]
    }

    /// Returns the driver that callers run, if the placement is `inline`.
    fn inline(&self) -> Option<&Inline<D>> {
        match &self.first().host {
            Host::Inline(inline) => Some(inline),
            Host::Thread(_) => None,
        }
    }

    /// Returns the number of drivers: one, except under [`Placement::Connection`].
    pub fn count(&self) -> usize {
        self.core.drivers.len()
    }

    /// Returns the state that handles share with a driver.
    ///
    /// # Panics
    /// If there is no driver with this index.
    pub fn shared(&self, index: usize) -> &Arc<SharedOf<D>> {
        &self.core.drivers[index].shared
    }

    /// Calls `begin`, which begins a connection, with the state of the next driver in turn. If that
    /// fails, for example because the driver has failed, tries the others. With `index`, only that
    /// driver is tried.
    ///
    /// # Errors
    /// The error of the last call.
    ///
    /// # Panics
    /// If there is no driver with this index.
    pub fn begin<T, E>(
        &self,
        index: Option<usize>,
        mut begin: impl FnMut(&Arc<SharedOf<D>>) -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(index) = index {
            return begin(self.shared(index));
        }
        let count = self.count();
        let from = self.core.next.fetch_add(1, Ordering::Relaxed);
        let mut outcome = begin(self.shared(from % count));
        for at in 1..count {
            if outcome.is_ok() {
                break;
            }
            outcome = begin(self.shared((from + at) % count));
        }
        outcome
    }

    /// Returns the addresses of the devices, by their index. Under [`Placement::Connection`], those
    /// of the first driver.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.first().shared.local_addrs
    }

    /// Returns the number of connections, including those that are closing.
    pub fn connection_count(&self) -> usize {
        self.first().shared.common.connection_count()
    }

    /// Waits until no connection exists, closing ones included.
    pub fn poll_idle(&self, waker: &Waker) -> Poll<()> {
        self.first().shared.common.poll_idle(waker)
    }

    /// Returns time and traffic of the drivers so far. `None` unless
    /// [`measure`](crate::DriverSettings::measure) is set.
    pub fn costs(&self) -> Option<Costs> {
        let read = |driver: &DriverHandle<D>| driver.meter.as_ref().map(|meter| meter.read());
        self.core.drivers.iter().map(read).reduce(|one, other| Some(one?.and(&other?)))?
    }

    /// Returns the placement. [`Placement::Auto`] has been resolved.
    pub fn placement(&self) -> Placement {
        self.core.placement
    }

    /// Returns counters of the workers that encrypt and decrypt: the crypto pool of
    /// [`Placement::Packet`], or the path workers of [`Placement::Path`]. `None` under other
    /// placements.
    pub fn worker_pool_stats(&self) -> Option<WorkerPoolStats> {
        self.core.counters.as_ref().map(|counters| counters.read())
    }

    /// Returns counters of the receive worker. `None` unless the placement is [`Placement::Split`].
    pub fn receive_worker_stats(&self) -> Option<ReceiveWorkerStats> {
        self.core.receive_worker_counters.as_ref().map(|counters| counters.read())
    }

    /// Returns the current time of the clock. Deadlines of [`block_on`](Self::block_on) refer to
    /// it.
    pub fn now(&self) -> Instant {
        self.core.clock.now()
    }

    /// Makes the driver of `shared` process new requests: wakes its thread, or runs a turn of it.
    pub fn kick(&self, shared: &SharedOf<D>, flush: Flush) {
        match &self.first().host {
            Host::Thread(_) => shared.wake(),
            Host::Inline(inline) => inline.kick(shared, flush),
        }
    }

    /// Under [`Placement::Inline`], sends data that earlier calls have queued but not sent: corked
    /// data, and data that exceeded the limit of a turn. Has no effect under other placements,
    /// where the driver's thread sends it.
    pub fn flush(&self) {
        if let Host::Inline(inline) = &self.first().host {
            inline.flush(&self.first().shared);
        }
    }

    /// Waits until `poll` is ready. Returns `None` at `deadline`. `poll` receives the waker to
    /// register when it is not ready.
    pub fn block_on<T>(&self, deadline: Option<Instant>, mut poll: impl FnMut(&Waker) -> Poll<T>) -> Option<T> {
        let parker = Parker::current();
        let waker = Waker::from(Arc::clone(&parker));
        let DriverHandle { shared, host, .. } = self.first();
        if let Host::Inline(inline) = host {
            return inline.block_on(shared, deadline, &parker, &waker, &mut poll);
        }
        loop {
            if let Poll::Ready(value) = poll(&waker) {
                return Some(value);
            }
            if !parker.park(&self.core.clock, deadline) {
                return None;
            }
        }
    }

    /// Closes all connections, waits at most a second until the last packets have left, and ends
    /// the drivers. Repeated calls have no effect.
    pub fn stop(&self) {
        self.core.drivers.iter().for_each(|driver| driver.shared.stop());
        for DriverHandle { shared, host, .. } in &self.core.drivers {
            match host {
                Host::Thread(thread) => {
                    let thread = lock(thread).take();
                    if let Some(thread) = thread
                        && thread.join().is_err()
                    {
                        tracing::error!("an engine thread panicked");
                    }
                }
                Host::Inline(inline) => inline.stop(shared),
            }
        }
    }
}

/// Ends the threads if the last handle is dropped without [`Drivers::stop`].
impl<D: Device> Drop for Core<D> {
    fn drop(&mut self) {
        self.drivers.iter().for_each(|driver| driver.shared.stop());
    }
}
