//! What a client takes of what a server assigns: addresses, routes, name servers and the MTU of [`Accepted`].
//!
//! A server may be hostile. Whatever it sends, no packet that the client's host could send before goes into the tunnel,
//! unless the user has asked for that. Without being asked for, a server gets packets only to addresses for private use
//! that the host has no network for, and only a bounded number of these. A network that the host gets later is its own:
//! then the same decision is made again.

use std::fmt;
use std::net::IpAddr;

use crate::control::Accepted;
use crate::host_address;
use crate::own_networks::{OwnNetwork, OwnNetworks, ROUTE_BITS_MIN, is_private, local_kind, without_local};
use crate::prefix::Prefix;

/// Bits of the smallest network that has as many addresses as a server gets without being asked for, for each IP version.
/// All of 10.0.0.0/8 is more, and so is a large part of fc00::/7; a site's networks are less.
pub const SUM_BITS: [u8; 2] = [12, 40];

/// The smallest MTU of IPv6 (RFC 8200, section 5).
pub const MTU_MIN: u16 = 1280;

/// What the user of a client wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// All packets go to the server, but for those to networks of this host.
    pub all: bool,
    /// Networks that the server gets if it names them, also those of this host.
    pub asked: Vec<Prefix>,
    /// The largest packet.
    pub mtu_max: u16,
}

/// What a client takes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Terms {
    /// Its addresses, each with the bits of its network.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The networks of the tunnel itself.
    pub networks: Vec<AddressNetwork>,
    /// The networks behind the server.
    pub routes: Vec<Route>,
    /// The name servers.
    pub name_servers: Vec<IpAddr>,
    /// The largest packet.
    pub mtu: u16,
    /// What it does not take.
    pub left_out: Vec<LeftOut>,
}

/// A network of the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressNetwork {
    /// The network, or a part of it.
    pub prefix: Prefix,
    /// The client's address in it.
    pub own: IpAddr,
}

/// A network behind the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network.
    pub prefix: Prefix,
    /// Whether the user has asked for it, so that it comes before others' routes to the same network.
    pub is_asked: bool,
}

/// Something that a client does not take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The address, the network or the name server.
    pub item: Item,
    /// Why.
    pub reason: Reason,
}

/// Something that a server assigns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// An address of the client, with the bits of its network.
    Address(IpAddr, u8),
    /// A network behind the server.
    Route(Prefix),
    /// A name server.
    NameServer(IpAddr),
}

