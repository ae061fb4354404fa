//! All pairs of addresses between which this host can send, and which of them lie between the same
//! two cards.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use net::InterfaceAddress;

use super::choice::Rejected;
use super::reasons::{Link, Unused};
use super::request::Reachable;
use super::slots::{Slot, Slots};
use crate::paths::binding::is_link_local;

/// A local address, a remote address, and the link between them.
#[derive(Debug)]
pub(super) struct Pair {
    /// Index into [`Pairs::slots`].
    pub(super) slot: usize,
    /// Number of the receiver's card, from 0.
    pub(super) card: usize,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) link: Link,
    rank: Rank,
    /// Index of the remote address.
    remote_index: usize,
}

/// Ranks the pairs between the same cards; smaller is better.
type Rank = (u8, bool, bool, usize, usize);

/// The pairs, grouped.
#[derive(Debug)]
pub(super) struct Pairs {
    pub(super) slots: Vec<Slot>,
    pub(super) pairs: Vec<Pair>,
    /// The pairs between each slot and card as indices into `pairs`, best first; never empty.
    pub(super) between: BTreeMap<(usize, usize), Vec<usize>>,
    pub(super) card_count: usize,
    pub(super) is_loop: bool,
    pub(super) rejected: Vec<Rejected>,
}

impl Pairs {
    /// Tests every pair that may work.
    pub(super) fn find(slots: Slots, reachable: &mut Reachable<'_>) -> Self {
        let mut pairs = Vec::new();
        let mut rejected = Vec::new();
        for (slot_index, slot) in slots.slots.iter().enumerate().filter(|(_, slot)| !slot.addresses.is_empty()) {
            for (remote_index, &remote) in slots.remotes.iter().enumerate() {
                let is_meant = slot.remote.map_or(remote_index < slots.ticket_count, |only| only == remote_index);
                if !is_meant || slots.is_dropped(remote) {
                    continue;
                }
                let search = Search { slot, slot_index, remote, remote_index, slots: &slots };
                search.run(reachable, &mut pairs, &mut rejected);
            }
        }
        leave_tunnels_out(&slots.slots, &mut pairs, &mut rejected);
        let card_count = number_cards(&mut pairs);
        let mut between: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, pair) in pairs.iter().enumerate() {
            between.entry((pair.slot, pair.card)).or_default().push(index);
        }
        for group in between.values_mut() {
            group.sort_by_key(|&index| pairs[index].rank);
        }
        let mut all = slots.rejected;
        all.append(&mut rejected);
        Self { slots: slots.slots, pairs, between, card_count, is_loop: slots.is_loop, rejected: all }
    }
}

/// Rejects the pairs over tunnels, unless there are no others.
fn leave_tunnels_out(slots: &[Slot], pairs: &mut Vec<Pair>, rejected: &mut Vec<Rejected>) {
    let is_tunnel = |pair: &Pair| slots[pair.slot].is_tunnel;
    if pairs.iter().all(is_tunnel) {
        return;
    }
    for pair in pairs.extract_if(.., |pair| is_tunnel(pair)) {
        let device = slots[pair.slot].name.clone();
        rejected.push(Rejected { device, local: Some(pair.local), remote: Some(pair.remote), why: Unused::Tunnel });
    }
}

/// The search for pairs of one slot and one remote address.
struct Search<'a> {
    slot: &'a Slot,
    slot_index: usize,
    remote: SocketAddr,
    remote_index: usize,
    slots: &'a Slots,
}

impl Search<'_> {
    fn run(&self, reachable: &mut Reachable<'_>, pairs: &mut Vec<Pair>, rejected: &mut Vec<Rejected>) {
        // The most specific reason for which no address of the slot fits the remote one.
        let mut unfit = Unused::OtherFamily;
        let mut is_settled = false;
        for (local_index, address) in self.slot.addresses.iter().enumerate() {
            let link = match link(address, self.remote, self.slots) {
                Ok(link) => link,
                Err(Some(why)) => {
                    unfit = why;
                    continue;
                }
                Err(None) => continue,
            };
            is_settled = true;
            let local = address.with_port(self.slot.port);
            let remote = scoped(self.remote, address.scope_id);
            // Opening the path shows whether the port is free.
            match reachable(address.with_port(0), self.slot.name.as_deref(), remote) {
                Ok(()) => pairs.push(Pair {
                    slot: self.slot_index,
                    card: 0,
                    local,
                    remote,
                    link,
                    rank: (
                        link.class(),
                        kind(address.ip) != kind(remote.ip()),
                        remote.is_ipv6(),
                        local_index,
                        self.remote_index,
                    ),
                    remote_index: self.remote_index,
                }),
                Err(error) => {
                    let local = Some(address.with_port(0));
                    rejected.push(self.rejection(local, Unused::NoRoute(error.to_string())));
                }
            }
        }
        if !is_settled {
            rejected.push(self.rejection(None, unfit));
        }
    }

    fn rejection(&self, local: Option<SocketAddr>, why: Unused) -> Rejected {
        Rejected { device: self.slot.name.clone(), local, remote: Some(self.remote), why }
    }
}

