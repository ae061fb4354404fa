//! Possible ends of paths: the local interfaces, or the values of `--path` in their place, and the
//! receiver's addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use net::{Interface, InterfaceAddress};

use super::choice::Rejected;
use super::reasons::{ChooseError, Unused};
use super::request::{REMOTES_MAX, Request};
use crate::paths::binding::is_link_local;
use crate::paths::limits::PATHS_MAX;
use crate::paths::spec::{LocalSpec, PathSpec, is_host};

/// A possible local end of paths: an interface, or one `--path`.
#[derive(Debug)]
pub(super) struct Slot {
    /// The interface's name; `None` inside this host.
    pub(super) name: Option<String>,
    /// Addresses at which a path may begin; empty if no path can begin here.
    pub(super) addresses: Vec<InterfaceAddress>,
    pub(super) port: u16,
    /// The only permitted remote address, as an index into [`Slots::remotes`]; `None` permits those
    /// of the ticket.
    pub(super) remote: Option<usize>,
    pub(super) backup: bool,
    /// Whether it is a Litz tunnel that the user did not name.
    pub(super) is_tunnel: bool,
}

/// All slots and remote addresses.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) slots: Vec<Slot>,
    /// Usable remote addresses, without duplicates.
    pub(super) remotes: Vec<SocketAddr>,
    /// Number of leading entries that the ticket names.
    pub(super) ticket_count: usize,
    /// Whether all remote addresses belong to this host.
    pub(super) same_host: bool,
    /// Whether no `--path` was given and all remote addresses belong to this host.
    pub(super) is_loop: bool,
    pub(super) rejected: Vec<Rejected>,
}

impl Slots {
    pub(super) fn new(request: &Request<'_>) -> Result<Self, ChooseError> {
        if request.paths.len() > PATHS_MAX {
            return Err(ChooseError::TooManyPaths(request.paths.len()));
        }
        let mut rejected = Vec::new();
        let mut remotes = usable_remotes(request.remotes, &mut rejected);
        let ticket_count = remotes.len();
        let chosen = request.paths.iter().map(|path| remote_of(path, request.remotes, &mut remotes));
        let chosen: Vec<Option<usize>> = chosen.collect::<Result<_, _>>()?;
        let all = request.interfaces.iter().flat_map(|interface| &interface.addresses);
        let own: BTreeSet<IpAddr> = all.map(|address| address.ip).collect();
        let is_ours = |remote: &SocketAddr| remote.ip().is_loopback() || own.contains(&remote.ip());
        let same_host = remotes.iter().all(is_ours);
        let is_loop = same_host && request.paths.is_empty();
        let slots = if is_loop {
            vec![loop_slot(&remotes)]
        } else if request.paths.is_empty() {
            by_interface(request.interfaces, &mut rejected)
        } else {
            by_path(request, &chosen, same_host, &mut rejected)?
        };
        Ok(Self { slots, remotes, ticket_count, same_host, is_loop, rejected }.without_ours(&own))
    }

    /// Drops remote addresses that this host has, unless it has all of them. Their entries stay, so
    /// that indices stay valid.
    fn without_ours(mut self, own: &BTreeSet<IpAddr>) -> Self {
        if self.same_host {
            return self;
        }
        for remote in &self.remotes {
            let why = match remote.ip() {
                ip if ip.is_loopback() => Unused::Loopback,
                // On another link, another host may have the same link-local address.
                ip if own.contains(&ip) && !is_link_local(ip) => Unused::OwnAddress,
                _ => continue,
            };
            self.rejected.push(Rejected { device: None, local: None, remote: Some(*remote), why });
        }
        self
    }

    /// Returns whether this remote address was dropped for all slots.
    pub(super) fn is_dropped(&self, remote: SocketAddr) -> bool {
        self.rejected.iter().any(|rejected| rejected.device.is_none() && rejected.remote == Some(remote))
    }
}

/// Returns the ticket's valid host addresses, without duplicates.
fn usable_remotes(remotes: &[SocketAddr], rejected: &mut Vec<Rejected>) -> Vec<SocketAddr> {
    let mut usable: Vec<SocketAddr> = Vec::new();
    for &remote in remotes {
        let why = if !is_host(remote.ip()) || remote.port() == 0 {
            Unused::NotAHost
        } else if usable.contains(&remote) {
            continue;
        } else if usable.len() == REMOTES_MAX {
            Unused::TooMany
        } else {
            usable.push(remote);
            continue;
        };
        rejected.push(Rejected { device: None, local: None, remote: Some(remote), why });
    }
    usable
}

