//! `litz recv [DIR]`.

mod admission;
mod allowed;
mod arrivals;
mod authorisation;
mod descriptors;
mod directory;
mod file_watch;
mod quota;
mod refusals;
pub(crate) mod sandbox;
mod sender_folder;
mod served_ticket;
mod sockets;
mod visits;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use litz::identity::{PublicKey, server_config};
use litz::{Connection, Endpoint, EndpointConfig};
use serde_json::json;
use transfer::{
    Authoriser, CLOSE_CODE, CancelToken, ConnectionLink, OpenFiles, ReceiveOptions, Refusal, Secret, StreamOutput,
    Summary, Ticket, TicketAddress, TicketAuthoriser, TransferError, control, peer_key, proof_context, receive,
};

use super::args::{Advertised, RecvOptions};
use super::connect::transport;
use super::connection_log::{log_connected, log_ended};
use super::exit;
use super::host::{self, HostState};
use super::journals::Journals;
use super::links::{LinkBaseline, Links};
use super::out;
use super::path_report::{self, watch_paths};
use super::progress::{Direction, Progress};
use super::scheduler_trace::Trace;
use super::signals;
use super::takeover::{ActiveAttempt, SILENCE_MAX, TAKEOVER_TIMEOUT, TakeoverAuthoriser};
use super::warning::Warning;
use admission::VisitorId;
use allowed::ListedAuthoriser;
use arrivals::TimedLink;
use authorisation::{Admission, unfinished_ticket};
use directory::{check, current_umask};
use sandbox::{Places, Sandbox};
use sockets::{ListenSockets, listen};
use visits::{PlacingAuthoriser, Visits};

/// How often the waiting receiver checks for an interrupt, for late visitors, and for changes of its
/// ticket or its list of keys.
const WAKE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(200);

/// Told to visitors without a proof when the receiver ends.
const ENDING: &str = "the receiver ends";

pub(crate) fn run(options: &RecvOptions) -> ExitCode {
    let json = options.transport.json;
    if options.output.is_some() {
        out::redirect();
    }
    let served = Receiver::prepare(options).and_then(|receiver| {
        let status = receiver.run()?;
        if status == exit::INTERRUPTED {
            exit::report(json, status, &receiver.interrupt_message());
        }
        Ok(status)
    });
    match served {
        Ok(status) => ExitCode::from(status),
        Err(message) => exit::fail(json, exit::FAILED, &message),
    }
}

/// A listening receiver.
struct Receiver<'a> {
    options: &'a RecvOptions,
    directory: PathBuf,
    state: HostState,
    endpoint: Endpoint,
    links: Links,
    sandbox: Sandbox,
    /// The addresses it listens on, best first.
    addresses: Vec<TicketAddress>,
    /// Settings of this host that the user may want to change.
    advice: Vec<String>,
    trace: Option<Trace>,
    journals: Option<Journals>,
    admission: Admission,
    visits: Arc<Visits>,
    /// Shared by all transfers.
    open_files: OpenFiles,
    rooms: quota::Rooms,
    /// Standard output, if the data goes there.
    output: Option<StreamOutput>,
    cancel: CancelToken,
    current: ActiveAttempt,
}

/// The files that the receiver uses from now on.
fn places(options: &RecvOptions, directory: &Path) -> Result<Places, String> {
    let mut places = Places::default();
    if options.output.is_none() {
        places.writable.push(directory.to_owned());
    }
    places.writable.push(host::state_directory(options.transport.state_dir.as_deref())?);
    // What does not exist yet is created in its parent.
    let recorded = [&options.transport.journal, &options.transport.qlog].into_iter().flatten();
    let recorded = recorded.map(|folder| if folder.is_dir() { folder.clone() } else { Places::folder_of(folder) });
    let key_log = std::env::var_os("SSLKEYLOGFILE").map(PathBuf::from);
    let files = [options.transport.trace_scheduler.as_ref(), key_log.as_ref()].into_iter().flatten();
    let written = recorded.chain(files.map(|file| Places::folder_of(file)));
    places.writable.extend(written.filter(|folder| folder.is_dir()));
    // An editor replaces the list by another file of its name. It may be a link to one elsewhere.
    let list = options.allow.as_deref();
    let named = list.into_iter().map(Path::to_owned).chain(list.and_then(|list| list.canonicalize().ok()));
    places.readable.extend(named.map(|list| Places::folder_of(&list)).filter(|folder| folder.is_dir()));
    Ok(places)
}