/// Returns the link from `local` to `remote` if the routes allow it, or the reason against it; the
/// reason is `None` if the families differ.
fn link(local: &InterfaceAddress, remote: SocketAddr, slots: &Slots) -> Result<Link, Option<Unused>> {
    let (from, to) = (local.ip, remote.ip());
    if from.is_ipv4() != to.is_ipv4() {
        return Err(None);
    }
    if slots.is_loop {
        return if from == to { Ok(Link::SameHost) } else { Err(None) };
    }
    if from.is_loopback() != to.is_loopback() {
        return Err(Some(Unused::Loopback));
    }
    if is_link_local(from) != is_link_local(to) {
        return Err(Some(Unused::LinkLocal));
    }
    if slots.same_host {
        return Ok(Link::SameHost);
    }
    let has_other_scope =
        matches!(remote, SocketAddr::V6(six) if six.scope_id() != 0 && six.scope_id() != local.scope_id);
    if is_link_local(to) && (has_other_scope || !local.shares_subnet_with(to)) {
        return Err(Some(Unused::LinkLocal));
    }
    Ok(match (local.shares_subnet_with(to), kind(to)) {
        (true, _) if is_link_local(to) => Link::LinkLocal,
        (true, _) => Link::SameSubnet { prefix_len: local.prefix_len },
        (false, Kind::Public) => Link::Route,
        (false, Kind::Private) => Link::PrivateRoute,
    })
}

/// Returns `remote` with the scope of our own link if it is a link-local address of another host.
fn scoped(remote: SocketAddr, scope_id: u32) -> SocketAddr {
    match remote {
        SocketAddr::V6(mut six) if six.ip().is_unicast_link_local() => {
            six.set_scope_id(scope_id);
            six.into()
        }
        remote => remote,
    }
}

/// Scope of an address: whether it means the same host everywhere. Pairs of one kind are preferred,
/// as in RFC 6724, section 5, rules 2 and 6.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Public,
    Private,
}

fn kind(ip: IpAddr) -> Kind {
    let is_private = match ip {
        // RFC 1918, and RFC 6598 for carrier-grade NAT.
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64,
        // RFC 4193.
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback(),
    };
    if is_private || is_link_local(ip) { Kind::Private } else { Kind::Public }
}

/// Assigns each pair the number of the receiver's card: the k-th IPv4 and the k-th IPv6 address on
/// the same local link share a card. Returns the number of cards.
fn number_cards(pairs: &mut [Pair]) -> usize {
    // For each remote address, the slots on whose links it lies; none for addresses behind routes.
    let mut links: BTreeMap<usize, (bool, Vec<usize>)> = BTreeMap::new();
    for pair in pairs.iter() {
        let (_, slots) = links.entry(pair.remote_index).or_insert_with(|| (pair.remote.is_ipv6(), Vec::new()));
        if matches!(pair.link, Link::SameSubnet { .. } | Link::LinkLocal) && !slots.contains(&pair.slot) {
            slots.push(pair.slot);
        }
    }
    let mut counts: BTreeMap<(bool, Vec<usize>), usize> = BTreeMap::new();
    let mut cards: BTreeMap<(Vec<usize>, usize), usize> = BTreeMap::new();
    let mut card_of: BTreeMap<usize, usize> = BTreeMap::new();
    for (remote_index, (is_ipv6, slots)) in links {
        let turn = counts.entry((is_ipv6, slots.clone())).or_default();
        let next = cards.len();
        card_of.insert(remote_index, *cards.entry((slots, *turn)).or_insert(next));
        *turn += 1;
    }
    for pair in pairs {
        pair.card = card_of[&pair.remote_index];
    }
    cards.len()
}
