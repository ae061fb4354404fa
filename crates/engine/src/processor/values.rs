//! What goes between the driver and a processor of paths.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use net::{RecvMeta, SendError};
use quic::{ConnectionKey, OpenJob, Plan};
use units::Instant;

use super::loans::Lent;
use crate::cells::ConnectionCell;
use crate::port::Parcel;
use crate::receive::Arrived;

/// From the driver.
pub(crate) enum Order {
    /// Seal this plan and send it.
    Send { ticket: u64, parcel: Parcel, plan: Arc<Plan> },
    /// Open with this what arrives on a path.
    Borrow(Box<Lent>),
    /// Send this, if there is room.
    Reply { port: usize, destination: SocketAddr, source_ip: Option<IpAddr>, contents: Vec<u8> },
    /// Tell when there is nothing left to send of what has tickets before this one.
    Finish { next_ticket: u64 },
}

/// A batch that has arrived at the engine's socket of number `port`.
pub(crate) struct Arrival {
    pub(crate) port: usize,
    pub(crate) meta: RecvMeta,
    pub(crate) batch: Arrived,
    /// Whose it is, if it was opened already.
    pub(crate) opened: Option<OpenedThere>,
}

/// A batch that was opened where it arrived.
pub(crate) struct OpenedThere {
    pub(crate) key: ConnectionKey,
    /// Tells the connection from a later one of the same key.
    pub(crate) cell: Arc<ConnectionCell>,
    pub(crate) open: Box<OpenJob>,
}

/// From the processor, about what it was given.
pub(crate) enum News {
    /// A plan leaves now.
    Leaves { ticket: u64, parcel: Parcel, plan: Arc<Plan>, at: Instant },
    /// A batch that counted as on its way, since it waited for room, leaves now.
    Late { parcel: Parcel, at: Instant },
    /// A batch that counted as on its way will never leave.
    Refused { parcel: Parcel, at: Instant, error: SendError },
    /// Nothing is left to send of what has tickets before this one.
    Finished { next_ticket: u64 },
}
