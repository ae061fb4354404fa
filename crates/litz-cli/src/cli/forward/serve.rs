//! `litz forward serve`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forward::message::Message;
use forward::policy::Policy;
use forwarding::frames::{self, FrameError};
use forwarding::listeners::Listeners;
use forwarding::session::{AllowedRequests, Session, Streams, transport};
use forwarding::sources::Sources;
use litz::identity::PublicKey;
use litz::{Connection, Endpoint};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{MissedTickBehavior, interval, timeout};
use transfer::{
    Authoriser, CLOSE_CODE, CancelToken, Proof, Refusal, Secret, Ticket, TicketAddress, TicketAuthoriser, peer_key,
    proof_context,
};

use super::options::ServeOptions;
use super::report::Report;
use super::setup::runtime;
use crate::cli::connection_log::{log_connected, log_ended};
use crate::cli::host::{self, HostState};
use crate::cli::links::Links;
use crate::cli::recording::Recording;
use crate::cli::serving::admission::{Places, VisitorId};
use crate::cli::serving::allowed::ListedAuthoriser;
use crate::cli::serving::authorisation::{Admission, check_lifetime};
use crate::cli::serving::refusals;
use crate::cli::serving::sandbox::lookup_advice;
use crate::cli::serving::sandbox::{self, Rights, Sandbox, folder_of};
use crate::cli::serving::start::{AdmissionRequest, Request, Serving, start};
use crate::cli::serving::visits::{Closing, PlacingAuthoriser, Visits};
use crate::cli::warning::Warning;
use crate::cli::{exit, out, signals, tls};

/// Clients that are served at a time, and how many of them may have the same key: a user may run
/// several commands.
const PLACES: Places = Places { count: 256, per_key: 64, kept_for_new_keys: 32 };

/// What this host is called in messages.
const HOST: &str = "server";

/// How often the server looks for an interrupt, late visitors, and changes of its ticket or list.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The time that an earlier connection of a client has to free its listeners.
const SUPERSEDED_TIME: Duration = Duration::from_secs(5);

/// The time that closed connections have to tell their peers.
const CLOSE_TIME: Duration = Duration::from_secs(1);

pub(super) fn run(options: &ServeOptions) -> Result<u8, String> {
    options.listening.check()?;
    check_lifetime(options.expires, "client")?;
    let policy = Arc::new(Policy::new(options.targets.clone(), options.listeners.clone()));
    check_listeners(&policy)?;
    if options.targets.is_empty() && options.listeners.is_empty() {
        return Err("clients would be allowed nothing: name targets with --target, such as --target localhost:22, or \
                    ports with --permit-listen"
            .to_owned());
    }
    let sources = Sources::of(&options.sources).map_err(|error| error.to_string())?;
    let state = host::open_state(options.transport.state_dir.as_deref())?;
    let cancel = signals::cancel_token().map_err(|error| format!("cannot handle signals: {error}"))?;
    let trace = Recording::open_trace(&options.transport)?;
    // Before the first thread starts.
    let sandbox = sandbox::enter(options.sandbox, &rights(options, &policy)?)?;
    let recording = Recording::with(trace, &options.transport)?;
    let transport = transport(recording.transport(&options.transport));
    transport.validate()?;
    let purpose = purpose(options);
    let admission = AdmissionRequest {
        allow: options.allow.as_deref(),
        read_keys: None,
        purpose: &purpose,
        expires: options.expires,
        new_ticket: options.new_ticket,
        is_for_one_run: false,
        invited: None,
    };
    let (listening, output) = (&options.listening, &options.transport);
    let request = Request {
        listening,
        options: output,
        transport,
        tls: tls::server(&state.key, forward::ALPN)?,
        admission,
        event_handler: None,
    };
    let runtime = runtime()?;
    let Serving { endpoint, links, admission, addresses, advice } = start(request, &state)?;
    let visits = Arc::new(Visits::new(admission.visitors(PLACES), HOST));
    let server = Arc::new(Server {
        state,
        purpose,
        endpoint,
        admission,
        visits,
        policy,
        sources,
        udp_idle: options.udp_idle,
        report: Arc::new(Report::new(&options.transport)),
        runs: Mutex::default(),
    });
    server.announce(options, &addresses, &advice, &sandbox)?;
    // systemd waits for it, if the unit says Type=notify. Elsewhere nothing is done.
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!(%error, "cannot tell the service manager that the server is ready");
    }
    let status = runtime.block_on(server.accept(&links, &cancel, options));
    server.visits.close_unproven();
    server.endpoint.close();
    runtime.shutdown_timeout(CLOSE_TIME);
    recording.finish(&options.transport);
    status
}

