//! Rules, routes, addresses and links of this host: read, set and removed by netlink (rtnetlink(7)).
//!
//! The rules and routes that are set have a protocol number of their own, [`PROTOCOL`], by which they are
//! recognised. Other programs show it as `proto 108`.

mod messages;
mod requests;
mod watch;

use core::fmt;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

pub use self::watch::{RoutingNews, RoutingWatch, RoutingWatchWaker};

/// The protocol number of rules and routes that were set here. The kernel does not interpret numbers above
/// RTPROT_STATIC (4), and no routing daemon of iproute2's list (`rt_protos`) has this one.
pub const PROTOCOL: u8 = 108;

/// The main routing table (RT_TABLE_MAIN).
pub const TABLE_MAIN: u32 = 254;

/// A version of IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// One thing that is set in the network of a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Setting {
    /// A device that is up, with this MTU.
    Link {
        /// The device's name.
        device: String,
        /// The largest packet in bytes.
        mtu: u16,
    },
    /// An address of a device, with the bits of its network.
    Address {
        /// The device's name.
        device: String,
        /// The address.
        address: IpAddr,
        /// The length of the network's prefix.
        bits: u8,
    },
    /// A route.
    Route(Route),
    /// A rule, which chooses a table.
    Rule(Rule),
}

/// A route to a network.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The table that it is in.
    pub table: u32,
    /// The first address of the network.
    pub network: IpAddr,
    /// The length of the network's prefix.
    pub bits: u8,
    /// The end of the packets.
    pub target: Target,
}

/// The end of the packets that use a route.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// They leave over this device.
    Device(String),
    /// They are refused, unless another route of the table has a lower metric than the highest.
    Unreachable,
}

/// A rule of the policy database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The version of IP of its packets.
    pub family: Family,
    /// The place among the rules: lower numbers come first.
    pub priority: u32,
    /// The packets that it is for.
    pub packets: Packets,
    /// The table that is looked up; none refuses the packets.
    pub table: Option<u32>,
}

/// The packets that a rule is for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Packets {
    /// Packets for which the table has another route than a default one.
    NotByDefaultRoute,
    /// Packets without this mark.
    WithoutMark(u32),
    /// UDP packets of root to this address and port.
    OfRootTo {
        /// The address.
        address: Ipv4Addr,
        /// The port.
        port: u16,
    },
}

/// The network of this host, as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// The rules and routes with [`PROTOCOL`], and all addresses and links that are up.
    pub settings: BTreeSet<Setting>,
    /// The names of all devices.
    pub devices: BTreeSet<String>,
    /// Networks for which the main table has a route over a device, other than a default route.
    pub networks: BTreeSet<Network>,
}

/// A network that is reached over a device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Network {
    /// The device's name.
    pub device: String,
    /// The first address of the network.
    pub address: IpAddr,
    /// The length of the network's prefix.
    pub bits: u8,
}

impl Setting {
    /// The device without which it cannot be; none if it needs none.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Link { device, .. } | Self::Address { device, .. } => Some(device),
            Self::Route(Route { target: Target::Device(device), .. }) => Some(device),
            Self::Route(_) | Self::Rule(_) => None,
        }
    }
}

impl Observed {
    /// Reads the network of this host (of the network namespace of this thread). Only routes of the main table and
    /// of `table` are read.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(table: u32) -> io::Result<Self> {
        messages::read(table)
    }
}

/// Sets something. A route of the main table replaces none; one of another table does. A link gets its MTU
/// and is set up.
///
/// # Errors
/// The system's error: [`io::ErrorKind::AlreadyExists`] if it, or a route to the same network, is there already.
pub fn set(setting: &Setting) -> io::Result<()> {
    messages::set(setting)
}

/// Removes a rule or a route. Nothing else is removed: addresses vanish with their device.
///
/// # Errors
/// The system's error. It is none if there is no such rule or route.
pub fn remove(setting: &Setting) -> io::Result<()> {
    messages::remove(setting)
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { device, mtu } => write!(f, "the device {device}, up, with the MTU {mtu}"),
            Self::Address { device, address, bits } => write!(f, "the address {address}/{bits} of {device}"),
            Self::Route(Route { table, network, bits, target }) => {
                match target {
                    Target::Device(device) => write!(f, "the route to {network}/{bits} over {device}")?,
                    Target::Unreachable => write!(f, "the unreachable route to {network}/{bits}")?,
                }
                if *table == TABLE_MAIN { Ok(()) } else { write!(f, " in the table {table}") }
            }
            Self::Rule(Rule { family, priority, .. }) => write!(f, "the {family} rule with the priority {priority}"),
        }
    }
}
