//! Links that change at random, and a model of the connection.

use std::collections::VecDeque;

use net::InterfaceAddress;
use proptest::prelude::*;

use super::*;
use crate::paths::follow::{LinkAction, LinkFollower};
use crate::paths::{Request, choose};

const DEVICES: usize = 3;

/// Free places, as the command has them.
const PLACES: usize = 4;

/// A link: whether the device exists, is up and has a carrier, and the last byte of its address.
#[derive(Clone, Copy, Debug)]
struct Link {
    exists: bool,
    is_up: bool,
    is_running: bool,
    host: u8,
    index: u32,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Its device is removed, or made again.
    Exists(usize, bool),
    Up(usize, bool),
    Carrier(usize, bool),
    /// It gets another address.
    Address(usize),
    /// All links at once.
    All(bool),
    /// The peer abandons the oldest path.
    PeerAbandons,
}

fn arb_change() -> impl Strategy<Value = Change> {
    let device = 0..DEVICES;
    prop_oneof![
        1 => (device.clone(), any::<bool>()).prop_map(|(device, exists)| Change::Exists(device, exists)),
        1 => (device.clone(), any::<bool>()).prop_map(|(device, up)| Change::Up(device, up)),
        1 => (device.clone(), any::<bool>()).prop_map(|(device, running)| Change::Carrier(device, running)),
        4 => device.prop_map(Change::Address),
        1 => any::<bool>().prop_map(Change::All),
        1 => Just(Change::PeerAbandons),
    ]
}

/// A path of the model.
#[derive(Clone, Debug)]
struct Path {
    id: u32,
    place: usize,
    remote: SocketAddr,
    state: PathState,
}

struct World {
    links: [Link; DEVICES],
    remotes: Vec<SocketAddr>,
    keeper: PathKeeper,
    follower: LinkFollower,
    /// The device, the address and the index that the socket of each place is bound to.
    sockets: Vec<Option<(String, IpAddr, u32)>>,
    /// By the number in the follower.
    followed: Vec<usize>,
    paths: Vec<Path>,
    requested: VecDeque<(usize, SocketAddr)>,
    /// Path IDs used, and those that the peer allows.
    ids_used: u32,
    ids_allowed: u32,
    /// Abandoned paths of which the peer does not know.
    untold: u32,
    paths_max: usize,
    is_unsettled: bool,
}

impl World {
    fn new(remote_count: usize) -> Self {
        let link =
            |device: usize| Link { exists: true, is_up: true, is_running: true, host: 1, index: device as u32 + 1 };
        let remotes = (0..remote_count).map(|net| SocketAddr::from(([10, net as u8, 255, 1], 4433)));
        let mut world = Self {
            links: std::array::from_fn(link),
            remotes: remotes.collect(),
            keeper: PathKeeper::new(0, 0),
            follower: LinkFollower::new(),
            sockets: Vec::new(),
            followed: Vec::new(),
            paths: Vec::new(),
            requested: VecDeque::new(),
            ids_used: 0,
            ids_allowed: 0,
            untold: 0,
            paths_max: 0,
            is_unsettled: false,
        };
        let first = world.wanted();
        let places = first.len() + PLACES;
        // Twice as many: the paths of all links can be replaced although the peer does not know yet that
        // the former ones were abandoned.
        (world.sockets, world.paths_max, world.ids_allowed) = (vec![None; places], places, 2 * places as u32);
        world.keeper = PathKeeper::new(places, places);
        for (place, candidate) in first.iter().enumerate() {
            world.bind(place, candidate);
            world.requested.push_back((place, candidate.remote));
        }
        world.run_connection();
        world
    }

    fn interfaces(&self) -> Vec<Interface> {
        let interface = |(device, link): (usize, &Link)| Interface {
            name: format!("e{device}"),
            index: link.index,
            is_up: link.is_up,
            is_running: link.is_up && link.is_running,
            is_loopback: false,
            is_dummy: false,
            is_point_to_point: false,
            is_litz_tunnel: false,
            addresses: vec![InterfaceAddress {
                ip: IpAddr::from([10, device as u8, 0, link.host]),
                prefix_len: 16,
                scope_id: 0,
            }],
        };
        self.links.iter().enumerate().filter(|(_, link)| link.exists).map(interface).collect()
    }

    fn wanted(&self) -> Vec<Candidate> {
        let interfaces = self.interfaces();
        choose(&Request::new(&interfaces, &self.remotes), &mut |_, _, _| Ok(())).unwrap().candidates
    }

    fn bind(&mut self, place: usize, candidate: &Candidate) {
        let device = candidate.device.clone().unwrap();
        let index = self.interfaces().iter().find(|it| it.name == device).unwrap().index;
        self.keeper.on_opened(place, Some(&device), candidate.local.ip(), candidate.remote);
        match self.followed.iter().position(|known| *known == place) {
            Some(number) => self.follower.replace(number, &device, candidate.local.ip(), index),
            None => {
                self.follower.add(&device, candidate.local.ip(), index);
                self.followed.push(place);
            }
        }
        self.sockets[place] = Some((device, candidate.local.ip(), index));
    }

