//! The paths of a transfer: pairs of a local and a remote address.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | the syntax of `--path`: [`PathSpec`] |
//! | [`mod@choose`] | the sender's choice among all pairs: [`choose()`], start there |
//! | [`listen`] | the receiver's sockets, one for each address, and the addresses in its ticket |
//! | [`follow`] | reactions of sockets when links appear and disappear |
//! | [`keep`] | the paths of a connection when links appear and disappear |
//! | [`shown`] | the state of a path as shown to users |
//! | [`closed_port`] | detection of a silent peer that has ended |
//! | `limits` | limits on the number of paths of a transfer |
//! | `binding` | the device and address of a socket |
//! | [`advice`] | settings of this host that silently break paths |
//!
//! The decisions take the table of interfaces and the routing answers as arguments and do no IO;
//! [`choose_here`] and [`listen::open`] read them from this host.

pub mod advice;
mod binding;
pub mod choose;
pub mod closed_port;
pub mod follow;
pub mod keep;
mod limits;
pub mod listen;
pub mod shown;
pub mod spec;

use std::net::SocketAddr;

pub use choose::{Candidate, Choice, ChooseError, Rejected, Request, choose};
pub use limits::{PATHS_DEFAULT, PATHS_MAX};
pub use spec::{PathSpec, PathSpecError};

/// Chooses paths with the current interfaces and routes of this host. Sends nothing.
///
/// # Errors
/// [`ChooseError`]: the table of interfaces cannot be read, or `paths` requests an interface or
/// address that this host does not have.
pub fn choose_here(remotes: &[SocketAddr], paths: &[PathSpec], limit: Option<usize>) -> Result<Choice, ChooseError> {
    let interfaces = net::interfaces().map_err(|error| ChooseError::NoTable(error.to_string()))?;
    let request = Request { interfaces: &interfaces, remotes, paths, limit };
    choose(&request, &mut |local, device, remote| net::reachable(local, device, None, remote))
}
