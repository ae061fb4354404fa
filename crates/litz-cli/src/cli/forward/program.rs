//! A program whose connections are forwarded: its start, its signals, and its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use forward::policy::{Policy, TargetRule};
use forwarding::published::Published;
use intercept::Listener;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use transfer::CancelToken;

use super::engine::Engine;
use super::names::NamesFrom;
use super::report::Report;
use super::takeover::{Takeover, calls};
use crate::cli::exit;

/// The statuses that env(1) and timeout(1) use.
pub(crate) const LITZ_FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The time that connections have to deliver their last bytes after all processes have ended.
const LINGER: Duration = Duration::from_secs(10);

/// After this time the user is told why the command goes on without its program.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program and its processes.
pub(super) struct Program<'a> {
    command: &'a [OsString],
    /// Targets that are reached without Litz.
    direct: &'a [TargetRule],
    is_strict: bool,
    names_from: NamesFrom,
    json: bool,
    /// Where the connections of far programs come from, if the program accepts such.
    pub(super) published: Option<Arc<Published>>,
    /// Cancelled by a signal before the program is started, and by its end.
    pub(super) cancel: CancelToken,
    shared: Arc<Shared>,
}

struct Shared {
    stage: Mutex<Stage>,
    status: OnceLock<u8>,
    has_ended: Notify,
    cancel: CancelToken,
}

/// What a signal means.
enum Stage {
    /// The end of the command.
    Before,
    /// It is the program's. SIGINT comes from a terminal, which sends it to the program, too.
    Running(OwnedFd),
    /// The end of the wait for the processes that the program has left.
    After,
}

impl<'a> Program<'a> {
    /// A program that is not started yet. Signals are handled from now on.
    pub(super) fn new(
        command: &'a [OsString],
        direct: &'a [TargetRule],
        is_strict: bool,
        names_from: NamesFrom,
        json: bool,
        is_published: bool,
    ) -> Result<Self, String> {
        let cancel = CancelToken::new();
        let shared = Arc::new(Shared {
            stage: Mutex::new(Stage::Before),
            status: OnceLock::new(),
            has_ended: Notify::new(),
            cancel: cancel.clone(),
        });
        shared.handle_signals().map_err(|error| format!("cannot handle signals: {error}"))?;
        let published = is_published.then(Arc::default);
        Ok(Self { command, direct, is_strict, names_from, json, published, cancel, shared })
    }

    /// The name of the program, for the user.
    pub(super) fn name(&self) -> String {
        self.command.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The status of the program, once it has ended.
    pub(super) fn status(&self) -> Option<u8> {
        self.shared.status.get().copied()
    }

    /// Waits until all of its processes have ended, and what they have sent was delivered.
    pub(super) async fn ended(&self) {
        self.shared.has_ended.notified().await;
    }

    /// Starts the program. If that fails, it has ended with the status that says so.
    pub(super) fn start(&self, runtime: &Handle, engine: Engine, report: Arc<Report>) {
        let calls = calls(self.published.is_some(), self.names_from);
        let [name, arguments @ ..] = self.command else { return self.shared.end() };
        let mut command = Command::new(name);
        command.args(arguments);
        match intercept::spawn(command, &calls)
            .and_then(|(child, listener)| Ok((self.shared.begin(&child)?, child, listener)))
        {
            Ok(((), child, listener)) => {
                let direct = Policy::new(self.direct.to_vec(), Vec::new());
                let name = name.to_string_lossy().into_owned();
                let published = self.published.clone();
                let takeover = Takeover::new(name, engine, report, direct, self.is_strict, published, self.names_from);
                self.shared.supervise(child, listener, runtime.clone(), Arc::new(takeover));
            }
            Err(error) => {
                let status = match error.kind() {
                    io::ErrorKind::NotFound => NOT_FOUND,
                    io::ErrorKind::PermissionDenied => NOT_EXECUTABLE,
                    _ => LITZ_FAILED,
                };
                let why = match error.kind() {
                    // A filter with a supervisor has one above it (seccomp(2)).
                    io::ErrorKind::ResourceBusy => {
                        "this command was itself started by `litz run`, or by another program that answers system \
                         calls in place of the kernel, and the kernel allows only one of them: leave out the inner \
                         `litz run`"
                            .to_owned()
                    }
                    _ => error.to_string(),
                };
                let message = format!("cannot run {}: {why}", name.display());
                exit::report(self.json, status, &message);
                let _first = self.shared.status.set(status);
                self.shared.end();
            }
        }
    }
}

impl Shared {
    /// The command ends, once the loop of the connection sees it.
    fn end(&self) {
        self.cancel.cancel();
        self.has_ended.notify_one();
    }

    fn set_stage(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    /// Signals are the program's from now on.
    fn begin(&self, child: &Child) -> io::Result<()> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        self.set_stage(Stage::Running(pidfd_open(pid, PidfdFlags::empty())?));
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "the command is above the engine: signals have a thread")]
    fn handle_signals(self: &Arc<Self>) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let shared = Arc::clone(self);
        std::thread::Builder::new().name("litz-signals".to_owned()).spawn(move || {
            for number in signals.forever() {
                let stage = shared.stage.lock().unwrap_or_else(PoisonError::into_inner);
                match (&*stage, number) {
                    (Stage::Before, _) => shared.cancel.cancel(),
                    (Stage::After, _) => shared.end(),
                    (Stage::Running(_), SIGINT) => {}
                    (Stage::Running(process), number) => {
                        let signal = if number == SIGHUP { Signal::HUP } else { Signal::TERM };
                        // It may just have ended.
                        let _gone = pidfd_send_signal(process, signal);
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Answers the calls of the program's processes, and waits for their end.
    #[expect(clippy::disallowed_methods, reason = "the command is above the engine: it waits for a program")]
    fn supervise(self: &Arc<Self>, mut child: Child, listener: Listener, runtime: Handle, takeover: Arc<Takeover>) {
        let (all_ended, wait) = channel();
        let (handle, taker) = (runtime.clone(), Arc::clone(&takeover));
        std::thread::spawn(move || {
            // A listener that fails lets the calls of the program fail.
            while let Ok(Some(call)) = listener.receive() {
                let Some(call) = taker.take_at_once(call) else { continue };
                let taker = Arc::clone(&taker);
                handle.spawn(async move { taker.take(call).await });
            }
            let _gone = all_ended.send(());
        });
        let shared = Arc::clone(self);
        std::thread::spawn(move || {
            let status = child.wait().map_or(LITZ_FAILED, status_of);
            let _first = shared.status.set(status);
            shared.set_stage(Stage::After);
            if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                takeover.tell_waiting();
                let _ended = wait.recv();
            }
            // What cannot be delivered in this time is reset.
            let _over = runtime.block_on(async { tokio::time::timeout(LINGER, takeover.finished()).await });
            shared.end();
        });
    }
}

/// As shells report it.
fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(LITZ_FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_the_program_or_of_its_signal() {
        assert_eq!(status_of(ExitStatus::from_raw(0)), 0);
        assert_eq!(status_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(status_of(ExitStatus::from_raw(libc::SIGKILL)), 137);
    }
}
