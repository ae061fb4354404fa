//! What a driver needs of its surroundings: sockets, a clock, and other processors.

use units::Instant;

use crate::activity::Activity;
use crate::offload::Offload;
use crate::protocol::Protocol;
use crate::socket::Socket;

/// Where time comes from. Clones agree with each other.
pub trait Clock: Clone {
    /// The time. Never goes backwards.
    fn now(&self) -> Instant;
}

/// The surroundings of a driver: threads, sockets and the system's clock, or a simulation.
pub trait Env {
    /// The protocol that is run.
    type Protocol: Protocol;
    /// The sockets that the driver serves itself.
    type Socket: Socket<Self::Protocol>;
    /// The other processors.
    type Offload: Offload<Self::Protocol>;
    /// The clock of the other processors.
    type Clock: Clock;

    /// The time. Never goes backwards.
    fn now(&self) -> Instant;

    /// The driver has just done something of this kind, since the last call. Measurements book the
    /// time that passed; a simulated processor advances its clock.
    fn lap(&self, activity: Activity) {
        let _ = activity;
    }

    /// These packets are about to leave.
    fn note_sent(&self, packets: &<Self::Protocol as Protocol>::Sealed) {
        let _ = packets;
    }

    /// A call that receives has brought these batches.
    fn note_received(&self, batches: &[<Self::Protocol as Protocol>::Batch]) {
        let _ = batches;
    }
}
