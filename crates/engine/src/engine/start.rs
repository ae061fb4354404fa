//! Starting an engine: who gets which sockets and which processors.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::clock::Clock;
use net::os_random;
use quic::{Endpoint, SHARDS_MAX, SecretSource};

use super::{Core, Placed, SOCKETS_MAX, Seat, run_to_the_end};
use crate::config::EngineConfig;
use crate::crew::Crew;
use crate::driver::{Driver, DriverLimits, Others, Tails};
use crate::error::StartError;
use crate::halves::{self, Receiver};
use crate::inline::Inline;
use crate::placement::{PROCESSORS_MAX, Placement};
use crate::port::{NearPort, Port};
use crate::processor::{PathProcessor, Start};
use crate::shared::{Common, Limits, Shared};
use crate::sleep::Sleeper;
use crate::socket::{LiveSocket, SharedSocket};
use crate::stage::{Figures, Stage, Worker};
use crate::wake::ArrivalWaker;

const _: () = assert!(PROCESSORS_MAX <= SHARDS_MAX, "connection IDs lead to every driver");

pub(super) fn start(mut config: EngineConfig, sockets: Vec<Box<dyn LiveSocket>>) -> Result<Core, StartError> {
    if config.placement == Placement::Auto {
        config.placement = Placement::suited(net::processors::count(), sockets.len(), config.seal_cost);
        tracing::info!(placement = %config.placement, "placement chosen");
    }
    let count = config.placement.driver_count();
    check(&config, count, sockets.len())?;
    let mut secret = [0; 32];
    os_random(&mut secret).map_err(|error| StartError::System("get random bytes", error))?;
    let Drivers { each: started, figures, halves } =
        drivers(&config, sockets, &Clock::start(), &secret, &mut Crew::Threads)?;
    let all: Vec<Arc<Shared>> = started.iter().map(|(shared, _)| Arc::clone(shared)).collect();
    all.iter().filter(|_| count > 1).for_each(|shared| shared.meet(&all));
    let mut seats = Vec::with_capacity(count);
    for (index, (shared, driver)) in started.into_iter().enumerate() {
        let placed = if config.placement.is_inline() {
            Placed::Inline(Box::new(Inline::new(driver)))
        } else {
            let thread = spawn(driver, config.cores.get(index).copied());
            // Those that run already end with those that cannot.
            let thread = thread.inspect_err(|_| all.iter().for_each(|shared| shared.stop()))?;
            Placed::Thread(Mutex::new(Some(thread)))
        };
        seats.push(Seat { shared, placed });
    }
    Ok(Core { seats, next: AtomicUsize::new(0), placement: config.placement, figures, halves })
}

/// Drivers that wait for their threads.
pub(super) struct Drivers {
    /// With what their handles share.
    pub(super) each: Vec<(Arc<Shared>, Driver)>,
    pub(super) figures: Option<Arc<Figures>>,
    pub(super) halves: Option<Arc<halves::Figures>>,
}

/// Makes the drivers of the placement; each has as many of the sockets. `crew` takes on the other processors.
pub(super) fn drivers(
    config: &EngineConfig,
    mut sockets: Vec<Box<dyn LiveSocket>>,
    clock: &Clock,
    secret: &[u8; 32],
    crew: &mut Crew,
) -> Result<Drivers, StartError> {
    let count = config.placement.driver_count();
    let common = Arc::new(Common::new(count));
    let secrets = SecretSource::new(secret);
    let each = sockets.len() / count;
    let (mut started, mut figures, mut halves) = (Vec::with_capacity(count), None, None);
    for index in 0..count {
        let rest = sockets.split_off(each);
        let mine = std::mem::replace(&mut sockets, rest);
        let (shared, sleeper) = share(config, clock.clone(), &common, index, &mine)?;
        let (ports, others) = place(config, &shared, mine, crew)?;
        halves = others.receiver.as_ref().map(|receiver| Arc::clone(receiver.figures()));
        figures = others.figures.clone();
        // The only one has all of it.
        let secrets = if count > 1 { secrets.split_for(index, count) } else { secrets.clone() };
        let endpoint = Endpoint::new(config.transport.clone(), config.server.clone(), secrets)
            .map_err(|error| StartError::Configuration(error.to_string()))?;
        let limits = DriverLimits {
            half_open_max: config.half_open_max,
            connections_max: config.connections_max,
            handshake_timeout: config.handshake_timeout,
        };
        let driver = Driver::new(Arc::clone(&shared), endpoint, ports, sleeper, others, limits)
            .map_err(|error| StartError::System("watch a socket", error))?;
        started.push((shared, driver));
    }
    Ok(Drivers { each: started, figures, halves })
}

