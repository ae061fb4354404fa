//! [`Env`]: the environment of a driver: sockets, a clock, and other processors.

use units::Instant;

use crate::activity::Activity;
use crate::offload::Offload;
use crate::protocol::Protocol;
use crate::socket::Socket;

/// A source of time. All clones of a clock return the same time.
pub trait Clock: Clone {
    /// Returns the time. Never goes backwards.
    fn now(&self) -> Instant;
}

/// The environment of a driver: threads, sockets and the clock of the system, or a simulation.
pub trait Env {
    /// The protocol that the driver runs.
    type Protocol: Protocol;
    /// Type of the sockets that the driver itself serves.
    type Socket: Socket<Self::Protocol>;
    /// The other processors.
    type Offload: Offload<Self::Protocol>;
    /// The clock of the other processors.
    type Clock: Clock;

    /// Returns the time. Never goes backwards.
    fn now(&self) -> Instant;

    /// Returns whether a panicking connection ends alone. A simulation lets the panic end the run,
    /// because it is a defect that the run must reveal.
    fn isolates_panics(&self) -> bool {
        true
    }

    /// Reports that the time since the last call was spent on this activity. Measurements attribute
    /// the time to it. A simulated processor advances its clock.
    fn lap(&self, activity: Activity) {
        let _ = activity;
    }

    /// Reports that these packets are about to be sent.
    fn note_sent(&self, packets: &<Self::Protocol as Protocol>::Sealed) {
        let _ = packets;
    }

    /// Reports that a receive call returned these batches.
    fn note_received(&self, batches: &[<Self::Protocol as Protocol>::Batch]) {
        let _ = batches;
    }
}
