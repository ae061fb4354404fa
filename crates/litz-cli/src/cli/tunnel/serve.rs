//! `litz tunnel serve`: exchanges IP packets with other hosts.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clap::Args;
use litz::Connection;
use litz::identity::PublicKey;
use net::MonotonicClock;
use net::tun::Tun;
use serde_json::json;
use transfer::{CancelToken, Proof, Secret, Ticket, peer_key, proof_context};
use tunnel::control::{Accepted, CLOSED_TAKEN_OVER, Refusal, VERSION};
use tunnel::policy::MTU_MIN;
use tunnel::{Message, PROTOCOL, Prefix, Selector, UrgentKinds};
use tunnel_end::destination::Flows;
use tunnel_end::device::DeviceCounters;
use tunnel_end::device_events::DeviceEvents;
use tunnel_end::end::TunnelEnd;
use tunnel_end::exit::Exit;
use tunnel_end::meters::Meters;
use tunnel_end::peers::{Identity, Peer, Peers};
use tunnel_end::terminate::terminator::Termination;
use units::{Duration, Instant, Rate};

use super::addresses::InterfaceAddress;
use super::clients::{self, Client, Clients};
use super::control::Control;
use super::control_socket::{ControlSocket, folder};
use super::forwarding;
use super::host_network::HostNetwork;
use super::ipv6::{Ipv6, LeftOut};
use super::offer::Offer;
use super::own_addresses::{Collisions, OwnAddresses};
use super::pool::Pool;
use super::privileges;
use super::refusals;
use super::settings::{self, DEVICE_DEFAULT, MTU_DEFAULT, transport};
use super::status::{device_json, peer_json};
use super::terms::NetworkWatch;
use super::upkeep_report::UpkeepReport;
use crate::cli::host::{self, HostState};
use crate::cli::listen_options::ListenOptions;
use crate::cli::recording::Recording;
use crate::cli::serving::admission::{Places, VisitorId};
use crate::cli::serving::allowed::ReadKeys;
use crate::cli::serving::authorisation::{Admission, check_lifetime};
use crate::cli::serving::start::{AdmissionRequest, Request, Serving, open};
use crate::cli::serving::visits::{Closing, Visits};
use crate::cli::transport_options::TransportOptions;
use crate::cli::warning::Warning;
use crate::cli::{exit, heading, out, signals, tls};

/// Name of this host in messages to clients.
const HOST: &str = "server";

/// How often the waiting server checks for an interrupt and for changes of its ticket or list of keys.
const WAKE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(200);

/// The times of the latest contacts with clients are known to so many checks: two seconds. There may be a thousand.
const CHECKS_FOR_CONTACT: u64 = 10;

/// Clients at a time: each has a thread and an address.
const PLACES: Places = Places { count: 1024, per_key: 4, kept_for_new_keys: 64 };

#[derive(Args, Debug)]
pub(crate) struct ServeOptions {
    /// A file with these options, and with the clients, their addresses and rates; arguments are preferred
    #[arg(value_name = "FILE")]
    pub(super) settings: Option<PathBuf>,

    /// Address of this host in the tunnel, with its network; may be repeated [default: 10.76.0.1/24 and
    /// fd76:6c69:747a::1/64, or the next free networks]
    ///
    /// Clients get the other addresses of the network. The default passes over networks that this host has.
    ///
    /// Each has a network of its own, with at least one address for a client: /31 and /127 are the smallest. A
    /// client has the same place in all of them.
    #[arg(long, value_name = "ADDRESS/BITS", help_heading = heading::TUNNEL)]
    address: Vec<InterfaceAddress>,

    /// Network that clients reach through this host, besides the tunnel's own, such as 192.168.7.0/24; may
    /// be repeated
    ///
    /// This host must forward packets (`sysctl net.ipv4.ip_forward=1`), which the command checks, and the
    /// network must know the way back, or this host must translate addresses.
    #[arg(long, value_name = "NETWORK", help_heading = heading::TUNNEL)]
    route: Vec<Prefix>,