    fn is_usable(&self, place: usize) -> bool {
        let Some((device, ip, index)) = &self.sockets[place] else { return false };
        link_state(device, *ip, &self.interfaces()) == Ok(*index)
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Exists(device, exists) => {
                let link = &mut self.links[device];
                if exists && !link.exists {
                    link.index += 10;
                }
                link.exists = exists;
            }
            Change::Up(device, is_up) => self.links[device].is_up = is_up,
            Change::Carrier(device, is_running) => self.links[device].is_running = is_running,
            Change::Address(device) => self.links[device].host = self.links[device].host % 250 + 1,
            Change::All(is_up) => self.links.iter_mut().for_each(|link| link.is_up = is_up),
            Change::PeerAbandons => {
                if let Some(path) = self.open().map(|path| path.id).min().filter(|_| self.open().count() > 1) {
                    self.abandon(path);
                }
            }
        }
    }

    fn open(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter(|path| path.state != PathState::Abandoned)
    }

    fn abandon(&mut self, id: u32) {
        // The last one stays.
        if self.open().count() > 1
            && let Some(path) = self.paths.iter_mut().find(|path| path.id == id && path.state != PathState::Abandoned)
        {
            path.state = PathState::Abandoned;
            self.untold += 1;
        }
    }

    /// The connection opens what was requested; the states follow the links.
    fn run_connection(&mut self) {
        for _ in 0..2 {
            while self.ids_used < self.ids_allowed
                && let Some((place, remote)) = self.requested.pop_front()
            {
                let (id, state) = (self.ids_used, PathState::Validating);
                self.paths.push(Path { id, place, remote, state });
                self.ids_used += 1;
            }
            for at in 0..self.paths.len() {
                let is_usable = self.is_usable(self.paths[at].place);
                let path = &mut self.paths[at];
                path.state = match path.state {
                    PathState::Abandoned => PathState::Abandoned,
                    PathState::Validating if !is_usable => PathState::Validating,
                    _ if is_usable => PathState::Active,
                    _ => PathState::Silent,
                };
            }
            if self.open().any(|path| path.state == PathState::Active) {
                // The peer learns of it, and allows as many new ones.
                self.ids_allowed += std::mem::take(&mut self.untold);
                self.paths.retain(|path| path.state != PathState::Abandoned);
            }
        }
    }

    fn look(&mut self) {
        let interfaces = self.interfaces();
        for action in self.follower.on_interfaces(&interfaces) {
            if let LinkAction::Reopen { socket, index } = action {
                self.sockets[self.followed[socket]].as_mut().unwrap().2 = index;
                self.follower.on_reopened(socket, index);
            }
        }
        let known: Vec<OpenPath> = self
            .paths
            .iter()
            .map(|path| OpenPath { id: PathId(path.id), place: path.place, state: path.state })
            .collect();
        let due = self.keeper.decide(&interfaces, &self.wanted(), &known, self.ids_used.into());
        self.is_unsettled = due.is_unsettled;
        for step in due.steps {
            match step {
                PathStep::Open { place, candidate } => {
                    self.bind(place, &candidate);
                    self.requested.push_back((place, candidate.remote));
                }
                PathStep::Rebind { place, candidate } => self.bind(place, &candidate),
                PathStep::Abandon { place, path } => {
                    self.abandon(path.0);
                    if let Some(number) = self.followed.iter().position(|known| *known == place) {
                        self.follower.remove(number);
                    }
                }
            }
        }
        self.run_connection();
        assert!(
            self.open().count() + self.requested.len() <= self.paths_max,
            "more paths than the connection may have"
        );
    }

    /// Looks until nothing is left to do; within a bound.
    fn settle(&mut self) {
        self.look();
        let mut looks = 1;
        while self.is_unsettled {
            self.look();
            looks += 1;
            assert!(looks <= 20, "still unsettled: {:?}\n{:?}\n{:?}", self.keeper, self.paths, self.requested);
        }
    }

    fn check(&self) {
        let wanted = self.wanted();
        let usable: Vec<&Path> = self.open().filter(|path| self.is_usable(path.place)).collect();
        let pair = |path: &&Path| (self.sockets[path.place].as_ref().unwrap().0.clone(), path.remote);
        let mut pairs: Vec<_> = usable.iter().map(pair).collect();
        let mut expected: Vec<_> = wanted.iter().map(|it| (it.device.clone().unwrap(), it.remote)).collect();
        pairs.sort();
        expected.sort();
        assert_eq!(pairs, expected, "one path for each pair: {:?}", self.paths);
        assert!(usable.iter().all(|path| path.state == PathState::Active), "{usable:?}");
        assert!(self.requested.is_empty(), "{:?}", self.requested);
    }
}

