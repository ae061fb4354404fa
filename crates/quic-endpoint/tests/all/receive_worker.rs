//! Placement `split`: receive halves are detached to the receive worker and return; one that panics
//! ends only its connection.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use engine::{Placement, ReceiveWorkerStats};
use net::MemoryNetwork;
use quic::{Dir, Side, TransportConfig};
use quic_endpoint::Closed;
use quic_endpoint::runtime::{ConnectionHandle, Engine, EngineConfig};
use units::Duration;

use crate::faulty_keys::{FaultKind, LEN, WorkerFault, factory, no_fault, pattern, read_all, wait};

fn engine(placement: Placement, fault: &Arc<WorkerFault>, network: &MemoryNetwork) -> Engine {
    let transport = TransportConfig::default().with_datagram_size(1452).with_key_update_interval(3000);
    let server = Some(factory(Side::Server, fault));
    let config = EngineConfig { placement, transport, server, ..EngineConfig::default() };
    Engine::start(config, vec![Box::new(network.bind("127.0.0.1:0".parse().unwrap()).unwrap())]).unwrap()
}

/// Two engines.
struct EnginePair {
    client: Engine,
    server: Engine,
    at_client: Arc<WorkerFault>,
}

/// Both ends of a connection.
type Ends = (ConnectionHandle, ConnectionHandle);

impl EnginePair {
    fn new(client: (Placement, &Arc<WorkerFault>), server: (Placement, &Arc<WorkerFault>)) -> Self {
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

    fn server_stats(&self) -> ReceiveWorkerStats {
        self.server.receive_worker_stats().unwrap()
    }

    /// Sends the pattern in both directions at the same time, on one bidirectional stream.
    fn duplex(&self, (ours, theirs): &Ends) {
        let sent = pattern();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut send, mut recv) = wait(&self.server, |waker| theirs.poll_accept_bi(waker)).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        assert!(read_all(&self.server, &mut recv) == sent, "the server received other bytes")
                    });
                    write_all(&self.server, &mut send, &sent);
                });
            });
            let mut opening = ours.open(Dir::Bi);
            let (mut send, recv) = wait(&self.client, |waker| opening.poll(waker)).unwrap();
            let mut recv = recv.expect("a bidirectional stream can be read");
            scope.spawn(move || {
                assert!(read_all(&self.client, &mut recv) == pattern(), "the client received other bytes")
            });
            write_all(&self.client, &mut send, &sent);
        });
    }

    fn stop(&self) {
        self.client.stop();
        self.server.stop();
    }

    /// Waits until `is_so` is true of the server's counters.
    fn wait_for(&self, what: &str, is_so: impl Fn(ReceiveWorkerStats) -> bool) {
        let deadline = self.server.now() + Duration::from_secs(60);
        while !is_so(self.server_stats()) {
            assert!(self.server.now() < deadline, "{what}: {:?}", self.server_stats());
            let pause = self.server.now() + Duration::from_millis(1);
            assert!(self.server.block_on(Some(pause), |_| Poll::<()>::Pending).is_none());
        }
    }
}

fn write_all(engine: &Engine, send: &mut quic_endpoint::runtime::SendHandle, bytes: &Bytes) {
    for chunk in 0..LEN.div_ceil(1 << 20) {
        let mut chunk = Some(bytes.slice(chunk << 20..((chunk + 1) << 20).min(LEN)));
        wait(engine, |waker| send.poll_write_chunk(&mut chunk, waker)).unwrap();
    }
    send.finish().unwrap();
}

#[test]
fn bulk_in_both_directions_goes_through_the_receive_worker_across_key_updates() {
    for peer in [Placement::Split, Placement::Thread, Placement::Packet(2)] {
        let pair = EnginePair::new((peer, &no_fault()), (Placement::Split, &no_fault()));
        let ends = pair.connect();
        pair.duplex(&ends);
        let stats = pair.server_stats();
        assert!(stats.detached > 0 && stats.batches > 100 && stats.reports > 0, "{peer}: {stats:?}");
        assert_eq!(stats.lost, 0, "{peer}: {stats:?}");
        let [ours, theirs] = [&ends.0, &ends.1].map(|end| end.stats().unwrap());
        assert!(theirs.send.key_updates > 0, "{peer}: {:?}", theirs.send);
        for receive in [&ours.receive, &theirs.receive] {
            assert_eq!(receive.packets_unauthentic, 0, "{peer}: {receive:?}");
        }
        pair.stop();
    }
}

