//! Receive halves on a processor of their own: they go there, come back, and one that breaks takes nobody along.

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod trouble;

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use engine::{Closed, ConnectionHandle, Engine, EngineConfig, Placement, SplitStats};
use net::MemoryNetwork;
use quic::{Dir, Side, TransportConfig};
use units::Duration;

use trouble::{Fault, LEN, Trouble, factory, healthy, pattern, read_all, wait};

fn engine(placement: Placement, trouble: &Arc<Trouble>, network: &MemoryNetwork) -> Engine {
    let transport = TransportConfig { datagram_size: 1452, key_update_interval: 3000, ..TransportConfig::default() };
    let server = Some(factory(Side::Server, trouble));
    let config = EngineConfig { placement, transport, server, ..EngineConfig::default() };
    Engine::start(config, vec![Box::new(network.bind("127.0.0.1:0".parse().unwrap()).unwrap())]).unwrap()
}

/// Two engines.
struct World {
    client: Engine,
    server: Engine,
    at_client: Arc<Trouble>,
}

/// Both ends of a connection.
type Ends = (ConnectionHandle, ConnectionHandle);

impl World {
    fn new(client: (Placement, &Arc<Trouble>), server: (Placement, &Arc<Trouble>)) -> Self {
        let network = MemoryNetwork::new();
        Self {
            client: engine(client.0, client.1, &network),
            server: engine(server.0, server.1, &network),
            at_client: Arc::clone(client.1),
        }
    }

    fn connect(&self) -> Ends {
        let factory = factory(Side::Client, &self.at_client);
        let ours = self.client.connect(self.server.local_addrs()[0], "peer", factory).unwrap();
        wait(&self.client, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(&self.server, |waker| self.server.poll_accept(waker)).unwrap();
        (ours, theirs)
    }

    fn server_stats(&self) -> SplitStats {
        self.server.split_stats().unwrap()
    }

    /// The pattern both ways at a time, on one bidirectional stream.
    fn duplex(&self, (ours, theirs): &Ends) {
        let sent = pattern();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut send, mut recv) = wait(&self.server, |waker| theirs.poll_accept_bi(waker)).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| assert!(read_all(&self.server, &mut recv) == sent, "the server got others"));
                    write_all(&self.server, &mut send, &sent);
                });
            });
            let mut opening = ours.open(Dir::Bi);
            let (mut send, recv) = wait(&self.client, |waker| opening.poll(waker)).unwrap();
            let mut recv = recv.expect("it can be read");
            scope.spawn(move || assert!(read_all(&self.client, &mut recv) == pattern(), "the client got others"));
            write_all(&self.client, &mut send, &sent);
        });
    }

    fn stop(&self) {
        self.client.stop();
        self.server.stop();
    }

    /// Waits until it is so.
    fn wait_for(&self, what: &str, is_so: impl Fn(SplitStats) -> bool) {
        let deadline = self.server.now() + Duration::from_secs(60);
        while !is_so(self.server_stats()) {
            assert!(self.server.now() < deadline, "{what}: {:?}", self.server_stats());
            let pause = self.server.now() + Duration::from_millis(1);
            assert!(self.server.block_on(Some(pause), |_| Poll::<()>::Pending).is_none());
        }
    }
}

fn write_all(engine: &Engine, send: &mut engine::SendHandle, bytes: &Bytes) {
    for chunk in 0..LEN.div_ceil(1 << 20) {
        let mut chunk = Some(bytes.slice(chunk << 20..((chunk + 1) << 20).min(LEN)));
        wait(engine, |waker| send.poll_write_chunk(&mut chunk, waker)).unwrap();
    }
    send.finish().unwrap();
}

#[test]
fn bulk_both_ways_is_absorbed_by_the_receiver_over_key_updates_with_any_peer() {
    for peer in [Placement::Split, Placement::Thread, Placement::Packet(2)] {
        let world = World::new((peer, &healthy()), (Placement::Split, &healthy()));
        let ends = world.connect();
        world.duplex(&ends);
        let stats = world.server_stats();
        assert!(stats.departed > 0 && stats.batches > 100 && stats.reports > 0, "{peer}: {stats:?}");
        assert_eq!(stats.lost, 0, "{peer}: {stats:?}");
        let [ours, theirs] = [&ends.0, &ends.1].map(|end| end.stats().unwrap());
        assert!(theirs.send.key_updates > 0, "{peer}: {:?}", theirs.send);
        for receive in [&ours.receive, &theirs.receive] {
            assert_eq!(receive.packets_unauthentic, 0, "{peer}: {receive:?}");
        }
        world.stop();
    }
}