    /// Let TCP connections from this side to these targets end at each side of the tunnel; may be repeated
    ///
    /// WHICH is as for `litz tunnel up`, whose option selects among the connections of programs of the client.
    #[arg(long, value_name = "WHICH", help_heading = heading::TUNNEL)]
    terminate: Vec<Selector>,

    /// Name server for the clients that want one (`litz tunnel up --dns`); may be repeated
    #[arg(long, value_name = "ADDRESS", help_heading = heading::TUNNEL)]
    dns: Vec<IpAddr>,

    /// Largest rate of the data of each client, in each direction, such as 20Mb/s
    ///
    /// Packets and terminated connections share it. Headers of packets do not count, unless they are more than half of
    /// a packet.
    #[arg(long, value_name = "RATE", value_parser = settings::client_rate, help_heading = heading::TUNNEL)]
    client_rate: Option<Rate>,

    /// Name of the network device that is made
    #[arg(long, value_name = "NAME", default_value = DEVICE_DEFAULT, value_parser = settings::device_name,
          help_heading = heading::TUNNEL)]
    tun: String,

    /// Largest packet in the tunnel, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = MTU_DEFAULT,
          value_parser = clap::value_parser!(u16).range(i64::from(MTU_MIN)..), help_heading = heading::TUNNEL)]
    mtu: u16,

    /// Serve the keys listed in this file, without a ticket secret
    ///
    /// A line of the file begins with a public key, as `litz id` prints it on the client, or with its
    /// fingerprint. A change of the file takes effect at once.
    #[arg(long, value_name = "FILE", help_heading = heading::SECURITY)]
    allow: Option<PathBuf>,

    /// Lifetime of the ticket, if it is a new one [default: 24h]
    #[arg(long, value_name = "TIME", help_heading = heading::SECURITY)]
    expires: Option<Duration>,

    /// Issue a new ticket, and revoke the earlier one
    #[arg(long, help_heading = heading::SECURITY)]
    new_ticket: bool,

    /// Packets to send at once, on two paths: a list of `ef`, `dns` and `small`, or `none`
    ///
    /// `ef` are packets with the DSCP EF, `dns` those of DNS, and `small` those of up to 300 bytes that are
    /// not TCP. They may take an eighth of all bytes, or 1 Mb/s if that is more; the rest is sent as other
    /// packets are.
    #[arg(long, value_name = "KINDS", default_value_t = UrgentKinds::default(), help_heading = heading::TUNNEL)]
    redundant: UrgentKinds,

    /// Keep each flow to one path, instead of dividing its packets over all: as the option of `litz tunnel up`,
    /// for what this end sends
    #[arg(long, help_heading = heading::TUNNEL)]
    pin: bool,

    #[command(flatten)]
    listening: ListenOptions,

    #[command(flatten)]
    transport: TransportOptions,
}

impl ServeOptions {
    pub(super) fn is_json(&self) -> bool {
        self.transport.json
    }

    fn offer(&self, addresses: &[InterfaceAddress], clients: &Clients) -> Offer {
        Offer {
            addresses: addresses.to_vec(),
            routes: self.route.clone(),
            name_servers: self.dns.clone(),
            behind: clients.networks(),
            of_clients: clients.addresses(),
        }
    }
}

pub(super) fn run(options: &ServeOptions) -> ExitCode {
    let json = options.transport.json;
    let ending = Recording::begin(&options.transport).and_then(|recording| {
        let ending = Server::prepare(options, &recording).and_then(|server| server.run());
        recording.finish(&options.transport);
        ending
    });
    match ending {
        Ok(status) => ExitCode::from(status),
        Err(message) => exit::fail(json, exit::FAILED, &message),
    }
}

/// A server that runs.
struct Server<'a> {
    options: &'a ServeOptions,
    offer: Offer,
    ipv6: Ipv6,
    state: HostState,
    serving: Serving,
    purpose: PathBuf,
    visits: Arc<Visits>,
    pool: Mutex<Pool>,
    collisions: Mutex<Collisions>,
    clients: Clients,
    /// The routes to networks behind clients.
    _network: HostNetwork,
    end: TunnelEnd,
    /// Clients that were refused.
    refused: Arc<AtomicU64>,
    /// Regular checks so far.
    checks: AtomicU64,
    _control: ControlSocket,
    cancel: CancelToken,
}

