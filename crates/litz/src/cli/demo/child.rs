//! A `litz` process of our own, and the JSON events it prints.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{self, ChildStdout, Stdio};
use std::sync::mpsc::SyncSender;

use serde_json::Value;

/// Which of the two processes of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Receiver,
    Sender,
}

impl Role {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Receiver => "receiver",
            Self::Sender => "sender",
        }
    }
}

/// What a process has said.
pub(super) enum Said {
    Event(Value),
    /// It has closed its output.
    Nothing,
    /// What it printed cannot be read, in words for the user.
    Nonsense(String),
}

/// Events that wait until we look, at most: then the process waits, too.
pub(super) const EVENTS_MAX: usize = 64;

/// A running `litz`. Dropping it kills it.
pub(super) struct Child {
    process: process::Child,
}

impl Child {
    /// Starts one that hands all it says to `events`, and says [`Said::Nothing`] last.
    pub(super) fn start(role: Role, arguments: &[OsString], events: SyncSender<(Role, Said)>) -> Result<Self, String> {
        let words = |error: std::io::Error| format!("cannot start a second litz: {error}");
        let program = std::env::current_exe().map_err(words)?;
        let mut process = process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(words)?;
        let stdout = process.stdout.take();
        // From here on whatever fails kills it.
        let child = Self { process };
        let stdout = stdout.ok_or("a second litz without output")?;
        #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread a pipe")]
        std::thread::Builder::new().spawn(move || read_events(role, stdout, &events)).map_err(words)?;
        Ok(child)
    }

    /// Waits for the end; the exit status.
    pub(super) fn wait(&mut self) -> Result<i32, String> {
        let status = self.process.wait().map_err(|error| format!("cannot wait for litz: {error}"))?;
        Ok(status.code().unwrap_or(-1))
    }
}

/// The life of the thread at a process's output: until that ends, or nobody listens any more.
fn read_events(role: Role, stdout: ChildStdout, events: &SyncSender<(Role, Said)>) {
    for line in BufReader::new(stdout).lines() {
        let said = match line {
            Ok(line) => serde_json::from_str(&line)
                .map_or_else(|error| Said::Nonsense(format!("litz printed {line:?}: {error}")), Said::Event),
            Err(error) => Said::Nonsense(format!("cannot read from litz: {error}")),
        };
        if events.send((role, said)).is_err() {
            return;
        }
    }
    // Nobody may listen any more; then nobody needs to know.
    let _told = events.send((role, Said::Nothing));
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended long ago; then there is nothing to kill.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}
