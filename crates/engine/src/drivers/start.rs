//! Starts the drivers of a placement, on threads or for an owner that runs them in steps.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread::JoinHandle;

use driver::crypto_pool::PoolCounters;
use driver::placement::{PROCESSORS_MAX, Placement};
use driver::receive_worker::ReceiveWorkerCounters;
use driver::shared::Common;
use driver::{Driver, Inlet, Protocol, SOCKETS_MAX, Shared};
use units::Instant;

use super::place::{DriverParts, place};
use super::{Core, DriverHandle, Drivers, Host};
use crate::clock::Clock;
use crate::device::{ApplicationOf, BatchOf, Device, LimitsOf, SharedOf};
use crate::driver_thread::LiveDriver;
use crate::error::StartError;
use crate::event_handler::EventHandler;
use crate::inline::Inline;
use crate::live::LiveEnv;
use crate::meter::Meter;
use crate::settings::DriverSettings;
use crate::sleep::Sleeper;
use crate::worker::{Spawner, WorkerThread, pin_to};

impl<D: Device> Drivers<D> {
    /// Starts the drivers of the placement over `devices`. Handles enforce `handle_limits`. `make`
    /// creates the protocol of each driver, in their order, from the number of drivers and the
    /// current time.
    ///
    /// Under [`Placement::Connection`] each driver has the same number of devices of its own: first
    /// the devices of the first driver, then those of the second.
    ///
    /// # Errors
    /// If there is no device, the settings are invalid, the system refuses a poll or a thread, or
    /// `make` fails.
    ///
    /// # Panics
    /// If `make` returns another number of protocols.
    pub fn start(
        mut settings: DriverSettings,
        handle_limits: LimitsOf<D>,
        devices: Vec<D>,
        make: impl FnOnce(usize, Instant) -> Result<Vec<D::Protocol>, StartError>,
    ) -> Result<Self, StartError> {
        if settings.placement == Placement::Auto {
            settings.placement = Placement::suited(net::processors::count(), devices.len(), settings.seal_cost);
            tracing::info!(placement = %settings.placement, "placement chosen");
        }
        let clock = Clock::start();
        let mut spawner = Spawner::threads();
        let started = Started::new(&settings, handle_limits, devices, &clock, &mut spawner, make)?;
        started.into_drivers(&settings, &clock, |index, driver| {
            Ok(Mutex::new(Some(spawn(driver, settings.cores.get(index).copied())?)))
        })
    }
}

/// A driver and the threads of its workers. The driver is dropped first, which makes the threads
/// end.
pub(super) struct WithWorkers<D: Device> {
    pub(super) driver: LiveDriver<D>,
    _threads: Vec<WorkerThread>,
}

impl<D: Device> WithWorkers<D> {
    /// Runs the driver's thread. The method takes `self` as a whole: a closure that used only the
    /// field `driver` would not capture the threads, which would then be joined at once.
    fn run(mut self) {
        self.driver.run();
    }
}

/// A driver whose thread is not started yet.
struct StartedDriver<D: Device> {
    shared: Arc<SharedOf<D>>,
    meter: Option<Arc<Meter>>,
    driver: WithWorkers<D>,
}

/// The drivers of an endpoint, and the counters of their workers.
pub(super) struct Started<D: Device> {
    drivers: Vec<StartedDriver<D>>,
    counters: Option<Arc<PoolCounters>>,
    receive_worker_counters: Option<Arc<ReceiveWorkerCounters>>,
}

/// The parts of a driver that exist before its workers.
struct Prepared<D: Device> {
    shared: Arc<SharedOf<D>>,
    sleeper: Sleeper,
    /// Wakes the driver's thread.
    waker: Waker,
    devices: Vec<D>,
    handler: Option<Arc<dyn EventHandler>>,
}

impl<D: Device> Started<D> {
    /// Creates the drivers of the placement, with the same number of devices each. `spawner` starts
    /// the workers.
    pub(super) fn new(
        settings: &DriverSettings,
        handle_limits: LimitsOf<D>,
        mut devices: Vec<D>,
        clock: &Clock,
        spawner: &mut Spawner,
        make: impl FnOnce(usize, Instant) -> Result<Vec<D::Protocol>, StartError>,
    ) -> Result<Self, StartError> {
        let count = settings.placement.driver_count();
        check(settings, devices.len())?;
        let protocols = make(count, clock.now())?;
        assert_eq!(protocols.len(), count, "a protocol for each driver");
        let common = Arc::new(Common::new(count));
        let each = devices.len() / count;
        let mut prepared = Vec::with_capacity(count);
        for index in 0..count {
            let rest = devices.split_off(each);
            let mine = std::mem::replace(&mut devices, rest);
            prepared.push(prepare(settings, handle_limits.clone(), clock, &common, index, mine)?);
        }
        let inlet = |driver: &Prepared<D>| Arc::new(Inlet::new(driver.waker.clone()));
        let inlets: Vec<Arc<Inlet<BatchOf<D>>>> =
            if count > 1 { prepared.iter().map(inlet).collect() } else { Vec::new() };
        let drivers = Vec::with_capacity(count);
        let mut started = Self { drivers, counters: None, receive_worker_counters: None };
        for (Prepared { shared, sleeper, waker, devices, handler }, protocol) in prepared.into_iter().zip(protocols) {
            let DriverParts { sockets, workers } = place(settings, clock, &waker, devices, protocol.verify(), spawner)?;
            started.counters = workers.pool_counters().cloned();
            started.receive_worker_counters = workers.receive_worker_counters().cloned();
            let meter = settings.measure.then(|| Arc::new(Meter::new(clock.clone())));
            let env = LiveEnv::new(clock.clone(), meter.clone());
            let (of_driver, inlets, buffers) = (Arc::clone(&shared), inlets.clone(), D::Buffers::default());
            let driver = Driver::new(env, of_driver, inlets, protocol, sockets, buffers, workers, settings.limits);
            let driver = LiveDriver::new(driver, sleeper, handler);
            let driver = WithWorkers { driver, _threads: spawner.take_threads() };
            started.drivers.push(StartedDriver { shared, meter, driver });
        }
        Ok(started)
    }

