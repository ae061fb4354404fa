//! A `litz` child process, and the JSON events that it prints.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{self, ChildStdout, Stdio};
use std::sync::mpsc::SyncSender;

use serde_json::Value;

/// The role of a process in a transfer.
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

/// One item that a thread reads from a process.
pub(super) enum Output {
    Event(Value),
    /// The process has closed its output.
    Closed,
    /// The output cannot be read: a message for the user.
    Unreadable(String),
}

/// Maximum number of queued events. When the queue is full, the process blocks.
pub(super) const EVENTS_MAX: usize = 64;

/// A running `litz` process. Dropping it kills the process.
pub(super) struct Child {
    process: process::Child,
}

impl Child {
    /// Starts a process. All its output goes to `events`, with [`Output::Closed`] last.
    pub(super) fn start(
        role: Role,
        arguments: &[OsString],
        events: SyncSender<(Role, Output)>,
    ) -> Result<Self, String> {
        let to_message = |error: std::io::Error| format!("cannot start a litz process: {error}");
        let program = std::env::current_exe().map_err(to_message)?;
        let mut process = process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(to_message)?;
        let stdout = process.stdout.take();
        // From here on every failure kills the process.
        let child = Self { process };
        let stdout = stdout.ok_or("the litz process has no output")?;
        #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread per pipe")]
        std::thread::Builder::new().spawn(move || read_events(role, stdout, &events)).map_err(to_message)?;
        Ok(child)
    }

    /// Waits for the process to end; returns its exit status.
    pub(super) fn wait(&mut self) -> Result<i32, String> {
        let status = self.process.wait().map_err(|error| format!("cannot wait for litz: {error}"))?;
        Ok(status.code().unwrap_or(-1))
    }
}

/// Reads the output of a process until it ends or the receiver of the events is dropped.
fn read_events(role: Role, stdout: ChildStdout, events: &SyncSender<(Role, Output)>) {
    for line in BufReader::new(stdout).lines() {
        let output = match line {
            Ok(line) => serde_json::from_str(&line)
                .map_or_else(|error| Output::Unreadable(format!("litz printed {line:?}: {error}")), Output::Event),
            Err(error) => Output::Unreadable(format!("cannot read from litz: {error}")),
        };
        if events.send((role, output)).is_err() {
            return;
        }
    }
    // The receiver may have been dropped; then the end does not matter.
    let _told = events.send((role, Output::Closed));
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process may have ended already.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// The number under `key`, or zero.
pub(super) fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or(0)
}
