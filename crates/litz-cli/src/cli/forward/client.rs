//! `litz forward`: the client, which connects to a server and keeps listeners open for its user.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use forward::address::{Address, Host, Protocol, Target};
use forward::message::Message;
use forward::policy::Policy;
use forward::spec::{Dynamic, Forward, Listen};
use litz::{Closed, TransportConfig};
use net::MonotonicClock;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use transfer::{CLOSE_CODE, CancelToken, Proof, Refusal, Role, RunId, Ticket, proof_context};

use super::daemon::server::DaemonSocket;
use super::daemon::servers::{ListedServer, PRINTED_BY};
use super::engine::Engine;
use super::listener::{Bound, Way, places};
use super::options::{ClientOptions, Forwards, ServerOptions};
use super::own::Own;
use super::program::Program;
use super::report::Report;
use super::session::{AllowedRequests, Session, Streams, transport};
use super::sessions::{Current, Sessions};
use super::setup::runtime;
use super::socks::Proxy;
use super::{frames, stdio};
use crate::cli::connect::{BUSY_SERVER, Connected, Connector};
use crate::cli::connection_log::{log_connected, log_ended};
use crate::cli::host::{self, HostState};
use crate::cli::lost::Lost;
use crate::cli::path_report::refused_paths;
use crate::cli::recording::Recording;
use crate::cli::warning::Warning;
use crate::cli::{exit, out, signals, tls};

/// Pause between attempts to reconnect.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How often the client looks for an interrupt and for changes of its links.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The time that reset connections have to reach their peers at the end.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(1);

/// What the other host is called in messages.
const PEER: &str = "server";

/// Forwards what the options name, or standard input and output to the target `stdio`. Returns the status.
pub(super) fn run(options: &ClientOptions, stdio: Option<&Target>) -> Result<u8, String> {
    let ClientOptions { server, forwards } = options;
    let purpose = match stdio {
        Some(target) => {
            // Standard output is the data's.
            out::redirect();
            For::Stdio(target)
        }
        None => {
            check(forwards)?;
            For::Forwards
        }
    };
    let cancel = signals::cancel_token().map_err(|error| format!("cannot handle signals: {error}"))?;
    let access = Access::of(server)?;
    run_client(&Client::prepare(server, access, forwards, purpose, cancel, report(server))?)
}

/// Runs a program whose connections are forwarded. Returns its status.
pub(super) fn run_program(server: &ServerOptions, program: &Program<'_>, publish: &[Dynamic]) -> Result<u8, String> {
    // Standard output is the program's.
    out::redirect();
    let forwards = Forwards { remote: publish.iter().map(published).collect(), ..Forwards::none() };
    let (purpose, cancel) = (For::Program(program), program.cancel.clone());
    let client = Client::prepare(server, Access::of(server)?, &forwards, purpose, cancel, report(server))?;
    let status = run_client(&client)?;
    Ok(program.status().unwrap_or(status))
}

/// The far host listens, and the program has the same port here.
fn published(place: &Dynamic) -> Forward {
    let &Dynamic { bind, port } = place;
    let localhost = Address { host: Host::Ip(Ipv4Addr::LOCALHOST.into()), port };
    Forward {
        listen: Listen::Port { protocol: Protocol::Tcp, bind, port },
        target: Target::Host(Protocol::Tcp, localhost),
    }
}

fn run_client(client: &Client<'_>) -> Result<u8, String> {
    let runtime = runtime()?;
    let result = client.run(&runtime);
    runtime.shutdown_timeout(CLOSE_TIME);
    client.recording.finish(&client.server.transport);
    conclude(client.purpose, client.server, result)
}

/// The status of the command.
pub(super) fn conclude(purpose: For<'_>, server: &ServerOptions, result: Result<u8, Lost>) -> Result<u8, String> {
    match result {
        Ok(status) => Ok(status),
        Err(lost) if lost.is_interrupt => {
            let is_asked_for = match purpose {
                For::Forwards | For::Stdio(_) => false,
                For::Program(program) => program.status().is_some(),
                For::Daemon(daemon_socket) => daemon_socket.is_stopped(),
            };
            if !is_asked_for {
                exit::report(server.transport.json, exit::INTERRUPTED, &lost.message);
            }
            Ok(exit::INTERRUPTED)
        }
        Err(lost) => Err(lost.message),
    }
}