/// Refuses rules that allow nothing.
fn check_listeners(policy: &Policy) -> Result<(), String> {
    for path in policy.unix_listeners() {
        let folder = folder_of(path.as_path());
        if !folder.is_dir() {
            let shown = folder.display();
            return Err(format!("--permit-listen {path}: there is no folder {shown}, so no client can listen there"));
        }
    }
    Ok(())
}

/// What the server may do once it runs. Landlock does not limit connecting to UNIX sockets.
fn rights(options: &ServeOptions, policy: &Policy) -> Result<Rights, String> {
    let folders = policy.unix_listeners().map(|path| folder_of(path.as_path()));
    let sockets = folders.filter(|folder| folder.is_dir()).collect();
    Ok(Rights { sockets, tcp: true, names: true, ..Rights::of_server(&options.transport, options.allow.as_deref())? })
}

/// What a ticket is for: these rules. So a ticket gives no more than what it was issued for, when a
/// server is started again with other rules. It is no absolute path, as those of receivers are.
fn purpose(options: &ServeOptions) -> PathBuf {
    fn sorted(rules: &[impl ToString]) -> String {
        let mut texts: Vec<String> = rules.iter().map(ToString::to_string).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.join(", ")
    }
    let purpose = match (sorted(&options.targets), sorted(&options.listeners)) {
        (targets, listeners) if listeners.is_empty() => format!("forward to {targets}"),
        (targets, listeners) if targets.is_empty() => format!("forward from {listeners}"),
        (targets, listeners) => format!("forward to {targets}, from {listeners}"),
    };
    PathBuf::from(purpose)
}

/// Why a client may not forward.
struct NotAdmitted {
    reason: String,
    /// It was told why.
    is_answered: bool,
}

impl From<String> for NotAdmitted {
    fn from(reason: String) -> Self {
        Self { reason, is_answered: false }
    }
}

impl From<FrameError> for NotAdmitted {
    fn from(error: FrameError) -> Self {
        error.to_string().into()
    }
}

/// A running server.
struct Server {
    state: HostState,
    purpose: PathBuf,
    endpoint: Endpoint,
    admission: Admission,
    visits: Arc<Visits>,
    policy: Arc<Policy>,
    sources: Sources,
    udp_idle: units::Duration,
    report: Arc<Report>,
    /// The connections of clients by key and run, so that a client that reconnects replaces its own.
    /// As many as there are places.
    runs: Mutex<BTreeMap<(PublicKey, [u8; 16]), Run>>,
}

/// The connection of a client, and a lock that it holds while it has listeners.
#[derive(Clone)]
struct Run {
    id: VisitorId,
    connection: Connection,
    is_served: Arc<tokio::sync::Mutex<()>>,
}

impl Server {
    /// Prints the ticket.
    fn announce(
        &self,
        options: &ServeOptions,
        found: &[TicketAddress],
        advice: &[String],
        sandbox: &Sandbox,
    ) -> Result<(), String> {
        let json = options.transport.json;
        let fingerprint = self.state.key.public().fingerprint();
        let port = self.endpoint.local_addr().port();
        let addresses = options.listening.ticket_addresses(found, port);
        if let Some(warning) = options.listening.loopback_warning(&addresses) {
            self.report.warn(Warning::LoopbackOnly, &warning);
        }
        let (secret, expires_unix, bound) = match &self.admission {
            Admission::Ticket(ticket) => {
                let issued = &ticket.issued;
                (issued.secret.clone(), issued.expires_unix, issued.bound)
            }
            Admission::Keys(_) => (Secret::generate().map_err(|error| error.to_string())?, (1 << 40) - 1, None),
        };
        let ticket = Ticket::new(addresses.clone(), fingerprint, secret, expires_unix);
        let text = ticket.to_text().map_err(|error| error.to_string())?;
        if json {
            out::json(&json!({
                "event": "listening", "ticket": text, "port": port,
                "addresses": addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "expires_unix": expires_unix, "fingerprint": fingerprint.to_string(),
                "bound_to": bound.map(|key| key.fingerprint().to_string()),
                "targets": self.policy.targets().collect::<Vec<_>>(), "advice": advice, "sandbox": sandbox.0,
            }));
            return out::check();
        }
        for advice in advice {
            exit::advise(options.transport.quiet, advice);
        }
        let by_key = if matches!(self.admission, Admission::Keys(_)) { " --by-key" } else { "" };
        out::note("Forwarding. On the client's host run, for instance:\n");
        out::line(&format!("litz forward{by_key} -L PORT:HOST:HOSTPORT {text}"));
        out::check()?;
        out::note(&match (&self.admission, bound) {
            (Admission::Ticket(_), None) => format!(
                "\nThe ticket is a secret. It belongs to the first client that uses it, until {}.",
                host::utc(expires_unix)
            ),
            (Admission::Ticket(_), Some(bound)) => {
                format!("\nUntil {}, the ticket serves {}.", host::utc(expires_unix), bound.fingerprint())
            }
            (Admission::Keys(_), _) => "\nServing the listed keys. Press Ctrl-C to stop.".to_owned(),
        });
        Ok(())
    }

