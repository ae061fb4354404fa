//! Paths over links that appear while a transfer runs.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use litz::paths::{PATHS_DEFAULT, Request, choose};
use litz::{Connection, Interface, LiveSocket, ReplaceableSocket, SocketSwitch, UdpSocket};
use net::DatagramSocket;

use super::super::links::{BoundSocket, LinkEvent};
use super::super::path_options::PathOptions;
use super::candidates::Candidate;
use super::{Connector, socket};

/// Places for sockets of later paths. An endpoint has a fixed number of sockets, so places are kept
/// free for them. One without a socket costs a few words.
const PLACES: usize = 4;

/// Opens paths over new links.
pub(super) struct LaterPaths {
    options: PathOptions,
    remotes: Vec<SocketAddr>,
    /// Devices and addresses that have a socket.
    used: BTreeSet<(Option<String>, IpAddr)>,
    /// Paths that there are, lost ones included.
    path_count: usize,
    /// Free places: their index in the endpoint, and their switch. The last is taken first.
    places: Vec<(usize, SocketSwitch)>,
}

impl LaterPaths {
    /// Adds free places to the sockets of an endpoint; none if the user chose one socket.
    pub(super) fn reserve(
        connector: &Connector<'_>,
        candidates: &[Candidate],
        remotes: &[SocketAddr],
        sockets: &mut Vec<Box<dyn LiveSocket>>,
    ) -> Self {
        let is_fixed = connector.single_path.is_given();
        let local = |candidate: &Candidate| (candidate.socket.device.clone(), candidate.socket.bind.ip());
        let mut later = Self {
            options: connector.paths.clone(),
            remotes: remotes.to_vec(),
            used: candidates.iter().map(local).collect(),
            path_count: candidates.iter().filter(|candidate| !candidate.spare).count(),
            places: Vec::new(),
        };
        for _ in 0..if is_fixed { 0 } else { PLACES } {
            let (place, switch) = ReplaceableSocket::vacant();
            later.places.push((sockets.len(), switch));
            sockets.push(Box::new(place));
        }
        later
    }

    /// How many paths may be added.
    pub(super) fn places_left(&self) -> u32 {
        self.places.len() as u32
    }

    /// Opens a path over each link that has none, as long as there are places, and up to the number
    /// of paths that the user wants.
    pub(super) fn open_new(
        &mut self,
        connection: &Connection,
        interfaces: &[Interface],
    ) -> Vec<(BoundSocket, LinkEvent)> {
        let mut opened = Vec::new();
        let limit = self.options.limit.map_or(PATHS_DEFAULT, usize::from);
        if self.places.is_empty() || self.path_count >= limit {
            return opened;
        }
        let mut interfaces = self.options.usable(interfaces.to_vec());
        if self.options.paths.is_empty() {
            // While all links are down, a tunnel over them may be up.
            interfaces.retain(|interface| !interface.is_litz_tunnel);
        }
        let request = Request::new(&interfaces, &self.remotes)
            .with_paths(&self.options.paths)
            .with_limit(self.options.limit.map(usize::from));
        // The user's paths may name links that do not exist now.
        let mark = self.options.mark;
        let reachable = &mut |local, device: Option<&str>, remote| net::reachable(local, device, mark, remote);
        let Ok(choice) = choose(&request, reachable) else { return opened };
        for path in choice.candidates {
            let local = (path.device.clone(), path.local.ip());
            let Some(device) = path.device.clone().filter(|_| !self.used.contains(&local)) else { continue };
            let free = self.places.last().cloned().filter(|_| self.path_count < limit);
            let Some((index, switch)) = free else { break };
            let mut options = socket(path.local, Some(&device)).with_mark(self.options.mark);
            // One that cannot be opened yet is tried again after the next change: an IPv6 address causes
            // one when duplicate address detection is over.
            let Ok(live) = UdpSocket::open(&options) else { continue };
            options.bind.set_port(live.local_addr().map_or(0, |address| address.port()));
            switch.replace(live);
            if let Err(error) = connection.open_path(index, path.remote, path.backup) {
                // The connection has ended.
                tracing::debug!(%error, "a path over a new link cannot be opened");
                switch.switch_off("its path was refused");
                break;
            }
            self.places.pop();
            self.used.insert(local);
            self.path_count += 1;
            let message = format!("a path to {} is being opened over this link", path.remote);
            let event = LinkEvent { device, address: path.local.ip().to_string(), is_usable: true, message };
            opened.push((BoundSocket::new(options, switch), event));
        }
        opened
    }
}
