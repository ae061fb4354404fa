//! `litz ssh-end`: the far end of a transfer over ssh, which the other host starts.

use std::ffi::OsString;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use litz::identity::PublicKey;
use net::MonotonicClock;
use serde_json::json;
use units::{Duration, Instant};

use super::invitation::{Invitation, Peer};
use super::lines::read_line;
use super::message::{Hello, LINE_LEN_MAX, OPTIONS, ReceiveRequest, Request, SendRequest, VERSION};
use super::options::SshEndOptions;
use crate::cli::args::{Arguments, Command, filter_of};
use crate::cli::serving::sandbox::folder_of;
use crate::cli::standard_streams::StandardInput;
use crate::cli::{exit, host, out, recv, send};

/// How long a receiver without a sender waits after ssh has ended: the sender may come back over another
/// link, and tries again every second.
const ALONE_MAX: Duration = Duration::from_secs(10);

/// Runs the far end.
pub(crate) fn run(options: &SshEndOptions) -> ExitCode {
    match serve(options) {
        Ok(status) => status,
        Err(message) => exit::fail(true, exit::FAILED, &message),
    }
}

fn serve(options: &SshEndOptions) -> Result<ExitCode, String> {
    let state = host::open_state(options.state_dir.as_deref())?;
    let (version, key) = (env!("CARGO_PKG_VERSION").to_owned(), state.key.public().to_string());
    let hello = Hello { litz_ssh: VERSION, version, key, options: OPTIONS.map(str::to_owned).to_vec() };
    out::line(&serde_json::to_string(&hello).map_err(|error| error.to_string())?);
    out::check()?;
    let mut input = BufReader::new(StandardInput);
    let line = read_line(&mut input, LINE_LEN_MAX).map_err(|error| format!("cannot read the request: {error}"))?;
    let line = line.ok_or("the other host said nothing: `litz ssh-end` is started by `litz send PATH... HOST:DIR`")?;
    let request: Request =
        serde_json::from_slice(&line).map_err(|error| format!("the request has another format: {error}"))?;
    let attendance = Arc::new(Attendance::new(input));
    match request {
        Request::Receive(request) => receive(options, request, attendance),
        Request::Send(request) => send_files(options, request, attendance),
    }
}

fn receive(options: &SshEndOptions, request: ReceiveRequest, peer: Arc<Attendance>) -> Result<ExitCode, String> {
    let sender: PublicKey = request.sender.parse().map_err(|error| format!("the sender's key: {error}"))?;
    let directory = directory(request.directory, request.dry_run)?;
    let delete = request.delete.as_deref().map(filter_of).transpose()?;
    let mut arguments = command("recv", options, request.idle_timeout_ms);
    let named = [(request.overwrite, "--overwrite"), (request.update, "--update"), (request.dry_run, "--dry-run")];
    arguments.extend(named.into_iter().filter(|(is_given, _)| *is_given).map(|(_, name)| OsString::from(name)));
    arguments.extend(request.port.map(|port| OsString::from(format!("--listen=:{port}"))));
    arguments.extend(["--".into(), directory.into_os_string()]);
    let Command::Recv(mut options) = parse(arguments)? else { unreachable!("the arguments name the command") };
    options.invitation = Some(Invitation { sender, roots: None, delete, peer });
    Ok(recv::run(&options))
}

fn send_files(options: &SshEndOptions, request: SendRequest, peer: Arc<Attendance>) -> Result<ExitCode, String> {
    let chosen = request.options;
    let mut arguments = command("send", options, chosen.idle_timeout_ms);
    arguments.push("--by-key".into());
    let named = [
        ("rate", chosen.rate_bps.map(|rate| format!("{rate}b/s"))),
        ("burst", chosen.burst_bytes.map(|burst| format!("{burst}B"))),
        ("keep", chosen.keep),
        ("parallel", chosen.parallel.map(|parallel| parallel.to_string())),
        ("congestion", chosen.congestion),
        ("retry-for", Some(format!("{}ms", chosen.retry_for_ms))),
        ("to", Some(request.ticket)),
    ];
    let patterns = chosen
        .patterns
        .into_iter()
        .map(|(admits, pattern)| (if admits { "include" } else { "exclude" }, Some(pattern)));
    for (name, value) in named.into_iter().chain(patterns) {
        arguments.extend(value.map(|value| OsString::from(format!("--{name}={value}"))));
    }
    arguments.push("--".into());
    arguments.extend(request.paths);
    let Command::Send(mut options) = parse(arguments)? else { unreachable!("the arguments name the command") };
    peer.watch();
    out::only_errors();
    options.peer = Some(peer);
    Ok(send::run(&options))
}

