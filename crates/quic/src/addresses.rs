//! The two ends of a path.

use std::net::{IpAddr, SocketAddr};

/// The two ends of a path; with the socket's port they form its 4-tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// The peer's address.
    pub remote: SocketAddr,
    /// Our own address, if the system reported it.
    pub local_ip: Option<IpAddr>,
    /// The driver's index of the socket.
    pub socket: u16,
}

impl Addresses {
    /// From the driver's first socket to `remote`.
    pub const fn of(remote: SocketAddr) -> Self {
        Self { remote, local_ip: None, socket: 0 }
    }

    /// Whether both have the same two ends. The system does not always report our own address; an
    /// unknown one matches any.
    pub(crate) fn is_same_route(&self, other: &Self) -> bool {
        let local_differs = self.local_ip.zip(other.local_ip).is_some_and(|(ours, theirs)| ours != theirs);
        self.remote == other.remote && self.socket == other.socket && !local_differs
    }
}