proptest! {
    /// After any changes: one path for each pair of a usable link and a remote address that is
    /// wanted, all of them active, and no path ID is lost.
    #[test]
    fn each_usable_link_has_its_paths_whatever_happened_before(
        remote_count in 1_usize..4,
        changes in prop::collection::vec((arb_change(), 0_usize..3), 1..60),
    ) {
        let mut world = World::new(remote_count);
        world.settle();
        world.check();
        for (change, looks) in changes {
            world.apply(change);
            (0..looks).for_each(|_| world.look());
            if looks == 2 && !world.wanted().is_empty() && !matches!(change, Change::PeerAbandons) {
                world.settle();
                world.check();
            }
        }
        world.apply(Change::All(true));
        world.settle();
        if !world.wanted().is_empty() {
            world.check();
        }
    }
}

#[test]
fn hundreds_of_addresses_leave_one_path_for_each_link() {
    let mut world = World::new(2);
    for round in 0..300 {
        world.apply(Change::Address(round % DEVICES));
        world.settle();
        world.check();
        assert_eq!(world.open().count(), world.wanted().len(), "round {round}");
    }
    assert!(world.ids_used > 300, "{} paths were opened", world.ids_used);
}

#[test]
fn a_path_over_a_link_that_is_down_is_kept_until_the_link_is_back() {
    let mut world = World::new(1);
    let before: Vec<u32> = world.open().map(|path| path.id).collect();
    for change in [Change::Up(0, false), Change::Carrier(1, false), Change::Exists(2, false)] {
        world.apply(change);
        world.settle();
    }
    for change in [Change::Up(0, true), Change::Carrier(1, true), Change::Exists(2, true)] {
        world.apply(change);
        world.settle();
    }
    assert_eq!(world.open().map(|path| path.id).collect::<Vec<_>>(), before);
    world.check();
}

#[test]
fn a_path_that_was_opened_while_other_links_were_down_is_abandoned_when_they_are_back() {
    let mut world = World::new(3);
    for down in [1, 2] {
        world.apply(Change::Up(down, false));
    }
    // The connection is made over one link, which then leads to all addresses of the receiver.
    let mut fresh = World { links: world.links, ..World::new(3) };
    (fresh.keeper, fresh.sockets) = (PathKeeper::new(7, 7), vec![None; 7]);
    (fresh.followed, fresh.follower, fresh.paths) = (Vec::new(), LinkFollower::new(), Vec::new());
    for (place, candidate) in fresh.wanted().iter().enumerate() {
        fresh.bind(place, candidate);
        fresh.requested.push_back((place, candidate.remote));
    }
    fresh.run_connection();
    assert_eq!(fresh.open().count(), 3, "{:?}", fresh.paths);
    fresh.apply(Change::All(true));
    fresh.settle();
    fresh.check();
    assert_eq!(fresh.open().count(), 3);
}

#[test]
fn a_path_from_a_socket_without_a_device_is_replaced_by_those_with_one() {
    let mut world = World::new(1);
    let places = world.sockets.len();
    world.keeper = PathKeeper::new(places, places);
    let wanted = world.wanted();
    let spare = OpenPath { id: PathId(0), place: 0, state: PathState::Active };
    world.keeper.on_opened(0, None, IpAddr::from([0, 0, 0, 0]), wanted[0].remote);
    let steps = world.keeper.decide(&world.interfaces(), &wanted, &[spare], 1).steps;
    assert_eq!(steps.len(), wanted.len(), "{steps:?}");
    let mut paths = vec![spare];
    for (id, step) in (1..).zip(steps) {
        let PathStep::Open { place, candidate } = step else { panic!("{step:?}") };
        world.keeper.on_opened(place, candidate.device.as_deref(), candidate.local.ip(), candidate.remote);
        paths.push(OpenPath { id: PathId(id), place, state: PathState::Validating });
    }
    // Not before all of the others work.
    assert_eq!(world.keeper.decide(&world.interfaces(), &wanted, &paths, paths.len() as u64).steps, []);
    paths.iter_mut().for_each(|path| path.state = PathState::Active);
    let last = world.keeper.decide(&world.interfaces(), &wanted, &paths, paths.len() as u64);
    assert_eq!(last.steps, [PathStep::Abandon { place: 0, path: PathId(0) }]);
}

#[test]
fn a_path_that_the_peer_abandons_before_it_was_seen_is_opened_again() {
    let mut world = World::new(2);
    world.settle();
    world.apply(Change::All(false));
    (0..2).for_each(|_| world.apply(Change::PeerAbandons));
    world.apply(Change::All(true));
    world.look();
    (0..2).for_each(|_| world.apply(Change::PeerAbandons));
    world.settle();
    world.check();
}
