//! The addresses and ports that identify a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Addresses and ports of a connection, as seen from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// This side.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
}

impl Tuple {
    /// Placeholder for no connection.
    pub const UNSPECIFIED: Self = {
        let none = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self { local: none, remote: none }
    };
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.local, self.remote)
    }
}
