//! The commands of the driver to the receive worker.

use crate::protocol::{ConnectionKey, Protocol};

/// A command of the driver.
pub enum ReceiveWorkerCommand<P: Protocol> {
    /// Take this receive half.
    Take {
        /// Its connection.
        key: ConnectionKey,
        /// The receive half.
        half: P::ReceiveHalf,
    },
    /// Update a receive half.
    Update {
        /// Its connection.
        key: ConnectionKey,
        /// The update.
        update: P::HalfUpdate,
    },
    /// Return this receive half.
    Return {
        /// Its connection.
        key: ConnectionKey,
    },
    /// Stop receiving, and report the completion.
    Pause,
    /// Resume receiving.
    Resume,
}
