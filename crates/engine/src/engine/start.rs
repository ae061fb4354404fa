//! Starting an engine: creates the drivers and workers of a placement and distributes the sockets.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread::JoinHandle;

use driver::crypto_pool::{CryptoWorker, PoolCounters};
use driver::path_worker::{self, PathWorker};
use driver::placement::{PROCESSORS_MAX, Placement, socket_workers};
use driver::receive_worker::{self, ReceiveWorker, ReceiveWorkerCounters};
use driver::shared::Common;
use driver::worker::WorkerSocket;
use driver::workers::Workers;
use driver::{Driver, DriverLimits, Inlet, Place};
use net::{os_random, since_epoch};
use quic::{Endpoint, SHARDS_MAX, SecretSource, TokenMemory};
use quic_driver::{COMPACT_BELOW, Datagrams, HeldAttempts, IncomingQueue, Limits, Quic, QuicShared};
use units::Duration;

use super::{Core, DriverHandle, Host, SOCKETS_MAX};
use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::driver_thread::LiveDriver;
use crate::error::StartError;
use crate::inline::Inline;
use crate::live::{LiveEnv, LiveQuic, serve, serve_sending};
use crate::meter::Meter;
use crate::receive::{Buffers, ReceivedData};
use crate::sleep::Sleeper;
use crate::socket::{LiveSocket, SharedSocket};
use crate::worker::{Spawner, WorkerSettings, WorkerThread, pin_to};

/// How long to wait for the end of a crypto worker's thread. It ends after its current batch.
const CRYPTO_WORKER_ENDS_WITHIN: Duration = Duration::from_secs(1);

const _: () = assert!(PROCESSORS_MAX <= SHARDS_MAX, "connection IDs have a shard for every driver");

pub(super) fn start(mut config: EngineConfig, sockets: Vec<Box<dyn LiveSocket>>) -> Result<Core, StartError> {
    if config.placement == Placement::Auto {
        config.placement = Placement::suited(net::processors::count(), sockets.len(), config.seal_cost);
        tracing::info!(placement = %config.placement, "placement chosen");
    }
    check(&config, config.placement.driver_count(), sockets.len())?;
    let mut secret = [0; 32];
    os_random(&mut secret).map_err(|error| StartError::System("get random bytes", error))?;
    let clock = Clock::start();
    let Started { drivers: started, counters, receive_worker_counters, incoming } =
        start_drivers(&config, sockets, &clock, &secret, &mut Spawner::threads())?;
    let all: Vec<Arc<QuicShared>> = started.iter().map(|driver| Arc::clone(&driver.shared)).collect();
    let mut drivers = Vec::with_capacity(all.len());
    for (index, StartedDriver { shared, meter, driver }) in started.into_iter().enumerate() {
        let host = if config.placement.is_inline() {
            Host::Inline(Box::new(Inline::new(driver.driver, clock.clone())))
        } else {
            let thread = spawn(driver, config.cores.get(index).copied());
            // If one thread cannot be started, the others end.
            let thread = thread.inspect_err(|_| all.iter().for_each(|shared| shared.stop()))?;
            Host::Thread(Mutex::new(Some(thread)))
        };
        drivers.push(DriverHandle { shared, meter, host });
    }
    let (next, placement) = (AtomicUsize::new(0), config.placement);
    Ok(Core { drivers, clock, next, placement, counters, receive_worker_counters, incoming })
}

/// A driver and the threads of its workers. The driver is dropped first, which makes the threads
/// end.
pub(super) struct WithWorkers {
    pub(super) driver: LiveDriver,
    _threads: Vec<WorkerThread>,
}

impl WithWorkers {
    /// Runs the driver's thread. Takes `self` as a whole: a closure that used only the field
    /// `driver` would not capture the threads, which would then be joined at once.
    fn run(mut self) {
        self.driver.run();
    }
}

/// A driver whose thread is not started yet.
pub(super) struct StartedDriver {
    pub(super) shared: Arc<QuicShared>,
    pub(super) meter: Option<Arc<Meter>>,
    pub(super) driver: WithWorkers,
}

