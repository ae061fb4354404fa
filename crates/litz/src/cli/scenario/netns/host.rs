//! One host: an endpoint and its one connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use litz::identity::{self, KeyPair, TlsError};
use litz::{ConnectError, Connection, Endpoint, EndpointConfig, LiveSocket, PathId, Placement};
use scenario::begin::{PathPlan, transport_config};
use scenario::model::{DURATION_MAX, Scenario};
use scenario::world::{Order, WorldError};

use super::inbox::{Happening, Inbox};
use super::network::{address, broken};
use super::streams::{LiveStreams, poll_once};

/// What one waits for before there is a connection.
type Beginning = Pin<Box<dyn Future<Output = Result<Connection, ConnectError>>>>;

/// A host. Dropping it closes its connection.
pub(super) struct Host {
    host: usize,
    inbox: Arc<Inbox>,
    /// Until there is a connection, or can be none.
    beginning: Option<Beginning>,
    begin: Waker,
    end: Waker,
    /// From when there is a connection.
    pub(super) streams: Option<LiveStreams>,
    /// Last: what is above belongs to it.
    _endpoint: Arc<Endpoint>,
}

/// Both hosts, with keys that they know each other by. The one that sends calls when it is [asked](Host::ask) first.
pub(super) fn hosts(
    scenario: &Scenario,
    order: &Order,
    placement: Option<Placement>,
    inbox: &Arc<Inbox>,
    sockets: [Vec<Box<dyn LiveSocket>>; 2],
) -> Result<[Host; 2], WorldError> {
    let keys = [KeyPair::generate().map_err(broken)?, KeyPair::generate().map_err(broken)?];
    let tls = |error: TlsError| broken(error);
    let server_tls = identity::server_config(&keys[1]).map_err(tls)?;
    let client_tls = identity::client_config(&keys[0], &[keys[1].public().fingerprint()]).map_err(tls)?.config;
    let [client, server] = sockets;
    let bind = |host, server_tls, sockets| {
        let config = EndpointConfig {
            transport: transport_config(scenario, host, order.paths.len()),
            server_tls,
            // The scenario's idle timeout ends what does not begin.
            handshake_timeout: DURATION_MAX.into(),
            placement: placement.unwrap_or_default(),
            ..EndpointConfig::default()
        };
        Endpoint::with_sockets(config, sockets).map(Arc::new).map_err(broken)
    };
    let (client, server) = (bind(0, None, client)?, bind(1, Some(server_tls), server)?);
    let first = PathPlan::new(scenario, &order.paths).first;
    let remote = address(scenario, order.paths[first], 1);
    let (calls, listens) = (Arc::clone(&client), Arc::clone(&server));
    let calling = async move { calls.connect_from_async(first, remote, "b", client_tls).await };
    let listening = async move { listens.accept_async().await };
    Ok([Host::new(0, inbox, client, Box::pin(calling)), Host::new(1, inbox, server, Box::pin(listening))])
}

impl Host {
    fn new(host: usize, inbox: &Arc<Inbox>, endpoint: Arc<Endpoint>, beginning: Beginning) -> Self {
        Self {
            host,
            inbox: Arc::clone(inbox),
            beginning: Some(beginning),
            begin: inbox.waker(host, Happening::Begin),
            end: inbox.waker(host, Happening::End),
            streams: None,
            _endpoint: endpoint,
        }
    }

    /// Whether there is a connection now; true once.
    ///
    /// # Errors
    /// Why there will be none, in words.
    pub(super) fn ask(&mut self) -> Result<bool, String> {
        let Some(beginning) = &mut self.beginning else { return Ok(false) };
        let Poll::Ready(connection) = poll_once(&self.begin, beginning.as_mut()) else { return Ok(false) };
        self.beginning = None;
        let connection = connection.map_err(|error| error.to_string())?;
        self.streams = Some(LiveStreams::new(self.host, &self.inbox, connection));
        // Nobody has asked about its end yet, so nobody would be woken.
        self.end.wake_by_ref();
        Ok(true)
    }

    /// Why the connection is over, if it is.
    pub(super) fn ended(&self) -> Option<String> {
        let connection = self.streams.as_ref()?.connection();
        match poll_once(&self.end, connection.closed_async()) {
            Poll::Ready(closed) => Some(closed.to_string()),
            Poll::Pending => None,
        }
    }

    /// Opens the paths that the connection did not begin on.
    ///
    /// # Errors
    /// In words, naming the path.
    pub(super) fn open_paths(&self, scenario: &Scenario, order: &Order) -> Result<(), String> {
        let Some(streams) = &self.streams else { return Ok(()) };
        let plan = PathPlan::new(scenario, &order.paths);
        for (place, is_backup) in plan.others {
            let path = order.paths[place];
            streams
                .connection()
                .open_path(place, address(scenario, path, 1), is_backup)
                .map_err(|error| format!("path {:?} cannot be opened: {error}", scenario.paths[path].name))?;
        }
        if plan.is_first_backup {
            streams.connection().set_path_backup(PathId::ZERO, true).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