/// Tells systemd, which waits for it if the unit says Type=notify. Elsewhere nothing is done.
pub(super) fn tell_ready() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "cannot tell the service manager that the client is ready");
    }
}

pub(super) fn report(server: &ServerOptions) -> Arc<Report> {
    Arc::new(Report::new(&server.transport))
}

/// Whether the forwards are complete and safe.
fn check(forwards: &Forwards) -> Result<(), String> {
    if forwards.local.is_empty() && forwards.remote.is_empty() && forwards.dynamic.is_empty() {
        return Err("name what to forward: -L, -R, -D or --stdio (`litz forward --help` has examples), or run \
                    `litz forward serve` on the far host"
            .to_owned());
    }
    check_dynamic(forwards)
}

/// Whether no proxy is open to other hosts that the user did not want to be.
pub(super) fn check_dynamic(forwards: &Forwards) -> Result<(), String> {
    if let Some(open) = forwards.dynamic.iter().find(|dynamic| !dynamic.bind.is_loopback() && !forwards.gateway) {
        return Err(format!(
            "-D {}:{} would let other hosts use the proxy, which asks for no password: add --gateway if you want \
             that",
            open.bind, open.port
        ));
    }
    Ok(())
}

/// What the connection is for, besides forwards.
#[derive(Clone, Copy)]
pub(super) enum For<'a> {
    Forwards,
    /// Standard input and output are a connection to this target.
    Stdio(&'a Target),
    /// Started once there is a connection.
    Program(&'a Program<'a>),
    Daemon(&'a DaemonSocket),
}

/// The server, and the right to use it.
pub(super) struct Access {
    /// For the user, if it is one of a list.
    pub(super) name: Option<String>,
    ticket: Ticket,
    /// The server knows this host's key, and no secret is proven.
    by_key: bool,
}

impl Access {
    /// That of the options.
    pub(super) fn of(server: &ServerOptions) -> Result<Self, String> {
        let credential = &server.credential;
        let ticket = credential.only(server.ticket.as_deref(), PRINTED_BY)?;
        Ok(Self { name: None, ticket, by_key: credential.by_key })
    }

    /// That of a list, and what goes there.
    pub(super) fn listed(server: ListedServer) -> (Self, Option<Policy>) {
        let ListedServer { name, ticket, by_key, rules } = server;
        (Self { name: Some(name), ticket, by_key }, Some(rules))
    }

    /// Whether it is one of a list.
    const fn is_listed(&self) -> bool {
        self.name.is_some()
    }
}

/// One connection to a server, kept as long as it can be.
pub(super) struct Client<'a> {
    server: &'a ServerOptions,
    access: Access,
    forwards: &'a Forwards,
    purpose: For<'a>,
    state: HostState,
    cancel: CancelToken,
    transport: TransportConfig,
    pub(super) recording: Recording,
    run_id: RunId,
    report: Arc<Report>,
    clock: MonotonicClock,
    /// For the tasks of listeners and sockets.
    places: Arc<Semaphore>,
    /// The connection that there is now.
    current: watch::Sender<Current>,
}

impl<'a> Client<'a> {
    pub(super) fn prepare(
        server: &'a ServerOptions,
        access: Access,
        forwards: &'a Forwards,
        purpose: For<'a>,
        cancel: CancelToken,
        report: Arc<Report>,
    ) -> Result<Self, String> {
        let state = host::open_state(server.transport.state_dir.as_deref())?;
        let recording = Recording::begin(&server.transport)?;
        let transport = transport(recording.transport(&server.transport));
        transport.validate()?;
        let run_id = RunId::generate().map_err(|error| error.to_string())?;
        let (clock, places, current) = (MonotonicClock::start(), places(), watch::Sender::new(Current::Away(None)));
        Ok(Self {
            server,
            access,
            forwards,
            purpose,
            state,
            cancel,
            transport,
            recording,
            run_id,
            report,
            clock,
            places,
            current,
        })
    }