    /// Serves clients until the user interrupts, or the ticket cannot be used any more.
    async fn accept(
        self: &Arc<Self>,
        links: &Links,
        cancel: &CancelToken,
        options: &ServeOptions,
    ) -> Result<u8, String> {
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                connection = self.endpoint.accept_async(), if self.visits.has_space() => {
                    let connection = connection.map_err(|error| error.to_string())?;
                    // The handshake has authenticated a key of the only kind that TLS accepts.
                    let Ok(key) = peer_key(&connection) else { continue };
                    self.refresh_keys();
                    let id = self.visits.admit(&connection, key, self.admission.is_known(&key));
                    let server = Arc::clone(self);
                    tokio::spawn(async move {
                        server.serve(&connection, key, id).await;
                        server.visits.end(id);
                    });
                }
                _ = look.tick() => {
                    self.visits.close_overdue();
                    links.tell(options.transport.json, options.transport.quiet);
                    self.refresh_keys();
                    if cancel.is_cancelled() {
                        self.close_all();
                        let _told = timeout(CLOSE_TIME, self.endpoint.wait_idle_async()).await;
                        exit::report(options.transport.json, exit::INTERRUPTED, self.interrupted());
                        return Ok(exit::INTERRUPTED);
                    }
                    if let Admission::Ticket(ticket) = &self.admission {
                        if ticket.is_revoked() {
                            self.close_all();
                            return Err("the ticket was revoked: run the command again for a new ticket".to_owned());
                        }
                        if ticket.is_expired() && self.visits.senders() == 0 {
                            return Err("the ticket has expired: run the command again for a new ticket".to_owned());
                        }
                    }
                }
            }
        }
    }

    const fn interrupted(&self) -> &'static str {
        match &self.admission {
            Admission::Ticket(_) => {
                "interrupted; the ticket remains valid: run the same command again to serve it, or use `litz tickets`"
            }
            Admission::Keys(_) => "interrupted; run the same command again to serve the listed keys",
        }
    }

    /// Tells all clients that the server ends.
    fn close_all(&self) {
        self.visits.close_unproven();
        for run in self.lock().values() {
            run.connection.close(CLOSE_CODE, &Closing::Ending.reason(HOST));
        }
    }

    /// Reads the list of keys again if it changed, and ends the connections of removed keys.
    fn refresh_keys(&self) {
        self.admission.refresh_keys(&self.visits, |kind, message| self.report.warn(kind, message));
    }

    /// Serves one connection.
    async fn serve(self: &Arc<Self>, connection: &Connection, key: PublicKey, id: VisitorId) {
        log_connected(connection);
        let peer = connection.remote_addr();
        let (streams, run) = match self.admit(connection, key, id).await {
            Ok(admitted) => admitted,
            Err(NotAdmitted { reason, is_answered }) => {
                let reason = self.visits.closing(id).map_or(reason, |closing| closing.note().to_owned());
                // A client tries all our addresses and keeps the first that answers. It closes the
                // other connections without sending anything.
                if connection.close_reason().is_some() && !is_answered {
                    return tracing::info!(%peer, reason, "a connection ended without a message");
                }
                connection.close(CLOSE_CODE, "refused");
                let event = json!({
                    "event": "client_refused", "peer": peer.to_string(), "key": key.to_string(), "message": reason,
                });
                return self.report.fail(&event, &format!("{peer}: {reason}"));
            }
        };
        let name = match &self.admission {
            Admission::Keys(keys) => keys.name(&key),
            Admission::Ticket(_) => peer.to_string(),
        };
        let event = |name: &str| json!({ "event": name, "peer": peer.to_string(), "key": key.to_string() });
        self.report.tell(&event("client_connected"), &format!("{name} is connected"));
        let guard = self.replace(key, run, id, connection).await;
        let session = Session::new(connection.clone(), name.clone(), self.udp_idle, self.report.clone())
            .with_lookup_advice(lookup_advice);
        let reason = self.serve_client(Arc::new(session), streams).await;
        drop(guard);
        self.forget(key, run, id);
        log_ended(connection);
        let mut event = event("client_ended");
        event["message"] = reason.clone().into();
        self.report.tell(&event, &format!("{name} is gone: {reason}"));
    }

    /// Lets the client prove its right; returns the control stream and the client's run.
    async fn admit(
        self: &Arc<Self>,
        connection: &Connection,
        key: PublicKey,
        id: VisitorId,
    ) -> Result<(Streams, [u8; 16]), NotAdmitted> {
        // A visitor that opens no stream is closed when its Hello is late, which ends this wait.
        let (mut send, mut recv) = connection.accept_bi_async().await.map_err(|error| error.to_string())?;
        let Message::Hello { run, proof } = frames::receive(&mut recv, frames::PROMPT).await? else {
            return Err("its first message is not Hello".to_owned().into());
        };
        let (server, connection) = (Arc::clone(self), connection.clone());
        let decide = move || server.decide(&connection, key, id, proof.map(Proof::from_bytes).as_ref());
        // It reads and writes the file of tickets.
        let decided = tokio::task::spawn_blocking(decide).await.map_err(|error| error.to_string())?;
        match decided? {
            Ok(proof) => {
                let proof = proof.map(|proof| *proof.as_bytes());
                frames::send(&mut send, &Message::Accepted { proof }).await?;
                Ok(((send, recv), run))
            }
            Err(refusal) => {
                frames::send(&mut send, &Message::Refused { code: refusal as u8 }).await?;
                // The client closes the connection once it has read why.
                let _over = send.finish();
                let _over = timeout(frames::PROMPT, send.wait_finished_async()).await;
                Err(NotAdmitted { reason: refusals::message(refusal, &key), is_answered: true })
            }
        }
    }

    fn decide(
        &self,
        connection: &Connection,
        key: PublicKey,
        id: VisitorId,
        proof: Option<&Proof>,
    ) -> Result<Result<Option<Proof>, Refusal>, String> {
        let own = self.state.key.public().fingerprint();
        let context = proof_context(connection, key, own).map_err(|error| error.to_string())?;
        let inner: Box<dyn Authoriser> = match &self.admission {
            Admission::Ticket(_) => {
                let store = self.state.store.clone();
                Box::new(TicketAuthoriser::new(store, self.purpose.clone(), host::ticket_clock()))
            }
            Admission::Keys(keys) => Box::new(ListedAuthoriser(Arc::clone(keys))),
        };
        let mut authoriser = PlacingAuthoriser { inner, visits: Arc::clone(&self.visits), id };
        Ok(authoriser.authorise(&context, proof))
    }

    /// Makes this the connection of a client's run, and waits until an earlier one has closed its
    /// listeners.
    async fn replace(
        &self,
        key: PublicKey,
        run: [u8; 16],
        id: VisitorId,
        connection: &Connection,
    ) -> Option<OwnedMutexGuard<()>> {
        let before = self.lock().get(&(key, run)).cloned();
        let is_served = before.as_ref().map_or_else(Arc::default, |before| Arc::clone(&before.is_served));
        let own = Run { id, connection: connection.clone(), is_served: Arc::clone(&is_served) };
        self.lock().insert((key, run), own);
        if let Some(before) = before {
            before.connection.close(CLOSE_CODE, &Closing::Superseded.reason(HOST));
        }
        timeout(SUPERSEDED_TIME, is_served.lock_owned()).await.ok()
    }

    fn forget(&self, key: PublicKey, run: [u8; 16], id: VisitorId) {
        let mut runs = self.lock();
        if runs.get(&(key, run)).is_some_and(|run| run.id == id) {
            runs.remove(&(key, run));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(PublicKey, [u8; 16]), Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a client until its connection ends, and closes its listeners; returns why.
    async fn serve_client(&self, session: Arc<Session>, (mut send, mut recv): Streams) -> String {
        let listeners = Arc::new(Listeners::new(Arc::clone(&self.policy)));
        let others = Arc::clone(&listeners);
        let allowed = Arc::new(AllowedRequests::Server(Arc::clone(&self.policy), self.sources, others));
        let mut open = Vec::new();
        let control = async {
            loop {
                match frames::read(&mut recv).await {
                    Ok(Message::Listen { id, listen }) => {
                        let answer = match listeners.open(&session, id, &listen) {
                            Ok(opened) => {
                                let listen = opened.listen.clone();
                                open.push(opened);
                                Message::Listening { id, listen }
                            }
                            Err(failure) => Message::NotListening { id, failure },
                        };
                        if let Err(error) = frames::send(&mut send, &answer).await {
                            return error.to_string();
                        }
                    }
                    Ok(_) => return "it sent a message that is not expected on its control stream".to_owned(),
                    Err(error) => return error.to_string(),
                }
            }
        };
        let reason = tokio::select! {
            closed = session.run(&allowed) => closed.to_string(),
            error = control => session.connection.close_reason().map_or(error, |closed| closed.to_string()),
        };
        session.connection.close(CLOSE_CODE, &reason);
        // Their ports are free before a later connection of the client asks for them.
        for listener in open {
            listener.close().await;
        }
        listeners.all_closed().await;
        reason
    }
}