    /// Starts the drivers: under `inline` callers run them, otherwise `host` moves them.
    pub(super) fn into_drivers(
        self,
        settings: &DriverSettings,
        clock: &Clock,
        mut host: impl FnMut(usize, WithWorkers<D>) -> Result<Mutex<Option<JoinHandle<()>>>, StartError>,
    ) -> Result<Drivers<D>, StartError> {
        let Self { drivers: started, counters, receive_worker_counters } = self;
        let placement = settings.placement;
        let all: Vec<Arc<SharedOf<D>>> = started.iter().map(|driver| Arc::clone(&driver.shared)).collect();
        let mut drivers = Vec::with_capacity(all.len());
        for (index, StartedDriver { shared, meter, driver }) in started.into_iter().enumerate() {
            let host = if placement.is_inline() {
                Host::Inline(Box::new(Inline::new(driver.driver, clock.clone())))
            } else {
                // If one thread cannot be started, the others end.
                Host::Thread(host(index, driver).inspect_err(|_| all.iter().for_each(|shared| shared.stop()))?)
            };
            drivers.push(DriverHandle { shared, meter, host });
        }
        let (clock, next) = (clock.clone(), AtomicUsize::new(0));
        let core = Core { drivers, clock, next, placement, counters, receive_worker_counters };
        Ok(Drivers { core: Arc::new(core) })
    }
}

/// Creates the state that handles share with a driver, and the driver's sleeper.
fn prepare<D: Device>(
    settings: &DriverSettings,
    handle_limits: LimitsOf<D>,
    clock: &Clock,
    common: &Arc<Common<ApplicationOf<D>>>,
    index: usize,
    devices: Vec<D>,
) -> Result<Prepared<D>, StartError> {
    let (sleeper, waker) =
        Sleeper::new(clock.clone(), settings.busy_poll).map_err(|error| StartError::System("set up polling", error))?;
    let handler = settings.event_handler.clone().filter(|_| index == 0);
    if let Some(handler) = &handler {
        let watched = sleeper.watch_handler(handler.descriptor());
        watched.map_err(|error| StartError::System("poll the descriptor of the event handler", error))?;
    }
    let mut local_addrs = Vec::with_capacity(devices.len());
    for device in &devices {
        let local = device.local_addr().map_err(|error| StartError::System("get the address of a socket", error))?;
        local_addrs.push(local);
    }
    let shared = Shared::new(waker.clone(), local_addrs, handle_limits, Arc::clone(common), index);
    Ok(Prepared { shared: Arc::new(shared), sleeper, waker, devices, handler })
}

/// Starts the thread of a driver.
#[expect(clippy::disallowed_methods, reason = "this is where drivers get their threads")]
fn spawn<D: Device>(driver: WithWorkers<D>, core: Option<usize>) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new()
        .name("litz-engine".to_owned())
        .spawn(move || {
            pin_to(core);
            driver.run();
        })
        .map_err(|error| StartError::System("start the engine thread", error))
}

/// Checks that the placement is possible with this number of devices.
fn check(settings: &DriverSettings, devices: usize) -> Result<(), StartError> {
    let placement = settings.placement;
    let drivers = placement.driver_count();
    let text = if devices == 0 {
        "an endpoint needs at least one socket".to_owned()
    } else if !devices.is_multiple_of(drivers) {
        format!("{placement} needs as many sockets for each processor, not {devices} in all")
    } else if devices / drivers > SOCKETS_MAX {
        format!("an endpoint takes at most {SOCKETS_MAX} sockets, not {}", devices / drivers)
    } else if placement.thread_count() > PROCESSORS_MAX {
        format!("an endpoint takes at most {PROCESSORS_MAX} processors, not {placement}")
    } else if placement.is_inline() && settings.event_handler.is_some() {
        format!("{placement} has no thread that could call an event handler")
    } else {
        return Ok(());
    };
    Err(StartError::Configuration(text))
}