/// Why a client does not take something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No host may have this address.
    NoHost(&'static str),
    /// Its packets stay on a link or in a host.
    Local(&'static str),
    /// The host has this network itself.
    Own(OwnNetwork),
    /// The address is one of a network to which the host has a link: it would answer its neighbours.
    Neighbour(OwnNetwork),
    /// It has addresses that are not for private use: the host reaches them by its default route.
    Public,
    /// It is a large part of all addresses.
    Large,
    /// It is more than a server gets without being asked for.
    Sum,
}

/// What a server has got so far without being asked for.
#[derive(Default)]
struct Sum {
    taken: Vec<Prefix>,
    /// Addresses of each version.
    addresses: [u128; 2],
}

impl Sum {
    /// Whether the network can be taken, too; then it is.
    fn take(&mut self, prefix: Prefix) -> bool {
        if self.taken.iter().any(|taken| taken.covers(&prefix)) {
            return true;
        }
        let version = usize::from(prefix.address().is_ipv6());
        // All of IPv6 would be 2^128.
        let count = 1_u128.checked_shl((prefix.width() - prefix.bits()).into()).unwrap_or(u128::MAX);
        let sum = self.addresses[version].saturating_add(count);
        let max = 1_u128 << (prefix.width() - SUM_BITS[version]);
        if sum > max {
            return false;
        }
        self.addresses[version] = sum;
        self.taken.push(prefix);
        true
    }
}

impl Policy {
    /// Decides what a client on a host with the networks `own` takes of what the server has `offered`.
    #[must_use]
    pub fn terms(&self, offered: &Accepted, own: &OwnNetworks) -> Terms {
        let mut terms = Terms { mtu: offered.mtu.min(self.mtu_max).max(MTU_MIN), ..Terms::default() };
        let mut sum = Sum::default();
        for &(address, bits) in &offered.addresses {
            match self.address(address, bits, own, &mut sum) {
                Ok(network) => {
                    terms.addresses.push((address, bits));
                    let parts = without_local(&network).into_iter();
                    terms.networks.extend(parts.map(|prefix| AddressNetwork { prefix, own: address }));
                }
                Err(reason) => terms.left_out.push(LeftOut { item: Item::Address(address, bits), reason }),
            }
        }
        for offered in &offered.routes {
            self.route(offered, own, &mut sum, &mut terms);
        }
        for &server in &offered.name_servers {
            let host = Prefix::host(server);
            let local = local_kind(&host).map(Reason::Local);
            match local.or_else(|| host_address::refusal(server, &host).map(Reason::NoHost)) {
                None => terms.name_servers.push(server),
                Some(reason) => terms.left_out.push(LeftOut { item: Item::NameServer(server), reason }),
            }
        }
        terms
    }

    /// Returns the network of an address that the client takes.
    fn address(&self, address: IpAddr, bits: u8, own: &OwnNetworks, sum: &mut Sum) -> Result<Prefix, Reason> {
        let Ok(network) = Prefix::new(address, bits) else { return Err(Reason::NoHost("has fewer bits")) };
        if let Some(kind) = local_kind(&Prefix::host(address)) {
            return Err(Reason::Local(kind));
        }
        if let Some(why) = host_address::refusal(address, &network) {
            return Err(Reason::NoHost(why));
        }
        // A host answers neighbours that ask for any address of it, whichever device has it (arp_ignore of ip-sysctl).
        if let Some(link) = own.link_of(address) {
            return Err(Reason::Neighbour(link.clone()));
        }
        if self.asks_for(&network) {
            return Ok(network);
        }
        if let Some(own) = own.overlapping(&network) {
            return Err(Reason::Own(own.clone()));
        }
        if self.all {
            return Ok(network);
        }
        self.unasked(network, sum)
    }

    /// Takes a network behind the server, or the parts of it that the user has asked for.
    fn route(&self, offered: &Prefix, own: &OwnNetworks, sum: &mut Sum, terms: &mut Terms) {
        let mut take = |prefix: &Prefix, is_asked| {
            let parts = without_local(prefix).into_iter().map(|prefix| Route { prefix, is_asked });
            let is_new = |route: &Route| !terms.routes.iter().any(|taken| taken.prefix == route.prefix);
            let parts: Vec<_> = parts.filter(is_new).collect();
            terms.routes.extend(parts);
        };
        let local = local_kind(offered);
        if local.is_none() && self.asks_for(offered) {
            return take(offered, true);
        }
        let asked = self.asked.iter().filter(|asked| offered.covers(asked) && local_kind(asked).is_none());
        let asked: Vec<_> = asked.collect();
        if !asked.is_empty() {
            return asked.into_iter().for_each(|asked| take(asked, true));
        }
        let decided = match (local, own.overlapping(offered)) {
            (Some(kind), _) => Err(Reason::Local(kind)),
            // All other packets go there anyway.
            (None, Some(own)) if self.all && offered.covers(&own.prefix) && *offered != own.prefix => return,
            (None, None) if self.all && offered.bits() < ROUTE_BITS_MIN => return,
            (None, None) if self.all => Ok(*offered),
            (None, _) if offered.bits() < ROUTE_BITS_MIN => Err(Reason::Large),
            (None, Some(own)) => Err(Reason::Own(own.clone())),
            (None, None) => self.unasked(*offered, sum),
        };
        match decided {
            Ok(prefix) => take(&prefix, false),
            Err(reason) => terms.left_out.push(LeftOut { item: Item::Route(*offered), reason }),
        }
    }

    /// A network that the user has not asked for, and that the host does not have.
    fn unasked(&self, network: Prefix, sum: &mut Sum) -> Result<Prefix, Reason> {
        if network.bits() < ROUTE_BITS_MIN {
            return Err(Reason::Large);
        }
        if !is_private(&network) {
            return Err(Reason::Public);
        }
        if sum.take(network) { Ok(network) } else { Err(Reason::Sum) }
    }

    fn asks_for(&self, network: &Prefix) -> bool {
        self.asked.iter().any(|asked| asked.covers(network))
    }
}

impl Terms {
    /// Returns why the client cannot use the tunnel: it cannot have an address that the server assigns.
    #[must_use]
    pub fn refusal(&self) -> Option<&LeftOut> {
        self.left_out.iter().find(|left_out| matches!(left_out.item, Item::Address(..)))
    }

    /// Returns the networks of the tunnel, and those behind the server.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.networks.iter().map(|network| network.prefix).chain(self.routes.iter().map(|route| route.prefix))
    }
}

