//! The reasons why something is used, is not used, or is rejected as a request, with their messages
//! for the user.

use std::fmt;
use std::net::IpAddr;

/// Reason why a path was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason {
    /// The kind of link to the remote address.
    pub link: Link,
    /// The rule that chose it.
    pub turn: Turn,
}

/// Kind of link between two addresses, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Link {
    /// Both addresses are this host's.
    SameHost,
    /// Both are in one subnet.
    SameSubnet {
        /// The length of the common prefix in bits.
        prefix_len: u8,
    },
    /// Both are IPv6 link-local addresses, which may or may not be on the same link.
    LinkLocal,
    /// Over a route, to a public address.
    Route,
    /// Over a route, to a private address, which may belong to another host there.
    PrivateRoute,
}

/// Rule that added a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Turn {
    /// Both ends were unused before.
    Pair,
    /// The interface would be idle otherwise.
    IdleInterface,
    /// The receiver's address would be idle otherwise.
    IdleRemote,
    /// `--paths` requests more: another pair of used ends.
    MorePairs,
    /// `--paths` requests more: other addresses of the same pair.
    OtherAddresses,
    /// `--paths` requests more: the same addresses from another port.
    OtherPort,
    /// `--path` requests it.
    Asked,
}

/// Reason why an interface, an address or a pair is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unused {
    /// It leads to this host only.
    Loopback,
    /// The interface is down.
    Down,
    /// The interface has no carrier.
    NoCarrier,
    /// The interface has no IP address.
    NoAddress,
    /// The interface has no address of the remote one's family.
    OtherFamily,
    /// Only one of the two addresses is link-local.
    LinkLocal,
    /// This host also has the address.
    OwnAddress,
    /// The address is not a host address, or has port 0.
    NotAHost,
    /// The address exceeds [`REMOTES_MAX`](super::REMOTES_MAX).
    TooMany,
    /// The routes or the address do not allow the pair; holds the system's error.
    NoRoute(String),
    /// The interface is a Litz tunnel over the other interfaces, which would encrypt their packets
    /// twice.
    Tunnel,
    /// Another address pair between the same two cards is used.
    PairUsed,
    /// Both ends are used, in other pairs.
    EndsUsed,
    /// Another path has this local address and port.
    PortTaken,
    /// The limit on the number of paths is reached.
    BeyondLimit(usize),
}

/// Errors of `--path` and `--paths`, with messages for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChooseError {
    /// The system's list of interfaces could not be read.
    NoTable(String),
    /// No interface has this name.
    UnknownInterface {
        /// The name.
        name: String,
        /// The interfaces that exist.
        known: Vec<String>,
    },
    /// No interface has this address.
    NotOurAddress {
        /// The address.
        ip: IpAddr,
        /// The addresses that this host has.
        ours: Vec<IpAddr>,
    },
    /// The port is missing, because the ticket does not name this remote address.
    NoPort(IpAddr),
    /// The number of `--path` options exceeds `--paths`.
    MorePathsThanAllowed {
        /// Number of `--path` options.
        paths: usize,
        /// Value of `--paths`.
        limit: usize,
    },
    /// The number exceeds [`PATHS_MAX`](crate::paths::PATHS_MAX).
    TooManyPaths(usize),
}

impl Link {
    /// Returns a stable identifier for programs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::SameHost => "same_host",
            Self::SameSubnet { .. } => "same_subnet",
            Self::LinkLocal => "link_local",
            Self::Route => "route",
            Self::PrivateRoute => "private_route",
        }
    }

    /// Returns the rank of the link, smaller is better; subnets are equal regardless of their size.
    pub(super) const fn class(self) -> u8 {
        match self {
            Self::SameHost => 0,
            Self::SameSubnet { .. } => 1,
            Self::LinkLocal => 2,
            Self::Route => 3,
            Self::PrivateRoute => 4,
        }
    }
}

impl Turn {
    /// Returns a stable identifier for programs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::IdleInterface => "idle_interface",
            Self::IdleRemote => "idle_remote",
            Self::MorePairs => "more_pairs",
            Self::OtherAddresses => "other_addresses",
            Self::OtherPort => "other_port",
            Self::Asked => "asked",
        }
    }
}

