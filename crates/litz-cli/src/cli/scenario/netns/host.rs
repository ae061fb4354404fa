//! One host: an endpoint and its single connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use litz::identity::{self, KeyPair, TlsError};
use litz::{ConnectError, Connection, Endpoint, EndpointConfig, LiveSocket, PathId, Placement};
use scenario::connection_setup::{PathPlan, transport_config};
use scenario::model::Scenario;
use scenario::world::{RunPlan, WorldError};

use super::network::{address, world_error};
use super::packet_file::PacketFile;
use super::streams::{LiveStreams, poll_once};
use super::wakeups::{WakeQueue, Wakeup};

/// The future that establishes the connection.
type Connecting = Pin<Box<dyn Future<Output = Result<Connection, ConnectError>>>>;

/// A host. Dropping it closes its connection.
pub(super) struct Host {
    host: usize,
    wake_queue: Arc<WakeQueue>,
    /// Present until the connection is established or has failed.
    connecting: Option<Connecting>,
    begin: Waker,
    end: Waker,
    /// Present once the connection is established.
    pub(super) streams: Option<LiveStreams>,
    /// The last field, because the fields above depend on it.
    _endpoint: Arc<Endpoint>,
}

/// Creates both hosts, which authenticate each other by keys. The sending host connects at the
/// first [poll](Host::poll_connected). The listening host writes its keys to `key_log`.
pub(super) fn hosts(
    scenario: &Scenario,
    plan: &RunPlan,
    placement: Option<Placement>,
    wake_queue: &Arc<WakeQueue>,
    sockets: [Vec<Box<dyn LiveSocket>>; 2],
    key_log: Option<&Arc<PacketFile>>,
) -> Result<[Host; 2], WorldError> {
    let keys = [KeyPair::generate().map_err(world_error)?, KeyPair::generate().map_err(world_error)?];
    let tls = |error: TlsError| world_error(error);
    let mut server_tls = identity::server_config(&keys[1], ["litz-scenario/1"]).map_err(tls)?;
    if let Some(key_log) = key_log {
        Arc::make_mut(&mut server_tls).key_log = Arc::<PacketFile>::clone(key_log);
    }
    let client_tls =
        identity::client_config(&keys[0], &[keys[1].public().fingerprint()], ["litz-scenario/1"]).map_err(tls)?.config;
    let [client, server] = sockets;
    let bind = |host, server_tls, sockets| {
        let config = EndpointConfig::default()
            .with_transport(transport_config(scenario, host, plan.paths.len()))
            .with_server_tls(server_tls)
            .with_placement(placement.unwrap_or_default());
        Endpoint::with_sockets(config, sockets).map(Arc::new).map_err(world_error)
    };
    let (client, server) = (bind(0, None, client)?, bind(1, Some(server_tls), server)?);
    let first = PathPlan::new(scenario, &plan.paths).first;
    let remote = address(scenario, plan.paths[first], 1);
    let (calls, listens) = (Arc::clone(&client), Arc::clone(&server));
    let calling = async move { calls.connect_from_async(first, remote, "b", client_tls).await };
    let listening = async move { listens.accept_async().await };
    Ok([Host::new(0, wake_queue, client, Box::pin(calling)), Host::new(1, wake_queue, server, Box::pin(listening))])
}

impl Host {
    fn new(host: usize, wake_queue: &Arc<WakeQueue>, endpoint: Arc<Endpoint>, connecting: Connecting) -> Self {
        Self {
            host,
            wake_queue: Arc::clone(wake_queue),
            connecting: Some(connecting),
            begin: wake_queue.waker(host, Wakeup::Begin),
            end: wake_queue.waker(host, Wakeup::End),
            streams: None,
            _endpoint: endpoint,
        }
    }

    /// Whether the connection has just been established; true only once.
    ///
    /// # Errors
    /// Why there will be no connection.
    pub(super) fn poll_connected(&mut self) -> Result<bool, String> {
        let Some(connecting) = &mut self.connecting else { return Ok(false) };
        let Poll::Ready(connection) = poll_once(&self.begin, connecting.as_mut()) else { return Ok(false) };
        self.connecting = None;
        let connection = connection.map_err(|error| error.to_string())?;
        self.streams = Some(LiveStreams::new(self.host, &self.wake_queue, connection));
        // Nothing has polled for the end of the connection yet, so no waker is registered.
        self.end.wake_by_ref();
        Ok(true)
    }

    /// Why the connection has ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        let connection = self.streams.as_ref()?.connection();
        match poll_once(&self.end, connection.closed_async()) {
            Poll::Ready(closed) => Some(closed.to_string()),
            Poll::Pending => None,
        }
    }

    /// Opens all paths but the one on which the connection was established.
    ///
    /// # Errors
    /// A message that names the path.
    pub(super) fn open_paths(&self, scenario: &Scenario, plan: &RunPlan) -> Result<(), String> {
        let Some(streams) = &self.streams else { return Ok(()) };
        let path_plan = PathPlan::new(scenario, &plan.paths);
        for (place, is_backup) in path_plan.others {
            let path = plan.paths[place];
            streams
                .connection()
                .open_path(place, address(scenario, path, 1), is_backup)
                .map_err(|error| format!("path {:?} cannot be opened: {error}", scenario.paths[path].name))?;
        }
        if path_plan.is_first_backup {
            streams.connection().set_path_backup(PathId::ZERO, true).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