/// Returns the index of the remote address that `path` requests; adds the address if the ticket
/// does not name it.
fn remote_of(
    path: &PathSpec,
    ticket: &[SocketAddr],
    remotes: &mut Vec<SocketAddr>,
) -> Result<Option<usize>, ChooseError> {
    let Some(ip) = path.remote else { return Ok(None) };
    let named = || ticket.iter().find(|remote| remote.ip() == ip).map(SocketAddr::port);
    let everywhere = || {
        let port = ticket.first()?.port();
        ticket.iter().all(|remote| remote.port() == port).then_some(port)
    };
    let port = path.remote_port.or_else(named).or_else(everywhere).ok_or(ChooseError::NoPort(ip))?;
    let remote = SocketAddr::new(ip, port);
    let index = remotes.iter().position(|known| *known == remote).unwrap_or_else(|| {
        remotes.push(remote);
        remotes.len() - 1
    });
    Ok(Some(index))
}

/// Returns the slot for paths inside this host, where packets leave from the address they go to.
fn loop_slot(remotes: &[SocketAddr]) -> Slot {
    let whole = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
    let scope_of = |remote: &SocketAddr| match remote {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(six) => six.scope_id(),
    };
    let addresses = remotes.iter().map(|remote| InterfaceAddress {
        ip: remote.ip(),
        prefix_len: whole(remote.ip()),
        scope_id: scope_of(remote),
    });
    Slot { name: None, addresses: addresses.collect(), port: 0, remote: None, backup: false, is_tunnel: false }
}

fn by_interface(interfaces: &[Interface], rejected: &mut Vec<Rejected>) -> Vec<Slot> {
    let mut slots = Vec::new();
    for interface in interfaces {
        let unusable = if interface.is_loopback { Some(Unused::Loopback) } else { defect(interface) };
        match unusable {
            Some(why) => rejected.push(about(&interface.name, why)),
            None => slots.push(Slot {
                name: Some(interface.name.clone()),
                addresses: addresses(interface),
                port: 0,
                remote: None,
                backup: false,
                is_tunnel: interface.is_litz_tunnel,
            }),
        }
    }
    slots
}

fn by_path(
    request: &Request<'_>,
    remotes: &[Option<usize>],
    same_host: bool,
    rejected: &mut Vec<Rejected>,
) -> Result<Vec<Slot>, ChooseError> {
    let mut slots = Vec::with_capacity(request.paths.len());
    for (path, &remote) in request.paths.iter().zip(remotes) {
        let (interface, only) = place_of(path, request.interfaces)?;
        let unusable = match defect(interface) {
            None if interface.is_loopback && !same_host => Some(Unused::Loopback),
            defect => defect,
        };
        let mut begin = addresses(interface);
        begin.retain(|address| only.is_none_or(|only| only == address.ip));
        if let Some(why) = unusable {
            begin.clear();
            rejected.push(about(&interface.name, why));
        }
        slots.push(Slot {
            name: Some(interface.name.clone()),
            addresses: begin,
            port: path.local_port,
            remote,
            backup: path.backup,
            is_tunnel: false,
        });
    }
    Ok(slots)
}

/// Returns the interface at which `path` begins, and its address if one is given.
fn place_of<'a>(path: &PathSpec, interfaces: &'a [Interface]) -> Result<(&'a Interface, Option<IpAddr>), ChooseError> {
    match &path.local {
        LocalSpec::Interface(name) => {
            let found = interfaces.iter().find(|interface| interface.name == *name);
            let known = || interfaces.iter().map(|interface| interface.name.clone()).collect();
            let found = found.ok_or_else(|| ChooseError::UnknownInterface { name: name.clone(), known: known() })?;
            Ok((found, None))
        }
        LocalSpec::Address(ip) => {
            let has = |interface: &&Interface| interface.addresses.iter().any(|address| address.ip == *ip);
            let found = interfaces.iter().find(has);
            let ours = || interfaces.iter().flat_map(|interface| &interface.addresses).map(|address| address.ip);
            let found = found.ok_or_else(|| ChooseError::NotOurAddress { ip: *ip, ours: ours().collect() })?;
            Ok((found, Some(*ip)))
        }
    }
}

/// Returns the reason why no path can begin at the interface, if there is one.
fn defect(interface: &Interface) -> Option<Unused> {
    if !interface.is_up {
        Some(Unused::Down)
    } else if interface.addresses.is_empty() {
        Some(Unused::NoAddress)
    } else if !interface.is_running {
        Some(Unused::NoCarrier)
    } else {
        None
    }
}

fn about(interface: &str, why: Unused) -> Rejected {
    Rejected { device: Some(interface.to_owned()), local: None, remote: None, why }
}

/// Returns the interface's addresses without duplicates: one that was given with two prefixes
/// counts with the wider subnet.
fn addresses(interface: &Interface) -> Vec<InterfaceAddress> {
    let mut found: Vec<InterfaceAddress> = Vec::new();
    for address in &interface.addresses {
        match found.iter().position(|known| known.ip == address.ip) {
            Some(known) => found[known].prefix_len = found[known].prefix_len.min(address.prefix_len),
            None if found.len() < ADDRESSES_PER_INTERFACE_MAX => found.push(*address),
            None => {}
        }
    }
    found
}

/// Maximum number of addresses per interface; each is paired with each of the receiver's addresses.
const ADDRESSES_PER_INTERFACE_MAX: usize = 16;
