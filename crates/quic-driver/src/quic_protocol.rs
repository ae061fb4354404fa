//! [`Quic`]: the implementation of [`driver::Protocol`] for QUIC.

mod driver_calls;

use std::marker::PhantomData;
use std::sync::Arc;

use quic::{Endpoint, Event};
use units::Instant;

pub use crate::application::{Connect, Limits, QuicApplication, QuicShared};

/// Called with each event that a connection reports in its driver, before the handles are notified.
/// Events of streams that a detached receive half delivers are not among them.
pub type EventObserver = Arc<dyn Fn(Instant, &Event, &quic::Connection) + Send + Sync>;

/// QUIC with packets of representation `K`.
pub struct Quic<K> {
    endpoint: Endpoint,
    observer: Option<EventObserver>,
    packets: PhantomData<fn() -> K>,
}

impl<K> Quic<K> {
    /// The protocol instance of one driver.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, observer: None, packets: PhantomData }
    }

    /// Passes the events of all connections to `observer`, in addition to their handles.
    #[must_use]
    pub fn with_observer(self, observer: Option<EventObserver>) -> Self {
        Self { observer, ..self }
    }
}
