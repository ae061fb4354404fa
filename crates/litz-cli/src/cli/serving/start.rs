//! Starts to serve: the sockets, the endpoint, and the ticket or the list of keys.

use std::path::Path;
use std::sync::Arc;

use litz::identity::PublicKey;
use litz::{Endpoint, EventHandler, TransportConfig};
use transfer::TicketAddress;
use transfer::store::{Issued, Serving as ServedClaim};
use units::Duration;

use super::allowed::ReadKeys;
use super::authorisation::{Admission, unfinished_ticket};
use super::sockets::{ListenSockets, listen};
use crate::cli::host::{self, HostState};
use crate::cli::links::{LinkBaseline, Links, PathChanges};
use crate::cli::listen_options::ListenOptions;
use crate::cli::transport_options::TransportOptions;

/// What is served, to whom, and where.
pub(crate) struct Request<'a> {
    pub(crate) listening: &'a ListenOptions,
    pub(crate) options: &'a TransportOptions,
    pub(crate) transport: TransportConfig,
    pub(crate) tls: Arc<rustls::ServerConfig>,
    pub(crate) admission: AdmissionRequest<'a>,
    /// What the thread of the connections does besides.
    pub(crate) event_handler: Option<Arc<dyn EventHandler>>,
}

/// Who is admitted.
pub(crate) struct AdmissionRequest<'a> {
    /// The list of keys; without it, a ticket is served.
    pub(crate) allow: Option<&'a Path>,
    /// How that file lists them, if it is not a line for each.
    pub(crate) read_keys: Option<ReadKeys>,
    /// What the ticket is for, as the store of tickets names it.
    pub(crate) purpose: &'a Path,
    /// The lifetime of a new ticket, if the user has said so.
    pub(crate) expires: Option<Duration>,
    /// Not to serve an unfinished ticket again.
    pub(crate) new_ticket: bool,
    /// The ticket serves this run alone, and leaves others for the same purpose as they are.
    pub(crate) is_for_one_run: bool,
    /// The only key that is admitted, instead of a list or a ticket.
    pub(crate) invited: Option<PublicKey>,
}

/// A command that serves.
pub(crate) struct Serving {
    pub(crate) endpoint: Endpoint,
    pub(crate) links: Links,
    pub(crate) admission: Admission,
    /// The addresses it listens on, best first.
    pub(crate) addresses: Vec<TicketAddress>,
    /// Settings of this host that the user may want to change.
    pub(crate) advice: Vec<String>,
}

/// A command that listens, and admits no one yet: no ticket was issued or revoked.
pub(crate) struct Opened<'a> {
    endpoint: Endpoint,
    links: Links,
    addresses: Vec<TicketAddress>,
    advice: Vec<String>,
    options: &'a TransportOptions,
    admission: AdmissionRequest<'a>,
    unfinished: Option<(Issued, ServedClaim)>,
    now: u64,
    port: u16,
}

/// Listens, and takes the unfinished ticket or issues another one.
///
/// # Errors
/// A message for the user.
pub(crate) fn start(request: Request<'_>, state: &HostState) -> Result<Serving, String> {
    open(request, state)?.admit(state)
}

/// Listens. What else may fail on this host comes before [`admit`](Opened::admit), which may revoke
/// a ticket.
///
/// # Errors
/// A message for the user.
pub(crate) fn open<'a>(request: Request<'a>, state: &HostState) -> Result<Opened<'a>, String> {
    let Request { listening, options, transport, tls, admission, event_handler } = request;
    let now = host::ticket_clock();
    let unfinished = unfinished_ticket(&admission, state, now)?;
    let port = listening.port();
    let of_ticket = unfinished.as_ref().map(|(issued, _)| issued.port).filter(|_| port == 0);
    let baseline = LinkBaseline::take();
    let opened = listen(listening, options, of_ticket.unwrap_or(port)).map_err(|error| match of_ticket {
        Some(port) if error.is_port_taken => format!(
            "{}. An unfinished ticket for this needs port {port}: stop the other program, or use --new-ticket for a \
             new ticket",
            error.message
        ),
        _ => error.message,
    })?;
    let ListenSockets { port, addresses, sockets, bound, advice } = opened;
    let config = options.endpoint().with_transport(transport).with_server_tls(tls);
    // A command that is started again for the same ticket has the same port, and tells its peers that
    // their connections are gone. Another one of this host has another key: it must not end the
    // connections of this one (RFC 9000, section 21.11).
    let listen_ip = listening.ip();
    let purpose = format!("stateless resets of port {port}, address {listen_ip:?}");
    let mut config = config.with_reset_key(state.key.derive_secret(&purpose));
    config.event_handler = event_handler;
    let endpoint = Endpoint::with_sockets(config, sockets).map_err(|error| error.to_string())?;
    let links = Links::follow(baseline, bound, |_| PathChanges::default());
    Ok(Opened { endpoint, links, addresses, advice, options, admission, unfinished, now, port })
}

impl Opened<'_> {
    /// Takes the unfinished ticket or issues another one.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn admit(self, state: &HostState) -> Result<Serving, String> {
        let Self { endpoint, links, addresses, advice, options, admission, unfinished, now, port } = self;
        let admission = Admission::prepare(&admission, options, state, now, port, unfinished)?;
        Ok(Serving { endpoint, links, admission, addresses, advice })
    }
}