/// The drivers of an engine, and the counters of their workers.
pub(super) struct Started {
    pub(super) drivers: Vec<StartedDriver>,
    pub(super) counters: Option<Arc<PoolCounters>>,
    pub(super) receive_worker_counters: Option<Arc<ReceiveWorkerCounters>>,
    /// Where attempts to connect wait for decisions, if they do.
    pub(super) incoming: Option<Arc<IncomingQueue>>,
}

/// The parts of a driver that exist before its endpoint.
struct Prepared {
    shared: Arc<QuicShared>,
    sleeper: Sleeper,
    /// Wakes the driver's thread.
    waker: Waker,
    sockets: Vec<Box<dyn LiveSocket>>,
}

/// Creates the drivers of the placement, with the same number of sockets each. `spawner` starts the
/// workers.
pub(super) fn start_drivers(
    config: &EngineConfig,
    mut sockets: Vec<Box<dyn LiveSocket>>,
    clock: &Clock,
    secret: &[u8; 32],
    spawner: &mut Spawner,
) -> Result<Started, StartError> {
    let count = config.placement.driver_count();
    let common = Arc::new(Common::new(count));
    let each = sockets.len() / count;
    let mut prepared = Vec::with_capacity(count);
    for index in 0..count {
        let rest = sockets.split_off(each);
        let mine = std::mem::replace(&mut sockets, rest);
        prepared.push(prepare(config, clock, &common, index, mine)?);
    }
    let inlet = |driver: &Prepared| Arc::new(Inlet::new(driver.waker.clone()));
    let inlets: Vec<Arc<Inlet<Datagrams<ReceivedData>>>> =
        if count > 1 { prepared.iter().map(inlet).collect() } else { Vec::new() };
    let secrets = SecretSource::new(secret);
    let secrets = match &config.reset_key {
        Some(key) => secrets.with_reset_key(key),
        None => secrets,
    };
    // Endpoints of one engine share the tokens, whichever driver serves a connection.
    let token_memory = config.address_tokens.then(|| Arc::new(TokenMemory::new()));
    let secrets = if config.address_tokens {
        let since_start = clock.now().saturating_since(units::Instant::ZERO);
        secrets.with_address_tokens(since_epoch() - since_start.min(since_epoch()))
    } else {
        secrets
    };
    let incoming = (config.incoming_max > 0).then(|| Arc::new(IncomingQueue::new(count)));
    let mut started = Started {
        drivers: Vec::with_capacity(count),
        counters: None,
        receive_worker_counters: None,
        incoming: incoming.clone(),
    };
    for (index, Prepared { shared, sleeper, waker, sockets }) in prepared.into_iter().enumerate() {
        let DriverParts { sockets, workers } = place(config, clock, &waker, sockets, spawner)?;
        started.counters = workers.pool_counters().cloned();
        started.receive_worker_counters = workers.receive_worker_counters().cloned();
        // A single driver uses all shards.
        let secrets = if count > 1 { secrets.split_for(index, count) } else { secrets.clone() };
        let mut endpoint = Endpoint::new(config.transport.clone(), config.server.clone(), secrets)
            .map_err(|error| StartError::Configuration(error.to_string()))?;
        endpoint.set_address_validation(config.address_validation);
        if let Some(memory) = &token_memory {
            endpoint.set_token_memory(Arc::clone(memory));
        }
        let lifetime = config.transport.handshake_timeout;
        let held =
            incoming.as_ref().map(|queue| HeldAttempts::new(Arc::clone(queue), index, config.incoming_max, lifetime));
        let limits = DriverLimits { half_open_max: config.half_open_max, connections_max: config.connections_max };
        let meter = config.measure.then(|| Arc::new(Meter::new(clock.clone())));
        let env = LiveEnv { clock: clock.clone(), meter: meter.clone() };
        let driver = Driver::new(
            env,
            Arc::clone(&shared),
            inlets.clone(),
            Quic::new(endpoint).with_incoming(held),
            sockets,
            Buffers::new(),
            workers,
            limits,
        );
        let driver = WithWorkers { driver: LiveDriver::new(driver, sleeper), _threads: spawner.take_threads() };
        started.drivers.push(StartedDriver { shared, meter, driver });
    }
    Ok(started)
}