impl<'a> Server<'a> {
    fn prepare(options: &'a ServeOptions, recording: &Recording) -> Result<Self, String> {
        options.listening.check()?;
        check_lifetime(options.expires, "client")?;
        privileges::require_those_for_a_device("")?;
        // Before the networks are read, so that no change is missed.
        let watch = NetworkWatch::open()?;
        let OwnAddresses { addresses, passed_over } = OwnAddresses::choose(&options.address, &options.tun)?;
        let settings = options.settings.as_deref();
        let clients = Clients::load(settings, &addresses)?;
        let settings = settings.filter(|_| clients.are_listed());
        if settings.is_some() && options.allow.is_some() {
            return Err("the file lists clients, and --allow names another list: use one of them".to_owned());
        }
        let (ipv6, mut offer) = (Ipv6::of_this_host(&options.tun), options.offer(&addresses, &clients));
        let left_out = ipv6.restrict_offer(&mut offer)?;
        let state = host::open_state(options.transport.state_dir.as_deref())?;
        privileges::keep_those_for_the_network(&host::state_directory(options.transport.state_dir.as_deref())?)?;
        let cancel = signals::cancel_token().map_err(|error| format!("cannot handle signals: {error}"))?;
        let shown: Arc<OnceLock<Shown>> = Arc::default();
        let (told, device) = (Arc::clone(&shown), options.tun.clone());
        let report = UpkeepReport::new(options.transport.json, options.transport.quiet);
        let upkeep = report.clone();
        let status = move || status_json(&device, told.get(), &upkeep);
        let control = ControlSocket::open(&options.tun, cancel.clone(), status)?;
        // What the ticket is for: another device is another tunnel.
        let purpose = PathBuf::from(format!("litz tunnel {}", options.tun));
        let events = DeviceEvents::new().map_err(|error| format!("cannot watch the device: {error}"))?;
        let request = Request {
            listening: &options.listening,
            options: &options.transport,
            transport: transport(&options.transport, recording)?,
            tls: tls::server(&state.key, PROTOCOL)?,
            admission: admission(options, settings, &addresses, &purpose),
            event_handler: Some(Arc::clone(&events) as _),
        };
        // What can fail on this host is tried before a ticket is issued, and another one revoked.
        let opened = open(request, &state)?;
        let own: Vec<(IpAddr, u8)> = offer.addresses.iter().map(|own| (own.address, own.network.bits())).collect();
        let mut network = HostNetwork::begin(&folder(), &options.tun, &ipv6, false, &report)?;
        let tun = Tun::open_tunnel(&options.tun, &own, options.mtu).map_err(|error| error.to_string())?;
        network.keep_device(&own, options.mtu);
        let flows = Flows { urgent: options.redundant, pins: options.pin };
        let termination = Termination { selectors: &options.terminate, busy_poll: options.transport.busy_poll };
        let end = TunnelEnd::start(tun, options.mtu, &state.key, termination, flows, events)
            .map_err(|error| error.to_string())?;
        let refused = Arc::<AtomicU64>::default();
        shown.get_or_init(|| Shown::of(&end, &refused));
        for behind in &offer.behind {
            network.add_route(&behind.network).map_err(|why| clients.error_of(behind, &why))?;
        }
        let collisions = Mutex::new(Collisions::watch(&options.tun, &offer.addresses, watch));
        let pool = Mutex::new(open_pool(options, &offer.addresses, &clients)?);
        let serving = opened.admit(&state)?;
        let visits = Arc::new(Visits::new(serving.admission.visitors(PLACES), HOST));
        let server = Self {
            options,
            offer,
            ipv6,
            state,
            serving,
            purpose,
            visits,
            pool,
            collisions,
            clients,
            _network: network,
            end,
            refused,
            checks: AtomicU64::new(0),
            _control: control,
            cancel,
        };
        passed_over.iter().for_each(|message| server.warn(Warning::NetworkCollides, message));
        server.warn_of_left_out(&left_out);
        server.warn_of_forwarding();
        server.announce()?;
        settings::tell_ready();
        Ok(server)
    }

