//! `litz send PATH... TICKET`.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use litz::identity::client_config;
use litz::{Closed, Connection, RateLimit, TransportConfig};
use recovery::RateCap;
use serde_json::json;
use transfer::{
    CLOSE_CODE, CancelToken, ConnectionLink, Credential, Filter, Keep, Refusal, Revision, RunId, Source, StreamInput,
    Summary, Ticket, TransferError, control, proof_context, send,
};
use units::{ByteSize, Duration, Instant, Rate};

use super::args::SendOptions;
use super::connect::{BUSY, ConnectFailure, Connected, Connector, transport};
use super::connection_log::{log_connected, log_ended};
use super::exit;
use super::host::{self, HostState};
use super::journals::Journals;
use super::path_report::{self, watch_paths};
use super::progress::{Direction, Progress};
use super::scheduler_trace::Trace;
use super::signals;
use super::ssh::place::Ends;
use super::ssh::pull::pull;
use super::ssh::push::{Far, FarError};
use super::takeover::SILENCE_MAX;
use super::ticket::is_like_ticket;
use super::warning::Warning;

/// Default burst size: the largest batch that the kernel accepts.
const BURST_DEFAULT: u64 = 64 * 1024;

/// Pause between attempts to reconnect.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How long a sender whose ticket another run uses tries again: longer than the receiver waits for
/// the other run's answer, which may just have been killed, and a pause.
const RUNNING_WAIT: Duration = Duration::from_secs(6);

/// Why a receiver that refused this sender for another run, with the same ticket, answers no more: it
/// ends when a transfer is complete.
const ENDED: &str = "the receiver answers no more. It served another `litz send` with this ticket: that transfer has \
                     ended, most likely, and the ticket is used; ask for a new ticket to send more";

const _: () = assert!(RUNNING_WAIT.as_nanos() > SILENCE_MAX.as_nanos() + RETRY_INTERVAL.as_nanos());

/// How often that pause checks for an interrupt.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn run(options: &SendOptions) -> ExitCode {
    let json = options.transport.json;
    let is_ticket = options.credential.ticket.is_given()
        || options.paths_and_ticket.last().is_some_and(|last| is_like_ticket(last));
    let ends = match Ends::of(&options.paths_and_ticket, is_ticket) {
        Ok(Ends::Pull { host, paths, into }) => return pull(options, &host, paths, into),
        Ok(ends) => ends,
        Err(message) => return exit::fail(json, exit::FAILED, &message),
    };
    match prepare(options, ends).and_then(|job| job.run()) {
        Ok(summary) => ExitCode::from(summary.exit_code()),
        Err(Failure { status, message, .. }) => exit::fail(json, status, &message),
    }
}

/// Why the transfer failed.
struct Failure {
    status: u8,
    message: String,
    kind: FailureKind,
}

/// Whether another attempt may succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureKind {
    /// None can.
    Final,
    Passing,
    /// The receiver serves another run with the same ticket.
    Running,
    /// No host answered.
    Unanswered,
}

impl Failure {
    /// The command gives up: the user may go on later.
    fn with_advice(mut self) -> Self {
        if matches!(self.kind, FailureKind::Passing | FailureKind::Unanswered) {
            self.message += "; run the same command again to go on from here";
        }
        self
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { status: exit::FAILED, message, kind: FailureKind::Final }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let kind = match error {
            TransferError::Refused(Refusal::Running) => FailureKind::Running,
            _ if error.is_resumable() => FailureKind::Passing,
            _ => FailureKind::Final,
        };
        Self { status: error.exit_code(), message: error.to_string(), kind }
    }
}

impl From<FarError> for Failure {
    fn from(error: FarError) -> Self {
        match error {
            FarError::Interrupted => TransferError::Cancelled.into(),
            FarError::Failed(message) => message.into(),
        }
    }
}

impl From<ConnectFailure> for Failure {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Silent(message) => Self { kind: FailureKind::Unanswered, ..message.into() },
            ConnectFailure::NoSuchPath(message) => Self { kind: FailureKind::Passing, ..message.into() },
            ConnectFailure::WrongHost(message) => message.into(),
            ConnectFailure::Interrupted => TransferError::Cancelled.into(),
        }
    }
}

