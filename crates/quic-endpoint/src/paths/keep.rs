//! Maintains the paths of a connection while the links of this host change.
//!
//! [`PathKeeper`] knows the socket of each path. It takes the table of interfaces, the choice for
//! it ([`choose()`](super::choose())) and the paths of the connection, and returns which path to
//! open and which to abandon. It does no IO.
//!
//! # The rule
//!
//! A *place* is a replaceable socket of the endpoint. It is free, or holds one path. A path is
//! *dead* while its device or its address is gone, and *wanted* if the choice has its device and
//! its remote address.
//!
//! 1. A wanted pair of a device and a remote address without a live path gets a new path: in a free
//!    place, or in the place of a dead path, which is abandoned.
//! 2. A dead path is abandoned when another path over its device is active: the device has another
//!    address now. Otherwise it is kept, because the link may come back.
//! 3. An unwanted path is abandoned if another one over its device is active and all wanted paths
//!    are: it was opened while other links were down.
//!
//! The peer replaces an abandoned path ID (multipath draft-21, section 3.4), so any number of
//! changes leaves as many paths as before. The peer learns of it over a path that works. So a
//! connection should be allowed twice as many paths as it has places: then all of them can be
//! replaced at once, when every link has a new address.

use std::net::{IpAddr, SocketAddr};

use net::Interface;
use quic::{PathId, PathState};

use super::choose::Candidate;
use super::follow::{LinkDown, link_state};

/// Current state of a path of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPath {
    /// Its number.
    pub id: PathId,
    /// The place of its socket.
    pub place: usize,
    /// Its state.
    pub state: PathState,
}

/// One change of the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// Bind the socket of this place to the local address of the candidate, and request a path from
    /// there. [`PathKeeper::on_opened`] reports success; otherwise the step is repeated.
    Open {
        /// The place, which is free.
        place: usize,
        /// The path.
        candidate: Candidate,
    },
    /// Bind the socket of this place to the local address of the candidate. A path from there was
    /// requested and is not open yet. [`PathKeeper::on_opened`] reports success.
    Rebind {
        /// The place.
        place: usize,
        /// The path.
        candidate: Candidate,
    },
    /// Abandon the path. Its place is free once the connection has done so.
    Abandon {
        /// The place.
        place: usize,
        /// The number of the path.
        path: PathId,
    },
}

/// The steps that are due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSteps {
    /// The steps in execution order.
    pub steps: Vec<PathStep>,
    /// Whether further steps depend on the states of paths, so that the caller should check again
    /// soon.
    pub is_unsettled: bool,
}

/// Decides which paths a connection has.
#[derive(Clone, Debug)]
pub struct PathKeeper {
    /// Contents of the places by number.
    places: Vec<Option<Kept>>,
    paths_max: usize,
    /// Number of paths requested so far, including abandoned ones.
    requested: u64,
}

/// The path in a place.
#[derive(Clone, Debug)]
struct Kept {
    /// The device; `None` if the routing table chooses it.
    device: Option<String>,
    ip: IpAddr,
    remote: SocketAddr,
    /// The path identifier; `None` while the path is requested but not open.
    path: Option<PathId>,
    state: PathState,
}

/// Standing of a path with regard to one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Free,
    Dead,
    Wanted,
    Unwanted,
}

impl PathKeeper {
    /// Creates the keeper of a connection with this number of replaceable sockets that may have
    /// `paths_max` paths.
    #[must_use]
    pub fn new(places: usize, paths_max: usize) -> Self {
        Self { places: vec![None; places], paths_max, requested: 0 }
    }

    /// Records that a path was requested from the socket of this place, which is bound to a device
    /// and an address.
    pub fn on_opened(&mut self, place: usize, device: Option<&str>, ip: IpAddr, remote: SocketAddr) {
        if let Some(kept) = self.places.get_mut(place) {
            // A change of the address does not count as another request.
            self.requested += u64::from(kept.as_ref().is_none_or(|kept| kept.path.is_some()));
            let device = device.map(str::to_owned);
            *kept = Some(Kept { device, ip, remote, path: None, state: PathState::Validating });
        }
    }

    /// Returns the due steps for the current interfaces, the choice `wanted` for them, and the
    /// paths of the connection. The connection has opened `opened` paths so far, including the
    /// first one and abandoned ones.
    #[must_use]
    pub fn decide(
        &mut self,
        interfaces: &[Interface],
        wanted: &[Candidate],
        paths: &[OpenPath],
        opened: u64,
    ) -> PathSteps {
        self.note_states(paths, opened);
        let (mut standings, missing) = self.compare(interfaces, wanted);
        let mut due = PathSteps::default();
        for candidate in missing {
            let step = self.step_for(candidate, &standings);
            due.is_unsettled |= step.is_none();
            // Each place serves one candidate.
            match &step {
                Some(PathStep::Open { place, .. } | PathStep::Rebind { place, .. }) => {
                    standings[*place] = Standing::Wanted;
                }
                Some(PathStep::Abandon { place, .. }) => standings[*place] = Standing::Free,
                None => {}
            }
            due.steps.extend(step);
        }
        // Abandons come after openings, because the last path cannot be abandoned.
        self.abandon_replaced(&standings, &mut due);
        let is_requested = |kept: &Kept| kept.path.is_none();
        due.is_unsettled |= !due.steps.is_empty() || self.places.iter().flatten().any(is_requested);
        due
    }

