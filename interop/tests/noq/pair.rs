//! A connection between Litz and noq, with as many links between them as a test requests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use litz::{PathId, PathState, TransportConfig, UdpSocketOptions};
use litz_interop::certificates;
use noq::{FourTuple, PathEvent, PathStatus};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;

/// Nothing here takes longer, on any machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The side that connects and therefore opens paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Ours,
    Theirs,
}

/// The settings a test requests.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub client: Client,
    /// Links, each with an address on either side.
    pub links: u8,
    /// Paths that each side allows; zero disables multipath.
    pub our_paths_max: u32,
    pub their_paths_max: u32,
    /// Packets that we seal with one key.
    pub key_update_interval: u64,
}

impl Settings {
    /// Both sides allow as many paths as there are links.
    pub fn new(client: Client, links: u8) -> Self {
        let paths_max = u32::from(links);
        let key_update_interval = TransportConfig::default().key_update_interval;
        Self { client, links, our_paths_max: paths_max, their_paths_max: paths_max, key_update_interval }
    }
}

/// The two ends of one connection.
pub struct Pair {
    pub client: Client,
    pub us: litz::Connection,
    pub them: noq::Connection,
    pub runtime: Runtime,
    /// noq's path events so far.
    events: Arc<Mutex<Vec<PathEvent>>>,
    /// The server's address on each link.
    remotes: Vec<SocketAddr>,
    _our_endpoint: litz::Endpoint,
    _their_endpoint: noq::Endpoint,
}

fn client_ip(link: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, 0, 1 + link)
}

fn server_ip(link: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 2, 0, 1 + link)
}

/// A socket for each link, by which our paths are distinguished.
fn our_endpoint(settings: Settings, server_tls: Option<Arc<rustls::ServerConfig>>) -> litz::Endpoint {
    let ip = if settings.client == Client::Ours { client_ip } else { server_ip };
    let sockets = (0..settings.links).map(|link| UdpSocketOptions::new(SocketAddr::new(ip(link).into(), 0))).collect();
    let transport = TransportConfig::default()
        .with_datagram_size(1400)
        .with_max_paths(settings.our_paths_max)
        .with_key_update_interval(settings.key_update_interval);
    let config =
        litz::EndpointConfig::default().with_sockets(sockets).with_transport(transport).with_server_tls(server_tls);
    litz::Endpoint::bind(config).expect("sockets")
}

/// noq has one socket for all links and distinguishes them by their addresses.
fn their_endpoint(server: Option<noq::ServerConfig>) -> noq::Endpoint {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    let runtime = Arc::new(noq::TokioRuntime);
    noq::Endpoint::new(noq::EndpointConfig::default(), server, socket, runtime).expect("an endpoint")
}

fn their_transport(settings: Settings) -> Arc<noq::TransportConfig> {
    let mut transport = noq::TransportConfig::default();
    transport.max_concurrent_multipath_paths(settings.their_paths_max);
    Arc::new(transport)
}

/// STREAM frames that noq has sent and received on a path.
pub fn carried(path: &noq::Path) -> (u64, u64) {
    let stats = path.stats();
    (stats.frame_tx.stream, stats.frame_rx.stream)
}

impl Pair {
    /// Connects over the first link.
    pub fn connect(settings: Settings) -> Self {
        let (server_tls, client_tls) = certificates::pair();
        let runtime = Runtime::new().expect("a runtime");
        let entered = runtime.enter();
        let (our_endpoint, their_endpoint, us, them, remotes): (_, _, _, _, Vec<_>) = match settings.client {
            Client::Ours => {
                let crypto = noq::crypto::rustls::QuicServerConfig::try_from(server_tls).expect("AES-128-GCM is there");
                let mut config = noq::ServerConfig::with_crypto(Arc::new(crypto));
                config.transport_config(their_transport(settings));
                let (theirs, ours) = (their_endpoint(Some(config)), our_endpoint(settings, None));
                let port = theirs.local_addr().expect("bound").port();
                let remotes = (0..settings.links).map(|link| SocketAddr::new(server_ip(link).into(), port));
                let accept = runtime.spawn({
                    let theirs = theirs.clone();
                    async move { theirs.accept().await.expect("a client").await.expect("a handshake") }
                });
                let remotes: Vec<_> = remotes.collect();
                let us = ours.connect_from(0, remotes[0], "localhost", client_tls).expect("a handshake");
                let them = runtime.block_on(accept).expect("noq accepts");
                (ours, theirs, us, them, remotes)
            }
            Client::Theirs => {
                let crypto = noq::crypto::rustls::QuicClientConfig::try_from(client_tls).expect("AES-128-GCM is there");
                let mut config = noq::ClientConfig::new(Arc::new(crypto));
                config.transport_config(their_transport(settings));
                let (theirs, ours) = (their_endpoint(None), our_endpoint(settings, Some(server_tls)));
                let remotes = ours.local_addrs().to_vec();
                let connecting = theirs.connect_with(config, remotes[0], "localhost").expect("valid");
                let them = runtime.spawn(connecting);
                let us = ours.accept_timeout(TEST_TIMEOUT).expect("it listens").expect("a client");
                let them = runtime.block_on(them).expect("noq connects").expect("a handshake");
                (ours, theirs, us, them, remotes)
            }
        };
        drop(entered);
        let events = Arc::new(Mutex::new(Vec::new()));
        runtime.spawn({
            let (mut path_events, events) = (them.path_events(), events.clone());
            async move {
                while let Some(event) = path_events.next().await {
                    events.lock().expect("no thread panics").push(event.expect("no event was dropped"));
                }
            }
        });
        let client = settings.client;
        Self {
            client,
            us,
            them,
            runtime,
            events,
            remotes,
            _our_endpoint: our_endpoint,
            _their_endpoint: their_endpoint,
        }
    }

