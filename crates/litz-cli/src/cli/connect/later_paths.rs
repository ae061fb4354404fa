//! Paths over links that appear while a transfer runs.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use litz::paths::{Request, choose};
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
        let is_fixed = connector.bind.is_some() || connector.device.is_some();
        let local = |candidate: &Candidate| (candidate.socket.device.clone(), candidate.socket.bind.ip());
        let mut later = Self {
            options: connector.paths.clone(),
            remotes: remotes.to_vec(),
            used: candidates.iter().map(local).collect(),
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

    /// Opens a path over each link that has none, as long as there are places.
    pub(super) fn open_new(
        &mut self,
        connection: &Connection,
        interfaces: &[Interface],
    ) -> Vec<(BoundSocket, LinkEvent)> {
        let mut opened = Vec::new();
        if self.places.is_empty() {
            return opened;
        }
        let request = Request::new(interfaces, &self.remotes)
            .with_paths(&self.options.paths)
            .with_limit(self.options.limit.map(usize::from));
        // The user's paths may name links that do not exist now.
        let Ok(choice) = choose(&request, &mut net::reachable) else { return opened };
        for path in choice.candidates {
            let local = (path.device.clone(), path.local.ip());
            let Some(device) = path.device.clone().filter(|_| !self.used.contains(&local)) else { continue };
            let Some((index, switch)) = self.places.last().cloned() else { break };
            let mut options = socket(path.local, Some(&device));
            // A socket that cannot be opened yet is tried again after the next change.
            let Ok(live) = UdpSocket::open(&options) else { continue };
            options.bind.set_port(live.local_addr().map_or(0, |address| address.port()));
            switch.replace(live);
            if let Err(error) = connection.open_path(index, path.remote, path.backup) {
                tracing::debug!(%error, "a path over a new link cannot be opened");
                continue;
            }
            self.places.pop();
            self.used.insert(local);
            let message = format!("a path to {} is opened over this new link", path.remote);
            let event = LinkEvent { device, address: path.local.ip().to_string(), is_usable: true, message };
            opened.push((BoundSocket { options, switch }, event));
        }
        opened
    }
}
