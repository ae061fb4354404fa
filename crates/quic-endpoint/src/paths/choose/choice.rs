//! The result of the choice.

use std::net::SocketAddr;

use super::reasons::{Reason, Unused};

/// A path to open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The address to bind; with port 0 the system chooses a new port for each path.
    pub local: SocketAddr,
    /// The device to bind; `None` for a path inside this host, and on systems that cannot bind to
    /// devices.
    pub device: Option<String>,
    /// The receiver's address.
    pub remote: SocketAddr,
    /// Whether the path is used only while no other path works.
    pub backup: bool,
    /// The reason for the choice.
    pub why: Reason,
}

/// An interface, an address or a pair that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejected {
    /// The local interface; `None` if the remote address is unusable over all interfaces.
    pub device: Option<String>,
    /// The local address; `None` if the reason applies to all addresses of the interface.
    pub local: Option<SocketAddr>,
    /// The receiver's address; `None` if the reason applies to all of them.
    pub remote: Option<SocketAddr>,
    /// The reason for the rejection.
    pub why: Unused,
}

/// The result: the chosen paths, best first, and the rejected ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The paths to open, best first; backups come last.
    pub candidates: Vec<Candidate>,
    /// All other pairs. Pairs with [`Unused::is_spare`] would work as far as this host knows, and
    /// can be tried if no candidate gets an answer.
    pub rejected: Vec<Rejected>,
}