    /// Takes over the states of the paths; the places of abandoned ones become free.
    fn note_states(&mut self, paths: &[OpenPath], opened: u64) {
        let is_all_opened = opened >= self.requested;
        for (place, slot) in self.places.iter_mut().enumerate() {
            let Some(kept) = slot else { continue };
            let is_open = |path: &&OpenPath| path.state != PathState::Abandoned && path.place == place;
            let found = paths.iter().filter(is_open).find(|path| kept.path.is_none_or(|id| id == path.id));
            match (found, kept.path) {
                (Some(path), _) => (kept.path, kept.state) = (Some(path.id), path.state),
                // The peer may have abandoned a path before it was seen here.
                (None, known) if known.is_some() || is_all_opened => *slot = None,
                // The path is requested.
                (None, _) => {}
            }
        }
    }

    /// Returns the standing of each place, and the candidates without a path.
    fn compare<'a>(&self, interfaces: &[Interface], wanted: &'a [Candidate]) -> (Vec<Standing>, Vec<&'a Candidate>) {
        let standing = |slot: &Option<Kept>| match slot {
            None => Standing::Free,
            Some(kept) if kept.down(interfaces).is_some() => Standing::Dead,
            Some(_) => Standing::Unwanted,
        };
        let mut standings: Vec<Standing> = self.places.iter().map(standing).collect();
        let mut missing = Vec::new();
        for candidate in wanted.iter().filter(|candidate| candidate.device.is_some()) {
            let fits = |(place, kept): &(usize, &Kept)| {
                standings[*place] == Standing::Unwanted
                    && (&kept.device, kept.remote) == (&candidate.device, candidate.remote)
            };
            // Prefer an active path, then one with the chosen address.
            let rank = |kept: &Kept| (kept.state != PathState::Active, kept.ip != candidate.local.ip());
            match self.kept().filter(fits).min_by_key(|(_, kept)| rank(kept)) {
                Some((place, _)) => standings[place] = Standing::Wanted,
                None => missing.push(candidate),
            }
        }
        // The choice now prefers the other address family: a working path is not reopened for that.
        missing.retain(|candidate| {
            let fits = |(place, kept): &(usize, &Kept)| {
                standings[*place] == Standing::Unwanted
                    && kept.device == candidate.device
                    && kept.remote.is_ipv4() != candidate.remote.is_ipv4()
            };
            let found = self.kept().find(fits).map(|(place, _)| place);
            found.map(|place| standings[place] = Standing::Wanted).is_none()
        });
        (standings, missing)
    }

    fn kept(&self) -> impl Iterator<Item = (usize, &Kept)> {
        self.places.iter().enumerate().filter_map(|(place, slot)| Some((place, slot.as_ref()?)))
    }

    /// Returns the next step towards a path for `candidate`; `None` if it has to wait.
    fn step_for(&self, candidate: &Candidate, standings: &[Standing]) -> Option<PathStep> {
        let dead = || self.kept().filter(|(place, _)| standings[*place] == Standing::Dead);
        // A request that waits for the peer is not repeated.
        if let Some((place, _)) = dead().find(|(_, kept)| kept.path.is_none() && kept.remote == candidate.remote) {
            return Some(PathStep::Rebind { place, candidate: candidate.clone() });
        }
        let used = standings.iter().filter(|standing| **standing != Standing::Free).count();
        let free = standings.iter().zip(&self.places).position(|(standing, slot)| {
            // A place whose path is being abandoned is free later.
            *standing == Standing::Free && slot.is_none()
        });
        if let Some(place) = free.filter(|_| used < self.paths_max) {
            return Some(PathStep::Open { place, candidate: candidate.clone() });
        }
        // The oldest first: a link that has been gone for long is less likely to return.
        let oldest = dead().filter_map(|(place, kept)| Some((kept.path?, place))).min();
        oldest.map(|(path, place)| PathStep::Abandon { place, path })
    }

    /// Abandons the paths that others have replaced.
    fn abandon_replaced(&self, standings: &[Standing], due: &mut PathSteps) {
        let wanted = || self.kept().filter(|(place, _)| standings[*place] == Standing::Wanted);
        let is_active = |kept: &Kept| kept.state == PathState::Active;
        let are_all_active = due.steps.is_empty() && !due.is_unsettled && wanted().all(|(_, kept)| is_active(kept));
        for (place, kept) in self.kept() {
            let Some(path) = kept.path else { continue };
            let replaces =
                |other: &Kept| kept.device.as_ref().is_none_or(|device| Some(device) == other.device.as_ref());
            let has_successor = wanted().any(|(_, other)| replaces(other));
            let is_replaced = match standings[place] {
                Standing::Dead => wanted().any(|(_, other)| replaces(other) && is_active(other)),
                Standing::Unwanted => are_all_active && has_successor,
                Standing::Free | Standing::Wanted => continue,
            };
            if is_replaced {
                due.steps.push(PathStep::Abandon { place, path });
            }
            due.is_unsettled |= has_successor;
        }
    }
}

impl Kept {
    /// Returns the reason why nothing can be sent from its address, if any.
    fn down(&self, interfaces: &[Interface]) -> Option<LinkDown> {
        link_state(self.device.as_deref()?, self.ip, interfaces).err()
    }
}

#[cfg(test)]
mod tests;
