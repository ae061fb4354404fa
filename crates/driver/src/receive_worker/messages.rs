//! What goes between the driver and the receive worker.

use crate::protocol::{ConnectionKey, Protocol};

/// From the driver.
pub enum ReceiveWorkerCommand<P: Protocol> {
    /// This receive half is here from now on.
    Take {
        /// Its connection.
        key: ConnectionKey,
        /// The receive half.
        half: P::ReceiveHalf,
    },
    /// For a receive half that is here.
    Update {
        /// Its connection.
        key: ConnectionKey,
        /// What its connection has for it.
        update: P::HalfUpdate,
    },
    /// Return this receive half.
    Return {
        /// Its connection.
        key: ConnectionKey,
    },
    /// Receive nothing, and say so.
    Pause,
    /// Receive again.
    Resume,
}