/// A transfer with its checked arguments.
struct Job<'a> {
    options: &'a SendOptions,
    ticket: Ticket,
    /// The receiver, if this command has started it over ssh.
    far: Option<Far>,
    filter: Filter,
    paths: &'a [PathBuf],
    state: HostState,
    /// Listed after the first attempt is authenticated, and kept for later ones.
    source: OnceLock<Source>,
    /// The receiver has accepted an attempt since this was last looked at.
    is_accepted: Cell<bool>,
    /// The last message about a failed attempt.
    last_note: RefCell<String>,
    cancel: CancelToken,
    transport: TransportConfig,
    limit: Option<RateLimit>,
    trace: Option<Trace>,
    journals: Option<Journals>,
    progress: Progress,
    run_id: RunId,
}

fn prepare<'a>(options: &'a SendOptions, ends: Ends<'a>) -> Result<Job<'a>, Failure> {
    let (ticket, paths, far_path) = match ends {
        Ends::Push { paths, to } => (None, paths, Some(to)),
        Ends::Ticket | Ends::Pull { .. } => {
            check_receivers_options(options)?;
            let (ticket, paths) = options.credential.split(&options.paths_and_ticket)?;
            (Some(ticket), paths, None)
        }
    };
    let filter = options.filter()?;
    let stream = stdin_source(options, paths)?;
    // Only the paths themselves. What is below them is listed once the ticket is bound to this host,
    // because that may take long.
    if stream.is_none() {
        Source::check(paths)?;
    }
    let state = host::open_state(options.transport.state_dir.as_deref())?;
    let cancel = signals::cancel_token().map_err(|error| format!("cannot handle signals: {error}"))?;
    let limit = rate_limit(options.rate, options.burst)?;
    // On each path for all its bytes, and over all paths together for the files' bytes.
    let cap = limit.map(|limit| RateCap { rate: limit.rate(), burst: limit.burst_bytes() });
    let trace = options.transport.trace_scheduler.as_deref().map(Trace::create).transpose()?;
    let journals = Journals::of(&options.transport)?;
    let transport = transport(&options.transport, cap, trace.as_ref(), journals.as_ref())?;
    let progress = Progress::new(Direction::Sending, &options.transport);
    let run_id = RunId::generate().map_err(|error| error.to_string())?;
    // Last: all that can fail on this host was tried.
    let far = far_path.map(|to| Far::start(options, &to, state.key.public(), &cancel));
    let far = far.transpose()?;
    let ticket =
        ticket.or_else(|| far.as_ref().map(|far| far.ticket.clone())).ok_or_else(|| "there is no ticket".to_owned())?;
    Ok(Job {
        options,
        ticket,
        far,
        filter,
        paths,
        state,
        source: stream.map_or_else(OnceLock::new, OnceLock::from),
        is_accepted: Cell::new(false),
        last_note: RefCell::default(),
        cancel,
        transport,
        limit,
        trace,
        journals,
        progress,
        run_id,
    })
}

/// Refuses options that are the receiver's to decide, whose user started it.
fn check_receivers_options(options: &SendOptions) -> Result<(), String> {
    let given = [
        (options.update.update, "--update", "start it with `litz recv --update`"),
        (options.update.dry_run, "--dry-run", "start it with `litz recv --dry-run`"),
        (options.delete, "--delete", "send to HOST:DIR"),
    ];
    match given.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, name, remedy)) => Err(format!("{name} is for the receiver to decide, not for its ticket: {remedy}")),
        None => Ok(()),
    }
}

/// Standard input as the source, if the paths say so.
fn stdin_source(options: &SendOptions, paths: &[PathBuf]) -> Result<Option<Source>, Failure> {
    let is_stdin = |path: &PathBuf| path.as_os_str() == "-";
    if !paths.iter().any(is_stdin) {
        return match options.name {
            Some(_) => Err("--name is the name of standard input: use it with the path `-`".to_owned().into()),
            None => Ok(None),
        };
    }
    if options.keep.is_some() {
        return Err("--keep has no effect on standard input (`-`): leave it out".to_owned().into());
    }
    if paths.len() > 1 {
        return Err("standard input (`-`) is sent alone: send the other paths separately".to_owned().into());
    }
    if options.credential.ticket.ticket_file.as_ref().is_some_and(is_stdin) {
        return Err("standard input cannot be both the ticket and the data: give the ticket otherwise"
            .to_owned()
            .into());
    }
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    let stdin = stdin.map_err(|error| format!("cannot read standard input: {error}"))?;
    let name = options.name.as_deref().unwrap_or(Path::new("stdin"));
    let now = i64::try_from(host::now_unix()).unwrap_or(i64::MAX);
    Ok(Some(Source::stream(name, 0o666, now, StreamInput::new(stdin.into()))?))
}

