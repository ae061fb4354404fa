//! Rules, routes, addresses and links of this host: read, set and removed with netlink
//! (rtnetlink(7)).
//!
//! Rules and routes set by this module carry a protocol number of their own, [`PROTOCOL`], which
//! identifies them. Other programs show it as `proto 108`.

mod messages;
mod requests;
mod watch;

use core::fmt;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

pub use self::watch::{RoutingNews, RoutingWatch, RoutingWatchWaker};

/// Protocol number of rules and routes set by this module. The kernel does not interpret numbers
/// above RTPROT_STATIC (4), and no routing daemon of iproute2's list (`rt_protos`) has this one.
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

/// One setting of a host's network.
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
    /// The routing table of the route.
    pub table: u32,
    /// The first address of the network.
    pub network: IpAddr,
    /// The length of the network's prefix.
    pub bits: u8,
    /// The treatment of the packets.
    pub target: Target,
}

/// Treatment of packets that use a route.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Packets leave over this device.
    Device(String),
    /// Packets are refused, unless the table has another route with a metric below the maximum.
    Unreachable,
}

/// A rule of the policy database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The version of IP of its packets.
    pub family: Family,
    /// The priority of the rule: lower numbers come first.
    pub priority: u32,
    /// The packets to which the rule applies.
    pub packets: Packets,
    /// The table to look up; `None` refuses the packets.
    pub table: Option<u32>,
}

/// The packets to which a rule applies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Packets {
    /// Packets for which the table has a route other than a default one.
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

/// The current network configuration of this host.
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
    /// Returns the device that it requires; `None` if it requires none.
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
    /// Reads the network configuration of this host (of the network namespace of this thread). Only
    /// routes of the main table and of `table` are read.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(table: u32) -> io::Result<Self> {
        messages::read(table)
    }
}

/// Applies a setting. In the main table a route never replaces another; in other tables it does. A
/// link gets its MTU and is set up.
///
/// # Errors
/// The system's error: [`io::ErrorKind::AlreadyExists`] if the setting, or a route to the same
/// network, exists already.
pub fn set(setting: &Setting) -> io::Result<()> {
    messages::set(setting)
}

/// Removes a rule or a route. Other settings are not removed: addresses vanish with their device.
///
/// # Errors
/// The system's error. A missing rule or route is not an error.
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
