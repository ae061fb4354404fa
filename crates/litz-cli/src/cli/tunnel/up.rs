//! `litz tunnel up`: a network device that leads to a host that serves.

mod device;
mod follow;
mod options;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration as StdDuration;

use litz::{Closed, Connection};
use net::tun::Tun;
use serde_json::{Value, json};
use transfer::{CancelToken, Proof, Role, Ticket, proof_context};
use tunnel::control::{Accepted, CLOSED_TAKEN_OVER, Forwarding, VERSION};
use tunnel::policy::Terms;
use tunnel::{Message, PROTOCOL};
use tunnel_end::device_events::DeviceEvents;
use tunnel_end::exit::Exit;
use tunnel_end::meters::Meters;
use tunnel_end::peers::{Identity, Peer};
use units::Rate;

use self::device::{Device, Kept};
use self::follow::Follower;
pub(crate) use self::options::UpOptions;
use super::control::Control;
use super::control_socket::{ControlSocket, folder};
use super::forwarding;
use super::host_network::{self, HostNetwork, MARK, down_command};
use super::ipv6::{Ipv6, LeftOut};
use super::keeper::check_kill_switch;
use super::name_service::NameService;
use super::phase::ClientPhase;
use super::privileges;
use super::settings::{self, transport};
use super::status::peer_json;
use super::terms::{HostPolicy, NetworkWatch};
use super::upkeep_report::UpkeepReport;
use super::userspace::Ports;
use crate::cli::connect::{ConnectFailure, Connected, Connector, UNANSWERED, look_up};
use crate::cli::host::{self, HostState};
use crate::cli::lost::Lost;
use crate::cli::path_options::{PathOptions, SinglePathOptions};
use crate::cli::path_report::path_problems;
use crate::cli::recording::Recording;
use crate::cli::warning::Warning;
use crate::cli::{exit, out, signals, tls};

/// Pause between attempts to connect again.
const RETRY_INTERVAL: StdDuration = StdDuration::from_millis(500);

/// How often a waiting command looks for an interrupt.
const LOOK_INTERVAL: StdDuration = StdDuration::from_millis(50);

/// The time of the latest contact with the server is known to so many looks: a second.
const LOOKS_FOR_CONTACT: u32 = 20;

pub(super) fn run(options: &UpOptions) -> ExitCode {
    let json = options.transport.json;
    let ending = Recording::begin(&options.transport).and_then(|recording| {
        let ending = Client::prepare(options, &recording).and_then(|client| client.run());
        recording.finish(&options.transport);
        ending
    });
    match ending {
        Ok(()) => ExitCode::from(exit::INTERRUPTED),
        Err(message) => exit::fail(json, exit::FAILED, &message),
    }
}

struct Client<'a> {
    options: &'a UpOptions,
    recording: &'a Recording,
    paths: PathOptions,
    phase: ClientPhase,
    upkeep: UpkeepReport,
    _control: ControlSocket,
    ticket: Ticket,
    state: HostState,
    /// What the kernel's device can have of IPv6.
    ipv6: Ipv6,
    /// What this host takes of what the server assigns.
    policy: HostPolicy,
    cancel: CancelToken,
    has_warned_of_unanswered: AtomicBool,
    /// Announces packets of the device to the thread of the connection.
    events: Arc<DeviceEvents>,
    /// The ports for programs, until the device is made, if the kernel has none.
    ports: Mutex<Option<Ports>>,
}

/// What a server tells at first.
struct Welcome {
    accepted: Accepted,
    /// Earlier servers do not tell.
    forwarding: Option<Forwarding>,
    /// It stays open as long as the tunnel.
    _control: Control,
}

/// Looks up the addresses of the server. Those that were found before are kept if only names fail,
/// as they do while the tunnel is down and name servers are beyond it.
fn look_up_again(servers: &mut Vec<SocketAddr>, ticket: &Ticket, cancel: &CancelToken) -> Result<(), ConnectFailure> {
    match look_up(&ticket.addresses, cancel, true) {
        Ok(found) if found.iter().all(|server| servers.contains(server)) => Ok(()),
        Ok(found) => {
            *servers = found;
            Ok(())
        }
        Err(ConnectFailure::Silent(_)) if !servers.is_empty() => Ok(()),
        Err(failure) => Err(failure),
    }
}