    fn run(&self, runtime: &Runtime) -> Result<u8, Lost> {
        let _listeners = self.listen(runtime).map_err(Lost::last)?;
        self.keep_connected(runtime)
    }

    /// Opens all listeners of this host. They serve as long as the result is there.
    pub(super) fn listen(&self, runtime: &Runtime) -> Result<JoinSet<()>, String> {
        let (_context, mut tasks) = (runtime.enter(), JoinSet::new());
        for forward in &self.forwards.local {
            let listen = &forward.listen;
            let bound = Bound::open_here(listen)?;
            self.tell_listening("local", &bound, &forward.target);
            let target = forward.target.clone();
            let way = Way {
                sessions: self.sessions(),
                request: Box::new(move |_| Message::Open { target: target.clone() }),
                shown: forward.target.to_string(),
                report: Arc::clone(&self.report),
                places: Arc::clone(&self.places),
            };
            bound.serve(&Arc::new(way), &mut tasks);
        }
        for dynamic in &self.forwards.dynamic {
            let listen = Listen::Port { protocol: Protocol::Tcp, bind: dynamic.bind, port: dynamic.port };
            let bound = Bound::open_here(&listen)?;
            self.tell_listening("dynamic", &bound, &"SOCKS5");
            let sessions = self.sessions();
            let proxy = Arc::new(Proxy { sessions, report: Arc::clone(&self.report) });
            let act = move |socket, permit, origin| {
                let proxy = Arc::clone(&proxy);
                tokio::spawn(async move {
                    proxy.serve(socket, origin).await;
                    drop(permit);
                });
            };
            bound.serve_with(&self.places, act, &mut tasks);
        }
        Ok(tasks)
    }

    /// What the server may ask for.
    fn allowed(&self) -> AllowedRequests {
        let targets = self.forwards.remote.iter().map(|forward| forward.target.clone());
        match self.purpose {
            For::Program(Program { published: Some(published), .. }) => {
                let port = |target| if let Target::Host(_, address) = target { address.port } else { 0 };
                AllowedRequests::Program(targets.map(port).collect(), Arc::clone(published))
            }
            For::Daemon(daemon_socket) => AllowedRequests::Client(targets.collect(), Some(daemon_socket.arrivals())),
            For::Program(_) | For::Forwards | For::Stdio(_) => AllowedRequests::Client(targets.collect(), None),
        }
    }

    /// Connections for programs.
    pub(super) fn own(&self) -> Own {
        Own { sessions: self.sessions(), places: Arc::clone(&self.places) }
    }

    fn sessions(&self) -> Sessions {
        Sessions::Current(self.current.subscribe())
    }

    fn tell_listening(&self, kind: &str, bound: &Bound, target: &dyn std::fmt::Display) {
        let (listen, target) = (&bound.listen, target.to_string());
        let event = json!({
            "event": "forwarding", "kind": kind, "listen": listen.to_string(), "target": target,
            "address": bound.address().map(|address| address.to_string()),
        });
        self.report.tell(&event, &format!("{listen} leads to {target}"));
    }

    /// Connects, and reconnects, until the user interrupts or no attempt can succeed.
    pub(super) fn keep_connected(&self, runtime: &Runtime) -> Result<u8, Lost> {
        let result = self.keep_trying(runtime);
        // Those that are still there are reset with the runtime.
        let why = result.as_ref().map_or_else(|lost| lost.message.clone(), |_| "the command ends".to_owned());
        self.current.send_replace(Current::Over(why));
        result
    }

