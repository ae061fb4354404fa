//! `litz forward`: the client, which connects to a server and keeps listeners open for its user.
//!
//! | module | contents |
//! |---|---|
//! | [`access`] | the server, and the right to use it |
//! | [`listening`] | the listeners of this host |
//! | [`connecting`] | connects, and reconnects |
//! | [`opening`] | the beginning of a connection: the proof, and the listeners of the server |
//! | [`serving`] | the connection until it ends |

pub(super) mod access;
mod connecting;
mod listening;
mod opening;
mod serving;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use forward::address::{Address, Host, Protocol, Target};
use forward::spec::{Dynamic, Forward, Listen};
use forwarding::handshakes::Handshakes;
use forwarding::listener::places;
use forwarding::session::transport;
use forwarding::sessions::{Current, Sessions};
use litz::{Closed, TransportConfig};
use net::MonotonicClock;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use transfer::{CancelToken, RunId};

use self::access::Access;
use super::daemon::server::DaemonSocket;
use super::options::{ClientOptions, Forwards, ServerOptions};
use super::own::Own;
use super::program::Program;
use super::report::Report;
use super::setup::runtime;
use crate::cli::connect::BUSY_SERVER;
use crate::cli::host::{self, HostState};
use crate::cli::lost::Lost;
use crate::cli::recording::Recording;
use crate::cli::{exit, out, signals};

/// How often the client looks for an interrupt and for changes of its links.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The time that reset connections have to reach their peers at the end.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(1);

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
    /// The handshakes of its SOCKS clients.
    handshakes: Arc<Handshakes>,
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
            handshakes: Arc::default(),
        })
    }

    fn run(&self, runtime: &Runtime) -> Result<u8, Lost> {
        let _listeners = self.listen(runtime).map_err(Lost::last)?;
        self.keep_connected(runtime)
    }

    /// Connections for programs.
    pub(super) fn own(&self) -> Own {
        Own { sessions: self.sessions(), places: Arc::clone(&self.places) }
    }

    fn sessions(&self) -> Sessions {
        Sessions::Current(self.current.subscribe())
    }

    /// Why a connection ended.
    fn explain(&self, closed: &Closed) -> Lost {
        match closed {
            Closed::ByPeer { reason, .. } if reason.starts_with(BUSY_SERVER) => {
                Lost::passing("the server is busy: it serves as many clients as it can".to_owned())
            }
            Closed::Local if self.cancel.is_cancelled() => Lost::interrupt(),
            closed => Lost::passing(format!("the connection was lost: {closed}")),
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
}
