//! A `litz` process of our own, and the JSON events it prints.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{self, ChildStdout, Stdio};

use net::MonotonicClock;
use serde_json::Value;
use units::Duration;

/// A running `litz`. Dropping it kills it.
pub(super) struct Child {
    process: process::Child,
    lines: BufReader<ChildStdout>,
    clock: MonotonicClock,
}

impl Child {
    pub(super) fn start(arguments: &[&OsStr]) -> Result<Self, String> {
        let words = |error: std::io::Error| format!("cannot start a second litz: {error}");
        let program = std::env::current_exe().map_err(words)?;
        let mut process = process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(words)?;
        let stdout = process.stdout.take().ok_or("a second litz without output")?;
        Ok(Self { process, lines: BufReader::new(stdout), clock: MonotonicClock::start() })
    }

    /// The next event; none when the process has closed its output.
    pub(super) fn next_event(&mut self) -> Result<Option<Value>, String> {
        let mut line = String::new();
        let len = self.lines.read_line(&mut line).map_err(|error| format!("cannot read from litz: {error}"))?;
        if len == 0 {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(|error| format!("litz printed {line:?}: {error}"))
    }

    /// Reads until the event called `name`.
    pub(super) fn wait_for(&mut self, name: &str) -> Result<Value, String> {
        while let Some(event) = self.next_event()? {
            if event["event"] == name {
                return Ok(event);
            }
            if event["event"] == "error" {
                return Err(event["message"].as_str().unwrap_or("litz failed").to_owned());
            }
        }
        Err(format!("litz ended before it said {name:?}"))
    }

    /// Since the process was started.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.now().since_start()
    }

    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.process
            .kill()
            .and_then(|()| self.process.wait())
            .map(|_| ())
            .map_err(|error| format!("cannot kill: {error}"))
    }

    /// Reads what is left and waits for the end; the exit status.
    pub(super) fn wait(&mut self) -> Result<i32, String> {
        while self.next_event()?.is_some() {}
        let status = self.process.wait().map_err(|error| format!("cannot wait for litz: {error}"))?;
        Ok(status.code().unwrap_or(-1))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended long ago; then there is nothing to kill.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}