    fn keep_trying(&self, runtime: &Runtime) -> Result<u8, Lost> {
        let (mut is_first, mut was_connected) = (true, false);
        let mut lost_at = self.clock.now();
        let mut last_message = String::new();
        loop {
            let lost = match self.connect(is_first) {
                Ok(connected) => {
                    connected.warn(!was_connected, |kind, message| self.report.warn(kind, message));
                    match runtime.block_on(self.unless_cancelled(self.begin(&connected, !was_connected))) {
                        Ok((session, control)) => {
                            if let For::Stdio(target) = self.purpose {
                                return self.carry_stdio(runtime, &session, target);
                            }
                            if !was_connected && let For::Program(program) = self.purpose {
                                let own = Engine::Own(self.own());
                                program.start(runtime.handle(), own, Arc::clone(&self.report));
                            }
                            last_message.clear();
                            was_connected = true;
                            let lost = runtime.block_on(self.serve(&connected, &session, control));
                            lost_at = self.clock.now();
                            lost
                        }
                        Err(lost) => lost,
                    }
                }
                Err(lost) => lost,
            };
            is_first = false;
            // A user who names a server in a command waits for it. Those of a list may come later.
            if lost.is_final || !(was_connected || self.access.is_listed()) {
                return Err(self.named(lost));
            }
            let limit = self.server.retry_for;
            if limit.is_some_and(|limit| self.clock.now().saturating_since(lost_at) >= limit) {
                return Err(self.named(lost));
            }
            self.current.send_replace(Current::Away(Some(lost.message.clone())));
            // An outage may last for hundreds of attempts.
            if lost.message != last_message {
                let event = json!({ "event": "retrying", "message": lost.message });
                let again = if was_connected { "reconnecting" } else { "trying again" };
                self.report.tell(&self.event(event), &self.text(&format!("{}; {again}", lost.message)));
                last_message = lost.message;
            }
            self.pause()?;
        }
    }

    /// Tells why no attempt can succeed any more, while others go on.
    pub(super) fn tell_given_up(&self, lost: &Lost) {
        let event = json!({ "event": "given_up", "server": self.access.name, "message": lost.message });
        let text = format!("{}; this server is given up", lost.message);
        if self.server.transport.json { out::json(&event) } else { exit::report(false, exit::FAILED, &text) }
    }

    /// A message about the server.
    fn text(&self, message: &str) -> String {
        self.access.name.as_ref().map_or_else(|| message.to_owned(), |name| format!("{name}: {message}"))
    }

    /// The same for programs.
    fn event(&self, mut event: Value) -> Value {
        if let Some(name) = &self.access.name {
            event["server"] = name.as_str().into();
        }
        event
    }

    fn named(&self, lost: Lost) -> Lost {
        if lost.is_interrupt { lost } else { Lost { message: self.text(&lost.message), ..lost } }
    }

