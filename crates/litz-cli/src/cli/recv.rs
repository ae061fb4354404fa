//! `litz recv [DIR]`.

mod announcement;
mod arrivals;
mod attempt;
mod descriptors;
mod directory;
mod quota;
mod reports;
mod sender_folder;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use litz::Endpoint;
use litz::identity::server_config;
use transfer::{CLOSE_CODE, CancelToken, OpenFiles, Refusal, StreamOutput, TicketAddress, TransferError, peer_key};
use units::Duration;

use super::args::RecvOptions;
use super::connect::transport;
use super::exit;
use super::host::{self, HostState};
use super::journals::Journals;
use super::links::Links;
use super::out;
use super::scheduler_trace::Trace;
use super::serving::admission::Places;
use super::serving::authorisation::Admission;
use super::serving::sandbox::{self, Rights, Sandbox};
use super::serving::start::{AdmissionRequest, Request, Serving, start};
use super::serving::visits::{Closing, Visits};
use super::signals;
use super::takeover::{ActiveAttempt, SILENCE_MAX, TAKEOVER_TIMEOUT};
use super::warning::Warning;
use attempt::Attempt;
pub(crate) use directory::check;

/// How often the waiting receiver checks for an interrupt, for late visitors, and for changes of its
/// ticket or its list of keys.
const WAKE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(200);

/// Silence after which a sender whose ssh has ended counts as killed. If it was not, it connects again.
const SENDER_SILENCE_MAX: Duration = Duration::from_secs(3);

pub(crate) fn run(options: &RecvOptions) -> ExitCode {
    match signals::cancel_token() {
        Ok(cancel) => run_with(options, &cancel),
        Err(error) => exit::fail(options.transport.json, exit::FAILED, &format!("cannot handle signals: {error}")),
    }
}