    fn warn(&self, kind: Warning, message: &str) {
        kind.print(self.options.transport.json, self.options.transport.quiet, message);
    }

    fn warn_of_left_out(&self, left_out: &LeftOut) {
        self.ipv6.warning(left_out, false).iter().for_each(|message| self.warn(Warning::Ipv6LeftOut, message));
    }

    /// Warns if packets are to go on from this host, which does not forward them. It is told once, at the start.
    fn warn_of_forwarding(&self) {
        let mut beyond: Vec<IpAddr> = self.offer.routes.iter().map(Prefix::address).collect();
        beyond.extend(self.offer.behind.iter().map(|behind| behind.network.address()));
        // Several clients may reach each other.
        if matches!(&self.serving.admission, Admission::Keys(keys) if keys.count() > 1) {
            beyond.extend(self.offer.addresses.iter().map(|own| own.address));
        }
        let is = forwarding::of_this_host(self.end.tun.name());
        if let Some((versions, command)) = forwarding::missing(forwarding::to(&beyond), is) {
            let (json, quiet) = (self.options.transport.json, self.options.transport.quiet);
            let message = format!(
                "this host does not forward packets of {versions}: those from clients reach this host, but neither networks \
                 behind it nor other clients, unless you run `{command}`"
            );
            Warning::NotForwarding.print(json, quiet, &message);
        }
    }

    /// Prints the ticket.
    fn announce(&self) -> Result<(), String> {
        let (secret, expires_unix) = match &self.serving.admission {
            Admission::Ticket(ticket) => (ticket.issued.secret.clone(), ticket.issued.expires_unix),
            // The ticket is no credential: it only has the server's addresses and its key.
            Admission::Keys(_) => (Secret::generate().map_err(|error| error.to_string())?, (1 << 40) - 1),
        };
        let port = self.serving.endpoint.local_addr().port();
        let addresses = self.options.listening.ticket_addresses(&self.serving.addresses, port);
        if let Some(warning) = self.options.listening.loopback_warning(&addresses) {
            Warning::LoopbackOnly.print(self.options.transport.json, self.options.transport.quiet, &warning);
        }
        let ticket = Ticket::new(addresses.clone(), self.state.key.public().fingerprint(), secret, expires_unix);
        let text = ticket.to_text().map_err(|error| error.to_string())?;
        let own: Vec<String> = self.offer.addresses.iter().map(ToString::to_string).collect();
        if self.options.transport.json {
            let listening: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            out::json(&json!({
                "event": "listening", "ticket": text, "port": port, "addresses": listening, "device": self.end.tun.name(),
                "tunnel_addresses": own, "advice": self.serving.advice,
            }));
            return out::check();
        }
        for advice in &self.serving.advice {
            exit::advise(self.options.transport.quiet, advice);
        }
        let by_key = if matches!(self.serving.admission, Admission::Keys(_)) { " --by-key" } else { "" };
        out::note(&format!("{} has {}. On the other host run:\n", self.end.tun.name(), own.join(" and ")));
        out::line(&format!("litz tunnel up{by_key} {text}"));
        out::check()?;
        if let Admission::Ticket(_) = &self.serving.admission {
            let expiry = host::utc(expires_unix);
            out::note(&format!("\nThe ticket is a secret. It is valid for one host, until {expiry}."));
        }
        Ok(())
    }

    /// Serves clients until an interrupt.
    fn run(&self) -> Result<u8, String> {
        std::thread::scope(|scope| {
            let outcome = loop {
                if let Some(outcome) = self.check() {
                    break outcome;
                }
                let connection = match self.serving.endpoint.accept_timeout(WAKE_INTERVAL) {
                    Ok(Some(connection)) => connection,
                    Ok(None) => continue,
                    Err(error) => break Err(error.to_string()),
                };
                // The handshake has authenticated a key of the only kind that TLS accepts.
                let Ok(key) = peer_key(&connection) else { continue };
                if !self.visits.has_space() {
                    connection.close(0, "the server is busy");
                    continue;
                }
                let id = self.visits.admit(&connection, key, self.serving.admission.is_known(&key));
                scope.spawn(move || {
                    let name = connection.remote_addr().to_string();
                    if let Err(error) = self.serve(&connection, key, id) {
                        self.note(&json!({ "event": "ended", "remote": name, "message": error }), || {
                            format!("{name}: {error}")
                        });
                    }
                    self.visits.end(id);
                });
            };
            self.close_all();
            self.serving.endpoint.close();
            outcome
        })
    }

