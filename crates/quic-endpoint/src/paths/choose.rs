//! The sender's choice of paths: which pairs of a local address and an address of the ticket become
//! paths.
//!
//! # The rule
//!
//! A *pair* is a local address and an address of the receiver between which this host can send:
//! same family, the interface up and running, and a route from the local address over that device
//! to the remote one (which excludes container bridges and cards without a carrier or a route). A
//! *card* is a network interface. The receiver's addresses stand for its cards. The sender cannot
//! know which addresses share a card, so the k-th IPv4 and the k-th IPv6 address on the same local
//! link count as one card.
//!
//! 1. **Each card to one card.** The largest set of pairs in which no interface and no card of the
//!    receiver occurs twice: first within one subnet, then link-local, then over routes to public
//!    addresses, last over routes to private ones. Two cards each in two subnets make two paths,
//!    and so do two cards each in one subnet: the first to the first, the second to the second.
//! 2. **No interface idle.** An interface without a card of its own shares one: two cards here and
//!    one there make two paths.
//! 3. **No card of the receiver idle**, in the same way.
//!
//! These are all paths unless the user requests more. With `--paths N`, up to N paths are added in
//! this order: pairs of cards that are not used yet, the least used interface first; then other
//! addresses of used pairs (IPv6 in addition to IPv4); then used pairs again, from another port. If
//! N is below the number of paths from rules 1 to 3, the first N are used.
//!
//! Between the same two cards IPv4 goes before IPv6, because its header is 20 bytes shorter and its
//! addresses do not expire (RFC 8981 changes an IPv6 host's every day). Over routes IPv6 goes first
//! where only IPv6 has a public address at both ends, because IPv4 would need an address translator
//! there.
//!
//! A tunnel device of Litz does not count as a card while another interface leads to any of the
//! receiver's addresses: its packets leave over those interfaces, and would be encrypted twice.
//!
//! A ticket that names only addresses of this host is a test on one machine: one path, bound to no
//! device. Otherwise loopback and the host's own addresses (a container bridge has the same one on
//! many hosts) are never used.
//!
//! Each `--path` makes one path, by rules 1 and 2 with the interfaces replaced by the given ones;
//! nothing else is used, and `--paths N` adds ports only.

mod choice;
mod pairs;
mod reasons;
mod request;
mod select;
mod slots;

pub use choice::{Candidate, Choice, Rejected};
pub use reasons::{ChooseError, Link, Reason, Turn, Unused};
pub use request::{REMOTES_MAX, Reachable, Request};

use super::limits::{PATHS_DEFAULT, PATHS_MAX};
use pairs::Pairs;
use slots::Slots;

/// Chooses the paths. Calls `reachable` at most once for each pair; the same arguments and answers
/// give the same choice.
///
/// # Errors
/// [`ChooseError`] if `request.paths` requests an impossible path. An empty choice is not an error:
/// see [`Choice::candidates`].
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
    Ok(select::select(pairs, &select::PathCriteria { limit, fill: request.limit.is_some(), automatic }))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
