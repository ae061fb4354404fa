//! What this host takes of what a server assigns, by the [policy](tunnel::policy) of the crate `tunnel`, now and when
//! the networks of this host change.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use litz::identity::Fingerprint;

use net::interfaces::own_networks::{NetworkKind, OwnNetwork as Found, own_networks};
use net::link_watch::{LinkNews, LinkWatch};
use serde_json::{Value, json};
use transfer::CancelToken;
use tunnel::Prefix;
use tunnel::control::Accepted;
use tunnel::own_networks::{Origin, OwnNetwork, OwnNetworks};
use tunnel::policy::{LeftOut, Policy, Terms};

use super::control_socket::{ask, folder, path_in};

/// How often a waiting command looks for an interrupt.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What the user of a client wants, and the networks of this host.
pub(super) struct HostPolicy {
    policy: Policy,
    /// The kernel's device; none in user space, where no packets of this host go into the tunnel.
    device: Option<String>,
    server: Fingerprint,
    /// Whether these devices are tunnels to the same server: the same networks, which the later tunnel takes over.
    same: Mutex<BTreeMap<String, bool>>,
}

/// Watches the networks of this host.
pub(super) struct NetworkWatch {
    watch: LinkWatch,
    /// They may have changed, and were not read since.
    is_unread: bool,
    /// The latest attempt to read them has failed.
    has_failed: bool,
}

impl HostPolicy {
    pub(super) const fn new(policy: Policy, device: Option<String>, server: Fingerprint) -> Self {
        Self { policy, device, server, same: Mutex::new(BTreeMap::new()) }
    }

    /// Asks other tunnels again which server they lead to.
    pub(super) fn forget_devices(&self) {
        self.lock().clear();
    }

    /// What this host takes now.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn terms(&self, offered: &Accepted) -> Result<Terms, String> {
        let own = self.device.as_deref().map_or_else(|| Ok(OwnNetworks::default()), own_networks_besides)?;
        let is_others = |own: &&OwnNetwork| !own.device.as_deref().is_some_and(|device| self.leads_to_server(device));
        Ok(self.policy.terms(offered, &own.iter().filter(is_others).cloned().collect()))
    }

    /// Whether another device of this host is a tunnel to the same server, by what its command says.
    fn leads_to_server(&self, device: &str) -> bool {
        let mut same = self.lock();
        *same.entry(device.to_owned()).or_insert_with(|| {
            // Without a socket, it is no tunnel of this user.
            let status = ask(&path_in(&folder(), device), "status").ok().flatten();
            status.is_some_and(|status| status["server"] == self.server.to_string())
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.same.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The networks of this host, but for those of the device.
///
/// # Errors
/// A message for the user.
pub(super) fn own_networks_besides(device: &str) -> Result<OwnNetworks, String> {
    let found = own_networks(device).map_err(|error| format!("cannot read the networks of this host: {error}"))?;
    Ok(found.into_iter().filter_map(own).collect())
}

/// None if the kernel has sent a prefix that is none.
fn own(found: Found) -> Option<OwnNetwork> {
    let origin = match found.kind {
        NetworkKind::Address => Origin::Link,
        NetworkKind::Gateway => Origin::Router,
        NetworkKind::Route => Origin::Route,
    };
    let prefix = Prefix::new(found.ip, found.prefix_len).ok()?;
    Some(OwnNetwork { prefix, origin, device: found.device })
}

impl NetworkWatch {
    /// Begins to watch the networks of this host.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn open() -> Result<Self, String> {
        LinkWatch::open()
            .map(|(watch, _)| Self { watch, is_unread: false, has_failed: false })
            .map_err(|error| format!("cannot watch the networks of this host: {error}"))
    }

    /// What `read` returns, if networks may have changed since it succeeded last. `warn` is told
    /// when it fails for the first time: it is called again at the next call, whether something
    /// changes or not.
    pub(super) fn read_changes<T>(
        &mut self,
        read: impl FnOnce() -> Result<T, String>,
        warn: impl FnOnce(&str),
    ) -> Option<T> {
        self.is_unread |= !matches!(self.watch.wait(Duration::ZERO), Ok(LinkNews::None | LinkNews::Woken));
        if !self.is_unread {
            return None;
        }
        match read() {
            Ok(networks) => {
                (self.is_unread, self.has_failed) = (false, false);
                Some(networks)
            }
            Err(why) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn(&format!(
                        "{why}: changes of the networks have no effect on the tunnel until that is possible"
                    ));
                }
                None
            }
        }
    }

    /// Waits until networks may have changed, or the user ends the command.
    pub(super) fn await_change(&mut self, cancel: &CancelToken) {
        while !cancel.is_cancelled() {
            match self.watch.wait(LOOK_INTERVAL) {
                Ok(LinkNews::None | LinkNews::Woken) => {}
                Ok(LinkNews::MayHaveChanged) | Err(_) => return,
            }
        }
    }
}

/// The addresses of the kernel's device, each with the bits of the network that the kernel sends there. If a part of
/// this network stays on a link, the other parts are [routes](device_routes).
pub(super) fn device_addresses(terms: &Terms) -> Vec<(IpAddr, u8)> {
    let bits = |address: IpAddr, bits: u8| {
        let is_whole = terms.networks.iter().any(|network| network.own == address && network.prefix.bits() == bits);
        if is_whole { bits } else { Prefix::host(address).bits() }
    };
    terms.addresses.iter().map(|(address, network)| (*address, bits(*address, *network))).collect()
}

/// The networks that need a route to the device.
pub(super) fn device_routes(terms: &Terms) -> Vec<Prefix> {
    let addresses = device_addresses(terms);
    let is_of_address = |prefix: &Prefix| addresses.iter().any(|(ip, bits)| Prefix::new(*ip, *bits) == Ok(*prefix));
    terms.prefixes().filter(|prefix| !is_of_address(prefix)).collect()
}

/// What is left out, for `litz tunnel status`.
pub(super) fn left_out_json(left_out: &LeftOut) -> Value {
    json!({
        "what": left_out.item.to_string(), "reason": left_out.reason.label(), "message": left_out.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_until_it_was_read_and_a_failure_is_told_once() {
        let mut watch = NetworkWatch::open().expect("a socket");
        let mut warnings = Vec::new();
        watch.is_unread = true;
        for _ in 0..2 {
            let read = watch.read_changes(|| Err::<(), _>("no socket".to_owned()), |why| warnings.push(why.to_owned()));
            assert_eq!(read, None);
        }
        assert_eq!(watch.read_changes(|| Ok(1), |why| warnings.push(why.to_owned())), Some(1));
        assert!(warnings.len() == 1 && warnings[0].starts_with("no socket: "), "{warnings:?}");
        assert!(!watch.is_unread);
        // A later failure is told again.
        watch.is_unread = true;
        watch.read_changes(|| Err::<(), _>("no socket".to_owned()), |why| warnings.push(why.to_owned()));
        assert_eq!(warnings.len(), 2);
    }
}
