//! An engine that is told the time and does its turns when its owner says so.
//!
//! Everything in it is what [`Placement::Thread`] runs, but for the thread: the application's calls leave their wishes, and
//! [`Steps::turn`] does what that thread does when it wakes. So a run over sockets in memory is a function of what it was
//! given, and can be compared with a simulation packet by packet.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use units::Instant;

use super::start::{check, drivers};
use super::{Core, Engine, Placed, Seat};
use crate::clock::{Clock, ManualClock};
use crate::config::EngineConfig;
use crate::driver::{Driver, Tails};
use crate::error::StartError;
use crate::placement::Placement;
use crate::socket::LiveSocket;

/// What an engine asks the system for otherwise.
pub struct Given {
    /// Its time.
    pub clock: ManualClock,
    /// What connection IDs and other things that nobody may guess are made of.
    pub secret: [u8; 32],
}

/// The driver of an engine, in the hands of its owner. Dropping it ends all connections at once, without a goodbye.
///
/// Calls of handles that wait, such as [`Engine::block_on`], wait for turns: from the thread that does these they never return.
pub struct Steps {
    driver: Driver,
}

impl Engine {
    /// As [`start`](Self::start), with time and secrets that it is given, and without a thread of its own.
    ///
    /// # Errors
    /// As `start`, and if the placement is another than [`Placement::Thread`]: other processors would run when they like.
    pub fn start_stepped(
        config: EngineConfig,
        sockets: Vec<Box<dyn LiveSocket>>,
        given: Given,
    ) -> Result<(Self, Steps), StartError> {
        if config.placement != Placement::Thread {
            let words = format!("{} cannot be done step by step, only {}", config.placement, Placement::Thread);
            return Err(StartError::Configuration(words));
        }
        check(&config, 1, sockets.len())?;
        let mut started = drivers(&config, 1, sockets, &Clock::Manual(given.clock), &given.secret)?;
        let (shared, driver) = started.each.remove(0);
        let seats = vec![Seat { shared, placed: Placed::Thread(Mutex::new(None)) }];
        let (next, placement) = (AtomicUsize::new(0), config.placement);
        let core = Core { seats, next, placement, figures: started.figures, halves: started.halves };
        Ok((Self { core: Arc::new(core) }, Steps { driver }))
    }
}

impl Steps {
    /// When the driver wants its next turn; now if there is something to do, `None` if only the application or an arrival can
    /// bring it something. To be asked anew after each turn, call of a handle and arrival.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        self.driver.due_at(self.driver.now())
    }

    /// One turn: takes what the application asks for, receives, fires timers, tells what happened, sends. One that is not due
    /// does nothing.
    pub fn turn(&mut self) {
        let work = self.driver.turn(Tails::Sent);
        tracing::trace!(?work, "a turn");
    }
}