    /// Tells all clients that the server ends.
    fn close_all(&self) {
        self.visits.close_unproven();
        for peer in self.end.peers.table().peers.values() {
            peer.connection.close(0, &Closing::Ending.reason(HOST));
        }
    }

    fn note(&self, event: &serde_json::Value, text: impl FnOnce() -> String) {
        if self.options.transport.json {
            out::json(event);
        } else if !self.options.transport.quiet {
            out::note(&text());
        }
    }

    /// The regular checks. Returns the status or the error if one ends the command.
    fn check(&self) -> Option<Result<u8, String>> {
        self.visits.close_overdue();
        if self.checks.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHECKS_FOR_CONTACT) {
            self.end.peers.table().peers.values().for_each(|peer| peer.look());
        }
        self.serving.links.tell(self.options.transport.json, self.options.transport.quiet);
        let admission = &self.serving.admission;
        admission.refresh_keys(&self.visits, |kind, message| self.warn(kind, message));
        let news = self.collisions.lock().unwrap_or_else(PoisonError::into_inner).news();
        news.iter().for_each(|(kind, message)| self.warn(*kind, message));
        match admission {
            Admission::Ticket(ticket) if ticket.is_revoked() => {
                return Some(Err("the ticket was revoked: run the command again for a new ticket".to_owned()));
            }
            Admission::Ticket(ticket) if ticket.is_expired() && self.visits.senders() == 0 => {
                return Some(Err("the ticket has expired: run the command again for a new ticket".to_owned()));
            }
            Admission::Ticket(_) | Admission::Keys(_) => {}
        }
        if self.cancel.is_cancelled() {
            return Some(Ok(exit::INTERRUPTED));
        }
        if self.end.has_ended() {
            return Some(Err(format!("the device {} is gone", self.end.tun.name())));
        }
        None
    }

    /// Serves one client until its connection ends.
    fn serve(&self, connection: &Connection, key: PublicKey, id: VisitorId) -> Result<(), String> {
        let streams = connection.accept_bi().map_err(|error| error.to_string())?;
        let mut control = Control::new(streams);
        let Message::Hello { version, proof, mtu } = control.receive()? else {
            return Err("the client did not begin with a Hello".to_owned());
        };
        if version == 0 {
            return self.refuse(&mut control, Refusal::Version, format!("this server speaks version {VERSION}"));
        }
        let version = version.min(VERSION);
        let proof = match self.authorise(connection, key, id, proof) {
            Ok(proof) => proof,
            Err(why) => return self.refuse(&mut control, Refusal::NotAllowed, why),
        };
        let client = self.clients.find(&key);
        if let Err(why) = check_outer_address(connection.remote_addr().ip(), client.as_ref()) {
            return self.refuse(&mut control, Refusal::Other, why);
        }
        let addresses = match self.assign(key, client.as_ref()) {
            Ok(addresses) => addresses,
            Err((reason, why)) => return self.refuse(&mut control, reason, why.to_owned()),
        };
        let own = self.offer.addresses.iter();
        let rate = client.as_ref().and_then(|client| client.rate).or(self.options.client_rate);
        // A client with less than what IPv6 needs is in error (RFC 8200, section 5).
        let mtu = self.options.mtu.min(mtu.max(MTU_MIN));
        let accepted = Accepted {
            version,
            proof,
            mtu,
            addresses: addresses.clone(),
            server: own.map(|own| own.address).collect(),
            routes: self.offer.routes.clone(),
            name_servers: self.offer.name_servers.clone(),
            rate_bps: rate.map_or(0, Rate::as_bps),
        };
        control.send(&Message::Forwarding(forwarding::of_this_host(self.end.tun.name())))?;
        control.send(&Message::Accepted(Box::new(accepted)))?;
        let label = self.label_of(&key, client.as_ref());
        let behind = client.into_iter().flat_map(|client| client.networks).map(|behind| behind.network);
        let behind = behind.filter(|network| self.ipv6.takes(network.address()));
        let networks: Vec<Prefix> = addresses.iter().map(|(address, _)| Prefix::host(*address)).chain(behind).collect();
        let name = key.fingerprint().to_string();
        let shown: Vec<String> = networks.iter().map(|network| network.address().to_string()).collect();
        let remote = connection.remote_addr().to_string();
        self.note(&json!({ "event": "client", "remote": remote, "key": name, "addresses": shown }), || {
            format!("{remote} is here, with {}", shown.join(" and "))
        });
        let identity = Identity { key: key.fingerprint(), label };
        let meters = Meters::new(self.end.peers.clock(), rate, true);
        let ends = Arc::clone(self.serving.links.ends());
        let peer = Arc::new(Peer::new(connection.clone(), ends, identity, networks, mtu, meters, version));
        let (number, taken_over) = self.end.peers.add(Arc::clone(&peer));
        for before in taken_over {
            if before.identity.key == peer.identity.key {
                // Of a client that was killed, mostly. Its terminated connections are reset now, not after the idle
                // timeout: till then their packets would go on to the stack of this end.
                before.connection.close(CLOSED_TAKEN_OVER, "another connection has taken over its addresses");
            } else {
                // The tables of the file have changed. It connects again, and is assigned others.
                before.connection.close(0, "another client has an address or a network of this one now");
            }
        }
        self.end.serve(&peer);
        let closed = Exit::new(&peer, self.end.writer()).run();
        self.end.peers.remove(number);
        self.note(
            &json!({ "event": "gone", "remote": remote, "key": name, "reason": closed.to_string(), "peer": peer_json(&peer) }),
            || format!("{remote} is gone: {closed}"),
        );
        Ok(())
    }

    /// What the user calls a client, in its table or in the list of keys.
    fn label_of(&self, key: &PublicKey, client: Option<&Client>) -> Option<String> {
        client.and_then(|client| client.label.clone()).or_else(|| match &self.serving.admission {
            Admission::Keys(keys) => keys.label(key),
            Admission::Ticket(_) => None,
        })
    }

    /// The addresses of a client: those that are listed for it, or of the pool.
    ///
    /// # Errors
    /// Why it has none.
    fn assign(&self, key: PublicKey, client: Option<&Client>) -> Result<Vec<(IpAddr, u8)>, (Refusal, &'static str)> {
        if let Some(client) = client.filter(|client| !client.addresses.is_empty()) {
            let bits = |address: IpAddr| {
                let network = self.offer.addresses.iter().find(|own| own.network.contains(address));
                network.map_or_else(|| Prefix::host(address).bits(), |own| own.network.bits())
            };
            let usable = client.addresses.iter().filter(|address| self.ipv6.takes(**address));
            let addresses: Vec<_> = usable.map(|address| (*address, bits(*address))).collect();
            if addresses.is_empty() {
                return Err((
                    Refusal::Other,
                    "its listed addresses are of IPv6, which the server's host does not have",
                ));
            }
            return Ok(addresses);
        }
        let table = self.end.peers.table();
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        // The file may have changed since.
        pool.reserve(self.clients.addresses());
        let addresses = pool.assign(key, |address| table.routes.get(address).is_some());
        if let Some(why) = pool.write_error() {
            let (json, quiet) = (self.options.transport.json, self.options.transport.quiet);
            Warning::AddressesNotKept.print(json, quiet, &format!("clients may get other addresses next time: {why}"));
        }
        addresses.ok_or((Refusal::PoolExhausted, "all addresses are taken"))
    }

    /// Whether the client may use the tunnel; the proof to send back.
    fn authorise(
        &self,
        connection: &Connection,
        key: PublicKey,
        id: VisitorId,
        proof: Option<[u8; 32]>,
    ) -> Result<Option<[u8; 32]>, String> {
        let own = self.state.key.public().fingerprint();
        let context = proof_context(connection, key, own).map_err(|error| error.to_string())?;
        let answer = match &self.serving.admission {
            Admission::Keys(keys) if keys.allows(&key) => None,
            Admission::Keys(_) => return Err(refusals::not_listed(&key, proof.is_some())),
            Admission::Ticket(_) => {
                let proof = proof.map(Proof::from_bytes).ok_or(refusals::NO_PROOF)?;
                let decided = self.state.store.decide(host::ticket_clock(), &self.purpose, &context, &proof);
                Some(*decided.map_err(refusals::of_ticket)?.proof.as_bytes())
            }
        };
        self.visits.prove(id).map_err(|_| "the server is busy".to_owned())?;
        Ok(answer)
    }

    fn refuse(&self, control: &mut Control, reason: Refusal, text: String) -> Result<(), String> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        control.send(&Message::Refused { reason, text: text.clone() })?;
        control.finish();
        Err(format!("refused: {text}"))
    }
}

