//! The paths of a transfer: pairs of a local and a remote address.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | the syntax of `--path`: [`PathSpec`] |
//! | [`mod@choose`] | the sender's choice among all pairs: [`choose()`], start there |
//! | [`listen`] | the receiver's sockets, one for each address, and the addresses its ticket names |
//! | [`follow`] | what becomes of sockets when links come and go |
//! | [`keep`] | which paths a connection has when links come and go |
//! | [`shown`] | the state of a path as users see it |
//! | [`closed_port`] | when a silent peer has ended |
//! | `limits` | how many paths a transfer uses |
//! | `binding` | what a socket is bound to |
//! | [`advice`] | settings of this host that break paths without an error |
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