impl Reason {
    /// A stable identifier for programs.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NoHost(_) => "no_host",
            Self::Local(_) => "local",
            Self::Own(_) | Self::Neighbour(_) => "own_network",
            Self::Public => "public",
            Self::Large => "large",
            Self::Sum => "sum",
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address, bits) => write!(f, "{address}/{bits}"),
            Self::Route(prefix) => prefix.fmt(f),
            Self::NameServer(address) => address.fmt(f),
        }
    }
}

/// A sentence for the user, with what to do.
impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.item {
            Item::Address(address, bits) => self.write_address(f, *address, *bits),
            Item::Route(prefix) => {
                write!(f, "packets to {prefix} do not go through the tunnel: ")?;
                self.write_reason(f)?;
                match &self.reason {
                    Reason::Own(_) | Reason::Sum | Reason::Neighbour(_) => {
                        write!(f, "; --accept-route {prefix} sends them there")
                    }
                    Reason::Public => write!(f, "; --accept-route {prefix} or --all sends them there"),
                    Reason::Large => f.write_str("; --all sends all packets there"),
                    Reason::Local(_) | Reason::NoHost(_) => Ok(()),
                }
            }
            Item::NameServer(address) => {
                write!(f, "the name server {address} is not used: ")?;
                self.write_reason(f)
            }
        }
    }
}

impl LeftOut {
    fn write_address(&self, f: &mut fmt::Formatter<'_>, address: IpAddr, bits: u8) -> fmt::Result {
        write!(f, "the server assigns {address}/{bits}, which this host does not take: ")?;
        self.write_reason(f)?;
        let network = Prefix::new(address, bits).unwrap_or(Prefix::host(address));
        match &self.reason {
            Reason::Neighbour(_) => f.write_str(". Give the server an --address in another network"),
            Reason::Own(_) => {
                write!(f, ". Give the server an --address in another network, or use --accept-route {network}")
            }
            Reason::Public | Reason::Sum => write!(f, "; --accept-route {network} takes it"),
            Reason::Large => f.write_str("; --all sends all packets there"),
            Reason::Local(_) | Reason::NoHost(_) => f.write_str(". Give the server another --address"),
        }
    }

    fn write_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::NoHost(why) => write!(f, "it {why}"),
            Reason::Local(kind) => write!(f, "no tunnel takes {kind}"),
            Reason::Own(own) => write!(f, "this host has {own}"),
            Reason::Neighbour(own) => {
                write!(f, "this host has {own}, whose hosts would take it for a neighbour's address")
            }
            Reason::Public => f.write_str("this host reaches these public addresses by itself"),
            Reason::Large => f.write_str("it is a large part of all addresses"),
            Reason::Sum => {
                let [four, six] = SUM_BITS;
                write!(
                    f,
                    "a server gets no more than the addresses of a /{four} of IPv4 and a /{six} of IPv6 by itself"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