impl<'a> Client<'a> {
    fn prepare(options: &'a UpOptions, recording: &'a Recording) -> Result<Self, String> {
        options.userspace.check()?;
        if !options.userspace.userspace {
            privileges::require_those_for_a_device("; --userspace needs neither")?;
        }
        if options.kill_switch {
            check_kill_switch(&options.tun)?;
        }
        let ticket = options.credential.only(options.ticket_argument.as_deref(), "litz tunnel serve")?;
        let state = host::open_state(options.transport.state_dir.as_deref())?;
        privileges::keep_those_for_the_network(&host::state_directory(options.transport.state_dir.as_deref())?)?;
        let cancel = signals::cancel_token().map_err(|error| format!("cannot handle signals: {error}"))?;
        let upkeep = UpkeepReport::new(options.transport.json, options.transport.quiet);
        let phase = ClientPhase::new(&options.tun, ticket.receiver, upkeep.clone());
        let shown = phase.clone();
        let control = ControlSocket::open(&options.tun, cancel.clone(), move || shown.as_json())?;
        if options.all {
            host_network::check_that_no_other_sends_all(&folder(), &options.tun)?;
        }
        let has_device = !options.userspace.userspace;
        if has_device {
            // The server binds the ticket when it answers: what can fail here is tried before.
            Tun::open(&options.tun).map_err(|error| format!("{error}; --userspace needs no device"))?;
        }
        if options.dns {
            NameService::check()?;
        }
        // The tunnel's own packets never enter it.
        let (without_device, mark) = (has_device.then(|| options.tun.clone()), has_device.then_some(MARK));
        let paths = PathOptions { without_device, mark, ..options.paths.clone() };
        let ipv6 = if has_device { Ipv6::of_this_host(&options.tun) } else { Ipv6::USABLE };
        let policy = HostPolicy::new(options.policy(), has_device.then(|| options.tun.clone()), ticket.receiver);
        let events = DeviceEvents::new().map_err(|error| format!("cannot watch the device: {error}"))?;
        let ports = (!has_device).then(|| Ports::open(&options.userspace)).transpose()?;
        Ok(Self {
            options,
            recording,
            paths,
            phase,
            upkeep,
            _control: control,
            ticket,
            state,
            ipv6,
            policy,
            cancel,
            has_warned_of_unanswered: AtomicBool::new(false),
            events,
            ports: Mutex::new(ports),
        })
    }

    /// Keeps the tunnel up until an interrupt.
    fn run(&self) -> Result<(), String> {
        let mut kept = Kept::default();
        if self.options.kill_switch {
            self.refuse_outside(&mut kept)?;
        }
        loop {
            let ending = self.attempt(&mut kept);
            if self.cancel.is_cancelled() {
                // The device ends first, and with it what the kernel has for it.
                kept.device = None;
                return kept.network.map_or(Ok(()), HostNetwork::end);
            }
            if let Err(lost) = ending {
                // Before the first connection, a wrong address is more likely than a fault that passes.
                if lost.is_final || !kept.has_been_up {
                    return Err(self.end_after(lost, kept));
                }
                self.phase.connect(lost.message.clone());
                let event = json!({ "event": "retrying", "message": lost.message });
                self.note(&event, || format!("{}; connecting again", lost.message));
            }
            self.following(&mut kept, |_| self.pause());
        }
    }

    /// Refuses packets outside the tunnel, which is not there yet. The server's name is looked up before, as far as
    /// possible: name servers may be beyond the tunnel.
    fn refuse_outside(&self, kept: &mut Kept) -> Result<(), String> {
        // Why it failed is told by the first attempt, which looks again.
        let _failed = look_up_again(&mut kept.servers, &self.ticket, &self.cancel);
        let mut network = HostNetwork::begin(&folder(), &self.options.tun, &self.ipv6, true, &self.upkeep)?;
        if kept.servers.is_empty() {
            kept.servers = network.servers();
        }
        network.refuse_all(&kept.servers)?;
        network.stay();
        kept.network = Some(network);
        Ok(())
    }