/// The rate limit of `--rate` and `--burst`.
fn rate_limit(rate: Option<Rate>, burst: Option<ByteSize>) -> Result<Option<RateLimit>, String> {
    let burst = burst.map_or(BURST_DEFAULT, ByteSize::as_bytes);
    let limit = rate.map(|rate| RateLimit::new(rate, burst)).transpose();
    limit.map_err(|error| format!("--rate and --burst: {error}"))
}

impl Job<'_> {
    fn run(&self) -> Result<Summary, Failure> {
        let result = self.transfer();
        if let Some(note) = self.trace.as_ref().filter(|_| result.is_ok()).and_then(Trace::emptiness_note) {
            self.progress.warn(Warning::Trace, &note);
        }
        self.warn_of_journal_errors();
        if let Some(note) = self.journals.as_ref().filter(|_| result.is_ok()).and_then(Journals::emptiness_note) {
            self.progress.warn(Warning::Journal, &note);
        }
        result
    }

    fn warn_of_journal_errors(&self) {
        for error in self.journals.iter().flat_map(Journals::take_errors) {
            self.progress.warn(Warning::Journal, &error);
        }
    }

    /// Attempts the transfer until it finishes or no attempt can succeed.
    fn transfer(&self) -> Result<Summary, Failure> {
        let started = self.progress.now();
        let mut reached_before = false;
        let mut refused_at = None;
        loop {
            let failure = match self.reach(!reached_before, refused_at.is_some()) {
                Ok(connected) => {
                    connected.warn(!reached_before, |kind, message| self.progress.warn(kind, message));
                    reached_before = true;
                    match self.attempt(connected) {
                        Ok(summary) => {
                            self.progress.finish(&summary, self.progress.now() - started);
                            return Ok(summary);
                        }
                        Err(failure) => failure,
                    }
                }
                // If the receiver never answered, a wrong address is more likely than a temporary
                // fault.
                Err(failure) if !reached_before => return Err(self.give_up(failure)),
                Err(failure) if refused_at.is_some() && failure.kind == FailureKind::Unanswered => {
                    return Err(self.give_up(ENDED.to_owned().into()));
                }
                Err(failure) => failure,
            };
            self.check_retry(failure, &mut refused_at).map_err(|failure| self.give_up(failure))?;
            self.pause();
        }
    }

    /// Whether to try again after `failure`, which the user is told. `refused_at` is when the
    /// receiver first said that it serves another run.
    fn check_retry(&self, failure: Failure, refused_at: &mut Option<Instant>) -> Result<(), Failure> {
        if failure.kind == FailureKind::Final {
            return Err(failure);
        }
        if self.cancel.is_cancelled() {
            return Err(TransferError::Cancelled.into());
        }
        // The host that asked for the transfer is gone, or the receiver that this command started.
        let is_left = self.options.peer.as_ref().is_some_and(|peer| peer.ending(true).is_some());
        if let Some(reason) = self.far.as_ref().and_then(Far::ending) {
            return Err(reason.into());
        }
        if is_left {
            return Err(failure);
        }
        if self.is_accepted.take() {
            *refused_at = None;
        }
        let is_first_refusal = failure.kind == FailureKind::Running && refused_at.is_none();
        if is_first_refusal {
            *refused_at = Some(self.progress.now());
        }
        let (since, wait_max) = match *refused_at {
            Some(at) => (at, RUNNING_WAIT.min(self.options.retry_for)),
            None => (self.progress.progressed_at(), self.options.retry_for),
        };
        if self.progress.now().saturating_since(since) >= wait_max {
            return Err(failure.with_advice());
        }
        if is_first_refusal {
            let why = format!("it may have been stopped a moment ago; trying again for {wait_max}");
            self.note_retry(format!("{}; {why}", failure.message));
        } else if refused_at.is_none() {
            self.note_retry(format!("{}; retrying", failure.message));
        }
        self.progress.lost();
        if is_first_refusal || refused_at.is_none() {
            self.progress.json(&json!({ "event": "retrying", "message": failure.message }));
        }
        Ok(())
    }

    /// Prints `note` unless it is the last one again: an outage may last for hundreds of attempts.
    fn note_retry(&self, note: String) {
        let before = self.last_note.replace(note);
        let note = self.last_note.borrow();
        if *note != before {
            self.progress.note(&note);
        }
    }

    fn give_up(&self, failure: Failure) -> Failure {
        self.progress.clear();
        failure
    }

    #[expect(clippy::disallowed_methods, reason = "the command is above the engine: it waits before it reconnects")]
    fn pause(&self) {
        let end = self.progress.now() + RETRY_INTERVAL;
        while self.progress.now() < end && !self.cancel.is_cancelled() {
            std::thread::sleep(LOOK_INTERVAL.into());
        }
    }

    /// Says which addresses were tried without an answer; once, because later attempts say that they
    /// retry.
    fn tell_unanswered(&self, addresses: &[SocketAddr], is_first: bool) {
        if !is_first {
            return;
        }
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        self.progress.note(&format!("trying {}; no answer yet", addresses.join(", ")));
        self.progress.json(&json!({ "event": "unanswered", "addresses": addresses }));
    }

    /// Connects to the receiver; `is_refused` says that it served another run a moment ago.
    fn reach(&self, is_first: bool, is_refused: bool) -> Result<Connected, Failure> {
        let tls = client_config(&self.state.key, &[self.ticket.receiver], transfer::PROTOCOLS)
            .map_err(|error| error.to_string())?;
        let reach = Connector {
            peer: "receiver",
            transport: self.transport.clone(),
            options: &self.options.transport,
            single_path: &self.options.single_path,
            paths: &self.options.paths,
            tls: &tls,
            cancel: &self.cancel,
            on_unanswered: &|addresses| self.tell_unanswered(addresses, is_first),
            is_brief: is_refused,
            asks_ports: true,
            is_first,
            event_handler: None,
        };
        Ok(reach.connect(&self.ticket)?)
    }

    /// The list of what is sent, for a receiver that knows `revision`. The first call goes through the
    /// directories.
    fn list(&self, revision: Revision) -> Result<&Source, TransferError> {
        self.is_accepted.set(true);
        if let Some(source) = self.source.get() {
            return Ok(source);
        }
        self.progress.scanning();
        // An older receiver takes no links.
        let default = Keep::default().with_links(revision >= Revision::Links);
        let keep = self.options.keep.unwrap_or(default);
        let source = Source::scan_filtered(self.paths, keep, &self.filter, &self.cancel)?;
        Ok(self.source.get_or_init(|| source))
    }

    /// Sends over the connection and closes it, its endpoint, its trace and its journal.
    fn attempt(&self, connected: Connected) -> Result<Summary, Failure> {
        let result = self.send_over(&connected).map_err(|error| self.explain(error, &connected));
        drop(connected);
        for error in self.trace.iter().flat_map(Trace::take_errors) {
            self.progress.warn(Warning::Trace, &error);
        }
        result
    }

    /// The failure for `error` of an attempt over `connected`.
    fn explain(&self, error: TransferError, connected: &Connected) -> Failure {
        if let (TransferError::Connection(_), Some(message)) = (&error, connected.peer_ended("receiver")) {
            return Failure { kind: FailureKind::Passing, ..message.into() };
        }
        match error {
            TransferError::Refused(Refusal::KeyNotAllowed) => {
                let key = self.state.key.public();
                let by_key = if self.options.credential.by_key { "" } else { ", and use --by-key" };
                format!(
                    "the receiver does not know this host's key: have this line, which `litz id` prints, added to its \
                     list of keys{by_key}: {key}"
                )
                .into()
            }
            TransferError::Refused(Refusal::UnknownOrWrongProof) if self.options.credential.by_key => {
                "the receiver wants the secret of its ticket: leave --by-key out".to_owned().into()
            }
            TransferError::Connection(_) if is_busy(&connected.connection) => {
                let message = "the receiver is busy: it serves as many senders as it can".to_owned();
                Failure { kind: FailureKind::Passing, ..message.into() }
            }
            error => error.into(),
        }
    }

    fn send_over(&self, connected: &Connected) -> Result<Summary, TransferError> {
        let connection = &connected.connection;
        // If the connection has ended already, its next use returns the error.
        let _over = connection.set_rate(self.limit);
        log_connected(connection);
        let stats = connection.stats();
        self.progress.json(&json!({
            "event": "connected",
            "remote": connection.remote_addr().to_string(),
            "handshake_us": stats.handshake_time.map(Duration::as_micros),
            "cipher": stats.session.cipher_suite,
            "key_exchange": stats.session.key_exchange,
            "multipath": connected.is_multipath,
            "paths_wanted": connected.paths_wanted,
        }));
        if connected.paths_wanted > 1 && !connected.is_multipath {
            self.progress.note("the receiver supports one path only: the other links are not used");
        }
        let context = proof_context(connection, self.state.key.public(), self.ticket.receiver)
            .map_err(|error| TransferError::Connection(std::io::Error::other(error.to_string())))?;
        let credential = if self.far.is_some() || self.options.credential.by_key {
            Credential::Key
        } else {
            Credential::Ticket(self.ticket.secret.clone())
        };
        let streams = connection.open_bi().map_err(|error| TransferError::Connection(error.into()))?;
        let mut send_options = send::SendOptions::default().with_cancel(self.cancel.clone()).with_run_id(self.run_id);
        if let Some(parallel) = self.options.parallel {
            send_options.threads = usize::from(parallel);
        }
        let (link, ends) = (ConnectionLink::new(connection), connected.ends());
        let result = watch_paths(connection, Direction::Sending, &self.progress, &ends, Some(connected), || {
            let list = || self.list(Revision::of(connection));
            send::run_deferred(&link, control(streams), &context, &credential, &list, &send_options, &self.progress)
        });
        let stats = connection.stats();
        self.progress.json(&json!({
            "event": "stats",
            "packets_sent": stats.send.packets_sent,
            "packets_lost": stats.send.packets_lost,
            "packets_late": stats.send.packets_late,
            "bytes_sent": stats.send.bytes_sent,
            "round_trip_us": stats.round_trip.as_micros(),
            "round_trip_min_us": stats.round_trip_min.as_micros(),
            "key_updates": stats.send.key_updates,
            "paths": stats.paths.iter().map(|path| path_report::as_json(path, &ends)).collect::<Vec<_>>(),
        }));
        log_ended(connection);
        connection.close(CLOSE_CODE, "done");
        result
    }
}