/// The addresses for clients that are not listed with addresses.
fn open_pool(options: &ServeOptions, addresses: &[InterfaceAddress], clients: &Clients) -> Result<Pool, String> {
    let places = host::state_directory(options.transport.state_dir.as_deref())?;
    let pool = Pool::open(addresses.to_vec(), places.join(format!("{}.addresses", options.tun)))?;
    if !pool.has_places() && !clients.are_listed() {
        return Err(
            "no client could have an address: it has the same place in the network of each --address, so choose \
                    another one for this host in one of them"
                .to_owned(),
        );
    }
    Ok(pool)
}

/// Admits the clients of the file `settings` if it lists any, those of --allow, or the holder of a
/// ticket.
fn admission<'a>(
    options: &'a ServeOptions,
    settings: Option<&'a Path>,
    addresses: &[InterfaceAddress],
    purpose: &'a Path,
) -> AdmissionRequest<'a> {
    AdmissionRequest {
        allow: settings.or(options.allow.as_deref()),
        read_keys: settings.map(|_| -> ReadKeys {
            let own = addresses.to_vec();
            Arc::new(move |path| clients::allow_list(path, &own))
        }),
        purpose,
        expires: options.expires,
        new_ticket: options.new_ticket,
        is_for_one_run: false,
        invited: None,
    }
}