/// As [`run`]; `cancel` is that of the signals.
pub(crate) fn run_with(options: &RecvOptions, cancel: &CancelToken) -> ExitCode {
    let json = options.transport.json;
    if options.output.is_some() {
        out::redirect();
    }
    let served = Receiver::prepare(options, cancel).and_then(|receiver| {
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

impl<'a> Receiver<'a> {
    fn prepare(options: &'a RecvOptions, cancel: &CancelToken) -> Result<Self, String> {
        let directory = check(options)?;
        let stream = options.output.as_ref().map(|_| stdout()).transpose()?;
        let state = host::open_state(options.transport.state_dir.as_deref())?;
        let trace = options.transport.trace_scheduler.as_deref().map(Trace::create).transpose()?;
        // Before the first thread starts.
        let mut rights = Rights::of_server(&options.transport, options.allow.as_deref())?;
        if stream.is_none() && !options.update.dry_run {
            rights.writable.push(directory.clone());
        } else if directory.is_dir() {
            rights.readable.push(directory.clone());
        }
        let sandbox = sandbox::enter(options.sandbox, &rights)?;
        if let Some(invitation) = &options.invitation {
            invitation.peer.watch();
        }
        let journals = Journals::of(&options.transport)?;
        let transport = transport(&options.transport, None, trace.as_ref(), journals.as_ref())?;
        let admission = AdmissionRequest {
            allow: options.allow.as_deref(),
            read_keys: None,
            purpose: &directory,
            expires: options.expires,
            new_ticket: options.new_ticket,
            is_for_one_run: options.output.is_some(),
            invited: options.invitation.as_ref().map(|invitation| invitation.sender),
        };
        let tls = server_config(&state.key, transfer::PROTOCOLS).map_err(|error| error.to_string())?;
        let (listening, output) = (&options.listening, &options.transport);
        let request = Request { listening, options: output, transport, tls, admission, event_handler: None };
        let Serving { endpoint, links, admission, addresses, advice } = start(request, &state)?;
        let visits = Arc::new(Visits::new(admission.visitors(Places::RECEIVER), "receiver"));
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
            output: stream,
            cancel: cancel.clone(),
            current,
        };
        receiver.announce()?;
        // systemd waits for it, if the unit says Type=notify. Elsewhere nothing is done.
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            tracing::warn!(%error, "cannot tell the service manager that the receiver is ready");
        }
        Ok(receiver)
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
                    connection.close(CLOSE_CODE, &Closing::Ending.reason("receiver"));
                    continue;
                }
                self.refresh_keys();
                let id = self.visits.admit(&connection, key, self.admission.is_known(&key));
                let ended = ended.clone();
                scope.spawn(move || {
                    // The receiver of the channel outlives this thread.
                    let _sent = ended.send(self.receive_from(&connection, key, id));
                    self.visits.end(id);
                });
            };
            // The scope waits for all visitors.
            self.cancel.cancel();
            self.visits.close_unproven();
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
            self.visits.close_unproven();
            return is_empty.then_some(Ok(exit::INTERRUPTED));
        }
        if self.options.invitation.as_ref().is_some_and(|invitation| invitation.peer.has_left()) {
            self.visits.close_silent(SENDER_SILENCE_MAX);
        }
        let ending = self.options.invitation.as_ref().and_then(|invitation| invitation.peer.ending(is_empty));
        if ending.is_some() {
            return ending;
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

    /// Whether it ends with a complete transfer, and has only one sender.
    fn serves_one_transfer(&self) -> bool {
        matches!(self.admission, Admission::Ticket(_)) || self.options.invitation.is_some()
    }

    /// Reads the list of keys again if it changed, and ends the transfers of removed keys.
    fn refresh_keys(&self) {
        self.admission.refresh_keys(&self.visits, |kind, message| self.warn(kind, message));
    }

    /// Reports how an attempt ended; returns the status or the error if that ends the command.
    fn conclude(&self, attempt: &Attempt) -> Option<Result<u8, String>> {
        let is_ticket = self.serves_one_transfer();
        match &attempt.result {
            Ok(summary) if is_ticket && summary.is_complete() => Some(Ok(summary.exit_code())),
            Ok(summary) if self.output.is_some() || self.options.invitation.is_some() => Some(Ok(summary.exit_code())),
            // The sender was told to send again, with the same ticket.
            Ok(summary) if is_ticket => {
                self.print_incomplete(attempt, summary);
                None
            }
            // With --allow the receiver continues.
            Ok(_) => None,
            // Reported when it ended.
            Err(_) if attempt.closing == Some(Closing::Superseded) => None,
            Err(error) if error.exit_code() == exit::INTERRUPTED => Some(Ok(exit::INTERRUPTED)),
            // The next attempt would fail the same way, whatever is sent. Only the ticket's own sender
            // gets this far, so an unauthorised host cannot end the command.
            Err(error) if is_ticket && attempt.authorised && self.is_final(error) => {
                Some(Err(format!("{}: {}", attempt.peer, reports::ending(error))))
            }
            // A sender tries all our addresses and keeps the first that answers. It closes the
            // other connections without sending anything.
            Err(error @ (TransferError::Connection(_) | TransferError::Silence)) if !attempt.authorised => {
                let reason = attempt.closing.map_or_else(|| error.to_string(), |closing| closing.note().to_owned());
                tracing::info!(peer = %attempt.peer, reason, "a connection ended without a message");
                None
            }
            // A sender that waits for the running transfer tries several times.
            Err(TransferError::Refused(Refusal::Running)) if !self.current.is_refusal_news() => None,
            Err(_) => {
                if attempt.authorised || self.visits.prints_refusal() {
                    self.print_end(attempt);
                }
                None
            }
        }
    }
}

impl Receiver<'_> {
    /// Whether no other transfer can succeed after this error. Over ssh, the other end is started again
    /// for each.
    fn is_final(&self, error: &TransferError) -> bool {
        let is_over = self.options.invitation.is_some() && !error.is_resumable();
        is_over || error.is_own_fault() || self.is_output_used()
    }

    /// Whether data was written to standard output, so that no other transfer can begin.
    fn is_output_used(&self) -> bool {
        self.output.as_ref().is_some_and(StreamOutput::was_taken)
    }
}

/// Standard output as a file of our own.
fn stdout() -> Result<StreamOutput, String> {
    let file = std::io::stdout().as_fd().try_clone_to_owned();
    Ok(StreamOutput::new(file.map_err(|error| format!("cannot write to standard output: {error}"))?.into()))
}
