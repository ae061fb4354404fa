//! A processor for each path: it carries its share, and its death costs no more than that.

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod trouble;

use std::sync::Arc;

use engine::Closed;
use net::MemoryNetwork;
use quic::{Dir, PathState, Side};
use units::Duration;

use trouble::over_paths::{World, engine};
use trouble::{Fault, LEN, Trouble, factory, healthy, pattern, wait};

#[test]
fn every_path_carries_a_share_by_a_processor_of_its_own() {
    let world = World::new(3, &healthy(), &healthy());
    world.transfer();
    let paths = world.paths();
    assert!(paths.iter().all(|path| path.packets_acked > 100), "{paths:?}");
    for engine in [&world.client, &world.server] {
        let workers = engine.stage_stats().unwrap().workers;
        let are_busy = workers.iter().all(|worker| worker.batches > 10 && worker.busy > Duration::ZERO);
        assert!(workers.len() == 2 && are_busy, "{workers:?}");
    }
    assert_eq!(world.ours.stats().unwrap().receive.packets_unauthentic, 0);
    world.stop();
}

/// The states of the paths when a processor of the client has met with `fault` in mid-transfer.
fn after(fault: Fault) -> (World, Arc<Trouble>) {
    let trouble = Trouble::new(fault, 2000, 1);
    let world = World::new(4, &trouble, &healthy());
    world.transfer_until_over(&trouble);
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
    world.transfer_until_over(&trouble);
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