impl Unused {
    /// Returns whether the pair would work as far as this host knows.
    #[must_use]
    pub const fn is_spare(&self) -> bool {
        matches!(self, Self::Tunnel | Self::PairUsed | Self::EndsUsed | Self::BeyondLimit(_))
    }

    /// Returns a stable identifier for programs.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Down => "down",
            Self::NoCarrier => "no_carrier",
            Self::NoAddress => "no_address",
            Self::OtherFamily => "other_family",
            Self::LinkLocal => "link_local",
            Self::OwnAddress => "own_address",
            Self::NotAHost => "not_a_host",
            Self::TooMany => "too_many",
            Self::NoRoute(_) => "no_route",
            Self::Tunnel => "tunnel",
            Self::PairUsed => "pair_used",
            Self::EndsUsed => "ends_used",
            Self::PortTaken => "port_taken",
            Self::BeyondLimit(_) => "beyond_limit",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.turn {
            Turn::Pair => write!(f, "{}", self.link),
            turn => write!(f, "{}; {turn}", self.link),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameHost => write!(f, "both ends on this host"),
            Self::SameSubnet { prefix_len } => write!(f, "same subnet (/{prefix_len})"),
            Self::LinkLocal => write!(f, "link-local on both ends"),
            Self::Route => write!(f, "a route leads there"),
            Self::PrivateRoute => write!(f, "a route leads there, though the address is private"),
        }
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pair => "a pair of its own",
            Self::IdleInterface => "so that the interface is not idle",
            Self::IdleRemote => "so that the remote address is not idle",
            Self::MorePairs => "another pair, as --paths asks for more",
            Self::OtherAddresses => "other addresses of a pair, as --paths asks for more",
            Self::OtherPort => "another port, as --paths asks for more",
            Self::Asked => "asked for with --path",
        })
    }
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback leads to this host only",
            Self::Down => "the interface is down (`ip link set NAME up` enables it)",
            Self::NoCarrier => "no carrier: check the cable and the device at its other end",
            Self::NoAddress => "it has no IP address",
            Self::OtherFamily => "it has no address of this family",
            Self::LinkLocal => "a link-local address reaches link-local addresses of its own link only",
            Self::OwnAddress => "this host has the address too",
            Self::NotAHost => "not the address of one host",
            Self::TooMany => "more addresses than are considered",
            Self::NoRoute(said) => return write!(f, "not reachable: {said}"),
            Self::Tunnel => "a tunnel of Litz over the other interfaces (--path takes it)",
            Self::PairUsed => "other addresses of the same pair are used",
            Self::EndsUsed => "both ends are used already (a greater --paths takes it)",
            Self::PortTaken => "another path uses this local address and port",
            Self::BeyondLimit(limit) => return write!(f, "beyond the limit of {limit} (see --paths)"),
        })
    }
}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable(error) => write!(f, "cannot list the network interfaces: {error}"),
            Self::UnknownInterface { name, known } => {
                write!(f, "no interface is called {name}; there are {}", known.join(", "))?;
                // Names may also contain a hyphen.
                match name.rsplit_once('-') {
                    Some((local, remote)) if known.iter().any(|known| known == local) => {
                        write!(f, ". If a path from {local} is meant, {remote} must be an IP address")
                    }
                    _ => Ok(()),
                }
            }
            Self::NotOurAddress { ip, ours } => {
                let ours = ours.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                write!(f, "this host does not have the address {ip}; it has {ours}")
            }
            Self::NoPort(ip) => {
                write!(f, "the ticket does not name {ip}, so its port is unknown: write it after the address")
            }
            Self::MorePathsThanAllowed { paths, limit } => {
                write!(f, "--path is given {paths} times, but --paths allows {limit}: raise it or leave it out")
            }
            Self::TooManyPaths(paths) => {
                write!(f, "{paths} paths are more than the {} that are possible", crate::paths::limits::PATHS_MAX)
            }
        }
    }
}

impl std::error::Error for ChooseError {}
