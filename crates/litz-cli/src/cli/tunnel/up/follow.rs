//! What a client does when the networks of its host change while the tunnel is there.

use tunnel::Prefix;
use tunnel::control::Accepted;
use tunnel::policy::{Item, LeftOut, Terms};

use super::{Client, Device, Kept};
use crate::cli::connect::Connected;
use crate::cli::lost::Lost;
use crate::cli::tunnel::host_network::HostNetwork;
use crate::cli::tunnel::terms::{NetworkWatch, device_routes, left_out_json};
use crate::cli::warning::Warning;
use crate::tunnel::peers::{Peer, PeerId};

/// Follows the networks of this host while the tunnel is up.
pub(super) struct Follower<'a> {
    pub(super) client: &'a Client<'a>,
    pub(super) accepted: &'a Accepted,
    pub(super) watch: &'a mut NetworkWatch,
    pub(super) network: &'a mut Option<HostNetwork>,
    pub(super) peer: &'a Peer,
    pub(super) id: PeerId,
}

impl Follower<'_> {
    /// Gives up networks that this host has got itself, and takes those that it has no more. Returns why this host
    /// does not want the tunnel any more, if that is so.
    pub(super) fn follow(&mut self, device: &mut Device) -> Option<String> {
        if !self.watch.may_have_changed() {
            return None;
        }
        let terms = match self.client.policy.terms(self.accepted) {
            Ok(terms) => terms,
            Err(error) => {
                tracing::warn!(error, "the networks of this host are not followed");
                return None;
            }
        };
        if let Some(refusal) = terms.refusal() {
            return Some(refusal.to_string());
        }
        if terms == device.terms {
            return None;
        }
        let (before, after) = (device_routes(&device.terms), device_routes(&terms));
        if let Some(network) = self.network {
            for gone in before.iter().filter(|route| !after.contains(route)) {
                network.remove_route(gone);
            }
            let new: Vec<_> = after.iter().filter(|route| !before.contains(route)).copied().collect();
            device.refused.retain(|refused| after.contains(refused));
            device.refused.extend(self.client.add_routes(network, &new));
        }
        self.client.tell_left_out(&terms, &mut device.terms.left_out);
        device.terms = terms;
        device.end.peers.set_networks(self.id, self.peer, device.networks(self.client.all()));
        None
    }
}

impl Client<'_> {
    /// All addresses, if the user wants all packets to go through the tunnel.
    pub(super) fn all(&self) -> impl Iterator<Item = Prefix> {
        let all = [Prefix::ALL_IPV4, Prefix::ALL_IPV6].into_iter();
        all.filter(|all| self.options.all && self.ipv6.takes(all.address()))
    }

    /// Ends a tunnel that this host does not take. If it has been up, waits for a change of this host's networks.
    pub(super) fn await_other_networks(
        &self,
        why: String,
        connected: &Connected,
        accepted: &Accepted,
        kept: &mut Kept,
        watch: &mut NetworkWatch,
    ) -> Lost {
        connected.connection.close(0, "the client's host does not take the addresses");
        // Its addresses, for which this host would answer, go with it.
        kept.device = None;
        if kept.has_been_up {
            kept.network = kept.network.take().filter(|_| self.options.kill_switch);
            self.phase.connect(why.clone());
            self.warn(Warning::NetworkCollides, &why);
            let is_refused = || self.policy.terms(accepted).is_ok_and(|terms| terms.refusal().is_some());
            while is_refused() && !self.cancel.is_cancelled() {
                watch.await_change(&self.cancel);
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
