//! What a client does when the networks of its host change while it has a device.

use std::net::SocketAddr;
use std::sync::mpsc;

use tunnel::Prefix;
use tunnel::control::Accepted;
use tunnel::policy::{Item, LeftOut, Terms};
use tunnel_end::peers::{Peer, PeerId};

use super::device::{Device, Kept};
use super::{Client, LOOK_INTERVAL};
use crate::cli::connect::Connected;
use crate::cli::lost::Lost;
use crate::cli::tunnel::host_network::HostNetwork;
use crate::cli::tunnel::terms::{NetworkWatch, device_routes, left_out_json};
use crate::cli::warning::Warning;

/// Follows the networks of this host, by what the server has assigned last.
pub(super) struct Follower {
    accepted: Accepted,
    watch: NetworkWatch,
}

impl Follower {
    /// Follows what `watch` reports. It was opened before the terms were decided.
    pub(super) const fn new(accepted: Accepted, watch: NetworkWatch) -> Self {
        Self { accepted, watch }
    }

    /// Gives up networks that this host has got itself, and takes those that it has no more;
    /// `server` is the other end, if there is a connection. Returns why this host does not want the
    /// tunnel any more, if that is so.
    pub(super) fn follow(
        &mut self,
        client: &Client<'_>,
        device: &mut Device,
        network: &mut Option<HostNetwork>,
        server: Option<(PeerId, &Peer)>,
    ) -> Option<String> {
        let Self { watch, accepted } = self;
        let warn = |why: &str| client.warn(Warning::NetworkChanged, why);
        let terms = watch.read_changes(|| client.policy.terms(accepted), warn)?;
        if let Some(refusal) = terms.refusal() {
            return Some(refusal.to_string());
        }
        if terms == device.terms {
            return None;
        }
        let (before, after) = (device_routes(&device.terms), device_routes(&terms));
        if let Some(network) = network {
            for gone in before.iter().filter(|route| !after.contains(route)) {
                network.remove_route(gone);
            }
            let new: Vec<_> = after.iter().filter(|route| !before.contains(route)).copied().collect();
            device.refused.retain(|refused| after.contains(refused));
            device.refused.extend(client.add_routes(network, &new));
        }
        client.tell_left_out(&terms, &mut device.terms.left_out);
        device.terms = terms;
        if let Some((id, peer)) = server {
            device.end.peers.set_networks(id, peer, device.networks(client.all()));
        }
        None
    }
}

impl Kept {
    /// Gives up the device, with its addresses, for which this host would answer, and its routes,
    /// unless they are a kill switch.
    fn give_up_device(&mut self, has_kill_switch: bool) {
        self.device = None;
        self.network = self.network.take().filter(|_| has_kill_switch);
    }
}

impl Client<'_> {
    /// All addresses, if the user wants all packets to go through the tunnel.
    pub(super) fn all(&self) -> impl Iterator<Item = Prefix> {
        let all = [Prefix::ALL_IPV4, Prefix::ALL_IPV6].into_iter();
        all.filter(|all| self.options.all && self.ipv6.takes(all.address()))
    }

    /// Does what takes time while there is no connection. The device and its routes are still
    /// there, so the networks of this host are followed meanwhile.
    pub(super) fn following<T>(&self, kept: &mut Kept, work: impl FnOnce(&mut Vec<SocketAddr>) -> T) -> T {
        let mut servers = std::mem::take(&mut kept.servers);
        let (ended, end) = mpsc::channel::<()>();
        let done = std::thread::scope(|scope| {
            let (kept, servers) = (&mut *kept, &mut servers);
            if kept.device.is_some() {
                scope.spawn(move || {
                    // The sending end is dropped when the work has ended.
                    while end.recv_timeout(LOOK_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                        self.follow_alone(kept);
                    }
                });
            }
            let done = work(servers);
            drop(ended);
            done
        });
        kept.servers = servers;
        done
    }

    /// Follows the networks of this host once, while there is no connection. A device that this
    /// host does not take any more is given up: the next connection waits until it takes it again.
    fn follow_alone(&self, kept: &mut Kept) {
        let Kept { device: Some(device), network, follower: Some(follower), .. } = kept else { return };
        if let Some(refusal) = follower.follow(self, device, network, None) {
            kept.give_up_device(self.options.kill_switch);
            self.phase.connect(refusal.clone());
            self.warn(Warning::NetworkCollides, &refusal);
        }
    }

    /// Ends a tunnel that this host does not take. If it has been up, waits for a change of this host's networks.
    pub(super) fn await_other_networks(
        &self,
        why: String,
        connected: &Connected,
        kept: &mut Kept,
        mut follower: Follower,
    ) -> Lost {
        connected.connection.close(0, "the client's host does not take the addresses");
        let had_device = kept.device.is_some();
        kept.device = None;
        if kept.has_been_up {
            kept.give_up_device(self.options.kill_switch);
            self.phase.connect(why.clone());
            // It was told already if the device was given up while there was no connection.
            if had_device {
                self.warn(Warning::NetworkCollides, &why);
            }
            let is_refused = || self.policy.terms(&follower.accepted).is_ok_and(|terms| terms.refusal().is_some());
            while is_refused() && !self.cancel.is_cancelled() {
                follower.watch.await_change(&self.cancel);
            }
        }
        Lost::passing(why)
    }

    /// Warns of what is left out of what the server assigns, unless that was told before.
    pub(super) fn tell_left_out(&self, terms: &Terms, told: &mut Vec<LeftOut>) {
        let news = terms.left_out.iter().filter(|left_out| !told.contains(left_out));
        // An address that is refused ends the tunnel, with its message.
        for left_out in news.filter(|left_out| !matches!(left_out.item, Item::Address(..))) {
            self.warn_of_route(&left_out.to_string());
        }
        told.clone_from(&terms.left_out);
        self.phase.leave_out(terms.left_out.iter().map(left_out_json).collect());
    }

    /// Sends packets to these networks over the device. Returns those that the kernel routes otherwise.
    pub(super) fn add_routes(&self, network: &mut HostNetwork, routes: &[Prefix]) -> Vec<Prefix> {
        let mut refused = Vec::new();
        for prefix in routes {
            if let Err(why) = network.add_route(prefix) {
                self.warn_of_route(&format!("packets to {prefix} do not go through the tunnel: {why}"));
                refused.push(*prefix);
            }
        }
        refused
    }
}
