//! A stepped engine: its owner sets the time and runs each turn of its processors.

use engine::{Drivers, ManualClock, StartError, SteppedDrivers};
use units::Instant;

use super::start::{Protocols, devices, limits, settings};
use super::{Engine, QuicDevice};
use crate::runtime::config::EngineConfig;
use crate::runtime::socket::LiveSocket;

/// Replaces the system's clock and random numbers for a stepped engine.
pub struct SteppedEnv {
    /// The clock.
    pub clock: ManualClock,
    /// Secret from which connection IDs and other unguessable values are derived.
    pub secret: [u8; 32],
}

/// The processors of a stepped engine. Dropping it ends all connections at once, without sending a
/// CONNECTION_CLOSE frame.
///
/// Blocking calls such as [`Engine::block_on`] wait for turns. They never return on the thread that
/// runs the turns. Under [`Placement::Inline`](crate::Placement::Inline) every call of a handle
/// runs a turn as usual; a turn run here stands for one in a blocking call.
pub struct SteppedEngine(SteppedDrivers<QuicDevice>);

impl Engine {
    /// Starts an engine like [`start`](Self::start), with the clock and the secret of `env` and
    /// without threads.
    ///
    /// # Errors
    /// Same errors as `start`; also fails if the placement is
    /// [`Placement::Auto`](crate::Placement::Auto), which depends on the machine.
    pub fn start_stepped(
        config: EngineConfig,
        sockets: Vec<Box<dyn LiveSocket>>,
        env: SteppedEnv,
    ) -> Result<(Self, SteppedEngine), StartError> {
        let SteppedEnv { clock, secret } = env;
        let mut incoming = None;
        let make = |count, now| {
            let made = Protocols::new(&config, &secret, count, now)?;
            incoming = made.incoming;
            Ok(made.drivers)
        };
        let (drivers, stepped) =
            Drivers::start_stepped(settings(&config), limits(&config), devices(sockets), clock, make)?;
        Ok((Self { drivers, incoming }, SteppedEngine(stepped)))
    }
}

impl SteppedEngine {
    /// See [`SteppedDrivers::processor_count`].
    #[must_use]
    pub fn processor_count(&self) -> usize {
        self.0.processor_count()
    }

    /// See [`SteppedDrivers::due_at_of`].
    ///
    /// # Panics
    /// If there is no such processor.
    #[must_use]
    pub fn due_at_of(&self, processor: usize) -> Option<Instant> {
        self.0.due_at_of(processor)
    }

    /// See [`SteppedDrivers::turn_of`].
    ///
    /// # Panics
    /// If there is no such processor.
    pub fn turn_of(&mut self, processor: usize) {
        self.0.turn_of(processor);
    }

    /// Returns the time at which the first turn of any processor is due.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        self.0.due_at()
    }
}