    /// Ends without the user's wish, as a kill does: a kill switch stays in force, because otherwise the far
    /// end, or another holder of the key, could lift it. Returns the message for the user.
    fn end_after(&self, lost: Lost, kept: Kept) -> String {
        drop(kept);
        if !self.options.kill_switch || !host_network::refuses(&folder(), &self.options.tun, &self.ipv6) {
            return lost.message;
        }
        let down = down_command(&self.options.tun);
        format!("{}. Packets outside the tunnel are still refused (--kill-switch): `{down}` ends that", lost.message)
    }

    #[expect(clippy::disallowed_methods, reason = "the command is above the engine: it waits before it reconnects")]
    fn pause(&self) {
        let mut waited = StdDuration::ZERO;
        while waited < RETRY_INTERVAL && !self.cancel.is_cancelled() {
            std::thread::sleep(LOOK_INTERVAL);
            waited += LOOK_INTERVAL;
        }
    }

    fn note(&self, event: &Value, text: impl FnOnce() -> String) {
        if self.options.transport.json {
            out::json(event);
        } else if !self.options.transport.quiet {
            out::note(&text());
        }
    }

    /// Connects and carries packets until the connection ends.
    fn attempt(&self, kept: &mut Kept) -> Result<(), Lost> {
        let (connected, Welcome { mut accepted, forwarding, _control }) = self.connect(kept)?;
        let connection = &connected.connection;
        let left_out = self.ipv6.restrict(&mut accepted, self.options.dns).map_err(Lost::last)?;
        self.warn_of_ipv6(left_out, kept);
        let watch = NetworkWatch::open().map_err(Lost::passing)?;
        self.policy.forget_devices();
        let terms = self.policy.terms(&accepted).map_err(Lost::passing)?;
        self.tell_left_out(&terms, &mut kept.left_out);
        if let Some(refusal) = terms.refusal() {
            let follower = Follower::new(accepted, watch);
            return Err(self.await_other_networks(refusal.to_string(), &connected, kept, follower));
        }
        if let Some(forwarding) = forwarding.filter(|_| kept.device.is_none()) {
            self.warn_of_forwarding(&terms, forwarding);
        }
        if kept.device.as_ref().is_none_or(|device| device.differs(&terms, self.options)) {
            kept.network.iter_mut().for_each(HostNetwork::release_device);
            kept.device = None;
            // They are undone, unless they are a kill switch.
            kept.network = kept.network.take().filter(|_| self.options.kill_switch);
            self.open(&terms, kept).map_err(Lost::last)?;
        }
        kept.has_been_up = true;
        let Kept { device, network, follower, .. } = &mut *kept;
        let device = device.as_mut().expect("it was just opened");
        let (rate, version) = (Rate::from_bps(accepted.rate_bps), accepted.version);
        let follower = follower.insert(Follower::new(accepted, watch));
        if device.terms.mtu != terms.mtu {
            // The server was started again with another MTU. The device stays, and with it inner connections.
            network.as_mut().map_or(Ok(()), |network| network.set_mtu(terms.mtu)).map_err(Lost::last)?;
        }
        device.terms = terms;
        if let Some(front) = &device.front {
            front.use_name_servers(&device.terms.name_servers);
        }
        // What the server may send from: its own addresses, other clients', and the networks behind it.
        let networks = device.networks(self.all());
        let rate = Some(rate).filter(|rate| !rate.is_zero());
        let server = Identity { key: self.ticket.receiver, label: None };
        // The server holds this end to the rate.
        let meters = Meters::new(device.end.peers.clock(), rate, false);
        let ends = connected.ends();
        let peer = Arc::new(Peer::new(connection.clone(), ends, server, networks, device.terms.mtu, meters, version));
        let (id, _) = device.end.peers.add(Arc::clone(&peer));
        device.end.serve(&peer);
        self.phase.up(Arc::clone(&peer), Arc::clone(&device.end.counters));
        let terms = &device.terms;
        let shown: Vec<String> = terms.addresses.iter().map(|(address, bits)| format!("{address}/{bits}")).collect();
        let routes = terms.routes.iter().map(|route| route.prefix).filter(|route| !device.refused.contains(route));
        let routes: Vec<String> = routes.map(|route| route.to_string()).collect();
        self.note(
            &json!({
                "event": "up", "device": device.end.tun.name(), "addresses": shown, "mtu": terms.mtu, "routes": routes,
                "remote": connection.remote_addr().to_string(), "paths_wanted": connected.paths_wanted,
            }),
            || format!("{} is up, with {}", device.end.tun.name(), shown.join(" and ")),
        );
        settings::tell_ready();
        let follow = |device: &mut Device| follower.follow(self, device, network, Some((id, &peer)));
        let (closed, refusal) = self.carry(&connected, &peer, device, follow);
        let why = connected.peer_ended("server").unwrap_or_else(|| closed.to_string());
        self.phase.connect(refusal.as_ref().unwrap_or(&why).clone());
        device.end.peers.remove(id);
        self.note(&json!({ "event": "down", "reason": why, "peer": peer_json(&peer) }), || {
            format!("the connection has ended: {why}")
        });
        if let Some(refusal) = refusal {
            let follower = kept.follower.take().expect("it was just made");
            return Err(self.await_other_networks(refusal, &connected, kept, follower));
        }
        Err(if is_taken_over(&closed) { Lost::last(why) } else { Lost::passing(why) })
    }