/// The arguments that both commands have.
fn command(name: &str, options: &SshEndOptions, idle_timeout_ms: u64) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["litz", name, "--json"].map(OsString::from).to_vec();
    arguments.push(format!("--idle-timeout={idle_timeout_ms}ms").into());
    if let Some(folder) = &options.state_dir {
        arguments.extend(["--state-dir".into(), folder.clone().into_os_string()]);
    }
    arguments
}

fn parse(arguments: Vec<OsString>) -> Result<Command, String> {
    Arguments::parse(arguments).map(|arguments| arguments.command).map_err(|error| error.to_string())
}

/// The directory to receive into; its last component is created, but not for a dry run. Empty is where ssh starts programs: the
/// home directory.
fn directory(requested: OsString, is_dry_run: bool) -> Result<PathBuf, String> {
    if requested.is_empty() {
        return Ok(PathBuf::from("."));
    }
    let directory = PathBuf::from(requested);
    let parent = folder_of(&directory);
    let made = match (is_dry_run, directory.is_dir()) {
        (true, true) => Ok(()),
        // What making it would say.
        (true, false) => parent.metadata().map(|_| ()),
        (false, _) => std::fs::create_dir(&directory),
    };
    match made {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("cannot make the directory {}: {error}", Path::display(&directory)))
        }
        _ => Ok(directory),
    }
}

/// Whether the other host still holds the ssh connection.
#[derive(Debug)]
pub(crate) struct Attendance {
    /// Until it is watched.
    input: Mutex<Option<BufReader<StandardInput>>>,
    state: Arc<Mutex<AttendanceState>>,
    clock: MonotonicClock,
}

#[derive(Default, Debug)]
struct AttendanceState {
    /// The other host needs no more.
    is_dismissed: bool,
    /// The connection has ended without a word.
    is_left: bool,
    /// Since when no sender is connected, after one of these.
    alone_since: Option<Instant>,
}

impl Attendance {
    fn new(input: BufReader<StandardInput>) -> Self {
        Self { input: Mutex::new(Some(input)), state: Arc::default(), clock: MonotonicClock::start() }
    }
}

impl Peer for Attendance {
    fn watch(&self) {
        let Some(mut input) = lock(&self.input).take() else { return };
        let state = Arc::clone(&self.state);
        #[expect(clippy::disallowed_methods, reason = "standard input blocks")]
        std::thread::spawn(move || {
            let line = read_line(&mut input, LINE_LEN_MAX);
            let mut state = lock(&state);
            match line {
                Ok(Some(line)) if line == b"end" => state.is_dismissed = true,
                _ => state.is_left = true,
            }
        });
    }

    fn announce(&self, ticket: &str) -> Result<(), String> {
        out::json(&json!({ "event": "listening", "ticket": ticket }));
        out::check()?;
        // The files come over other links, and must not wait for the one of ssh.
        out::only_errors();
        Ok(())
    }

    fn has_left(&self) -> bool {
        let state = lock(&self.state);
        state.is_left || state.is_dismissed
    }

    fn ending(&self, is_idle: bool) -> Option<Result<u8, String>> {
        let mut state = lock(&self.state);
        if !is_idle {
            state.alone_since = None;
            return None;
        }
        if state.is_dismissed {
            return Some(Ok(exit::INTERRUPTED));
        }
        if !state.is_left {
            return None;
        }
        let now = self.clock.now();
        let since = *state.alone_since.get_or_insert(now);
        (now.saturating_since(since) >= ALONE_MAX).then_some(Ok(exit::INTERRUPTED))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