    #[expect(clippy::disallowed_methods, reason = "the command is above the engine: it waits before it reconnects")]
    fn pause(&self) -> Result<(), Lost> {
        let end = self.clock.now() + RETRY_INTERVAL.into();
        while self.clock.now() < end {
            if self.cancel.is_cancelled() {
                return Err(Lost::interrupt());
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn connect(&self, is_first: bool) -> Result<Connected, Lost> {
        let tls = tls::client(&self.state.key, self.access.ticket.receiver, forward::ALPN).map_err(Lost::last)?;
        let connector = Connector {
            peer: PEER,
            transport: self.transport.clone(),
            placement: self.server.transport.placement,
            single_path: &self.server.single_path,
            paths: &self.server.paths,
            tls: &tls,
            cancel: &self.cancel,
            on_unanswered: &|addresses| self.tell_unanswered(addresses, is_first),
            is_brief: false,
            is_first,
        };
        Ok(connector.connect(&self.access.ticket)?)
    }

    fn tell_unanswered(&self, addresses: &[SocketAddr], is_first: bool) {
        if is_first {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let event = json!({ "event": "unanswered", "addresses": addresses });
            self.report.tell(&event, &format!("trying {}; no answer yet", addresses.join(", ")));
        }
    }

    /// The result of `work`, unless the user interrupts it.
    async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T, Lost>>) -> Result<T, Lost> {
        let cancelled = async {
            while !self.cancel.is_cancelled() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::select! {
            result = work => result,
            () = cancelled => Err(Lost::interrupt()),
        }
    }

    /// Proves the right to forward, and asks for the listeners of the server.
    async fn begin(&self, connected: &Connected, is_first: bool) -> Result<(Arc<Session>, Streams), Lost> {
        let connection = &connected.connection;
        log_connected(connection);
        let lost = |error: String| match connection.close_reason() {
            Some(closed) => self.explain(&closed),
            None => Lost::passing(error),
        };
        let mut control = connection.open_bi_async().await.map_err(|error| lost(error.to_string()))?;
        self.prove(connected, &mut control).await.map_err(|error| error.unwrap_or_else(&lost))?;
        for (id, forward) in self.forwards.remote.iter().enumerate() {
            let id = u32::try_from(id).unwrap_or(u32::MAX);
            let request = Message::Listen { id, listen: forward.listen.clone() };
            frames::send(&mut control.0, &request).await.map_err(lost)?;
            match frames::receive(&mut control.1, frames::PROMPT).await.map_err(lost)? {
                Message::Listening { id: answered, listen } if answered == id => {
                    let event = json!({
                        "event": "forwarding", "kind": "remote", "listen": listen.to_string(),
                        "target": forward.target.to_string(),
                        "port": if let Listen::Port { port, .. } = listen { Some(port) } else { None },
                    });
                    self.report.tell(&event, &format!("{listen} of the server leads to {}", forward.target));
                }
                Message::NotListening { id: answered, failure } if answered == id && is_first => {
                    return Err(Lost::last(failure.to_string()));
                }
                Message::NotListening { id: answered, failure } if answered == id => {
                    return Err(Lost::passing(failure.to_string()));
                }
                _ => return Err(Lost::last("the server answered with a message that is not expected".to_owned())),
            }
        }
        let report = Arc::clone(&self.report);
        let remote = connection.remote_addr().to_string();
        let session = Session::new(connection.clone(), remote, self.forwards.udp_idle, report);
        Ok((Arc::new(session), control))
    }

    fn tell_connected(&self, connected: &Connected) {
        let stats = connected.connection.stats();
        let remote = connected.connection.remote_addr().to_string();
        let event = json!({
            "event": "connected", "remote": remote, "multipath": connected.is_multipath,
            "paths_wanted": connected.paths_wanted, "cipher": stats.session.cipher_suite,
            "handshake_us": stats.handshake_time.map(units::Duration::as_micros),
        });
        self.report.tell(&self.event(event), &self.text(&format!("connected to {remote}")));
        tell_ready();
        if connected.paths_wanted > 1 && !connected.is_multipath {
            let note = "the server supports one path only: the other links are not used";
            self.report.warn(Warning::PathLeftOut, note);
        }
    }

    /// Says Hello. The error is a message if the connection may have ended.
    async fn prove(&self, connected: &Connected, control: &mut Streams) -> Result<(), Result<Lost, String>> {
        let connection = &connected.connection;
        let context = proof_context(connection, self.state.key.public(), self.access.ticket.receiver)
            .map_err(|error| Err(error.to_string()))?;
        let proof = (!self.access.by_key).then(|| *context.prove(&self.access.ticket.secret, Role::Sender).as_bytes());
        let hello = Message::Hello { run: *self.run_id.as_bytes(), proof };
        frames::send(&mut control.0, &hello).await.map_err(Err)?;
        match frames::receive(&mut control.1, frames::PROMPT).await.map_err(Err)? {
            Message::Accepted { proof } => {
                let proof = proof.map(Proof::from_bytes);
                let is_proven = |proof: &Proof| context.verify(&self.access.ticket.secret, Role::Receiver, proof);
                if !self.access.by_key && !proof.as_ref().is_some_and(is_proven) {
                    return Err(Ok(Lost::last(
                        "the server does not know the ticket's secret: if it lists the keys of clients, use --by-key"
                            .to_owned(),
                    )));
                }
                Ok(())
            }
            Message::Refused { code } => Err(Ok(self.refusal(Refusal::from_code(code)))),
            _ => Err(Ok(Lost::last("the server answered with a message that is not expected".to_owned()))),
        }
    }

    fn refusal(&self, refusal: Refusal) -> Lost {
        let message = match refusal {
            Refusal::Expired => "the ticket has expired: ask for a new one".to_owned(),
            Refusal::BoundToAnotherKey => {
                "the ticket belongs to another client, the first that used it: ask for a new one, or run this command \
                 on the same host and as the same user as before"
                    .to_owned()
            }
            Refusal::KeyNotAllowed => {
                let by_key = if self.access.by_key { "" } else { ", and use --by-key" };
                format!(
                    "the server does not know this host's key: have this line, which `litz id` prints, added to its \
                     list of keys{by_key}: {}",
                    self.state.key.public()
                )
            }
            Refusal::Unavailable => {
                let message = "the server cannot read or write its own state: see its messages".to_owned();
                return Lost::passing(message);
            }
            _ if self.access.by_key => "the server wants the secret of its ticket: leave --by-key out".to_owned(),
            _ => "the server knows no such ticket: it may be revoked, or issued for other targets; ask for a new one"
                .to_owned(),
        };
        Lost::last(message)
    }

    fn explain(&self, closed: &Closed) -> Lost {
        match closed {
            Closed::ByPeer { reason, .. } if reason.starts_with(BUSY_SERVER) => {
                Lost::passing("the server is busy: it serves as many clients as it can".to_owned())
            }
            Closed::Local if self.cancel.is_cancelled() => Lost::interrupt(),
            closed => Lost::passing(format!("the connection was lost: {closed}")),
        }
    }

    /// Serves the connection until it ends.
    async fn serve(&self, connected: &Connected, session: &Arc<Session>, mut control: Streams) -> Lost {
        let allowed = Arc::new(self.allowed());
        self.current.send_replace(Current::Here(Arc::clone(session)));
        self.tell_connected(connected);
        let connection = &connected.connection;
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut run = std::pin::pin!(session.run(&allowed));
        let mut control_end = std::pin::pin!(frames::read(&mut control.1));
        let lost = loop {
            tokio::select! {
                closed = &mut run => break self.explain(&closed),
                ended = &mut control_end => {
                    // The end of the control stream is the end of the connection, whose reason is
                    // better.
                    if ended.is_ok() {
                        connection.close(CLOSE_CODE, "a message that is not expected");
                        break Lost::last("the server sent a message that is not expected".to_owned());
                    }
                    break self.explain(&connection.closed_async().await);
                }
                () = self.program_ended() => {
                    connection.close(CLOSE_CODE, "the client ends");
                    break Lost::interrupt();
                }
                _ = look.tick() => {
                    for link in connected.links.iter().flat_map(|links| links.take_events()) {
                        self.report.tell(&link.json(), &link.text());
                    }
                    for path in refused_paths(connection) {
                        self.report.warn(Warning::PathLeftOut, &format!("a path is left out: {path}"));
                    }
                    if self.cancel.is_cancelled() {
                        connection.close(CLOSE_CODE, "the client ends");
                        break Lost::interrupt();
                    }
                }
            }
        };
        self.current.send_replace(Current::Away(None));
        log_ended(connection);
        lost
    }

    /// Waits until the program has ended, if there is one.
    async fn program_ended(&self) {
        match self.purpose {
            For::Program(program) => program.ended().await,
            For::Forwards | For::Stdio(_) | For::Daemon(_) => std::future::pending().await,
        }
    }

    fn carry_stdio(&self, runtime: &Runtime, session: &Session, target: &Target) -> Result<u8, Lost> {
        let opened = runtime.block_on(self.unless_cancelled(async {
            let opened = async {
                let request = Message::Open { target: target.clone() };
                let (send, mut recv) = session.open(&request).await?;
                frames::answer(&mut recv).await.map_err(|failure| failure.to_string())?;
                Ok((send, recv))
            };
            Ok(opened.await)
        }))?;
        match opened.and_then(|streams| stdio::carry(&session.connection, streams, &self.cancel)) {
            Ok(stdio::End::InOrder) => Ok(exit::DONE),
            Ok(stdio::End::Interrupted) => Err(Lost::interrupt()),
            Err(message) => {
                exit::report(self.server.transport.json, exit::INCOMPLETE, &message);
                Ok(exit::INCOMPLETE)
            }
        }
    }
}