    /// Carries packets until the connection ends or the user interrupts; `follow` follows the
    /// networks of this host. Returns the end of the connection, and why this host does not want
    /// the tunnel any more, if that is so.
    fn carry(
        &self,
        connected: &Connected,
        peer: &Arc<Peer>,
        device: &mut Device,
        mut follow: impl FnMut(&mut Device) -> Option<String>,
    ) -> (Closed, Option<String>) {
        let connection = &connected.connection;
        let mut refusal = None;
        std::thread::scope(|scope| {
            let exit = Exit::new(peer, device.end.writer());
            let exit = scope.spawn(move || exit.run());
            let mut looks = 0_u32;
            while !exit.is_finished() {
                if self.cancel.is_cancelled() {
                    connection.close(0, "the client ends");
                    break;
                }
                if device.end.has_ended() {
                    connection.close(0, "the client's device is gone");
                    break;
                }
                refusal = follow(device);
                if refusal.is_some() {
                    connection.close(0, "the client's host has a network of the tunnel itself");
                    break;
                }
                connected
                    .links
                    .iter()
                    .for_each(|links| links.tell(self.options.transport.json, self.options.transport.quiet));
                for (warning, message) in path_problems(connection, &connected.ends()) {
                    self.warn(warning, &message);
                }
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the command is above the engine: it looks for an interrupt"
                )]
                std::thread::sleep(LOOK_INTERVAL);
                looks = looks.saturating_add(1);
                if looks.is_multiple_of(LOOKS_FOR_CONTACT) {
                    peer.look();
                }
                if LOOK_INTERVAL * looks == UNANSWERED && !self.has_warned_of_unanswered.swap(true, Ordering::Relaxed) {
                    connected.warn_of_unanswered(|kind, message| self.warn(kind, message));
                }
            }
            match exit.join() {
                Ok(closed) => (closed, refusal),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Connects, and exchanges the first messages.
    fn connect(&self, kept: &mut Kept) -> Result<(Connected, Welcome), Lost> {
        let is_first = !kept.has_been_up;
        self.following(kept, |servers| look_up_again(servers, &self.ticket, &self.cancel))?;
        if let Some(network) = kept.network.as_mut().filter(|_| self.options.all) {
            network.let_in(&kept.servers).map_err(Lost::last)?;
        }
        let tls = tls::client(&self.state.key, self.ticket.receiver, PROTOCOL).map_err(Lost::last)?;
        let connector = Connector {
            peer: "server",
            transport: transport(&self.options.transport, self.recording).map_err(Lost::last)?,
            options: &self.options.transport,
            single_path: &SinglePathOptions::default(),
            paths: &self.paths,
            tls: &tls,
            cancel: &self.cancel,
            on_unanswered: &|addresses| {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                self.phase.connect(format!("no answer yet from {}", addresses.join(", ")));
                self.note(&json!({ "event": "unanswered", "addresses": addresses }), || {
                    format!("trying {}; no answer yet", addresses.join(", "))
                });
            },
            is_brief: !is_first,
            asks_ports: false,
            is_first,
            event_handler: Some(Arc::clone(&self.events) as _),
        };
        self.following(kept, |servers| {
            let connected = connector.connect_to(servers)?;
            connected.warn(is_first, |kind, message| self.warn(kind, message));
            let connection = &connected.connection;
            let welcome = self.interruptibly(connection, || self.greet(connection))?;
            Ok((connected, welcome))
        })
    }

    /// Does what waits for the server. An interrupt closes the connection, which ends the wait.
    fn interruptibly<T>(&self, connection: &Connection, work: impl FnOnce() -> T) -> T {
        let (ended, end) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let cancel = &self.cancel;
            scope.spawn(move || {
                // The sending end is dropped when the work has ended.
                while end.recv_timeout(LOOK_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if cancel.is_cancelled() {
                        connection.close(0, "the client ends");
                        return;
                    }
                }
            });
            let result = work();
            drop(ended);
            result
        })
    }

