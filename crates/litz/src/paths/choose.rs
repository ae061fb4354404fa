//! The sender's choice: which pairs of a local address and an address of the ticket become paths.
//!
//! # The rule
//!
//! A *pair* is one of our addresses and one of the receiver's between which this host can send:
//! same family, the interface up and running, and a route that leads from that address over that
//! device to the other (which excludes container bridges and cards without a carrier or a route). A
//! *card* is a network interface. The receiver's addresses stand for its cards. The sender cannot
//! know which addresses share a card, so the k-th IPv4 and the k-th IPv6 address on the same local
//! link count as one card.
//!
//! 1. **Each card to one card.** As many pairs as possible in which no interface and no card of the
//!    receiver occurs twice: first within one subnet, then link-local, then over routes to public
//!    addresses, last over routes to private ones. Two cards each in two subnets make two paths,
//!    and so do two cards each in one subnet: the first to the first, the second to the second.
//! 2. **No interface idle.** An interface that found no card of its own shares one: two cards here
//!    and one there make two paths.
//! 3. **No card of the receiver idle**, in the same way.
//!
//! These are all paths unless the user asks for more. With `--paths N` there follow, up to N: pairs
//! of cards that are not used yet, the least used interface first; then other addresses of used
//! pairs (IPv6 beside IPv4); then used pairs again, from another port. With N below what rules 1 to
//! 3 give, the first N stay.
//!
//! Between the same two cards IPv4 goes before IPv6, because its header is 20 bytes shorter and its
//! addresses do not expire (RFC 8981 changes an IPv6 host's every day). Over routes IPv6 goes first
//! where only IPv6 has a public address at both ends, because IPv4 would need an address translator
//! there.
//!
//! A ticket with nothing but addresses of this host is a test on one machine: one path, bound to no
//! device. Otherwise loopback and addresses that we have ourselves (a container bridge has the same
//! one on many hosts) are never used.
//!
//! Each `--path` makes one path, by rules 1 and 2 with the interfaces replaced by the given ones;
//! nothing else is used, and `--paths N` adds ports only.

mod pairs;
mod reasons;
mod select;
mod slots;

use std::io;
use std::net::SocketAddr;

use net::Interface;

pub use reasons::{ChooseError, Link, Reason, Turn, Unused};

use super::spec::PathSpec;
use super::{PATHS_DEFAULT, PATHS_MAX};
use pairs::Pairs;
use slots::Slots;

/// The input of the choice.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The interfaces of this host, in order of preference.
    pub interfaces: &'a [Interface],
    /// The receiver's addresses in the ticket's order, names looked up; the first [`REMOTES_MAX`]
    /// count.
    pub remotes: &'a [SocketAddr],
    /// The values of `--path`; empty applies the rules.
    pub paths: &'a [PathSpec],
    /// The value of `--paths`, 1 to [`PATHS_MAX`]; `None` chooses the useful paths, at most
    /// [`PATHS_DEFAULT`], or every `--path`.
    pub limit: Option<usize>,
}

/// A path to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address to bind; port 0 lets the system choose, a new one for each path.
    pub local: SocketAddr,
    /// The device to bind; none for a path inside this host, and on systems that cannot.
    pub device: Option<String>,
    /// The receiver's address.
    pub remote: SocketAddr,
    /// Used only while no other path works.
    pub backup: bool,
    /// Why it was chosen.
    pub why: Reason,
}

/// An interface, an address or a pair that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The local interface; `None` if the remote address is unusable over all interfaces.
    pub device: Option<String>,
    /// The local address; `None` if the reason applies to all addresses of the interface.
    pub local: Option<SocketAddr>,
    /// The receiver's address; `None` if the reason applies to all of them.
    pub remote: Option<SocketAddr>,
    /// Why not.
    pub why: Unused,
}

/// The result: the chosen paths, best first, and the rejected ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The paths to open, best first; backups come last.
    pub candidates: Vec<Candidate>,
    /// All others. Those with [`Unused::is_spare`] would work as far as this host knows, and can be
    /// tried if no candidate gets an answer.
    pub rejected: Vec<Rejected>,
}

/// Answers whether a datagram can leave from an address over a device to an address:
/// [`net::reachable`] on a real host.
pub type Reachable<'a> = dyn FnMut(SocketAddr, Option<&str>, SocketAddr) -> io::Result<()> + 'a;

/// Chooses the paths. Asks `reachable` at most once for each pair; the same arguments and answers
/// give the same choice.
///
/// # Errors
/// [`ChooseError`] if `request.paths` asks for an impossible path. That no path is left is not an
/// error: see [`Choice::candidates`].
pub fn choose(request: &Request<'_>, reachable: &mut Reachable<'_>) -> Result<Choice, ChooseError> {
    let slots = Slots::new(request)?;
    let automatic = request.paths.is_empty();
    let limit = match request.limit {
        Some(limit) => limit.clamp(1, PATHS_MAX),
        None if automatic => PATHS_DEFAULT,
        None => request.paths.len(),
    };
    if request.paths.len() > limit {
        return Err(ChooseError::MorePathsThanAllowed { paths: request.paths.len(), limit });
    }
    let pairs = Pairs::find(slots, reachable);
    Ok(select::select(pairs, &select::Wish { limit, fill: request.limit.is_some(), automatic }))
}

/// Addresses of a receiver that are considered. A ticket has 16, and each may be a name of several.
pub const REMOTES_MAX: usize = 64;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
