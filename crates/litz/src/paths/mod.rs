//! The paths of a transfer: pairs of a local and a remote address.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | the syntax of `--path`: [`PathSpec`] |
//! | [`mod@choose`] | the sender's choice among all pairs: [`choose()`], start there |
//! | [`listen`] | the receiver's sockets, one for each address, and the addresses its ticket names |
//! | [`advice`] | settings of this host that break paths without an error |
//!
//! The decisions take the table of interfaces and the routing answers as arguments and do no IO;
//! [`choose_here`] and [`listen::open`] read them from this host.

pub mod advice;
pub mod choose;
pub mod listen;
pub mod spec;

use std::net::SocketAddr;

pub use choose::{Candidate, Choice, ChooseError, Rejected, Request, choose};
pub use spec::{PathSpec, PathSpecError};

/// The maximum number of paths at a time, also if the user asks for more. QUIC allows more; each
/// one costs a socket, loss recovery state and probes.
pub const PATHS_MAX: usize = 32;

/// The maximum number of paths that are used by default.
pub const PATHS_DEFAULT: usize = 8;

/// Chooses paths with the current interfaces and routes of this host. Sends nothing.
///
/// # Errors
/// [`ChooseError`]: the table of interfaces cannot be read, or `paths` asks for what this host does
/// not have.
pub fn choose_here(remotes: &[SocketAddr], paths: &[PathSpec], limit: Option<usize>) -> Result<Choice, ChooseError> {
    let interfaces = net::interfaces().map_err(|error| ChooseError::NoTable(error.to_string()))?;
    let request = Request { interfaces: &interfaces, remotes, paths, limit };
    choose(&request, &mut net::reachable)
}

/// Whether an address is link-local.
const fn is_link_local(ip: std::net::IpAddr) -> bool {
    match ip {
        std::net::IpAddr::V4(ip) => ip.is_link_local(),
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The device a socket is bound to. Where sockets cannot be bound to devices, the routes choose by
/// the local address.
fn device_to_bind(interface: &str) -> Option<String> {
    cfg!(any(target_os = "linux", target_os = "android")).then(|| interface.to_owned())
}
