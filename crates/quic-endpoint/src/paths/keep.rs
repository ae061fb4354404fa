//! Which paths a connection has while the links of this host change.
//!
//! [`PathKeeper`] knows the socket of each path. It is given the table of interfaces, the choice for
//! it ([`choose()`](super::choose())) and the paths of the connection, and says which path to open
//! and which to abandon. It does no IO.
//!
//! # The rule
//!
//! A *place* is a socket of the endpoint that can be exchanged. It is free, or holds one path. A path
//! is *dead* while its device or its address is gone, and *wanted* if the choice has its device and
//! its remote address.
//!
//! 1. A wanted pair of a device and a remote address without a path that is not dead gets one: in a
//!    free place, or in that of a dead path, which is abandoned.
//! 2. A dead path is abandoned when another one over its device is active: the device has another
//!    address now. Otherwise it is kept, because the link may come back.
//! 3. A path that is not wanted is abandoned if another one over its device is active and all wanted
//!    ones are: it was opened while other links were down.
//!
//! A path ID that is abandoned is given back by the peer (multipath draft-21, section 3.4), so that
//! any number of changes leaves as many paths as before. The peer learns of it over a path that works.
//! So a connection should be allowed twice as many paths as it has places: then all of them can be
//! replaced at once, when every link has another address.

use std::net::{IpAddr, SocketAddr};

use net::Interface;
use quic::{PathId, PathState};

use super::choose::Candidate;
use super::follow::{LinkDown, link_state};

/// A path of the connection, as it is now.
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
    /// there. [`PathKeeper::on_opened`] reports that this succeeded; otherwise the step is repeated.
    Open {
        /// The place, which is free.
        place: usize,
        /// The path.
        candidate: Candidate,
    },
    /// Bind the socket of this place to the local address of the candidate. A path from there was
    /// requested and is not open yet. [`PathKeeper::on_opened`] reports that this succeeded.
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
    /// In this order.
    pub steps: Vec<PathStep>,
    /// Whether further steps depend on the states of paths: look again soon.
    pub is_unsettled: bool,
}

/// Decides which paths a connection has.
#[derive(Clone, Debug)]
pub struct PathKeeper {
    /// By the number of the place.
    places: Vec<Option<Kept>>,
    paths_max: usize,
    /// Paths requested so far, those included that are gone.
    requested: u64,
}

/// The path in a place.
#[derive(Clone, Debug)]
struct Kept {
    /// `None` if the routing table chooses the device.
    device: Option<String>,
    ip: IpAddr,
    remote: SocketAddr,
    /// `None` while it is requested and not open.
    path: Option<PathId>,
    state: PathState,
}

/// A path with regard to one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Free,
    Dead,
    Wanted,
    Unwanted,
}

impl PathKeeper {
    /// For a connection with this number of exchangeable sockets that may have `paths_max` paths.
    #[must_use]
    pub fn new(places: usize, paths_max: usize) -> Self {
        Self { places: vec![None; places], paths_max, requested: 0 }
    }

    /// A path was requested from the socket of this place, which is bound to a device and an address.
    pub fn on_opened(&mut self, place: usize, device: Option<&str>, ip: IpAddr, remote: SocketAddr) {
        if let Some(kept) = self.places.get_mut(place) {
            // Another address does not make it another request.
            self.requested += u64::from(kept.as_ref().is_none_or(|kept| kept.path.is_some()));
            let device = device.map(str::to_owned);
            *kept = Some(Kept { device, ip, remote, path: None, state: PathState::Validating });
        }
    }

    /// The links are now these, the choice for them is `wanted`, and the connection has these paths. It has
    /// opened `opened` so far, the first one and those that are gone included.
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
            // One place is for one candidate.
            match &step {
                Some(PathStep::Open { place, .. } | PathStep::Rebind { place, .. }) => {
                    standings[*place] = Standing::Wanted;
                }
                Some(PathStep::Abandon { place, .. }) => standings[*place] = Standing::Free,
                None => {}
            }
            due.steps.extend(step);
        }
        // After the paths that were opened: the last one cannot be abandoned.
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
                // It is requested.
                (None, _) => {}
            }
        }
    }

    /// How the paths stand, and the candidates without a path.
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
            // An active path first, and one with the address that was chosen.
            let rank = |kept: &Kept| (kept.state != PathState::Active, kept.ip != candidate.local.ip());
            match self.kept().filter(fits).min_by_key(|(_, kept)| rank(kept)) {
                Some((place, _)) => standings[place] = Standing::Wanted,
                None => missing.push(candidate),
            }
        }
        // The choice prefers the other address family now: a path that works is not opened anew.
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

    /// The next step towards a path for `candidate`; none if it has to wait.
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
        // The oldest first: a link that was gone for long comes back less probably.
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
    /// Why nothing can be sent from its address, if so.
    fn down(&self, interfaces: &[Interface]) -> Option<LinkDown> {
        link_state(self.device.as_deref()?, self.ip, interfaces).err()
    }
}

#[cfg(test)]
mod tests;