    /// Exchanges the first messages.
    fn greet(&self, connection: &Connection) -> Result<Welcome, Lost> {
        let passing = |why: String| Lost::passing(why);
        let context = proof_context(connection, self.state.key.public(), self.ticket.receiver)
            .map_err(|error| passing(error.to_string()))?;
        let mut control = Control::new(connection.open_bi().map_err(|error| passing(error.to_string()))?);
        let proof =
            (!self.options.credential.by_key).then(|| *context.prove(&self.ticket.secret, Role::Sender).as_bytes());
        control.send(&Message::Hello { version: VERSION, proof, mtu: self.options.mtu }).map_err(passing)?;
        let mut answer = control.receive().map_err(passing)?;
        let mut forwarding = None;
        if let Message::Forwarding(told) = answer {
            forwarding = Some(told);
            answer = control.receive().map_err(passing)?;
        }
        match answer {
            Message::Accepted(accepted) => {
                let is_proven = |proof| context.verify(&self.ticket.secret, Role::Receiver, &Proof::from_bytes(proof));
                if !self.options.credential.by_key && !accepted.proof.is_some_and(is_proven) {
                    let why = "the server did not prove that it issued the ticket: if it lists keys, use --by-key";
                    return Err(Lost::last(why.to_owned()));
                }
                Ok(Welcome { accepted: *accepted, forwarding, _control: control })
            }
            Message::Refused { text, .. } => Err(Lost::last(format!("the server refused this host: {text}"))),
            _ => Err(passing("the server answered with another message".to_owned())),
        }
    }

    /// Warns of what of IPv6 is left out, unless that was told before.
    fn warn_of_ipv6(&self, left_out: LeftOut, kept: &mut Kept) {
        let warning = self.ipv6.warning(&left_out, self.options.all).filter(|_| left_out != kept.ipv6_left_out);
        warning.iter().for_each(|message| self.warn(Warning::Ipv6LeftOut, message));
        kept.ipv6_left_out = left_out;
    }

    /// Warns at the first connection if packets are to go on from the server, which does not forward them.
    fn warn_of_forwarding(&self, terms: &Terms, is: Forwarding) {
        let own = || terms.addresses.iter().map(|(address, _)| *address).filter(|_| self.options.all);
        let beyond: Vec<IpAddr> = own().chain(terms.routes.iter().map(|route| route.prefix.address())).collect();
        if let Some((versions, command)) = forwarding::missing(forwarding::to(&beyond), is) {
            let message = format!(
                "the server does not forward packets of {versions}: those to hosts beyond it are lost, until `{command}` is \
                 run there"
            );
            self.warn(Warning::NotForwarding, &message);
        }
    }

    fn warn_of_route(&self, message: &str) {
        self.warn(Warning::RouteLeftOut, message);
    }

    fn warn(&self, kind: Warning, message: &str) {
        kind.print(self.options.transport.json, self.options.transport.quiet, message);
    }
}

/// Whether the server has closed a connection because another command of this host has its addresses now.
const fn is_taken_over(closed: &Closed) -> bool {
    matches!(closed, Closed::ByPeer { code: CLOSED_TAKEN_OVER, .. })
}