    /// Connects and opens a path on every link.
    pub fn with_paths(settings: Settings) -> Self {
        let pair = Self::connect(settings);
        for link in 1..settings.links {
            pair.open_path(link, false);
        }
        for id in 1..settings.links {
            pair.wait_until_open(u32::from(id));
        }
        pair
    }

    /// The client opens a path over a link.
    pub fn open_path(&self, link: u8, is_backup: bool) {
        match self.client {
            Client::Ours => {
                let remote = self.remotes[usize::from(link)];
                self.us.open_path(link.into(), remote, is_backup).expect("the connection is open");
            }
            Client::Theirs => {
                let tuple = self.their_tuple(link);
                let status = if is_backup { PathStatus::Backup } else { PathStatus::Available };
                // The server's connection IDs may still be in flight.
                let opening = self.wait_for("noq to open a path", || {
                    let opening = self.them.open_path(tuple, status);
                    opening.path_id().is_some().then_some(opening)
                });
                self.runtime.block_on(opening).expect("the path responds");
            }
        }
    }

    /// The 4-tuple by which noq, as the client, identifies a link.
    pub fn their_tuple(&self, link: u8) -> FourTuple {
        FourTuple::new(self.remotes[usize::from(link)], Some(IpAddr::V4(client_ip(link))))
    }

    /// Waits until both sides have validated a path.
    pub fn wait_until_open(&self, id: u32) {
        self.wait_for("a path that works for us", || (self.ours(id)?.state == PathState::Active).then_some(()));
        let established =
            |event: &PathEvent| matches!(event, PathEvent::Established { id: at, .. } if *at == id.into());
        self.wait_for_event("a path that works for noq", established);
    }

    /// Waits until both sides send data on a path while the other is a backup. noq 1.4 fills its
    /// oldest path and uses a younger one only while the congestion window of that one is full, so
    /// it would hardly do so by itself.
    pub fn send_only_on(&self, path: &noq::Path, backup: &noq::Path) {
        let before = carried(path);
        backup.set_status(PathStatus::Backup).expect("the path is open");
        self.wait_for("data on the path", || {
            let now = carried(path);
            (now.0 > before.0 && now.1 > before.1).then_some(())
        });
    }

    /// Our statistics of a path, if it is known.
    pub fn ours(&self, id: u32) -> Option<litz::PathStats> {
        self.us.stats().paths.into_iter().find(|path| path.id == PathId(id))
    }

    /// noq's view of a path. Its counters stay valid while this is held.
    pub fn theirs(&self, id: u32) -> noq::Path {
        self.them.path(id.into()).unwrap_or_else(|| self.fail(&format!("noq has no path {id}")))
    }

    /// The first of noq's events, past or future, that matches.
    pub fn wait_for_event(&self, what: &str, is_wanted: impl Fn(&PathEvent) -> bool) -> PathEvent {
        self.wait_for(what, || {
            self.events.lock().expect("no thread panics").iter().find(|event| is_wanted(event)).cloned()
        })
    }

    /// Waits until `what` is available.
    pub fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            if begun.elapsed() > TEST_TIMEOUT {
                self.fail(&format!("timed out waiting for {what}"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Fails the test with the state of both sides.
    pub fn fail(&self, what: &str) -> ! {
        let stats = self.us.stats();
        let events = self.events.lock().expect("no thread panics").clone();
        let reasons = (self.us.close_reason(), self.them.close_reason());
        let theirs = (0..8_u32).filter_map(|id| Some((id, self.them.path_stats(id.into())?))).collect::<Vec<_>>();
        panic!("{what}\nclosed: {reasons:?}\nours: {stats:#?}\ntheirs: {theirs:#?}\nnoq reported: {events:#?}");
    }
}
