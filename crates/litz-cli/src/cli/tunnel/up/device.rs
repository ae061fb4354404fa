//! The device of a client: what it is made for, made of and kept with.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use net::tun::Tun;
use tunnel::Prefix;
use tunnel::policy::Terms;
use tunnel_end::destination::Flows;
use tunnel_end::end::TunnelEnd;
use tunnel_end::terminate::terminator::Termination;

use super::Client;
use super::follow::Follower;
use super::options::UpOptions;
use crate::cli::forward::report::Report;
use crate::cli::tunnel::control_socket::folder;
use crate::cli::tunnel::host_network::HostNetwork;
use crate::cli::tunnel::ipv6::LeftOut;
use crate::cli::tunnel::terms::{device_addresses, device_routes};
use crate::cli::tunnel::userspace::{Ports, Userspace};

/// What a client keeps from one connection to the next. The device ends first.
#[derive(Default)]
pub(super) struct Kept {
    /// The device, once the server has assigned addresses.
    pub(super) device: Option<Device>,
    /// The changed routes, as long as the kernel's device. With a kill switch they are there from the start, so that
    /// no packet passes outside while a device is made, nor if that fails.
    pub(super) network: Option<HostNetwork>,
    /// Follows the networks of this host as long as there is a device.
    pub(super) follower: Option<Follower>,
    /// The addresses of the server, as they were found last.
    pub(super) servers: Vec<SocketAddr>,
    /// What the user knows to be left out of IPv6.
    pub(super) ipv6_left_out: LeftOut,
    /// What the user knows to be left out of what the server assigns.
    pub(super) left_out: Vec<tunnel::policy::LeftOut>,
    /// A tunnel that has been up is made again until the user ends it.
    pub(super) has_been_up: bool,
}

pub(super) struct Device {
    pub(super) end: TunnelEnd,
    /// The programs' way to the device, if the kernel has none.
    pub(super) front: Option<Userspace>,
    /// Networks that the kernel routes otherwise.
    pub(super) refused: Vec<Prefix>,
    /// What it was made for. Other addresses need another device.
    pub(super) terms: Terms,
}

impl Device {
    /// Whether the assignment of a server that was started again needs another device, or this one is gone.
    pub(super) fn differs(&self, terms: &Terms, options: &UpOptions) -> bool {
        if self.end.has_ended() {
            return true;
        }
        let is_other = if self.front.is_some() {
            // It has no routes, and takes over other name servers. Only the kernel changes the MTU of a device.
            self.terms.mtu != terms.mtu
        } else {
            self.terms.routes != terms.routes || options.dns && self.terms.name_servers != terms.name_servers
        };
        is_other || self.terms.addresses != terms.addresses
    }

    /// The networks that lead to the server, and from which it may send.
    pub(super) fn networks(&self, all: impl Iterator<Item = Prefix>) -> Vec<Prefix> {
        self.terms.prefixes().filter(|prefix| !self.refused.contains(prefix)).chain(all).collect()
    }
}

impl Client<'_> {
    /// Starts our TCP/IP on one end of a pair of devices, and returns the other end.
    fn begin_userspace(&self, terms: &Terms) -> Result<(Tun, Userspace), String> {
        let [tun, inner] = Tun::pair(&self.options.tun).map_err(|error| error.to_string())?;
        let report = Arc::new(Report::new(&self.options.transport));
        // Another device needs them again.
        let open = self.ports.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ports = open.map_or_else(|| Ports::open(&self.options.userspace), Ok)?;
        let front = Userspace::start(ports, inner, terms, self.options.transport.busy_poll, &report)?;
        Ok((tun, front))
    }

    /// Makes the kernel's device and its routes. Returns the networks that the kernel routes otherwise, too.
    fn open_kernel(&self, terms: &Terms, kept: &mut Kept) -> Result<(Tun, Vec<Prefix>), String> {
        let name = &self.options.tun;
        let network = match &mut kept.network {
            Some(network) => network,
            none => none.insert(HostNetwork::begin(&folder(), name, &self.ipv6, false, &self.upkeep)?),
        };
        let addresses = device_addresses(terms);
        let tun = Tun::open_tunnel(name, &addresses, terms.mtu).map_err(|error| error.to_string())?;
        network.keep_device(&addresses, terms.mtu);
        let refused = self.add_routes(network, &device_routes(terms));
        if self.options.all {
            network.send_all(self.options.kill_switch, &kept.servers)?;
        }
        if self.options.dns {
            if terms.name_servers.is_empty() {
                return Err("the server names no name servers: run it with --dns, or this command without".to_owned());
            }
            network.use_name_servers(&terms.name_servers)?;
        } else {
            network.undo_names();
        }
        Ok((tun, refused))
    }

    /// Makes the device, and begins to take its packets.
    pub(super) fn open(&self, terms: &Terms, kept: &mut Kept) -> Result<(), String> {
        let (tun, front, refused) = if self.options.userspace.userspace {
            self.begin_userspace(terms).map(|(tun, front)| (tun, Some(front), Vec::new()))?
        } else {
            self.open_kernel(terms, kept).map(|(tun, refused)| (tun, None, refused))?
        };
        let UpOptions { terminate, redundant: urgent, pin: pins, .. } = self.options;
        let flows = Flows { urgent: *urgent, pins: *pins };
        let termination = Termination { selectors: terminate, busy_poll: self.options.transport.busy_poll };
        let end = TunnelEnd::start(tun, terms.mtu, &self.state.key, termination, flows, Arc::clone(&self.events))
            .map_err(|error| error.to_string())?;
        kept.device = Some(Device { end, front, refused, terms: terms.clone() });
        Ok(())
    }
}
