//! Two endpoints that can reach each other: over UDP on the loopback device or over memory, with or
//! without threads.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use litz::identity::{self, KeyPair};
use litz::{Connection, Endpoint, EndpointConfig, LiveSocket, Placement, UdpSocket, UdpSocketOptions};
use net::MemoryNetwork;

/// The medium that carries the datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Udp,
    Memory,
}

/// One combination of medium and placement in which every scenario runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) wire: Wire,
    pub(crate) placement: Placement,
}

impl Variant {
    /// Returns the number of drivers of the placement.
    pub(crate) fn driver_count(self) -> usize {
        self.placement.driver_count()
    }
}

pub(crate) struct World {
    variant: Variant,
    network: MemoryNetwork,
    server_tls: Arc<rustls::ServerConfig>,
    pub(crate) client_tls: Arc<rustls::ClientConfig>,
}

/// Time limit that no test reaches on any machine; beyond it, something hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

impl World {
    pub(crate) fn new(variant: Variant) -> Self {
        let (server_key, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let client = identity::client_config(&client_key, &[server_key.public().fingerprint()], ["test/1"]).unwrap();
        Self {
            variant,
            network: MemoryNetwork::new(),
            server_tls: identity::server_config(&server_key, ["test/1"]).unwrap(),
            client_tls: client.config,
        }
    }

    pub(crate) fn config(&self) -> EndpointConfig {
        EndpointConfig::loopback().with_placement(self.variant.placement)
    }

    /// Returns the same configuration with another limit for handshakes.
    pub(crate) fn config_with_handshake_timeout(&self, handshake_timeout: Duration) -> EndpointConfig {
        let mut config = self.config();
        config.transport.handshake_timeout = handshake_timeout.into();
        config
    }

    pub(crate) fn socket(&self, port: u16) -> Box<dyn LiveSocket> {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        match self.variant.wire {
            Wire::Udp => Box::new(UdpSocket::open(&UdpSocketOptions::new(address)).unwrap()),
            Wire::Memory => Box::new(self.network.bind(address).unwrap()),
        }
    }

    /// Returns an endpoint that accepts.
    pub(crate) fn server(&self, config: EndpointConfig) -> Endpoint {
        self.server_at(config, 0)
    }

    pub(crate) fn server_at(&self, config: EndpointConfig, port: u16) -> Endpoint {
        if config.placement.driver_count() == 1 {
            return self.server_over(config, self.socket(port));
        }
        let sockets = vec![UdpSocketOptions::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))];
        let config = config.with_server_tls(self.server_tls.clone()).with_sockets(sockets);
        Endpoint::bind(config).unwrap()
    }

    pub(crate) fn server_over(&self, config: EndpointConfig, socket: Box<dyn LiveSocket>) -> Endpoint {
        let config = config.with_server_tls(self.server_tls.clone());
        Endpoint::with_sockets(config, vec![socket]).unwrap()
    }

    /// Returns an endpoint that only connects.
    pub(crate) fn client(&self, config: EndpointConfig) -> Endpoint {
        let count = config.placement.driver_count();
        Endpoint::with_sockets(config, (0..count).map(|_| self.socket(0)).collect()).unwrap()
    }

    pub(crate) fn connect(&self, client: &Endpoint, address: SocketAddr) -> Connection {
        client.connect(address, "host", self.client_tls.clone()).unwrap()
    }
}

/// Runs a server and a client to their ends, each on its own thread. The server gets each incoming
/// connection, until the client is done.
pub(crate) fn serve<T: Send>(
    world: &World,
    config: EndpointConfig,
    server: impl FnOnce(&Endpoint) + Send,
    client: impl FnOnce(&Endpoint, SocketAddr) -> T + Send,
) -> T {
    let serving = world.server(config.clone());
    let address = serving.local_addr();
    std::thread::scope(|scope| {
        let serving = &serving;
        scope.spawn(move || {
            // A failed server closes its connections, because its clients would wait for it
            // otherwise.
            let _close = OnPanic(serving);
            server(serving);
        });
        let calling = world.client(config);
        let _close = OnPanic(serving);
        client(&calling, address)
    })
}

struct OnPanic<'a>(&'a Endpoint);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    units::Rng::from_seed(seed).fill(&mut bytes);
    bytes
}
