//! Sockets of path workers that are full, hang or panic: unsent packets do not count as sent, no
//! connection begins at a socket without a worker, and stopping does not wait without a limit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::Duration as StdDuration;

use engine::Placement;
use net::MemoryNetwork;
use net::testing::{Faults, InterceptedSocket};
use quic::Side;
use quic_endpoint::Closed;
use quic_endpoint::runtime::{ConnectionHandle, Engine, EngineConfig, LiveSocket};
use units::Duration;

use crate::faulty_keys::{factory, no_fault, wait};

/// No step takes this long on any machine. A test that waits longer hangs.
const TEST_TIMEOUT: StdDuration = StdDuration::from_secs(60);

/// An engine with a path worker for each of its sockets.
fn engine(sockets: usize, network: &MemoryNetwork) -> (Engine, Vec<Arc<Faults>>) {
    let faults: Vec<Arc<Faults>> = (0..sockets).map(|_| Arc::default()).collect();
    let socket = |faults: &Arc<Faults>| {
        let inner = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Box::new(InterceptedSocket::new(inner, Arc::clone(faults))) as Box<dyn LiveSocket>
    };
    let server = Some(factory(Side::Server, &no_fault()));
    let config = EngineConfig { placement: Placement::Path(sockets + 1), server, ..EngineConfig::default() };
    let engine = Engine::start(config, faults.iter().map(socket).collect()).unwrap();
    (engine, faults)
}

fn connect(client: &Engine, from: Option<usize>, server: &Engine) -> ConnectionHandle {
    client.connect_from(from, server.local_addrs()[0], "peer", factory(Side::Client, &no_fault())).unwrap()
}

fn pause(engine: &Engine, millis: u64) {
    let until = engine.now() + Duration::from_millis(millis);
    assert!(engine.block_on(Some(until), |_| Poll::<()>::Pending).is_none());
}

/// Whether `stop` returns in time while `meanwhile` runs.
fn stops_in_time(engine: &Engine, meanwhile: impl FnOnce()) -> bool {
    let (stopped, has_stopped) = channel();
    let stopping = engine.clone();
    #[expect(clippy::disallowed_methods, reason = "a thread that hangs must not block the test")]
    std::thread::spawn(move || {
        stopping.stop();
        stopped.send(())
    });
    meanwhile();
    has_stopped.recv_timeout(TEST_TIMEOUT).is_ok()
}

#[test]
fn stop_waits_for_a_connection_close_that_a_full_socket_delays() {
    let network = MemoryNetwork::new();
    let ((client, faults), (server, _)) = (engine(1, &network), engine(1, &network));
    let ours = connect(&client, None, &server);
    wait(&client, |waker| ours.poll_connected(waker)).unwrap();
    let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
    faults[0].is_full.store(true, Ordering::SeqCst);
    let refused = faults[0].refused.load(Ordering::SeqCst);
    let is_over = stops_in_time(&client, || {
        // After the first attempt the socket stays full for a time well below the second that
        // `stop` waits for the last packets.
        while faults[0].refused.load(Ordering::SeqCst) == refused {
            pause(&server, 1);
        }
        pause(&server, 30);
        faults[0].is_full.store(false, Ordering::SeqCst);
    });
    assert!(is_over, "stop does not return");
    let closed = wait(&server, |waker| theirs.poll_closed(waker));
    assert!(matches!(closed, Closed::ByPeer { .. }), "the CONNECTION_CLOSE frame was lost: {closed:?}");
    server.stop();
}

#[test]
fn a_connection_begins_at_a_socket_whose_worker_is_alive() {
    let network = MemoryNetwork::new();
    let ((client, faults), (server, _)) = (engine(2, &network), engine(1, &network));
    faults[0].panic_in_recv.store(true, Ordering::SeqCst);
    faults[0].wake();
    // The driver notices the end of the worker some time later.
    let deadline = client.now() + Duration::from_secs(60);
    loop {
        let refused = connect(&client, Some(0), &server);
        let until = client.now() + Duration::from_millis(20);
        match client.block_on(Some(until), |waker| refused.poll_connected(waker)) {
            Some(Err(Closed::ProcessorGone)) => break,
            other => assert!(client.now() < deadline, "{other:?}"),
        }
    }
    let ours = connect(&client, None, &server);
    wait(&client, |waker| ours.poll_connected(waker)).unwrap();
    assert_eq!(ours.stats().unwrap().paths[0].addresses.socket, 1);
    client.stop();
    server.stop();
}

#[test]
fn stop_does_not_wait_for_a_worker_that_hangs_in_a_system_call() {
    let network = MemoryNetwork::new();
    let (client, faults) = engine(2, &network);
    faults[0].hang_in_recv.store(true, Ordering::SeqCst);
    faults[0].wake();
    let deadline = client.now() + Duration::from_secs(60);
    while faults[0].hanging.load(Ordering::SeqCst) == 0 {
        assert!(client.now() < deadline, "the worker does not hang");
        pause(&client, 1);
    }
    assert!(stops_in_time(&client, || {}), "stop does not return");
    faults[0].release();
}
