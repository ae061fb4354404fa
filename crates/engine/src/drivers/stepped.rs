//! Stepped drivers: their owner sets the time and runs each turn of their processors.
//!
//! Except for threads they are the same as running drivers. Handles submit requests, and
//! [`SteppedDrivers::turn_of`] does what the thread of a processor does between two sleeps. Turns
//! never overlap, and the owner chooses their order. A run over sockets in memory is therefore a
//! function of its inputs and that order, and can be compared with a simulation packet by packet.

use std::sync::Mutex;

use units::Instant;

use driver::Flush;
use driver::placement::Placement;
use driver::worker::WorkerLoop;

use super::Drivers;
use super::start::Started;
use crate::clock::{Clock, ManualClock};
use crate::device::{Device, LimitsOf};
use crate::driver_thread::LiveDriver;
use crate::error::StartError;
use crate::settings::DriverSettings;
use crate::worker::Spawner;

/// The processors of stepped drivers. Dropping it ends all connections at once, without notifying
/// their peers.
///
/// Blocking calls such as [`Drivers::block_on`] wait for turns. They never return on the thread
/// that runs the turns. Under [`Placement::Inline`] every call of a handle runs a turn as usual; a
/// turn run here stands for one in a blocking call.
pub struct SteppedDrivers<D: Device> {
    clock: ManualClock,
    workers: Vec<Box<dyn WorkerLoop + Send>>,
    drivers: Vec<LiveDriver<D>>,
    /// The handle to the only driver, under `inline`.
    inline: Option<Drivers<D>>,
}

impl<D: Device> Drivers<D> {
    /// Starts drivers like [`start`](Self::start), with this clock and without threads.
    ///
    /// # Errors
    /// Same errors as `start`; also fails if the placement is [`Placement::Auto`], which depends on
    /// the machine.
    ///
    /// # Panics
    /// Same panics as `start`.
    pub fn start_stepped(
        settings: DriverSettings,
        handle_limits: LimitsOf<D>,
        devices: Vec<D>,
        clock: ManualClock,
        make: impl FnOnce(usize, Instant) -> Result<Vec<D::Protocol>, StartError>,
    ) -> Result<(Self, SteppedDrivers<D>), StartError> {
        if settings.placement == Placement::Auto {
            let text = format!("{} depends on the machine and cannot be run in steps", settings.placement);
            return Err(StartError::Configuration(text));
        }
        let same_clock = Clock::Manual(clock.clone());
        let mut spawner = Spawner::Stepped(Vec::new());
        let started = Started::new(&settings, handle_limits, devices, &same_clock, &mut spawner, make)?;
        let mut stepped = Vec::new();
        let drivers = started.into_drivers(&settings, &same_clock, |_, driver| {
            stepped.push(driver.driver);
            Ok(Mutex::new(None))
        })?;
        let workers = match spawner {
            Spawner::Stepped(workers) => workers,
            Spawner::Threads(_) => Vec::new(),
        };
        let inline = settings.placement.is_inline().then(|| drivers.clone());
        Ok((drivers, SteppedDrivers { clock, workers, drivers: stepped, inline }))
    }
}

impl<D: Device> SteppedDrivers<D> {
    /// Returns the number of processors: drivers first, then workers, in the order in which they
    /// are indexed.
    #[must_use]
    pub fn processor_count(&self) -> usize {
        usize::from(self.inline.is_some()) + self.drivers.len() + self.workers.len()
    }

    /// Returns the time at which the next turn of a processor is due. This is the current time if
    /// there is work, and `None` if only the application, another processor or a received packet
    /// can make it due. Any turn, call of a handle or received packet can change the result.
    ///
    /// # Panics
    /// If there is no such processor.
    #[must_use]
    pub fn due_at_of(&self, processor: usize) -> Option<Instant> {
        let now = self.clock.now();
        match (&self.inline, self.drivers.get(processor)) {
            (Some(drivers), _) => {
                assert_eq!(processor, 0, "there is one processor");
                drivers.inline().and_then(|inline| inline.due_at(now))
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
        let count = self.drivers.len();
        if let Some(drivers) = &self.inline {
            assert_eq!(processor, 0, "there is one processor");
            drivers.kick(drivers.shared(0), Flush::Now);
        } else if let Some(driver) = self.drivers.get_mut(processor) {
            let work = driver.turn(Flush::Now);
            tracing::trace!(processor, ?work, "a turn");
        } else {
            self.workers[processor - count].counted_turn();
        }
    }

    /// Returns the time at which the first turn of any processor is due.
    #[must_use]
    pub fn due_at(&self) -> Option<Instant> {
        (0..self.processor_count()).filter_map(|processor| self.due_at_of(processor)).min()
    }
}

impl<D: Device> Drop for SteppedDrivers<D> {
    fn drop(&mut self) {
        if let Some(inline) = self.inline.as_ref().and_then(Drivers::inline) {
            inline.abandon();
        }
    }
}
