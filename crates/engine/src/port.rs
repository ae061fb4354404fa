//! The sockets of an engine, as the driver sees them: its own, and those that other processors serve.

mod near;

use std::collections::VecDeque;
use std::net::SocketAddr;

use quic::ConnectionKey;

pub(crate) use self::near::{NearPort, Parcel, Sent};

/// One socket.
pub(crate) struct Port {
    pub(crate) local: SocketAddr,
    pub(crate) place: PortPlace,
    /// Connections with something to send once there is room.
    pub(crate) waiting: VecDeque<ConnectionKey>,
}

/// Who serves a socket.
pub(crate) enum PortPlace {
    /// The driver.
    Near(Box<NearPort>),
    /// The processor of this number among those of the paths.
    Far {
        processor: usize,
        /// Datagrams it takes in one call.
        batch_max: usize,
    },
}

impl Port {
    pub(crate) fn near(port: NearPort) -> Self {
        Self { local: port.local, place: PortPlace::Near(Box::new(port)), waiting: VecDeque::new() }
    }

    pub(crate) fn far(local: SocketAddr, processor: usize, batch_max: usize) -> Self {
        Self { local, place: PortPlace::Far { processor, batch_max }, waiting: VecDeque::new() }
    }

    /// The socket, if the driver serves it.
    pub(crate) fn as_near(&self) -> Option<&NearPort> {
        match &self.place {
            PortPlace::Near(port) => Some(port),
            PortPlace::Far { .. } => None,
        }
    }

    /// The socket, if the driver serves it.
    pub(crate) fn as_near_mut(&mut self) -> Option<&mut NearPort> {
        match &mut self.place {
            PortPlace::Near(port) => Some(port),
            PortPlace::Far { .. } => None,
        }
    }

    /// The processor that serves it, if that is not the driver.
    pub(crate) fn processor(&self) -> Option<usize> {
        match &self.place {
            PortPlace::Near(_) => None,
            PortPlace::Far { processor, .. } => Some(*processor),
        }
    }

    /// Datagrams it takes in one call.
    pub(crate) fn batch_max(&self) -> usize {
        match &self.place {
            PortPlace::Near(port) => port.batch_max(),
            PortPlace::Far { batch_max, .. } => *batch_max,
        }
    }
}
