//! Sockets of processors of paths that are full, stuck or broken: nobody takes for sent what was not, begins a connection where
//! nobody serves it, or waits for ever.

#[expect(dead_code, reason = "shared with tests that use more of it")]
mod trouble;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration as Patience;

use engine::{Closed, ConnectionHandle, Engine, EngineConfig, LiveSocket, Placement, Readiness};
use net::{DatagramSocket, MemoryNetwork, MemorySocket, RecvMeta, SendError, SocketCounters, Transmit};
use quic::Side;
use units::Duration;

use trouble::{factory, healthy, wait};

/// Nothing here takes that long, on any machine: beyond, something hangs.
const PATIENCE: Patience = Patience::from_secs(60);

/// What a socket shall do, and has done.
#[derive(Default)]
struct Orders {
    is_full: AtomicBool,
    panics_in_recv: AtomicBool,
    hangs_in_recv: AtomicBool,
    may_go_on: Mutex<bool>,
    signal: Condvar,
    refused: AtomicU64,
    taken: AtomicU64,
    hanging: AtomicU64,
    arrivals: OnceLock<Waker>,
}

impl Orders {
    /// Something may have arrived.
    fn ring(&self) {
        self.arrivals.get().expect("the socket is served").wake_by_ref();
    }

    fn release(&self) {
        *self.may_go_on.lock().unwrap() = true;
        self.signal.notify_all();
    }
}

struct Told {
    inner: MemorySocket,
    orders: Arc<Orders>,
}

impl DatagramSocket for Told {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        self.inner.max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        self.inner.max_gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        if self.orders.is_full.load(Ordering::SeqCst) {
            self.orders.refused.fetch_add(1, Ordering::SeqCst);
            return Err(SendError::WouldBlock);
        }
        self.orders.taken.fetch_add(1, Ordering::SeqCst);
        self.inner.send(transmit)
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        assert!(!self.orders.panics_in_recv.load(Ordering::SeqCst), "told to panic in recv");
        if self.orders.hangs_in_recv.load(Ordering::SeqCst) {
            self.orders.hanging.fetch_add(1, Ordering::SeqCst);
            let may_go_on = self.orders.may_go_on.lock().unwrap();
            drop(self.orders.signal.wait_while(may_go_on, |may_go_on| !*may_go_on).unwrap());
        }
        self.inner.recv(buffers, metas)
    }

    fn counters(&self) -> &SocketCounters {
        self.inner.counters()
    }
}

impl LiveSocket for Told {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.orders.arrivals.set(waker.clone()).expect("asked once");
        self.inner.readiness(waker)
    }
}

/// An engine whose sockets, which are so many, are all served by processors of their own.
fn engine(sockets: usize, network: &MemoryNetwork) -> (Engine, Vec<Arc<Orders>>) {
    let orders: Vec<Arc<Orders>> = (0..sockets).map(|_| Arc::default()).collect();
    let socket = |orders: &Arc<Orders>| {
        let inner = network.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Box::new(Told { inner, orders: Arc::clone(orders) }) as Box<dyn LiveSocket>
    };
    let server = Some(factory(Side::Server, &healthy()));
    let config = EngineConfig { placement: Placement::Path(sockets + 1), server, ..EngineConfig::default() };
    let engine = Engine::start(config, orders.iter().map(socket).collect()).unwrap();
    (engine, orders)
}

fn connect(client: &Engine, from: Option<usize>, server: &Engine) -> ConnectionHandle {
    client.connect_from(from, server.local_addrs()[0], "peer", factory(Side::Client, &healthy())).unwrap()
}

fn pause(engine: &Engine, millis: u64) {
    let until = engine.now() + Duration::from_millis(millis);
    assert!(engine.block_on(Some(until), |_| Poll::<()>::Pending).is_none());
}

/// What `stop` takes on a thread of its own; none if it takes for ever.
fn stops_in_time(engine: &Engine, meanwhile: impl FnOnce()) -> bool {
    let (tell, told) = channel();
    let stopping = engine.clone();
    #[expect(clippy::disallowed_methods, reason = "one that hangs must not hold up the test that finds out")]
    std::thread::spawn(move || {
        stopping.stop();
        tell.send(())
    });
    meanwhile();
    told.recv_timeout(PATIENCE).is_ok()
}

#[test]
fn a_goodbye_that_waits_for_room_in_a_socket_has_not_left() {
    let network = MemoryNetwork::new();
    let ((client, orders), (server, _)) = (engine(1, &network), engine(1, &network));
    let ours = connect(&client, None, &server);
    wait(&client, |waker| ours.poll_connected(waker)).unwrap();
    let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
    orders[0].is_full.store(true, Ordering::SeqCst);
    let refused = orders[0].refused.load(Ordering::SeqCst);
    let is_over = stops_in_time(&client, || {
        // It was tried; and a moment later, well below the second that a goodbye may take, there is room.
        while orders[0].refused.load(Ordering::SeqCst) == refused {
            pause(&server, 1);
        }
        pause(&server, 30);
        orders[0].is_full.store(false, Ordering::SeqCst);
    });
    assert!(is_over, "stopping takes for ever");
    let closed = wait(&server, |waker| theirs.poll_closed(waker));
    assert!(matches!(closed, Closed::ByPeer { .. }), "the goodbye was lost: {closed:?}");
    server.stop();
}

#[test]
fn a_connection_begins_at_a_socket_that_somebody_serves() {
    let network = MemoryNetwork::new();
    let ((client, orders), (server, _)) = (engine(2, &network), engine(1, &network));
    orders[0].panics_in_recv.store(true, Ordering::SeqCst);
    orders[0].ring();
    // Its driver learns of it a little later.
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
fn stopping_does_not_wait_for_a_processor_that_is_stuck_in_its_socket() {
    let network = MemoryNetwork::new();
    let (client, orders) = engine(2, &network);
    orders[0].hangs_in_recv.store(true, Ordering::SeqCst);
    orders[0].ring();
    let deadline = client.now() + Duration::from_secs(60);
    while orders[0].hanging.load(Ordering::SeqCst) == 0 {
        assert!(client.now() < deadline, "it does not hang");
        pause(&client, 1);
    }
    assert!(stops_in_time(&client, || {}), "stopping takes for ever");
    orders[0].release();
}
