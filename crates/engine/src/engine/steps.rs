//! A stepped engine: its owner sets the time and runs each turn of its processors.
//!
//! Apart from threads it is the same as a running engine. Handles submit requests, and
//! [`SteppedEngine::turn_of`] does what the thread of a processor does between two sleeps. Turns
//! never overlap, and the owner chooses their order. A run over sockets in memory is therefore a
//! function of its inputs and that order, and can be compared with a simulation packet by packet.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use units::Instant;

use driver::Flush;
use driver::placement::Placement;
use driver::worker::WorkerLoop;

use super::start::{Started, StartedDriver, check, start_drivers};
use super::{Core, DriverHandle, Engine, Host};
use crate::clock::{Clock, ManualClock};
use crate::config::EngineConfig;
use crate::driver_thread::LiveDriver;
use crate::error::StartError;
use crate::inline::Inline;
use crate::socket::LiveSocket;
use crate::worker::Spawner;

/// Replaces the system's clock and random numbers for a stepped engine.
pub struct SteppedEnv {
    /// The clock.
    pub clock: ManualClock,
    /// The secret that connection IDs and other unguessable values are derived from.
    pub secret: [u8; 32],
}

/// The processors of a stepped engine. Dropping it ends all connections at once, without sending a
/// CONNECTION_CLOSE frame.
///
/// Blocking calls such as [`Engine::block_on`] wait for turns. They never return on the thread that
/// runs the turns. Under [`Placement::Inline`] every call of a handle runs a turn as usual; a turn
/// run here stands for one in a blocking call.
pub struct SteppedEngine {
    clock: ManualClock,
    workers: Vec<Box<dyn WorkerLoop + Send>>,
    drivers: Vec<LiveDriver>,
    /// The engine that has the only driver, under `inline`.
    inline: Option<Engine>,
}

impl Engine {
    /// As [`start`](Self::start), with the clock and the secret of `env` and without threads.
    ///
    /// # Errors
    /// As `start`, and if the placement is [`Placement::Auto`], which depends on the machine.
    pub fn start_stepped(
        config: EngineConfig,
        sockets: Vec<Box<dyn LiveSocket>>,
        env: SteppedEnv,
    ) -> Result<(Self, SteppedEngine), StartError> {
        if config.placement == Placement::Auto {
            let text = format!("{} depends on the machine and cannot be run in steps", config.placement);
            return Err(StartError::Configuration(text));
        }
        check(&config, config.placement.driver_count(), sockets.len())?;
        let clock = Clock::Manual(env.clock.clone());
        let mut spawner = Spawner::Stepped(Vec::new());
        let Started { drivers: started, counters, receive_worker_counters, incoming } =
            start_drivers(&config, sockets, &clock, &env.secret, &mut spawner)?;
        let (mut handles, mut drivers) = (Vec::with_capacity(started.len()), Vec::new());
        for StartedDriver { shared, meter, driver } in started {
            let host = if config.placement.is_inline() {
                Host::Inline(Box::new(Inline::new(driver.driver, clock.clone())))
            } else {
                drivers.push(driver.driver);
                Host::Thread(Mutex::new(None))
            };
            handles.push(DriverHandle { shared, meter, host });
        }
        let (next, placement) = (AtomicUsize::new(0), config.placement);
        let core = Core { drivers: handles, clock, next, placement, counters, receive_worker_counters, incoming };
        let engine = Self { core: Arc::new(core) };
        let workers = match spawner {
            Spawner::Stepped(workers) => workers,
            Spawner::Threads(_) => Vec::new(),
        };
        let inline = config.placement.is_inline().then(|| engine.clone());
        Ok((engine, SteppedEngine { clock: env.clock, workers, drivers, inline }))
    }
}

impl SteppedEngine {
    /// The number of processors: drivers first, then workers, in the order in which they are
    /// indexed.
    #[must_use]
    pub fn processor_count(&self) -> usize {
        usize::from(self.inline.is_some()) + self.drivers.len() + self.workers.len()
    }

    /// When the next turn of a processor is due. This is the current time if there is work, and
    /// `None` if only the application, another processor or a received packet can make it due. Any
    /// turn, call of a handle or received packet can change the result.
    ///
    /// # Panics
    /// If there is no such processor.
    #[must_use]
    pub fn due_at_of(&self, processor: usize) -> Option<Instant> {
        let now = self.clock.now();
        match (&self.inline, self.drivers.get(processor)) {
            (Some(engine), _) => {
                assert_eq!(processor, 0, "there is one processor");
                engine.inline().and_then(|inline| inline.due_at(now))
            }
            (None, Some(driver)) => driver.due_at(now),
            (None, None) => self.workers[processor - self.drivers.len()].due_at(now),
        }
    }

    /// Runs one turn of a processor. A driver processes requests, receives, fires timers, reports
    /// events and sends. A worker processes what it received from its driver and its sockets. A
    /// turn that is not due has no effect.
    ///
    /// # Panics
    /// If there is no such processor.
    pub fn turn_of(&mut self, processor: usize) {
        let drivers = self.drivers.len();
        if let Some(engine) = &self.inline {
            assert_eq!(processor, 0, "there is one processor");
            engine.kick(&engine.first().shared, Flush::Now);
        } else if let Some(driver) = self.drivers.get_mut(processor) {
            let work = driver.turn(Flush::Now);
            tracing::trace!(processor, ?work, "a turn");
        } else {
            self.workers[processor - drivers].counted_turn();
        }
    }

    /// When the first turn of any processor is due.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        (0..self.processor_count()).filter_map(|processor| self.due_at_of(processor)).min()
    }
}

impl Drop for SteppedEngine {
    fn drop(&mut self) {
        if let Some(inline) = self.inline.as_ref().and_then(Engine::inline) {
            inline.abandon();
        }
    }
}