/// Creates the state that handles share with a driver, and the driver's sleeper.
fn prepare(
    config: &EngineConfig,
    clock: &Clock,
    common: &Arc<Common<quic_driver::QuicApplication>>,
    index: usize,
    sockets: Vec<Box<dyn LiveSocket>>,
) -> Result<Prepared, StartError> {
    let (sleeper, waker) =
        Sleeper::new(clock.clone(), config.busy_poll).map_err(|error| StartError::System("set up polling", error))?;
    let mut local_addrs = Vec::with_capacity(sockets.len());
    for socket in &sockets {
        let local = socket.local_addr().map_err(|error| StartError::System("get the address of a socket", error))?;
        local_addrs.push(local);
    }
    let limits = Limits {
        outbox_bytes_max: config.outbox_bytes_max,
        inbox_bytes_max: config.inbox_bytes_max,
        message_len_max: config.message_len_max,
        compact_below: COMPACT_BELOW,
        is_listening: config.server.is_some(),
        accepts_early: config.accepts_early,
    };
    let shared = QuicShared::new(waker.clone(), local_addrs, limits, Arc::clone(common), index);
    Ok(Prepared { shared: Arc::new(shared), sleeper, waker, sockets })
}

/// The sockets and workers of a driver.
struct DriverParts {
    sockets: Vec<Place<LiveEnv>>,
    workers: Workers<LiveQuic>,
}

/// Distributes the sockets and starts the workers of the placement.
fn place(
    config: &EngineConfig,
    clock: &Clock,
    owner: &Waker,
    sockets: Vec<Box<dyn LiveSocket>>,
    spawner: &mut Spawner,
) -> Result<DriverParts, StartError> {
    match config.placement {
        Placement::Split => place_split(config, clock, owner, sockets, spawner),
        Placement::Packet(count) => place_packet(config, clock, owner, sockets, count, spawner),
        Placement::Path(count) => place_path(config, clock, owner, sockets, count, spawner),
        _ => {
            let sockets = sockets.into_iter().map(|socket| Place::Local(serve(socket, owner))).collect();
            Ok(DriverParts { sockets, workers: Workers::default() })
        }
    }
}

/// `packet`: the driver serves all sockets, crypto workers encrypt and decrypt.
fn place_packet(
    config: &EngineConfig,
    clock: &Clock,
    owner: &Waker,
    sockets: Vec<Box<dyn LiveSocket>>,
    count: usize,
    spawner: &mut Spawner,
) -> Result<DriverParts, StartError> {
    let mut pool = Vec::new();
    for number in 1..count {
        let settings = WorkerSettings {
            name: format!("litz-worker-{number}"),
            join_within: CRYPTO_WORKER_ENDS_WITHIN,
            if_it_panics: "the remaining workers take over its work",
            ..settings(config, clock, owner, number)
        };
        let worker = spawner.spawn_parking(settings, |waker| CryptoWorker::new(clock.clone(), owner.clone(), waker));
        pool.push(worker.map_err(|error| StartError::System("start a worker", error))?);
    }
    let sockets = sockets.into_iter().map(|socket| Place::Local(serve(socket, owner))).collect();
    Ok(DriverParts { sockets, workers: Workers::of_pool(pool) })
}

/// `path`: each path worker serves some of the sockets. If there are more processors than sockets,
/// the driver serves none.
fn place_path(
    config: &EngineConfig,
    clock: &Clock,
    owner: &Waker,
    sockets: Vec<Box<dyn LiveSocket>>,
    count: usize,
    spawner: &mut Spawner,
) -> Result<DriverParts, StartError> {
    let mut places = Vec::with_capacity(sockets.len());
    let mut assigned: Vec<Vec<_>> = Vec::new();
    let workers = socket_workers(count, sockets.len());
    for ((index, socket), worker) in sockets.into_iter().enumerate().zip(workers) {
        let Some(worker) = worker else {
            places.push(Place::Local(serve(socket, owner)));
            continue;
        };
        places.push(Place::Offloaded { worker, batch_max: socket.max_gso_segments().max(1) });
        assigned.resize_with(assigned.len().max(worker + 1), Vec::new);
        assigned[worker].push((index, socket));
    }
    // If the driver serves a socket, path workers also encrypt and decrypt for it while they are
    // idle.
    let has_local = places.iter().any(|place| matches!(place, Place::Local(_)));
    let (mut helpers, mut paths) = (Vec::new(), Vec::new());
    for (index, sockets) in assigned.into_iter().enumerate() {
        let settings = WorkerSettings {
            name: format!("litz-path-{}", index + 1),
            join_within: path_worker::HANG_AFTER,
            if_it_panics: "its paths cannot be used any more",
            ..settings(config, clock, owner, index + 1)
        };
        let worker = spawner.spawn_polling(settings, |waker| {
            let (worker, helper) = CryptoWorker::helped_by(waker.clone());
            let helper = has_local.then_some(helper);
            helpers.extend(has_local.then_some(worker));
            let serve = |(index, socket)| WorkerSocket { index, socket: serve(socket, &waker) };
            let sockets = sockets.into_iter().map(serve).collect();
            PathWorker::new::<LiveEnv>(clock.clone(), owner.clone(), waker.clone(), sockets, helper)
        });
        paths.push(worker.map_err(|error| StartError::System("start a worker", error))?);
    }
    Ok(DriverParts { sockets: places, workers: Workers::of_paths(paths, helpers) })
}