/// How the connection of one sender ended.
struct Attempt {
    peer: SocketAddr,
    /// The peer's key, as the handshake has authenticated it.
    key: PublicKey,
    authorised: bool,
    result: Result<Summary, TransferError>,
}

impl<'a> Receiver<'a> {
    fn prepare(options: &'a RecvOptions) -> Result<Self, String> {
        let directory = check(options)?;
        let output = options.output.as_ref().map(|_| stdout()).transpose()?;
        let state = host::open_state(options.transport.state_dir.as_deref())?;
        let cancel = signals::cancel_token().map_err(|error| format!("cannot handle signals: {error}"))?;
        let trace = options.transport.trace_scheduler.as_deref().map(Trace::create).transpose()?;
        // Before the first thread starts.
        let sandbox = sandbox::enter(options.sandbox, &places(options, &directory)?)?;
        let journals = Journals::of(&options.transport)?;
        let transport = transport(&options.transport, None, trace.as_ref(), journals.as_ref())?;
        let now = host::now_unix();
        let unfinished = unfinished_ticket(options, &state, now, &directory)?;
        let port = options.listen.map_or(0, |listen| listen.port);
        let port = if port == 0 { unfinished.as_ref().map_or(0, |(issued, _)| issued.port) } else { port };
        let tls = server_config(&state.key).map_err(|error| error.to_string())?;
        let baseline = LinkBaseline::take();
        let listening = listen(options, port).map_err(|error| match &unfinished {
            Some((issued, _)) => format!(
                "{error}. An unfinished ticket for this directory needs port {}: if another program uses it, stop \
                     that program, or use --new-ticket for a new ticket",
                issued.port
            ),
            None => error,
        })?;
        let ListenSockets { port, addresses, sockets, bound, advice } = listening;
        let placement = options.transport.placement;
        let config = EndpointConfig::default().with_transport(transport).with_placement(placement).with_server_tls(tls);
        // A receiver that is started again for the same ticket has the same port, and tells senders
        // that their connections are gone. Another receiver of this host has another key: it must
        // not end the connections of this one (RFC 9000, section 21.11).
        let listen_ip = options.listen.and_then(|listen| listen.ip);
        let purpose = format!("stateless resets of port {port}, address {listen_ip:?}");
        let config = config.with_reset_key(state.key.derive_secret(&purpose));
        let endpoint = Endpoint::with_sockets(config, sockets).map_err(|error| error.to_string())?;
        let links = Links::follow(baseline, bound, |_| Vec::new());
        let admission = Admission::prepare(options, &state, now, &directory, port, unfinished)?;
        let visits = Arc::new(Visits::new(admission.visitors()));
        let current = ActiveAttempt::new(TAKEOVER_TIMEOUT, SILENCE_MAX);
        let receiver = Self {
            options,
            directory,
            state,
            endpoint,
            links,
            sandbox,
            addresses,
            advice,
            trace,
            journals,
            admission,
            visits,
            open_files: descriptors::open_files(),
            rooms: quota::Rooms::default(),
            output,
            cancel,
            current,
        };
        receiver.announce()?;
        // systemd waits for it, if the unit says Type=notify. Elsewhere nothing is done.
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            tracing::warn!(%error, "cannot tell the service manager that the receiver is ready");
        }
        Ok(receiver)
    }

    /// Prints the ticket. A failure is an error, because no sender can connect without the ticket.
    fn announce(&self) -> Result<(), String> {
        let fingerprint = self.state.key.public().fingerprint();
        let (secret, expires_unix, resumed) = match &self.admission {
            Admission::Ticket(ticket) => {
                let issued = &ticket.issued;
                (issued.secret.clone(), issued.expires_unix, issued.bound.is_some())
            }
            // With --allow the ticket is no credential: it only contains the server's addresses and
            // its key.
            Admission::Keys(_) => (Secret::generate().map_err(|error| error.to_string())?, (1 << 40) - 1, false),
        };
        let addresses = self.addresses();
        let ticket = Ticket::new(addresses.clone(), fingerprint, secret, expires_unix);
        let text = ticket.to_text().map_err(|error| error.to_string())?;
        let directory = match &self.output {
            Some(_) => "standard output".to_owned(),
            None => self.directory.display().to_string(),
        };
        if self.options.transport.json {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            out::json(&json!({
                "event": "listening", "ticket": text, "directory": directory.to_string(),
                "port": self.endpoint.local_addr().port(), "addresses": addresses,
                "expires_unix": expires_unix, "fingerprint": fingerprint.to_string(), "resumed": resumed,
                "advice": self.advice, "sandbox": self.sandbox.0,
            }));
            return out::check();
        }
        for advice in &self.advice {
            exit::advise(self.options.transport.quiet, advice);
        }
        let by_key = if matches!(self.admission, Admission::Keys(_)) { " --by-key" } else { "" };
        let paths = if self.output.is_some() { "-" } else { "PATH..." };
        let what = if resumed { "Resuming" } else { "Receiving" };
        out::note(&format!("{what} into {directory}. On the sending host run:\n"));
        out::line(&format!("litz send{by_key} {paths} {text}"));
        out::check()?;
        out::note(&match &self.admission {
            Admission::Ticket(_) => format!(
                "\nThe ticket is a secret. It is valid for one sender, until it is used or expires on {}.",
                host::utc(expires_unix)
            ),
            Admission::Keys(_) => "\nAccepting transfers from the listed keys. Press Ctrl-C to stop.".to_owned(),
        });
        Ok(())
    }

    fn addresses(&self) -> Vec<TicketAddress> {
        if self.options.advertise.is_empty() {
            return self.addresses.clone();
        }
        let port = self.endpoint.local_addr().port();
        let chosen = self.options.advertise.iter().map(|address| match *address {
            Advertised::Ip(ip) => SocketAddr::new(ip, port),
            Advertised::Socket(address) => address,
        });
        chosen.map(TicketAddress::Socket).collect()
    }

    /// Serves senders, then completes the trace and the journals.
    fn run(&self) -> Result<u8, String> {
        let result = self.serve();
        self.endpoint.close();
        if !matches!(result, Ok(exit::DONE)) {
            self.revoke_for_output();
        }
        self.print_refusal_count(true);
        self.warn_of_trace_errors();
        if let Some(note) = self.trace.as_ref().and_then(Trace::emptiness_note) {
            self.warn(Warning::Trace, &note);
        }
        for error in self.journals.iter().flat_map(Journals::take_errors) {
            self.warn(Warning::Journal, &error);
        }
        result
    }

    /// A ticket for standard output serves no other receiver.
    fn revoke_for_output(&self) {
        let Admission::Ticket(ticket) = &self.admission else { return };
        if self.output.is_some()
            && let Err(error) = self.state.store.revoke(&ticket.issued.id)
        {
            tracing::warn!(%error, "cannot revoke the ticket");
        }
    }

    /// What an interrupt leaves, and how to continue.
    fn interrupt_message(&self) -> String {
        match &self.admission {
            Admission::Ticket(_) if self.output.is_some() => {
                "interrupted; the data is incomplete and the ticket is revoked: run the command again for a new one"
                    .to_owned()
            }
            Admission::Ticket(ticket) => format!(
                "interrupted; the ticket remains valid: run the same command again to serve it, or `litz tickets \
                 revoke {}` to revoke it",
                ticket.issued.id
            ),
            Admission::Keys(_) => {
                "interrupted; no transfers are accepted now: run the same command again to accept them".to_owned()
            }
        }
    }

    fn warn_of_trace_errors(&self) {
        for error in self.trace.iter().flat_map(Trace::take_errors) {
            self.warn(Warning::Trace, &error);
        }
    }

    fn warn(&self, warning: Warning, message: &str) {
        warning.print(self.options.transport.json, self.options.transport.quiet, message);
    }

    /// Serves senders until a transfer is complete, the ticket expires or is revoked, or the user
    /// interrupts.
    fn serve(&self) -> Result<u8, String> {
        let (ended, attempts) = mpsc::channel::<Attempt>();
        let outcome = std::thread::scope(|scope| {
            let outcome = loop {
                self.warn_of_trace_errors();
                // Looked at before the attempts are: a visitor that has left has reported its attempt.
                let (is_empty, senders) = (self.visits.is_empty(), self.visits.senders());
                if let Some(outcome) = attempts.try_iter().find_map(|attempt| self.conclude(&attempt)) {
                    break outcome;
                }
                if let Some(outcome) = self.check(is_empty, senders) {
                    break outcome;
                }
                if !self.visits.has_space() {
                    // Displaced visitors are ending. Newcomers wait in the endpoint's queue.
                    let attempt = attempts.recv_timeout(WAKE_INTERVAL);
                    if let Some(outcome) = attempt.ok().and_then(|attempt| self.conclude(&attempt)) {
                        break outcome;
                    }
                    continue;
                }
                let connection = match self.endpoint.accept_timeout(WAKE_INTERVAL) {
                    Ok(Some(connection)) => connection,
                    Ok(None) => continue,
                    Err(error) => break Err(error.to_string()),
                };
                // The handshake has authenticated a key of the only kind that TLS accepts.
                let Ok(key) = peer_key(&connection) else { continue };
                if self.cancel.is_cancelled() {
                    connection.close(CLOSE_CODE, ENDING);
                    continue;
                }
                self.refresh_keys();
                let id = self.visits.admit(&connection, key, self.is_known(&key));
                let ended = ended.clone();
                scope.spawn(move || {
                    // The receiver of the channel outlives this thread.
                    let _sent = ended.send(self.receive_from(&connection, key, id));
                    self.visits.end(id);
                });
            };
            // The scope waits for all visitors.
            self.cancel.cancel();
            self.visits.close_unproven(ENDING);
            outcome
        });
        // What ends now has no effect on the outcome. Refused visitors are still reported.
        for attempt in attempts.try_iter().filter(|attempt| !attempt.authorised) {
            let _ended = self.conclude(&attempt);
        }
        outcome
    }

    /// The regular checks. `is_empty` and `senders` are the state of the visits. Returns the status
    /// or the error if one ends the command.
    fn check(&self, is_empty: bool, senders: usize) -> Option<Result<u8, String>> {
        self.visits.close_overdue();
        self.links.tell(self.options.transport.json, self.options.transport.quiet);
        self.print_refusal_count(false);
        self.refresh_keys();
        if self.cancel.is_cancelled() {
            self.visits.close_unproven(ENDING);
            return is_empty.then_some(Ok(exit::INTERRUPTED));
        }
        match &self.admission {
            Admission::Ticket(ticket) if ticket.is_revoked() => {
                Some(Err("the ticket was revoked: run `litz recv` again for a new ticket".into()))
            }
            Admission::Ticket(ticket) if ticket.is_expired() && senders == 0 => Some(Err(
                "the ticket has expired without a complete transfer: run `litz recv` again for a new ticket".into(),
            )),
            Admission::Ticket(_) | Admission::Keys(_) => None,
        }
    }

    /// Reads the list of keys again if it changed, and ends the transfers of removed keys.
    fn refresh_keys(&self) {
        let Admission::Keys(keys) = &self.admission else { return };
        let refreshed = keys.refresh();
        if let Some(warning) = refreshed.warning {
            self.warn(Warning::AllowedKeys, &warning);
        }
        if refreshed.is_changed {
            self.visits.close_unless(|key| keys.allows(key), "the receiver no longer allows this key");
        }
    }

    /// Whether a visitor with this key has the right to send, so that it gets a place of its own.
    fn is_known(&self, key: &PublicKey) -> bool {
        match &self.admission {
            Admission::Ticket(ticket) => ticket.bound().as_ref() == Some(key),
            Admission::Keys(keys) => keys.allows(key),
        }
    }

    /// Reports how an attempt ended; returns the status or the error if that ends the command.
    fn conclude(&self, attempt: &Attempt) -> Option<Result<u8, String>> {
        let is_ticket = matches!(self.admission, Admission::Ticket(_));
        match &attempt.result {
            Ok(summary) if is_ticket && summary.is_complete() => Some(Ok(summary.exit_code())),
            Ok(summary) if self.output.is_some() => Some(Ok(summary.exit_code())),
            // The sender was told to send again, with the same ticket.
            Ok(summary) if is_ticket => {
                self.print_incomplete(attempt, summary);
                None
            }
            // With --allow the receiver continues.
            Ok(_) => None,
            Err(error) if error.exit_code() == exit::INTERRUPTED => Some(Ok(exit::INTERRUPTED)),
            // The next attempt would fail the same way. Only the ticket's own sender gets this far,
            // so an unauthorised host cannot end the command.
            Err(error) if is_ticket && attempt.authorised && !error.is_resumable() => {
                Some(Err(format!("{}: {error}", attempt.peer)))
            }
            // A sender tries all our addresses and keeps the first that answers. It closes the
            // other connections without sending anything.
            Err(error @ (TransferError::Connection(_) | TransferError::Silence)) if !attempt.authorised => {
                tracing::info!(peer = %attempt.peer, %error, "a connection ended without a message");
                None
            }
            // A sender that waits for the running transfer tries several times.
            Err(TransferError::Refused(Refusal::Running)) if !self.current.is_refusal_news() => None,
            Err(error) => {
                if attempt.authorised || self.visits.prints_refusal() {
                    self.print_end(attempt, error);
                }
                None
            }
        }
    }

    /// Prints that files of a transfer have failed.
    fn print_incomplete(&self, attempt: &Attempt, summary: &Summary) {
        let failed = summary.failed;
        let files = if failed == 1 { "1 file was".to_owned() } else { format!("{failed} files were") };
        let message = format!(
            "{files} not received; the ticket stays valid: once the cause is removed, send again with the same command. \
             Waiting for the sender; Ctrl-C ends this"
        );
        if self.options.transport.json {
            out::json(&json!({
                "event": "visit_ended", "peer": attempt.peer.to_string(), "key": attempt.key.to_string(),
                "authorised": true, "message": message,
            }));
        } else {
            exit::report(false, exit::FAILED, &format!("{}: {message}", attempt.peer));
        }
    }

    /// Prints that a sender left before the end, or was refused.
    fn print_end(&self, attempt: &Attempt, error: &TransferError) {
        let key = attempt.key.fingerprint();
        let bound = match (&self.admission, error) {
            (Admission::Ticket(ticket), TransferError::Refused(Refusal::BoundToAnotherKey)) => ticket.bound(),
            _ => None,
        };
        let bound = bound.map(|key| key.fingerprint().to_string());
        if self.options.transport.json {
            let message = match error {
                TransferError::Refused(refusal) => refusals::message(*refusal, &attempt.key),
                _ => error.to_string(),
            };
            let mut event = json!({
                "event": "visit_ended", "peer": attempt.peer.to_string(), "key": attempt.key.to_string(),
                "authorised": attempt.authorised, "message": message,
            });
            if let Some(bound) = bound {
                event["bound_to"] = bound.into();
            }
            out::json(&event);
            return;
        }
        let text = match (error, bound) {
            (TransferError::Refused(refusal), None) => refusals::message(*refusal, &attempt.key),
            (_, Some(bound)) => format!("refused {key}: the ticket is bound to {bound}"),
            _ if attempt.authorised && matches!(self.admission, Admission::Ticket(_)) => {
                format!("{error}; waiting for the sender to reconnect")
            }
            _ => error.to_string(),
        };
        exit::report(false, exit::FAILED, &format!("{}: {text}", attempt.peer));
    }

    /// Prints the number of refused senders that were not printed, when it is time.
    fn print_refusal_count(&self, is_end: bool) {
        let Some(count) = self.visits.unprinted_refusals(is_end) else { return };
        if self.options.transport.json {
            out::json(&json!({ "event": "visits_refused", "count": count }));
        } else {
            out::note(&format!("litz: {count} more senders were refused"));
        }
    }

    fn receive_from(&self, connection: &Connection, key: PublicKey, id: VisitorId) -> Attempt {
        let peer = connection.remote_addr();
        log_connected(connection);
        let progress = Progress::new(Direction::Receiving, &self.options.transport);
        let mut authoriser = self.authoriser(connection, id);
        let link = TimedLink::new(ConnectionLink::new(connection));
        let started = progress.now();
        let result = self.transfer(&link, connection, key, &mut authoriser, &progress);
        match &result {
            Ok(summary) => progress.finish(summary, progress.now() - started),
            Err(_) => progress.clear(),
        }
        if authoriser.let_in {
            let (arrivals, paths) = (link.arrivals(), connection.stats().paths);
            progress.json(&json!({
                "event": "stats",
                "first_byte_us": arrivals.first.as_micros(),
                "last_byte_us": arrivals.last.as_micros(),
                "longest_gap_us": arrivals.longest_gap.as_micros(),
                "paths": paths.iter().map(path_report::as_json).collect::<Vec<_>>(),
            }));
        }
        if result.is_err() {
            connection.close(CLOSE_CODE, "the transfer ended");
        }
        if let Some(number) = authoriser.attempt {
            self.current.release(number);
        }
        log_ended(connection);
        Attempt { peer, key, authorised: authoriser.let_in, result }
    }

    fn transfer(
        &self,
        link: &TimedLink,
        connection: &Connection,
        key: PublicKey,
        authoriser: &mut TakeoverAuthoriser<'_>,
        progress: &Progress,
    ) -> Result<Summary, TransferError> {
        let broken = |error: String| TransferError::Connection(std::io::Error::other(error));
        let context = proof_context(connection, key, self.state.key.public().fingerprint())
            .map_err(|error| broken(error.to_string()))?;
        // A visitor that opens no stream is closed when its Hello is late, which ends this wait.
        let streams = connection.accept_bi().map_err(|error| TransferError::Connection(error.into()))?;
        let directory = self.directory_of(&key).map_err(broken)?;
        let quota = self.options.quota.filter(|_| directory != self.directory);
        let room = quota.map(|quota| self.rooms.take(&directory, quota.as_bytes())).transpose().map_err(broken)?;
        let options = ReceiveOptions::default()
            .with_overwrite(self.options.overwrite)
            .with_bytes_max(self.options.max_size.map(|size| size.as_bytes()))
            .with_room(room)
            .with_umask(current_umask())
            .with_open_files(self.open_files.clone())
            .with_output(self.output.clone())
            .with_cancel(self.cancel.clone());
        watch_paths(connection, Direction::Receiving, progress, None, || {
            receive::run(link, control(streams), &context, &directory, &options, authoriser, progress)
        })
    }

    /// Where the files of this sender go. Only a listed key gets a folder; another one is refused
    /// later.
    fn directory_of(&self, key: &PublicKey) -> Result<PathBuf, String> {
        match &self.admission {
            Admission::Keys(keys) if self.options.folder_per_sender && keys.allows(key) => {
                sender_folder::open(&self.directory, keys.label(key).as_deref(), key)
            }
            Admission::Keys(_) | Admission::Ticket(_) => Ok(self.directory.clone()),
        }
    }

    fn authoriser(&self, connection: &Connection, id: VisitorId) -> TakeoverAuthoriser<'_> {
        let (inner, current): (Box<dyn Authoriser>, _) = match &self.admission {
            Admission::Ticket(_) => {
                let (store, directory) = (self.state.store.clone(), self.directory.clone());
                (Box::new(TicketAuthoriser::new(store, directory, host::now_unix())), Some(&self.current))
            }
            // A listed key may run several transfers at a time.
            Admission::Keys(keys) => (Box::new(ListedAuthoriser(Arc::clone(keys))), None),
        };
        let (connection, json) = (connection.clone(), self.options.transport.json);
        let visits = Arc::clone(&self.visits);
        let inner = Box::new(PlacingAuthoriser { inner, visits, id, connection: connection.clone() });
        TakeoverAuthoriser { inner, connection, current, json, let_in: false, run: None, attempt: None }
    }
}

/// Standard output as a file of our own.
fn stdout() -> Result<StreamOutput, String> {
    let file = std::io::stdout().as_fd().try_clone_to_owned();
    Ok(StreamOutput::new(file.map_err(|error| format!("cannot write to standard output: {error}"))?.into()))
}
