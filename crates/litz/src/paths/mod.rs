//! Which paths a transfer uses: the pairs of an address here and an address there that packets shall travel between.
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | what `--path` says: [`PathSpec`] |
//! | [`mod@choose`] | the sender's choice among all pairs: [`choose()`], start there |
//! | [`listen`] | the receiver's sockets, one for each address, and the addresses its ticket names |
//! | [`advice`] | settings of this host that stop paths which look fine |
//!
//! What decides takes the table of interfaces and the answers of the routes as arguments and does no IO; [`choose_here`] and
//! [`listen::open`] ask this host.

pub mod advice;
pub mod choose;
pub mod listen;
pub mod spec;

use std::net::SocketAddr;

pub use choose::{Candidate, Choice, ChooseError, Rejected, Request, choose};
pub use spec::{PathSpec, PathSpecError};

/// Paths at a time, at most, whatever the user asks for. QUIC allows more; each costs a socket, a recovery and probes.
pub const PATHS_MAX: usize = 32;

/// Paths that are used without being asked for.
pub const PATHS_DEFAULT: usize = 8;

/// Chooses with the interfaces and routes of this host, as they are now. Nothing is sent.
///
/// # Errors
/// [`ChooseError`]: the table of interfaces cannot be read, or `paths` asks for what this host does not have.
pub fn choose_here(remotes: &[SocketAddr], paths: &[PathSpec], limit: Option<usize>) -> Result<Choice, ChooseError> {
    let interfaces = net::interfaces().map_err(|error| ChooseError::NoTable(error.to_string()))?;
    let request = Request { interfaces: &interfaces, remotes, paths, limit };
    choose(&request, &mut net::reachable)
}

/// Whether an address means something on its own link only.
const fn is_link_local(ip: std::net::IpAddr) -> bool {
    match ip {
        std::net::IpAddr::V4(ip) => ip.is_link_local(),
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The device a socket is bound to. Where sockets cannot be bound to devices, the routes choose by the local address.
fn device_to_bind(interface: &str) -> Option<String> {
    cfg!(any(target_os = "linux", target_os = "android")).then(|| interface.to_owned())
}
