//! A host: one driver of the toy protocol with the workers of its placement.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use driver::crypto_pool::{CryptoWorker, PoolCounters};
use driver::driver::Place;
use driver::receive_worker::{ReceiveWorker, ReceiveWorkerCounters};
use driver::shared::Common;
use driver::worker::{WorkerLoop, WorkerSocket};
use driver::workers::Workers;
use driver::{Clock, Driver, DriverLimits, Env, Flush, LocalSocket, Shared};
use net::MonotonicClock;
use units::Instant;

use crate::app::ToyShared;
use crate::link::{Link, Port};
use crate::protocol::Toy;

/// The clock: set by the test, or the system's clock.
#[derive(Debug, Clone)]
pub(crate) enum TestClock {
    Manual(Arc<AtomicU64>),
    System(MonotonicClock),
}

impl TestClock {
    pub(crate) fn manual() -> Self {
        Self::Manual(Arc::default())
    }

    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::Manual(nanos) => Instant::from_nanos(nanos.load(Ordering::SeqCst)),
            Self::System(clock) => clock.now(),
        }
    }

    pub(crate) fn advance_to(&self, at: Instant) {
        match self {
            Self::Manual(nanos) => {
                assert!(nanos.swap(at.as_nanos(), Ordering::SeqCst) <= at.as_nanos(), "time does not go backwards")
            }
            Self::System(_) => unreachable!("the system's time passes by itself"),
        }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        Self::now(self)
    }
}

pub(crate) struct ToyEnv {
    clock: TestClock,
}

impl Env for ToyEnv {
    type Protocol = Toy;
    type Socket = Port;
    type Offload = Workers<Toy>;
    type Clock = TestClock;

    fn now(&self) -> Instant {
        self.clock.now()
    }
}

/// The processors of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The caller runs the turns.
    Inline,
    /// The driver has a thread.
    Thread,
    /// The driver has a thread, and a worker receives.
    Split,
    /// The driver has a thread, and a worker opens, decrypts and seals.
    Packet,
}

impl Placement {
    pub(crate) const ALL: [Self; 4] = [Self::Inline, Self::Thread, Self::Split, Self::Packet];
}

pub(crate) const LIMITS: DriverLimits = DriverLimits { half_open_max: 64, connections_max: 256 };

/// Port at which servers listen.
pub(crate) const SERVICE: u16 = 7;

pub(crate) fn address(host: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1 + host as u8), SERVICE)
}

pub(crate) type ToyDriver = Driver<ToyEnv>;

/// A worker, until it ends.
pub(crate) struct Worker(Option<Box<dyn WorkerLoop + Send>>);

impl Worker {
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        self.0.as_ref()?.due_at(now)
    }

    /// Returns whether the driver or the worker has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(|worker| worker.is_abandoned())
    }

    /// Runs a turn. A panic ends the worker unless it can evict the connection at fault.
    pub(crate) fn turn(&mut self) {
        let Some(worker) = &mut self.0 else { return };
        if catch_unwind(AssertUnwindSafe(|| worker.counted_turn())).is_err() && !worker.recover() {
            self.0 = None;
        }
    }
}

/// The state that a test checks after a host has run.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) pool: Option<Arc<PoolCounters>>,
    pub(crate) split: Option<Arc<ReceiveWorkerCounters>>,
}

pub(crate) struct Host {
    pub(crate) shared: Arc<ToyShared>,
    pub(crate) driver: HostDriver,
    pub(crate) worker: Option<Worker>,
    pub(crate) counters: Counters,
}

/// A driver with the port that it sends through.
pub(crate) struct HostDriver {
    pub(crate) driver: ToyDriver,
    port: Port,
}

impl HostDriver {
    /// Runs a turn. Returns whether there is more to do at once.
    pub(crate) fn turn(&mut self) -> bool {
        self.check_space();
        self.driver.turn(Flush::Now).has_more
    }

    fn check_space(&mut self) {
        if let Some(socket) = self.driver.socket_mut(0)
            && socket.awaits_writable()
            && self.port.has_space()
        {
            socket.note_ready(false, true);
        }
    }

    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        let awaits_space = self.driver.socket(0).is_some_and(LocalSocket::awaits_writable);
        if awaits_space && self.port.has_space() { Some(now) } else { self.driver.due_at(now) }
    }
}

/// Wakes a host's driver and its worker.
pub(crate) struct HostWakers {
    pub(crate) driver: Waker,
    pub(crate) worker: Waker,
}

impl HostWakers {
    pub(crate) fn none() -> Self {
        Self { driver: Waker::noop().clone(), worker: Waker::noop().clone() }
    }
}

impl Host {
    /// Host `number` of a link. It listens if it is the second.
    pub(crate) fn new(
        number: usize,
        placement: Placement,
        link: &Link,
        clock: &TestClock,
        wakers: &HostWakers,
        limits: DriverLimits,
    ) -> Self {
        let ip = *address(number).ip();
        let receiver = if placement == Placement::Split { &wakers.worker } else { &wakers.driver };
        let port = link.port(number, clock.clone(), receiver.clone(), wakers.driver.clone());
        let local = vec![SocketAddrV4::new(ip, 0).into()];
        let shared = Arc::new(Shared::new(wakers.driver.clone(), local, (), Arc::new(Common::new(1)), 0));
        let (owner, waker) = (wakers.driver.clone(), wakers.worker.clone());
        let (socket, workers, worker): (_, _, Option<Box<dyn WorkerLoop + Send>>) = match placement {
            Placement::Inline | Placement::Thread => (LocalSocket::new(port.clone()), Workers::default(), None),
            Placement::Split => {
                let sockets = vec![WorkerSocket { index: 0, socket: LocalSocket::new(port.clone()) }];
                let (receiver, role) = ReceiveWorker::new::<ToyEnv>(clock.clone(), owner, waker, sockets);
                (LocalSocket::only_sending(port.clone()), Workers::of_receiver(receiver), Some(Box::new(role)))
            }
            Placement::Packet => {
                let (worker, turns) = CryptoWorker::new(clock.clone(), owner, waker);
                (LocalSocket::new(port.clone()), Workers::of_pool(vec![worker]), Some(Box::new(turns)))
            }
        };
        let (split, pool) = (workers.receive_worker_counters().cloned(), workers.pool_counters().cloned());
        let counters = Counters { split, pool };
        let protocol = Toy::new(ip, 0x5eed + number as u64, (number == 1).then_some(SERVICE));
        let env = ToyEnv { clock: clock.clone() };
        let sockets = vec![Place::Local(socket)];
        let driver = Driver::new(env, Arc::clone(&shared), Vec::new(), protocol, sockets, (), workers, limits);
        Self {
            shared,
            driver: HostDriver { driver, port },
            worker: worker.map(|worker| Worker(Some(worker))),
            counters,
        }
    }
}
