//! The paths of a connection while the links of this host change.

use std::net::SocketAddr;

use litz::paths::choose::Candidate as Chosen;
use litz::paths::keep::{OpenPath, PathKeeper, PathStep};
use litz::paths::{PathSpec, Request, choose};
use litz::{Connection, Interface, LiveSocket, ReplaceableSocket, SocketSwitch, UdpSocket};
use net::DatagramSocket;

use super::super::links::{BoundSocket, LinkEvent, PathChanges};
use super::super::path_options::PathOptions;
use super::Connector;
use super::candidates::Candidate;
use super::sockets::socket;

/// Places for sockets of later paths. An endpoint has a fixed number of sockets, so places are kept
/// free for them. One without a socket costs a few words.
const PLACES: usize = 4;

/// The reason that the peer gets for a path that is not used any more: APPLICATION_ABANDON_PATH
/// (multipath draft-21, section 4.2.1).
const ABANDON_CODE: u64 = 0x3e;

/// Opens paths over new links and addresses, and abandons those that they replace.
pub(super) struct LaterPaths {
    options: PathOptions,
    remotes: Vec<SocketAddr>,
    /// The sockets of the endpoint.
    switches: Vec<SocketSwitch>,
    /// Free places at the start.
    free: usize,
    /// None if the user chose one socket.
    keeper: Option<PathKeeper>,
}

impl LaterPaths {
    /// Adds free places to the sockets of an endpoint; none if the user chose one socket.
    pub(super) fn reserve(
        connector: &Connector<'_>,
        remotes: &[SocketAddr],
        mut switches: Vec<SocketSwitch>,
        sockets: &mut Vec<Box<dyn LiveSocket>>,
    ) -> Self {
        let is_fixed = connector.single_path.is_given();
        let free = if is_fixed { 0 } else { PLACES };
        for _ in 0..free {
            let (place, switch) = ReplaceableSocket::vacant();
            switches.push(switch);
            sockets.push(Box::new(place));
        }
        let (options, remotes) = (connector.paths.clone(), remotes.to_vec());
        let keeper = (!is_fixed).then(|| PathKeeper::new(switches.len(), 0));
        Self { options, remotes, switches, free, keeper }
    }

    /// How many paths may be added.
    pub(super) fn places_left(&self) -> u32 {
        self.free as u32
    }

    /// The connection may have this number of paths, and has requested these from the sockets with
    /// their numbers.
    pub(super) fn begin(&mut self, paths_max: u32, requested: impl Iterator<Item = (usize, Candidate)>) {
        let Some(keeper) = &mut self.keeper else { return };
        *keeper = PathKeeper::new(self.switches.len(), paths_max as usize);
        for (place, candidate) in requested {
            let bind = candidate.socket.bind.ip();
            keeper.on_opened(place, candidate.socket.device.as_deref(), bind, candidate.remote);
        }
    }

    /// Does what the links require.
    pub(super) fn look(&mut self, connection: &Connection, interfaces: &[Interface]) -> PathChanges {
        let (mut changes, wanted) = (PathChanges::default(), self.wanted(interfaces));
        let Some(keeper) = &mut self.keeper else { return changes };
        let stats = connection.stats();
        let opened = 1 + stats.send.paths_opened;
        let open = stats.paths.into_iter().map(|path| {
            let place = usize::from(path.addresses.socket);
            OpenPath { id: path.id, place, state: path.state }
        });
        let due = keeper.decide(interfaces, &wanted, &open.collect::<Vec<_>>(), opened);
        changes.is_unsettled = due.is_unsettled;
        for step in due.steps {
            let (place, candidate, is_requested) = match step {
                PathStep::Open { place, candidate } => (place, candidate, false),
                PathStep::Rebind { place, candidate } => (place, candidate, true),
                PathStep::Abandon { place, path } => {
                    tracing::debug!(%path, "another path has replaced one, which is abandoned");
                    // This fails only if the connection has ended or has many requests: tried again.
                    let _over = connection.abandon_path(path, ABANDON_CODE);
                    changes.released.push(place);
                    continue;
                }
            };
            changes.bound.extend(self.bind(connection, place, &candidate, is_requested));
        }
        changes
    }

    /// The paths that the links allow now.
    fn wanted(&self, interfaces: &[Interface]) -> Vec<Chosen> {
        let mut interfaces = self.options.usable(interfaces.to_vec());
        if self.options.paths.is_empty() {
            // While all links are down, a tunnel over them may be up.
            interfaces.retain(|interface| !interface.is_litz_tunnel);
        }
        let mark = self.options.mark;
        let reachable = &mut |local, device: Option<&str>, remote| net::reachable(local, device, mark, remote);
        let mut choose_for = |paths: &[PathSpec]| {
            let request = Request::new(&interfaces, &self.remotes).with_paths(paths);
            choose(&request.with_limit(self.options.limit.map(usize::from)), reachable)
        };
        if let Ok(choice) = choose_for(&self.options.paths) {
            return choice.candidates;
        }
        // The user's paths may name links that do not exist now.
        let exists = |path: &&PathSpec| choose_for(std::slice::from_ref(*path)).is_ok();
        let existing: Vec<PathSpec> = self.options.paths.iter().filter(exists).cloned().collect();
        let choice = if existing.is_empty() { None } else { choose_for(&existing).ok() };
        choice.map(|choice| choice.candidates).unwrap_or_default()
    }

    /// Binds the socket of a place and requests a path from there. `None` if that cannot be done yet:
    /// an IPv6 address, for instance, is not usable before duplicate address detection is over.
    fn bind(
        &mut self,
        connection: &Connection,
        place: usize,
        path: &Chosen,
        is_requested: bool,
    ) -> Option<(BoundSocket, LinkEvent)> {
        let device = path.device.clone()?;
        let mut options = socket(path.local, Some(&device)).with_mark(self.options.mark);
        let live = UdpSocket::open(&options).ok()?;
        options.bind.set_port(live.local_addr().map_or(0, |address| address.port()));
        let switch = self.switches[place].clone();
        switch.replace(live);
        if !is_requested && let Err(error) = connection.open_path(place, path.remote, path.backup) {
            // The connection has ended.
            tracing::debug!(%error, "a path over a new link cannot be opened");
            switch.switch_off("its path was refused");
            return None;
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.on_opened(place, Some(&device), path.local.ip(), path.remote);
        }
        let message = format!("a path to {} is being opened over this link", path.remote);
        let event = LinkEvent { device, address: path.local.ip().to_string(), is_usable: true, message };
        Some((BoundSocket::new(place, options, switch), event))
    }
}
