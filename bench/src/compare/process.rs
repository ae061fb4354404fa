//! Child processes that communicate through their standard input and output.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::contender::Failure;

/// A process that is terminated when dropped, and terminates itself when its time is over, so that
/// a hung process does not hang the run.
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts `program` with `arguments`, in a network namespace if one is named, for at most
    /// `limit`.
    pub fn start<A: AsRef<OsStr>>(
        namespace: Option<&str>,
        program: &Path,
        arguments: &[A],
        limit: Duration,
    ) -> Result<Self, Failure> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", &limit.as_secs().to_string()]);
        if let Some(namespace) = namespace {
            command.args(["ip", "netns", "exec", namespace]);
        }
        command.arg(program).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, input, output })
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a process ended without its figures".into());
        }
        Ok(line)
    }

    /// Closes its input and waits for its end; returns the rest of its output.
    pub fn end(&mut self) -> Result<String, Failure> {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest)?;
        let status = self.child.wait()?;
        if status.success() { Ok(rest) } else { Err(format!("a process ended with {status}").into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has exited by itself: its process ID may have been reused.
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // `timeout` forwards this signal, which it could not do for a kill. The process may exit at
        // this moment.
        let _told = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _reaped = self.child.wait();
    }
}