#[test]
fn a_receive_half_that_nothing_comes_for_goes_home_and_its_connection_goes_on() {
    let world = World::new((Placement::Thread, &healthy()), (Placement::Split, &healthy()));
    let ends = world.connect();
    world.duplex(&ends);
    world.wait_for("all are home", |stats| stats.departed > 0 && stats.returned == stats.departed);
    world.duplex(&ends);
    assert!(world.server_stats().departed > 1, "{:?}", world.server_stats());
    world.stop();
}

#[test]
fn messages_datagrams_and_closes_come_through_while_the_receive_half_is_away() {
    let world = World::new((Placement::Split, &healthy()), (Placement::Split, &healthy()));
    let ends = world.connect();
    world.duplex(&ends);
    // Before it has gone home.
    let (ours, theirs) = &ends;
    for number in 0..200_u8 {
        let message = Bytes::from(vec![number; 1 + usize::from(number) * 300]);
        let mut waiting = Some(message.clone());
        wait(&world.client, |waker| ours.poll_send_message(&mut waiting, waker)).unwrap();
        let got = wait(&world.server, |waker| theirs.poll_get_message(waker)).unwrap();
        assert_eq!(got, message);
    }
    ours.close(7, "enough");
    assert!(matches!(wait(&world.server, |waker| theirs.poll_closed(waker)), Closed::ByPeer { code: 7, .. }));
    world.stop();
}

/// Transfers until the trouble at the server has come; the connection that met it, and one that did not.
fn until_trouble(world: &World, trouble: &Trouble) -> (Ends, Ends) {
    let (meets, other) = (world.connect(), world.connect());
    for _ in 0..50 {
        let (client, server) = (&world.client, &world.server);
        let mut opening = meets.0.open(Dir::Uni);
        let Ok((mut send, _)) = wait(client, |waker| opening.poll(waker)) else { break };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let Ok(mut recv) = wait(server, |waker| meets.1.poll_accept_uni(waker)) else { return };
                while let Ok(true) = wait(server, |waker| recv.poll_ready(waker)) {
                    drop(std::mem::take(recv.front_mut()));
                }
            });
            let sent = pattern();
            for chunk in 0..LEN.div_ceil(1 << 20) {
                let mut chunk = Some(sent.slice(chunk << 20..((chunk + 1) << 20).min(LEN)));
                if wait(client, |waker| send.poll_write_chunk(&mut chunk, waker)).is_err() {
                    return;
                }
            }
            let _over = send.finish();
        });
        if trouble.came() {
            break;
        }
    }
    assert!(trouble.came(), "the trouble never came: {:?}", world.server_stats());
    (meets, other)
}

#[test]
fn a_receive_half_that_breaks_ends_its_connection_and_no_other() {
    let trouble = Trouble::new(Fault::Panic, 3000, 1);
    let world = World::new((Placement::Thread, &healthy()), (Placement::Split, &trouble));
    let (broken, other) = until_trouble(&world, &trouble);
    assert_eq!(wait(&world.server, |waker| broken.1.poll_closed(waker)), Closed::ProcessorGone);
    // The send half is well: it says goodbye.
    assert!(matches!(wait(&world.client, |waker| broken.0.poll_closed(waker)), Closed::ByPeer { .. }));
    let before = world.server_stats();
    assert_eq!(before.lost, 1, "{before:?}");
    world.duplex(&other);
    let after = world.server_stats();
    assert!(after.departed > before.departed && after.batches > before.batches, "{before:?} {after:?}");
    world.stop();
}

#[test]
fn a_receiver_that_hangs_loses_what_it_had_and_the_driver_receives_from_then_on() {
    let trouble = Trouble::new(Fault::Hang, 3000, 1);
    let world = World::new((Placement::Thread, &healthy()), (Placement::Split, &trouble));
    let (stuck, other) = until_trouble(&world, &trouble);
    assert_eq!(wait(&world.server, |waker| stuck.1.poll_closed(waker)), Closed::ProcessorGone);
    world.duplex(&other);
    let fresh = world.connect();
    world.duplex(&fresh);
    assert_eq!(world.server_stats().lost, 1, "{:?}", world.server_stats());
    trouble.release();
    world.stop();
}
