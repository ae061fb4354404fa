//! Ends a connection whose peer has ended without a word: its host says that the port is closed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;

use litz::PathState;
use litz::paths::closed_port::ClosedPortWatch;
use net::PortProbe;
use units::Instant;

use super::{Connected, socket};
use crate::cli::local_ends::LocalEnd;

/// Code of the close, which no peer receives.
const CLOSE_CODE: u64 = 0;

/// Watches one connection.
pub(crate) struct PeerWatch<'a> {
    connected: &'a Connected,
    watch: ClosedPortWatch,
    /// By the socket of the path: between which ends, and the probe.
    probes: BTreeMap<u16, (LocalEnd, SocketAddr, PortProbe)>,
}

impl<'a> PeerWatch<'a> {
    pub(crate) fn new(connected: &'a Connected, now: Instant) -> Self {
        Self { connected, watch: ClosedPortWatch::new(now), probes: BTreeMap::new() }
    }

    /// Looks at the connection; a few times a second.
    pub(crate) fn look(&mut self, now: Instant) {
        let stats = self.connected.connection.stats();
        let received = stats.receive.bytes_received;
        let expects = stats.paths.iter().any(|path| path.in_flight_bytes > 0);
        if !self.watch.is_due(now, received, expects) {
            return;
        }
        let (mut asked, mut refused) = (0, 0);
        for path in stats.paths.iter().filter(|path| path.state != PathState::Abandoned) {
            let end = self.connected.ends().of(&path.addresses);
            if end.down.is_some() {
                continue;
            }
            asked += 1;
            refused += usize::from(self.ask(path.addresses.socket, end, path.addresses.remote));
        }
        if self.watch.on_answers(asked, refused) {
            self.connected.has_peer_ended.store(true, Ordering::Relaxed);
            self.connected.connection.close(CLOSE_CODE, "the peer's port is closed");
        }
    }

    /// Whether the host at `remote` said that the port is closed.
    fn ask(&mut self, index: u16, end: LocalEnd, remote: SocketAddr) -> bool {
        let known = self.probes.get(&index).filter(|(from, to, _)| (from, *to) == (&end, remote));
        if known.is_none() {
            // A link-local address needs the index of its device, which is chosen by its name here.
            let ip = match end.ip {
                IpAddr::V6(ip) if ip.is_unicast_link_local() => Ipv6Addr::UNSPECIFIED.into(),
                ip => ip,
            };
            let options = socket(SocketAddr::new(ip, 0), end.device.as_deref());
            match PortProbe::open(&options, remote) {
                Ok(probe) => _ = self.probes.insert(index, (end, remote, probe)),
                Err(error) => {
                    tracing::debug!(%error, %remote, "cannot ask whether a port is closed");
                    return false;
                }
            }
        }
        self.probes.get(&index).is_some_and(|(.., probe)| probe.ask())
    }
}
