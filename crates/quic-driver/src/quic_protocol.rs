//! [`Quic`]: the implementation of [`driver::Protocol`] for QUIC.

mod driver_calls;
mod held;

use std::marker::PhantomData;
use std::sync::Arc;

use quic::{Endpoint, Event};
use units::Instant;

use crate::incoming::HeldAttempts;

pub use crate::application::{Connect, Limits, QuicApplication, QuicShared};

/// Observer of each event that a connection reports in its driver, called before the handles are
/// notified. It does not see events of streams that a detached receive half delivers.
pub type EventObserver = Arc<dyn Fn(Instant, &Event, &quic::Connection) + Send + Sync>;

/// QUIC with packets of representation `K`.
pub struct Quic<K> {
    pub(crate) endpoint: Endpoint,
    pub(crate) observer: Option<EventObserver>,
    /// Clients that wait for the application's decision, if it is enabled.
    pub(crate) held: Option<HeldAttempts>,
    packets: PhantomData<fn() -> K>,
}

impl<K> Quic<K> {
    /// Creates the protocol instance of one driver.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, observer: None, held: None, packets: PhantomData }
    }

    /// Holds clients until the application decides about them, instead of accepting them.
    #[must_use]
    pub fn with_incoming(self, held: Option<HeldAttempts>) -> Self {
        Self { held, ..self }
    }

    /// Passes the events of all connections to `observer`, in addition to their handles.
    #[must_use]
    pub fn with_observer(self, observer: Option<EventObserver>) -> Self {
        Self { observer, ..self }
    }
}
