//! An engine that is told the time and whose processors do their turns when its owner says so.
//!
//! Everything in it is what runs otherwise, but for the threads: the application's calls leave their wishes, and
//! [`Steps::turn_of`] does what a processor's thread does between two sleeps. Turns of several processors are never at one
//! time, and their order is the owner's. So a run over sockets in memory is a function of what it was given, that order
//! included, and can be compared with a simulation packet by packet.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use units::Instant;

use super::start::{Drivers, check, drivers};
use super::{Core, Engine, Placed, Seat};
use crate::clock::{Clock, ManualClock};
use crate::config::EngineConfig;
use crate::crew::{Crew, Hand};
use crate::driver::{Driver, Tails};
use crate::error::StartError;
use crate::inline::Inline;
use crate::placement::Placement;
use crate::shared::Shared;
use crate::socket::LiveSocket;

/// What an engine asks the system for otherwise.
pub struct Given {
    /// Its time.
    pub clock: ManualClock,
    /// What connection IDs and other things that nobody may guess are made of.
    pub secret: [u8; 32],
}

/// The processors of an engine, in the hands of its owner. Dropping it ends all connections at once, without a goodbye.
///
/// Calls of handles that wait, such as [`Engine::block_on`], wait for turns: from the thread that does these they never return.
/// Under [`Placement::Inline`] every call of a handle does turns, as ever, and those that are done here are those of an
/// application that waits for something that has not come.
pub struct Steps {
    clock: ManualClock,
    // Before the drivers, which would wait for their ends.
    hands: Vec<Box<dyn Hand>>,
    drivers: Vec<Driver>,
    /// Who has the only driver, under `inline`.
    inline: Option<Engine>,
}

impl Engine {
    /// As [`start`](Self::start), with time and secrets that it is given, and without threads of its own.
    ///
    /// # Errors
    /// As `start`, and if the placement is [`Placement::Auto`], which asks the machine.
    pub fn start_stepped(
        config: EngineConfig,
        sockets: Vec<Box<dyn LiveSocket>>,
        given: Given,
    ) -> Result<(Self, Steps), StartError> {
        if config.placement == Placement::Auto {
            let words = format!("{} asks the machine and cannot be done step by step", config.placement);
            return Err(StartError::Configuration(words));
        }
        check(&config, config.placement.driver_count(), sockets.len())?;
        let clock = Clock::Manual(given.clock.clone());
        let mut crew = Crew::Stepped(Vec::new());
        let Drivers { each, figures, halves } = drivers(&config, sockets, &clock, &given.secret, &mut crew)?;
        let all: Vec<Arc<Shared>> = each.iter().map(|(shared, _)| Arc::clone(shared)).collect();
        all.iter().filter(|_| all.len() > 1).for_each(|shared| shared.meet(&all));
        let (mut seats, mut drivers) = (Vec::with_capacity(all.len()), Vec::new());
        for (shared, driver) in each {
            let placed = if config.placement.is_inline() {
                Placed::Inline(Box::new(Inline::new(driver)))
            } else {
                drivers.push(driver);
                Placed::Thread(Mutex::new(None))
            };
            seats.push(Seat { shared, placed });
        }
        let core = Core { seats, next: AtomicUsize::new(0), placement: config.placement, figures, halves };
        let engine = Self { core: Arc::new(core) };
        let hands = match crew {
            Crew::Stepped(hands) => hands,
            Crew::Threads => Vec::new(),
        };
        let inline = config.placement.is_inline().then(|| engine.clone());
        Ok((engine, Steps { clock: given.clock, hands, drivers, inline }))
    }
}

impl Steps {
    /// How many processors take turns: drivers, and then those that help them, in the order of their numbers.
    #[must_use]
    pub fn processor_count(&self) -> usize {
        usize::from(self.inline.is_some()) + self.drivers.len() + self.hands.len()
    }

    /// When a processor wants its next turn; now if there is something to do, `None` if only the application, another
    /// processor or an arrival can bring it something. To be asked anew after each turn, call of a handle and arrival.
    ///
    /// # Panics
    /// If there is no such processor.
    #[must_use]
    pub fn due_at_of(&self, processor: usize) -> Option<Instant> {
        let now = self.clock.now();
        match (&self.inline, self.drivers.get(processor)) {
            (Some(engine), _) => {
                assert_eq!(processor, 0, "there is one");
                engine.inline().and_then(|inline| inline.due_at(now))
            }
            (None, Some(driver)) => driver.due_at(now),
            (None, None) => self.hands[processor - self.drivers.len()].due_at(now),
        }
    }

    /// One turn of a processor. A driver takes what the application asks for, receives, fires timers, tells what happened and
    /// sends; the others do what they do for it. A turn that is not due does nothing.
    ///
    /// # Panics
    /// If there is no such processor.
    pub fn turn_of(&mut self, processor: usize) {
        let drivers = self.drivers.len();
        if let Some(engine) = &self.inline {
            assert_eq!(processor, 0, "there is one");
            engine.kick(&engine.first().shared, Tails::Sent);
        } else if let Some(driver) = self.drivers.get_mut(processor) {
            let work = driver.turn(Tails::Sent);
            tracing::trace!(processor, ?work, "a turn");
        } else {
            self.hands[processor - drivers].turn();
        }
    }

    /// When any of them wants a turn.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        (0..self.processor_count()).filter_map(|processor| self.due_at_of(processor)).min()
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(inline) = self.inline.as_ref().and_then(Engine::inline) {
            inline.abandon();
        }
    }
}
