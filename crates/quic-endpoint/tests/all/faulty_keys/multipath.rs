//! Two engines with a processor for each path, and a multipath connection between them.

use std::sync::Arc;
use std::task::Poll;

use engine::Placement;
use net::MemoryNetwork;
use quic::{Dir, PathState, PathStats, Side, Strategy, TransportConfig};
use quic_endpoint::runtime::{ConnectionHandle, Engine, EngineConfig};
use units::Duration;

use super::{LEN, WorkerFault, factory, pattern, read_all, wait};

/// An engine with this number of sockets and a processor for each.
pub(crate) fn engine(sockets: usize, fault: &Arc<WorkerFault>, network: &MemoryNetwork) -> Engine {
    let transport = TransportConfig::default()
        .with_datagram_size(1452)
        .with_max_paths(sockets as u32)
        // Links in memory have no rates, so any other scheduler would prefer the first one.
        .with_scheduler(Strategy::RoundRobin);
    let server = Some(factory(Side::Server, fault));
    let config = EngineConfig { placement: Placement::Path(sockets), transport, server, ..EngineConfig::default() };
    let socket = || Box::new(network.bind("127.0.0.1:0".parse().unwrap()).unwrap()) as Box<_>;
    Engine::start(config, (0..sockets).map(|_| socket()).collect()).unwrap()
}

/// Two engines and a connection with a path for each socket.
pub(crate) struct EnginePair {
    pub(crate) client: Engine,
    pub(crate) server: Engine,
    pub(crate) ours: ConnectionHandle,
    pub(crate) theirs: ConnectionHandle,
}

impl EnginePair {
    pub(crate) fn new(paths: usize, at_client: &Arc<WorkerFault>, at_server: &Arc<WorkerFault>) -> Self {
        let network = MemoryNetwork::new();
        let (client, server) = (engine(paths, at_client, &network), engine(paths, at_server, &network));
        let ours = client.connect(server.local_addrs()[0], "peer", factory(Side::Client, at_client)).unwrap();
        wait(&client, |waker| ours.poll_connected(waker)).unwrap();
        let theirs = wait(&server, |waker| server.poll_accept(waker)).unwrap();
        for (socket, address) in server.local_addrs().iter().enumerate().skip(1) {
            ours.open_path(socket, *address, false).unwrap();
        }
        let pair = Self { client, server, ours, theirs };
        pair.wait_for("all paths are active", |paths_now| {
            paths_now.len() == paths && paths_now.iter().all(|path| path.state == PathState::Active)
        });
        pair
    }

    pub(crate) fn paths(&self) -> Vec<PathStats> {
        self.ours.stats().unwrap().paths
    }

    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&[PathStats]) -> bool) {
        let deadline = self.client.now() + Duration::from_secs(60);
        while !is_so(&self.paths()) {
            assert!(self.client.now() < deadline, "{what}: {:?}", self.paths());
            let pause = self.client.now() + Duration::from_millis(1);
            assert!(self.client.block_on(Some(pause), |_| Poll::<()>::Pending).is_none());
        }
    }

    /// Transfers data until the fault has occurred.
    pub(crate) fn transfer_until_fault(&self, fault: &WorkerFault) {
        for _ in 0..50 {
            self.transfer();
            if fault.is_exhausted() {
                return;
            }
        }
        panic!("the fault did not occur");
    }

    /// Transfers the pattern and checks that it arrives.
    pub(crate) fn transfer(&self) {
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
        assert!(arrived == sent, "{} of {LEN} bytes arrived, or they differ", arrived.len());
    }

    pub(crate) fn stop(&self) {
        self.client.stop();
        self.server.stop();
    }
}
