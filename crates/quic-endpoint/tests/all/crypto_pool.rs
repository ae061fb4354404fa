//! Workers of the crypto pool panic or hang: connections lose throughput and no data.

use std::sync::Arc;
use std::task::Poll;

use engine::{Placement, WorkerPoolStats};
use net::MemoryNetwork;
use quic::{Dir, SendStats, Side, TransportConfig};
use quic_endpoint::runtime::{ConnectionHandle, Engine, EngineConfig};
use units::Duration;

use crate::faulty_keys::{FaultKind, LEN, WorkerFault, factory, no_fault, pattern, read_all, wait};

fn engine(placement: Placement, fault: &Arc<WorkerFault>, network: &MemoryNetwork) -> Engine {
    let transport = TransportConfig::default().with_datagram_size(1452);
    let server = Some(factory(Side::Server, fault));
    let config = EngineConfig { placement, transport, server, ..EngineConfig::default() };
    Engine::start(config, vec![Box::new(network.bind("127.0.0.1:0".parse().unwrap()).unwrap())]).unwrap()
}

/// The fault has occurred after this many transfers, on any machine.
const TRANSFERS_MAX: usize = 50;

/// Statistics of a number of transfers.
struct Outcome {
    sent: SendStats,
    sender: Option<WorkerPoolStats>,
    receiver: Option<WorkerPoolStats>,
}

/// Sends the pattern from the client to the server.
fn carry((client, ours): (&Engine, &ConnectionHandle), (server, theirs): (&Engine, &ConnectionHandle)) {
    let sent = pattern();
    let arrived = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut recv = wait(server, |waker| theirs.poll_accept_uni(waker)).unwrap();
            read_all(server, &mut recv)
        });
        let mut opening = ours.open(Dir::Uni);
        let (mut send, _) = wait(client, |waker| opening.poll(waker)).unwrap();
        for chunk in 0..LEN.div_ceil(1 << 20) {
            let mut chunk = Some(sent.slice(chunk << 20..((chunk + 1) << 20).min(LEN)));
            wait(client, |waker| send.poll_write_chunk(&mut chunk, waker)).unwrap();
        }
        send.finish().unwrap();
        reading.join().unwrap()
    });
    assert!(arrived == sent, "{} of {LEN} bytes arrived, or they differ", arrived.len());
}

/// Transfers data until the faults of both engines have occurred.
fn transfer(sender: (Placement, &Arc<WorkerFault>), receiver: (Placement, &Arc<WorkerFault>)) -> Outcome {
    let network = MemoryNetwork::new();
    let client = engine(sender.0, sender.1, &network);
    let server = engine(receiver.0, receiver.1, &network);
    let ours = client.connect(server.local_addrs()[0], "peer", factory(Side::Client, sender.1)).unwrap();
    wait(&client, |waker| ours.poll_connected(waker)).unwrap();
    let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
    // On a busy machine the driver may do most of the work of a transfer itself.
    for _ in 0..TRANSFERS_MAX {
        carry((&client, &ours), (&server, &theirs));
        if sender.1.is_exhausted() && receiver.1.is_exhausted() {
            break;
        }
    }
    let stats = ours.stats().unwrap();
    for (engine, fault) in [(&client, sender.1), (&server, receiver.1)] {
        wait_until_gone(engine, fault.panic_count());
    }
    let outcome =
        Outcome { sent: stats.send, sender: client.worker_pool_stats(), receiver: server.worker_pool_stats() };
    sender.1.release();
    receiver.1.release();
    client.stop();
    server.stop();
    outcome
}

/// Waits until the driver has noticed the end of this many workers. A transfer does not wait for
/// that.
fn wait_until_gone(engine: &Engine, count: u64) {
    let deadline = engine.now() + Duration::from_secs(60);
    while engine.now() < deadline && engine.worker_pool_stats().is_some_and(|stats| stats.workers_gone < count) {
        assert!(engine.block_on(Some(engine.now() + Duration::from_millis(1)), |_| Poll::<()>::Pending).is_none());
    }
}

const SINGLE: Placement = Placement::Thread;

/// The limit of a worker's jobs.
const JOBS_MAX: u64 = 8;

#[test]
fn all_workers_of_both_sides_process_batches() {
    let outcome = transfer((Placement::Packet(3), &no_fault()), (Placement::Packet(3), &no_fault()));
    for stats in [outcome.sender.unwrap(), outcome.receiver.unwrap()] {
        assert!(stats.workers.len() == 2 && stats.workers.iter().all(|worker| worker.batches > 0), "{stats:?}");
        assert_eq!((stats.workers_gone, stats.batches_lost), (0, 0), "{stats:?}");
    }
}

#[test]
fn the_batches_of_a_worker_that_panics_while_sealing_are_sealed_again() {
    let fault = WorkerFault::new(FaultKind::Panic, 500, 1);
    let outcome = transfer((Placement::Packet(3), &fault), (SINGLE, &no_fault()));
    let stats = outcome.sender.unwrap();
    assert!(fault.has_occurred() && stats.workers_gone == 1, "{stats:?}");
    assert!(stats.batches_redone > 0, "{stats:?}");
    assert!(
        stats.workers.iter().filter(|worker| worker.batches > 30).count() >= 1,
        "the other worker continues: {stats:?}"
    );
    assert_eq!(outcome.sent.plans_not_sent, 0, "{:?}", outcome.sent);
}

#[test]
fn the_driver_seals_alone_when_all_workers_have_panicked() {
    let fault = WorkerFault::new(FaultKind::Panic, 500, 2);
    let outcome = transfer((Placement::Packet(3), &fault), (SINGLE, &no_fault()));
    let stats = outcome.sender.unwrap();
    assert_eq!(stats.workers_gone, 2, "{stats:?}");
    assert_eq!(outcome.sent.plans_not_sent, 0, "{:?}", outcome.sent);
}

#[test]
fn the_batches_of_a_worker_that_hangs_while_sealing_are_sealed_again() {
    let fault = WorkerFault::new(FaultKind::Hang, 500, 1);
    let outcome = transfer((Placement::Packet(3), &fault), (SINGLE, &no_fault()));
    let stats = outcome.sender.unwrap();
    assert!(fault.has_occurred() && stats.workers_late > 0 && stats.batches_redone > 0, "{stats:?}");
    assert_eq!((stats.workers_gone, outcome.sent.plans_not_sent), (0, 0), "{:?}", outcome.sent);
}

#[test]
fn the_peer_retransmits_the_batches_of_a_worker_that_panics_while_opening() {
    let fault = WorkerFault::new(FaultKind::Panic, 500, 1);
    let outcome = transfer((SINGLE, &no_fault()), (Placement::Packet(3), &fault));
    let stats = outcome.receiver.unwrap();
    assert!(stats.workers_gone == 1 && (1..=JOBS_MAX).contains(&stats.batches_lost), "{stats:?}");
    assert!(outcome.sent.packets_lost > 0, "{:?}", outcome.sent);
}

#[test]
fn the_peer_retransmits_the_batches_of_a_worker_that_hangs_while_opening() {
    let fault = WorkerFault::new(FaultKind::Hang, 500, 1);
    let outcome = transfer((SINGLE, &no_fault()), (Placement::Packet(3), &fault));
    let stats = outcome.receiver.unwrap();
    assert!(stats.workers_late > 0 && (1..=JOBS_MAX).contains(&stats.batches_lost), "{stats:?}");
    assert!(outcome.sent.packets_lost > 0, "{:?}", outcome.sent);
}