/// Whether the configuration can work with so many sockets.
pub(super) fn check(config: &EngineConfig, drivers: usize, sockets: usize) -> Result<(), StartError> {
    let words = if sockets == 0 {
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
    Err(StartError::Configuration(words))
}

/// What handles share with a driver, and what the driver sleeps with.
fn share(
    config: &EngineConfig,
    clock: Clock,
    common: &Arc<Common>,
    index: usize,
    sockets: &[Box<dyn LiveSocket>],
) -> Result<(Arc<Shared>, Sleeper), StartError> {
    let (sleeper, waker) =
        Sleeper::new(clock.clone(), config.busy_poll).map_err(|error| StartError::System("set up polling", error))?;
    let mut local_addrs = Vec::with_capacity(sockets.len());
    for socket in sockets {
        let local = socket.local_addr().map_err(|error| StartError::System("ask a socket for its address", error))?;
        local_addrs.push(local);
    }
    let limits = Limits {
        outbox_bytes_max: config.outbox_bytes_max,
        inbox_bytes_max: config.inbox_bytes_max,
        message_len_max: config.message_len_max,
        is_listening: config.server.is_some(),
    };
    let common = Arc::clone(common);
    let shared = Shared::new(clock, Arc::new(waker), local_addrs, limits, config.measure, common, index);
    Ok((Arc::new(shared), sleeper))
}

/// Gives out sockets and processors, as the placement says.
fn place(
    config: &EngineConfig,
    shared: &Shared,
    sockets: Vec<Box<dyn LiveSocket>>,
    crew: &mut Crew,
) -> Result<(Vec<Port>, Others), StartError> {
    let near = |socket, local| {
        Port::near(NearPort::new(socket, local, Arc::new(ArrivalWaker::new(Arc::clone(&shared.waker)))))
    };
    let clock = &shared.clock;
    let cores = config.cores.get(1..).unwrap_or_default();
    let mut others = Others::default();
    if let Placement::Packet(count) = config.placement {
        let stage = Stage::start(count.saturating_sub(1), cores, clock.clone(), config.busy_poll, &shared.waker, crew);
        others.stage = Some(stage.map_err(|error| StartError::System("start a worker", error))?);
    }
    let wanted = if let Placement::Path(count) = config.placement { count.max(1) } else { 1 };
    // Those who would have no socket are not needed.
    let count = wanted.min(sockets.len() + 1);
    // The driver has what belongs to all paths, so it serves a socket only if there are as many as processors.
    let spares_driver = usize::from(count > sockets.len());
    let mut ports = Vec::with_capacity(sockets.len());
    let mut given: Vec<Vec<_>> = (1..count).map(|_| Vec::new()).collect();
    let sockets = match config.placement {
        Placement::Split => return halve(config, shared, sockets, crew),
        _ => sockets,
    };
    for (index, socket) in sockets.into_iter().enumerate() {
        let local = shared.local_addrs[index];
        match ((index + spares_driver) % count).checked_sub(1) {
            None => ports.push(near(socket, local)),
            Some(processor) => {
                ports.push(Port::far(local, processor, socket.max_gso_segments().max(1)));
                given[processor].push((index, local, socket));
            }
        }
    }
    // Where the driver serves a socket, the others help it if they have nothing to do.
    let has_near = ports.iter().any(|port| port.as_near().is_some());
    let mut helpers = Vec::new();
    for (index, sockets) in given.into_iter().enumerate() {
        let start = Start {
            name: format!("litz-path-{}", index + 1),
            core: cores.get(index).copied(),
            clock: clock.clone(),
            busy_poll: config.busy_poll,
            owner: Arc::clone(&shared.waker),
        };
        let processor = PathProcessor::start(start, crew, sockets, |waker| {
            let (worker, helper) = Worker::helped_by(Arc::clone(waker));
            helpers.push(worker);
            has_near.then_some(helper)
        });
        others.processors.push(processor.map_err(|error| StartError::System("start a processor", error))?);
    }
    if !others.processors.is_empty() {
        let tallies = others.processors.iter().map(|processor| Arc::clone(&processor.tally)).collect();
        let figures = Arc::new(Figures::new(tallies));
        others.stage = has_near.then(|| Stage::of_helpers(helpers, Arc::clone(&figures)));
        others.figures = Some(figures);
    } else if let Some(stage) = &others.stage {
        others.figures = Some(Arc::clone(stage.figures()));
    }
    Ok((ports, others))
}

/// The driver sends, another processor receives.
fn halve(
    config: &EngineConfig,
    shared: &Shared,
    sockets: Vec<Box<dyn LiveSocket>>,
    crew: &mut Crew,
) -> Result<(Vec<Port>, Others), StartError> {
    let (mut ports, mut receiving) = (Vec::with_capacity(sockets.len()), Vec::with_capacity(sockets.len()));
    for (mut socket, local) in sockets.into_iter().zip(shared.local_addrs.iter().copied()) {
        let receiver = socket.receiver().map_err(|error| StartError::System("share a socket", error))?;
        let [socket, receiver] = match receiver {
            Some(receiver) => [socket, receiver],
            None => SharedSocket::pair(socket),
        };
        let arrivals = Arc::new(ArrivalWaker::new(Arc::clone(&shared.waker)));
        ports.push(Port::near(NearPort::only_sending(socket, local, arrivals)));
        receiving.push((local, receiver));
    }
    let start = halves::Start {
        core: config.cores.get(1).copied(),
        clock: shared.clock.clone(),
        busy_poll: config.busy_poll,
        owner: Arc::clone(&shared.waker),
    };
    let receiver = Receiver::start(start, crew, receiving);
    let receiver = receiver.map_err(|error| StartError::System("start a processor", error))?;
    Ok((ports, Others { receiver: Some(receiver), ..Others::default() }))
}

/// Gives the driver a thread of its own.
#[expect(clippy::disallowed_methods, reason = "this is where processors are given out")]
fn spawn(mut driver: Driver, core: Option<usize>) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new()
        .name("litz-engine".to_owned())
        .spawn(move || {
            if let Some(core) = core
                && let Err(error) = net::processors::stay_on(core)
            {
                tracing::warn!(%error, core, "cannot stay on one processor");
            }
            while !driver.is_stopping() {
                let work = driver.turn(Tails::Sent);
                tracing::trace!(?work, "a turn");
                if driver.is_stopping() {
                    // The turn may have said the goodbyes already: then nothing would end the wait.
                    break;
                }
                driver.wait(None);
            }
            run_to_the_end(&mut driver);
        })
        .map_err(|error| StartError::System("start the engine thread", error))
}