/// Refuses a client that connects from an address of a network behind it: the packets of its own connection would be
/// routed into the tunnel, again and again.
fn check_outer_address(outer: IpAddr, client: Option<&Client>) -> Result<(), String> {
    let outer = outer.to_canonical();
    let mut networks = client.into_iter().flat_map(|client| &client.networks).map(|behind| behind.network);
    networks.find(|network| network.contains(outer)).map_or(Ok(()), |network| {
        Err(format!(
            "the address {outer}, from which it connects, is in the network {network} behind it: the server would send the \
             tunnel's own packets through the tunnel. Name smaller networks in its table, or let it connect from another \
             address"
        ))
    })
}

/// What `litz tunnel status` shows.
struct Shown {
    peers: Arc<Peers>,
    device: Arc<DeviceCounters>,
    refused: Arc<AtomicU64>,
    /// Begins with the tunnel.
    clock: MonotonicClock,
}

impl Shown {
    fn of(end: &TunnelEnd, refused: &Arc<AtomicU64>) -> Self {
        let (peers, device) = (Arc::clone(&end.peers), Arc::clone(&end.counters));
        Self { peers, device, refused: Arc::clone(refused), clock: MonotonicClock::start() }
    }
}

/// The answer to `litz tunnel status`. There are no peers before the device is made.
fn status_json(device: &str, shown: Option<&Shown>, upkeep: &UpkeepReport) -> serde_json::Value {
    let state = if shown.is_some() { "up" } else { "starting" };
    let peers = shown.map(|shown| shown.peers.table()).unwrap_or_default().peers;
    let peers: Vec<_> = peers.values().map(|peer| peer_json(peer)).collect();
    let counters = shown.map(|shown| {
        let mut counters = device_json(&shown.device);
        counters["clients_refused"] = shown.refused.load(Ordering::Relaxed).into();
        counters
    });
    let age = shown.map(|shown| shown.clock.now().saturating_since(Instant::ZERO).as_micros());
    json!({
        "device": device, "role": "server", "state": state, "up_us": age, "counters": counters, "peers": peers,
        "missing": upkeep.missing(),
    })
}