/// Whether the receiver turned this connection away. Then the connection fails at its next use,
/// whichever that is: an early one may be refused because the keys are gone.
fn is_busy(connection: &Connection) -> bool {
    matches!(connection.close_reason(), Some(Closed::ByPeer { reason, .. }) if reason.starts_with(BUSY))
}

#[cfg(test)]
mod tests {
    use litz::identity::{KeyPair, server_config};
    use litz::{Endpoint, EndpointConfig};

    use super::*;

    #[test]
    fn a_sender_that_is_turned_away_reads_that_the_receiver_is_busy() {
        let key = KeyPair::generate().unwrap();
        let fingerprint = key.public().fingerprint();
        let config = EndpointConfig::loopback();
        let server =
            Endpoint::bind(config.clone().with_server_tls(server_config(&key, transfer::PROTOCOLS).unwrap())).unwrap();
        let client = Endpoint::bind(config).unwrap();
        for (reason, is_expected) in [("the receiver is busy: no place", true), ("refused", false)] {
            let tls = client_config(&key, &[fingerprint], transfer::PROTOCOLS).unwrap();
            let connection = client.connect(server.local_addr(), "host", tls.config).unwrap();
            assert!(!is_busy(&connection), "it is open");
            server.accept().unwrap().close(CLOSE_CODE, reason);
            connection.closed();
            assert!(proof_context(&connection, key.public(), fingerprint).is_err(), "the keys are gone");
            assert_eq!(is_busy(&connection), is_expected);
        }
    }

    #[test]
    fn a_rate_has_a_default_burst_and_an_impossible_one_is_refused_with_advice() {
        let (some, burst) = (Rate::from_mbps(10), ByteSize::from_bytes);
        assert_eq!(rate_limit(None, None), Ok(None));
        let limit = rate_limit(Some(some), None).expect("a rate will do").expect("a limit");
        assert_eq!((limit.rate(), limit.burst_bytes()), (some, BURST_DEFAULT));
        for (rate, burst, advice) in [
            (Rate::ZERO, None, "set no limit"),
            (some, Some(burst(0)), "at least 1200"),
            (some, Some(burst(9)), "9 bytes"),
        ] {
            let error = rate_limit(Some(rate), burst).expect_err(advice);
            assert!(error.contains(advice) && error.contains("--burst"), "{error}");
        }
    }
}
