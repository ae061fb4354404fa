//! What goes between the driver and a processor of paths.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use net::{RecvMeta, SendError};
use quic::{ConnectionKey, OpenJob, Plan};
use units::Instant;

use crate::cells::ConnectionCell;
use crate::port::Parcel;
use crate::receive::Arrived;

/// From the driver.
pub(crate) enum Order {
    /// Seal this plan and send it.
    Send { ticket: u64, parcel: Parcel, plan: Arc<Plan> },
    /// Open this batch.
    Open { key: ConnectionKey, cell: Arc<ConnectionCell>, open: Box<OpenJob>, batch: Arrived },
    /// Send this, if there is room.
    Reply { port: usize, destination: SocketAddr, source_ip: Option<IpAddr>, contents: Vec<u8> },
}

/// A batch that has arrived at the engine's socket of number `port`.
pub(crate) struct Arrival {
    pub(crate) port: usize,
    pub(crate) meta: RecvMeta,
    pub(crate) batch: Arrived,
}

/// From the processor, about what it was given.
pub(crate) enum News {
    /// A plan leaves now.
    Emitted { ticket: u64, parcel: Parcel, at: Instant },
    /// What has become of a plan: on its way, unless there is an error.
    Sent { ticket: u64, parcel: Parcel, plan: Arc<Plan>, error: Option<SendError> },
    /// A batch that counted as on its way, since it waited for room, leaves now, or never if there is an error.
    Late { parcel: Parcel, at: Instant, error: Option<SendError> },
    /// A batch is open.
    Opened { key: ConnectionKey, cell: Arc<ConnectionCell>, open: Box<OpenJob>, batch: Arrived },
}