/// `split`: the driver sends, the receive worker receives.
fn place_split(
    config: &EngineConfig,
    clock: &Clock,
    owner: &Waker,
    sockets: Vec<Box<dyn LiveSocket>>,
    spawner: &mut Spawner,
) -> Result<DriverParts, StartError> {
    let (mut places, mut receiving) = (Vec::with_capacity(sockets.len()), Vec::with_capacity(sockets.len()));
    for mut socket in sockets {
        let receiver = socket.receiver().map_err(|error| StartError::System("share a socket", error))?;
        let [socket, receiver] = match receiver {
            Some(receiver) => [socket, receiver],
            None => SharedSocket::pair(socket),
        };
        places.push(Place::Local(serve_sending(socket, owner)));
        receiving.push(receiver);
    }
    let settings = WorkerSettings {
        name: "litz-receive".to_owned(),
        join_within: receive_worker::LIVENESS_INTERVAL,
        if_it_panics: "the connections of its receive halves end",
        ..settings(config, clock, owner, 1)
    };
    let receiver = spawner.spawn_polling(settings, |waker| {
        let serve = |(index, socket)| WorkerSocket { index, socket: serve(socket, &waker) };
        let sockets = receiving.into_iter().enumerate().map(serve).collect();
        ReceiveWorker::new::<LiveEnv>(clock.clone(), owner.clone(), waker.clone(), sockets)
    });
    let receiver = receiver.map_err(|error| StartError::System("start a worker", error))?;
    Ok(DriverParts { sockets: places, workers: Workers::of_receiver(receiver) })
}

/// The settings of worker `number`, counted from one, that are the same for all kinds of workers.
fn settings(config: &EngineConfig, clock: &Clock, owner: &Waker, number: usize) -> WorkerSettings {
    WorkerSettings {
        name: String::new(),
        core: config.cores.get(number).copied(),
        clock: clock.clone(),
        busy_poll: config.busy_poll,
        owner: owner.clone(),
        join_within: Duration::ZERO,
        if_it_panics: "",
    }
}

/// Starts the thread of a driver.
#[expect(clippy::disallowed_methods, reason = "this is where drivers get their threads")]
fn spawn(driver: WithWorkers, core: Option<usize>) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new()
        .name("litz-engine".to_owned())
        .spawn(move || {
            pin_to(core);
            driver.run();
        })
        .map_err(|error| StartError::System("start the engine thread", error))
}

/// Checks that the configuration is valid for this number of sockets.
pub(super) fn check(config: &EngineConfig, drivers: usize, sockets: usize) -> Result<(), StartError> {
    let text = if sockets == 0 {
        "an endpoint needs at least one socket".to_owned()
    } else if !sockets.is_multiple_of(drivers) {
        format!("{} needs as many sockets for each processor, not {sockets} in all", config.placement)
    } else if sockets / drivers > SOCKETS_MAX {
        format!("an endpoint takes at most {SOCKETS_MAX} sockets, not {}", sockets / drivers)
    } else if config.placement.thread_count() > PROCESSORS_MAX {
        format!("an endpoint takes at most {PROCESSORS_MAX} processors, not {}", config.placement)
    } else {
        return Ok(());
    };
    Err(StartError::Configuration(text))
}
