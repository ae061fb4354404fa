//! [`DriverSettings`]: the settings of drivers and their threads, independent of the protocol.

use std::sync::Arc;

use driver::DriverLimits;
use driver::placement::Placement;
use units::Duration;

use crate::event_handler::EventHandler;

/// The settings of the drivers of one endpoint, and of their threads.
#[derive(Debug, Clone)]
pub struct DriverSettings {
    /// The processors that run the drivers.
    pub placement: Placement,
    /// The cores to which the threads are pinned, by the system's numbers: first the driver, then
    /// the workers. Threads without an entry are not pinned. Empty by default.
    pub cores: Vec<usize>,
    /// The time to encrypt a packet of 1440 bytes, for [`Placement::Auto`]. `None` if it is not
    /// known.
    pub seal_cost: Option<Duration>,
    /// Time for which an idle thread polls before it sleeps, while other threads need its processor
    /// only briefly. Zero by default: sleep at once.
    pub busy_poll: Duration,
    /// Additional event handler of the first driver's thread, if any.
    pub event_handler: Option<Arc<dyn EventHandler>>,
    /// Whether to measure for [`Drivers::costs`](crate::Drivers::costs). Reads the clock a dozen
    /// times per batch.
    pub measure: bool,
    /// The limits of each driver.
    pub limits: DriverLimits,
}

impl Default for DriverSettings {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            cores: Vec::new(),
            seal_cost: None,
            busy_poll: Duration::ZERO,
            event_handler: None,
            measure: false,
            limits: DriverLimits { half_open_max: 128, connections_max: 1024 },
        }
    }
}
