//! Processors of a parallel stage die or hang: a connection loses their share of its speed and nothing else.

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod trouble;

use std::sync::Arc;
use std::task::Poll;

use engine::{ConnectionHandle, Engine, EngineConfig, Placement, StageStats};
use net::MemoryNetwork;
use quic::{Dir, SendStats, Side, TransportConfig};
use units::Duration;

use trouble::{Fault, LEN, Trouble, factory, healthy, pattern, read_all, wait};

fn engine(placement: Placement, trouble: &Arc<Trouble>, network: &MemoryNetwork) -> Engine {
    let transport = TransportConfig { datagram_size: 1452, ..TransportConfig::default() };
    let server = Some(factory(Side::Server, trouble));
    let config = EngineConfig { placement, transport, server, ..EngineConfig::default() };
    Engine::start(config, vec![Box::new(network.bind("127.0.0.1:0".parse().unwrap()).unwrap())]).unwrap()
}

/// Trouble has come after so many transfers, on any machine.
const TRANSFERS_MAX: usize = 50;

/// What came of transfers.
struct Outcome {
    sent: SendStats,
    sender: Option<StageStats>,
    receiver: Option<StageStats>,
}

/// The pattern, from one end to the other.
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
    assert!(arrived == sent, "{} of {LEN} bytes arrived, or others", arrived.len());
}

/// Transfers from an engine with one placement to one with another, until the trouble of each has come.
fn transfer(sender: (Placement, &Arc<Trouble>), receiver: (Placement, &Arc<Trouble>)) -> Outcome {
    let network = MemoryNetwork::new();
    let client = engine(sender.0, sender.1, &network);
    let server = engine(receiver.0, receiver.1, &network);
    let ours = client.connect(server.local_addrs()[0], "peer", factory(Side::Client, sender.1)).unwrap();
    wait(&client, |waker| ours.poll_connected(waker)).unwrap();
    let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
    // On a busy machine the driver may do most of a transfer itself.
    for _ in 0..TRANSFERS_MAX {
        carry((&client, &ours), (&server, &theirs));
        if sender.1.is_over() && receiver.1.is_over() {
            break;
        }
    }
    let stats = ours.stats().unwrap();
    for (engine, trouble) in [(&client, sender.1), (&server, receiver.1)] {
        wait_for_the_dead(engine, trouble.died());
    }
    let outcome = Outcome { sent: stats.send, sender: client.stage_stats(), receiver: server.stage_stats() };
    sender.1.release();
    receiver.1.release();
    client.stop();
    server.stop();
    outcome
}

/// A panic is told before its thread ends, which takes a while: nobody waits for that in a transfer.
fn wait_for_the_dead(engine: &Engine, dead: u64) {
    let deadline = engine.now() + Duration::from_secs(60);
    while engine.now() < deadline && engine.stage_stats().is_some_and(|stats| stats.workers_gone < dead) {
        assert!(engine.block_on(Some(engine.now() + Duration::from_millis(1)), |_| Poll::<()>::Pending).is_none());
    }
}

const ALONE: Placement = Placement::Thread;

#[test]
fn batches_are_shared_by_all_processors_on_both_sides() {
    let outcome = transfer((Placement::Packet(3), &healthy()), (Placement::Packet(3), &healthy()));
    for stats in [outcome.sender.unwrap(), outcome.receiver.unwrap()] {
        assert!(stats.workers.len() == 2 && stats.workers.iter().all(|worker| worker.batches > 0), "{stats:?}");
        assert_eq!((stats.workers_gone, stats.batches_lost), (0, 0), "{stats:?}");
    }
}

#[test]
fn what_a_worker_was_to_seal_when_it_died_is_sealed_by_another() {
    let trouble = Trouble::new(Fault::Panic, 500, 1);
    let outcome = transfer((Placement::Packet(3), &trouble), (ALONE, &healthy()));
    let stats = outcome.sender.unwrap();
    assert!(trouble.came() && stats.workers_gone == 1, "{stats:?}");
    assert!(stats.batches_redone > 0, "{stats:?}");
    assert!(stats.workers.iter().filter(|worker| worker.batches > 30).count() >= 1, "the other goes on: {stats:?}");
    assert_eq!(outcome.sent.plans_not_sent, 0, "{:?}", outcome.sent);
}

#[test]
fn the_driver_goes_on_alone_when_all_workers_have_died() {
    let trouble = Trouble::new(Fault::Panic, 500, 2);
    let outcome = transfer((Placement::Packet(3), &trouble), (ALONE, &healthy()));
    let stats = outcome.sender.unwrap();
    assert_eq!(stats.workers_gone, 2, "{stats:?}");
    assert_eq!(outcome.sent.plans_not_sent, 0, "{:?}", outcome.sent);
}

#[test]
fn what_a_worker_hangs_over_while_it_seals_is_sealed_by_another() {
    let trouble = Trouble::new(Fault::Hang, 500, 1);
    let outcome = transfer((Placement::Packet(3), &trouble), (ALONE, &healthy()));
    let stats = outcome.sender.unwrap();
    assert!(trouble.came() && stats.workers_late > 0 && stats.batches_redone > 0, "{stats:?}");
    assert_eq!((stats.workers_gone, outcome.sent.plans_not_sent), (0, 0), "{:?}", outcome.sent);
}

#[test]
fn what_a_worker_takes_along_when_it_dies_while_it_opens_is_sent_again() {
    let trouble = Trouble::new(Fault::Panic, 500, 1);
    let outcome = transfer((ALONE, &healthy()), (Placement::Packet(3), &trouble));
    let stats = outcome.receiver.unwrap();
    assert!(stats.workers_gone == 1 && (1..=4).contains(&stats.batches_lost), "{stats:?}");
    assert!(outcome.sent.packets_lost > 0, "{:?}", outcome.sent);
}

#[test]
fn what_a_worker_hangs_over_while_it_opens_is_sent_again() {
    let trouble = Trouble::new(Fault::Hang, 500, 1);
    let outcome = transfer((ALONE, &healthy()), (Placement::Packet(3), &trouble));
    let stats = outcome.receiver.unwrap();
    assert!(stats.workers_late > 0 && (1..=4).contains(&stats.batches_lost), "{stats:?}");
    assert!(outcome.sent.packets_lost > 0, "{:?}", outcome.sent);
}