#[test]
fn an_idle_receive_half_returns_and_its_connection_continues() {
    let pair = EnginePair::new((Placement::Thread, &no_fault()), (Placement::Split, &no_fault()));
    let ends = pair.connect();
    pair.duplex(&ends);
    pair.wait_for("all receive halves have returned", |stats| stats.detached > 0 && stats.returned == stats.detached);
    pair.duplex(&ends);
    assert!(pair.server_stats().detached > 1, "{:?}", pair.server_stats());
    pair.stop();
}

#[test]
fn messages_datagrams_and_closes_arrive_while_the_receive_half_is_detached() {
    let pair = EnginePair::new((Placement::Split, &no_fault()), (Placement::Split, &no_fault()));
    let ends = pair.connect();
    pair.duplex(&ends);
    // Before the receive half returns.
    let (ours, theirs) = &ends;
    for number in 0..200_u8 {
        let message = Bytes::from(vec![number; 1 + usize::from(number) * 300]);
        let mut waiting = Some(message.clone());
        wait(&pair.client, |waker| ours.poll_send_message(&mut waiting, waker)).unwrap();
        let got = wait(&pair.server, |waker| theirs.poll_recv_message(waker)).unwrap();
        assert_eq!(got, message);
    }
    ours.close(7, "enough");
    assert!(matches!(wait(&pair.server, |waker| theirs.poll_closed(waker)), Closed::ByPeer { code: 7, .. }));
    pair.stop();
}

/// Transfers data until the fault at the server has occurred. Returns the affected connection and
/// another one.
fn until_fault(pair: &EnginePair, fault: &WorkerFault) -> (Ends, Ends) {
    let (affected, other) = (pair.connect(), pair.connect());
    for _ in 0..50 {
        let (client, server) = (&pair.client, &pair.server);
        let mut opening = affected.0.open(Dir::Uni);
        let Ok((mut send, _)) = wait(client, |waker| opening.poll(waker)) else { break };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let Ok(mut recv) = wait(server, |waker| affected.1.poll_accept_uni(waker)) else { return };
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
        if fault.has_occurred() {
            break;
        }
    }
    assert!(fault.has_occurred(), "the fault did not occur: {:?}", pair.server_stats());
    (affected, other)
}

#[test]
fn a_receive_half_that_panics_ends_only_its_connection() {
    let fault = WorkerFault::new(FaultKind::Panic, 3000, 1);
    let pair = EnginePair::new((Placement::Thread, &no_fault()), (Placement::Split, &fault));
    let (broken, other) = until_fault(&pair, &fault);
    assert_eq!(wait(&pair.server, |waker| broken.1.poll_closed(waker)), Closed::ProcessorGone);
    // The send half still works and sends CONNECTION_CLOSE.
    assert!(matches!(wait(&pair.client, |waker| broken.0.poll_closed(waker)), Closed::ByPeer { .. }));
    let before = pair.server_stats();
    assert_eq!(before.lost, 1, "{before:?}");
    pair.duplex(&other);
    let after = pair.server_stats();
    assert!(after.detached > before.detached && after.batches > before.batches, "{before:?} {after:?}");
    pair.stop();
}

#[test]
fn the_driver_receives_if_the_receive_worker_hangs() {
    let fault = WorkerFault::new(FaultKind::Hang, 3000, 1);
    let pair = EnginePair::new((Placement::Thread, &no_fault()), (Placement::Split, &fault));
    let (stuck, other) = until_fault(&pair, &fault);
    assert_eq!(wait(&pair.server, |waker| stuck.1.poll_closed(waker)), Closed::ProcessorGone);
    pair.duplex(&other);
    let fresh = pair.connect();
    pair.duplex(&fresh);
    assert_eq!(pair.server_stats().lost, 1, "{:?}", pair.server_stats());
    fault.release();
    pair.stop();
}
