//! Placement `path`: each path worker carries its share, and a worker that fails affects only its
//! paths.

use std::sync::Arc;

use net::MemoryNetwork;
use quic::{Dir, PathState, Side};
use quic_endpoint::Closed;
use units::Duration;

use crate::faulty_keys::multipath::{EnginePair, engine};
use crate::faulty_keys::{FaultKind, LEN, WorkerFault, factory, no_fault, pattern, wait};

#[test]
fn every_path_worker_carries_a_share_of_the_data() {
    let pair = EnginePair::new(3, &no_fault(), &no_fault());
    pair.transfer();
    let paths = pair.paths();
    assert!(paths.iter().all(|path| path.packets_acked > 100), "{paths:?}");
    for engine in [&pair.client, &pair.server] {
        let workers = engine.worker_pool_stats().unwrap().workers;
        let are_busy = workers.iter().all(|worker| worker.batches > 10 && worker.busy > Duration::ZERO);
        assert!(workers.len() == 2 && are_busy, "{workers:?}");
    }
    assert_eq!(pair.ours.stats().unwrap().receive.packets_unauthentic, 0);
    pair.stop();
}

/// Two engines after a fault of this kind in one path worker of the client during a transfer.
fn after(fault: FaultKind) -> (EnginePair, Arc<WorkerFault>) {
    let fault = WorkerFault::new(fault, 2000, 1);
    let pair = EnginePair::new(4, &fault, &no_fault());
    pair.transfer_until_fault(&fault);
    pair.wait_for("one path has failed", |paths| {
        paths.iter().filter(|path| path.state == PathState::Active).count() == 3
    });
    pair.transfer();
    (pair, fault)
}

#[test]
fn a_path_worker_that_panics_costs_only_its_path() {
    let (pair, _) = after(FaultKind::Panic);
    pair.stop();
}

#[test]
fn the_path_of_a_hanging_worker_is_used_again_when_the_worker_continues() {
    let (pair, fault) = after(FaultKind::Hang);
    fault.release();
    pair.wait_for("all paths are active again", |paths| paths.iter().all(|path| path.state == PathState::Active));
    pair.transfer();
    pair.stop();
}

#[test]
fn a_path_worker_of_the_receiver_that_panics_costs_only_its_path() {
    let fault = WorkerFault::new(FaultKind::Panic, 2000, 1);
    let pair = EnginePair::new(4, &no_fault(), &fault);
    pair.transfer_until_fault(&fault);
    pair.wait_for("one path has failed", |paths| {
        paths.iter().filter(|path| path.state == PathState::Active).count() == 3
    });
    pair.stop();
}

#[test]
fn a_connection_that_loses_its_last_path_ends_and_others_continue() {
    let fault = WorkerFault::new(FaultKind::Panic, 200, 1);
    let network = MemoryNetwork::new();
    let client = engine(2, &fault, &network);
    let server = engine(2, &no_fault(), &network);
    let connect = |socket: usize| {
        let remote = server.local_addrs()[socket];
        let ours = client.connect_from(Some(socket), remote, "peer", factory(Side::Client, &fault)).unwrap();
        wait(&client, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
        (ours, theirs)
    };
    // The second socket has a path worker.
    let (other, other_peer) = connect(0);
    let (lost, _lost_peer) = connect(1);
    let mut opening = lost.open(Dir::Uni);
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
    assert!(error.is_some(), "writing does not fail");
    assert_eq!(wait(&client, |waker| lost.poll_closed(waker)), Closed::ProcessorGone);
    let pair = EnginePair { client, server, ours: other, theirs: other_peer };
    pair.transfer();
    pair.stop();
}
