//! A processor for each path: it carries its share, and its death costs no more than that.

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod trouble;

use std::sync::Arc;
use std::task::Poll;

use engine::{Closed, ConnectionHandle, Engine, EngineConfig, Placement};
use net::MemoryNetwork;
use quic::{Dir, PathState, PathStats, Side, Strategy, TransportConfig};
use units::Duration;

use trouble::{Fault, LEN, Trouble, factory, healthy, pattern, read_all, wait};

/// An engine with a processor for each of its sockets, which are so many.
fn engine(sockets: usize, trouble: &Arc<Trouble>, network: &MemoryNetwork) -> Engine {
    let transport = TransportConfig {
        datagram_size: 1452,
        max_paths: sockets as u32,
        // Links in memory have no rates, so any other would give most to the first that is fast enough.
        scheduler: Strategy::RoundRobin,
        ..TransportConfig::default()
    };
    let server = Some(factory(Side::Server, trouble));
    let config = EngineConfig { placement: Placement::Path(sockets), transport, server, ..EngineConfig::default() };
    let socket = || Box::new(network.bind("127.0.0.1:0".parse().unwrap()).unwrap()) as Box<_>;
    Engine::start(config, (0..sockets).map(|_| socket()).collect()).unwrap()
}

/// Two engines and a connection over all their sockets.
struct World {
    client: Engine,
    server: Engine,
    ours: ConnectionHandle,
    theirs: ConnectionHandle,
}

impl World {
    fn new(paths: usize, at_client: &Arc<Trouble>, at_server: &Arc<Trouble>) -> Self {
        let network = MemoryNetwork::new();
        let (client, server) = (engine(paths, at_client, &network), engine(paths, at_server, &network));
        let ours = client.connect(server.local_addrs()[0], "peer", factory(Side::Client, at_client)).unwrap();
        wait(&client, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
        for (socket, address) in server.local_addrs().iter().enumerate().skip(1) {
            ours.open_path(socket, *address, false).unwrap();
        }
        let world = Self { client, server, ours, theirs };
        world.wait_for("all paths are active", |paths_now| {
            paths_now.len() == paths && paths_now.iter().all(|path| path.state == PathState::Active)
        });
        world
    }

    fn paths(&self) -> Vec<PathStats> {
        self.ours.stats().unwrap().paths
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&[PathStats]) -> bool) {
        let deadline = self.client.now() + Duration::from_secs(60);
        while !is_so(&self.paths()) {
            assert!(self.client.now() < deadline, "{what}: {:?}", self.paths());
            let pause = self.client.now() + Duration::from_millis(1);
            assert!(self.client.block_on(Some(pause), |_| Poll::<()>::Pending).is_none());
        }
    }

    /// All of it arrives.
    fn transfer(&self) {
        let sent = pattern();
        let arrived = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut recv = wait(&self.server, |waker| self.theirs.poll_accept_uni(waker)).unwrap();
                read_all(&self.server, &mut recv)
            });
            let mut opening = self.ours.open(Dir::Uni);
            let (mut send, _) = wait(&self.client, |waker| opening.poll(waker)).unwrap();
            for chunk in 0..LEN.div_ceil(1 << 20) {
                let mut chunk = Some(sent.slice(chunk << 20..((chunk + 1) << 20).min(LEN)));
                wait(&self.client, |waker| send.poll_write_chunk(&mut chunk, waker)).unwrap();
            }
            send.finish().unwrap();
            reading.join().unwrap()
        });
        assert!(arrived == sent, "{} of {LEN} bytes arrived, or others", arrived.len());
    }

    fn stop(&self) {
        self.client.stop();
        self.server.stop();
    }
}

#[test]
fn every_path_carries_a_share_by_a_processor_of_its_own() {
    let world = World::new(3, &healthy(), &healthy());
    world.transfer();
    let paths = world.paths();
    assert!(paths.iter().all(|path| path.packets_acked > 1000), "{paths:?}");
    assert_eq!(world.ours.stats().unwrap().receive.packets_unauthentic, 0);
    world.stop();
}

/// The states of the paths when a processor of the client has met with `fault` in mid-transfer.
fn after(fault: Fault) -> (World, Arc<Trouble>) {
    let trouble = Trouble::new(fault, 2000, 1);
    let world = World::new(4, &trouble, &healthy());
    world.transfer();
    assert!(trouble.came(), "it came too late");
    world
        .wait_for("one path is dead", |paths| paths.iter().filter(|path| path.state == PathState::Active).count() == 3);
    world.transfer();
    (world, trouble)
}

#[test]
fn a_path_processor_that_dies_takes_its_path_along_and_nothing_else() {
    let (world, _) = after(Fault::Panic);
    world.stop();
}

#[test]
fn a_path_processor_that_hangs_is_done_without_until_it_is_back() {
    let (world, trouble) = after(Fault::Hang);
    trouble.release();
    world.wait_for("it is back", |paths| paths.iter().all(|path| path.state == PathState::Active));
    world.transfer();
    world.stop();
}

#[test]
fn a_receivers_path_processor_that_dies_costs_its_path_only() {
    let trouble = Trouble::new(Fault::Panic, 2000, 1);
    let world = World::new(4, &healthy(), &trouble);
    world.transfer();
    assert!(trouble.came(), "it came too late");
    world
        .wait_for("one path is dead", |paths| paths.iter().filter(|path| path.state == PathState::Active).count() == 3);
    world.stop();
}

#[test]
fn a_connection_whose_last_path_has_died_ends_and_others_go_on() {
    let trouble = Trouble::new(Fault::Panic, 200, 1);
    let network = MemoryNetwork::new();
    let client = engine(2, &trouble, &network);
    let server = engine(2, &healthy(), &network);
    let connect = |socket: usize| {
        let remote = server.local_addrs()[socket];
        let ours = client.connect_from(Some(socket), remote, "peer", factory(Side::Client, &trouble)).unwrap();
        wait(&client, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
        (ours, theirs)
    };
    // The second socket is served by a processor of its own.
    let (lives, lives_there) = connect(0);
    let (dies, _dies_there) = connect(1);
    let mut opening = dies.open(Dir::Uni);
    let (mut send, _) = wait(&client, |waker| opening.poll(waker)).unwrap();
    let sent = pattern();
    let mut error = None;
    for chunk in 0..LEN.div_ceil(1 << 20) {
        let mut chunk = Some(sent.slice(chunk << 20..((chunk + 1) << 20).min(LEN)));
        if let Err(refused) = wait(&client, |waker| send.poll_write_chunk(&mut chunk, waker)) {
            error = Some(refused);
            break;
        }
    }
    assert!(error.is_some(), "writing goes on");
    assert_eq!(wait(&client, |waker| dies.poll_closed(waker)), Closed::ProcessorGone);
    let world = World { client, server, ours: lives, theirs: lives_there };
    world.transfer();
    world.stop();
}
