//! Support for tests of the command: processes, their JSON events, temporary folders, a relay
//! between them.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of the harness")]

pub(crate) mod needs;
pub(crate) mod run;
pub(crate) mod ssh;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use units::Rng;

/// Time limit of each step of a test.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Folders of one test.
pub struct Place {
    pub root: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let root = TempDir::new().expect("a temporary folder");
        for name in ["out", "in"] {
            std::fs::create_dir(root.path().join(name)).expect("a folder");
        }
        Self { root }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Where received files go.
    pub fn inbox(&self) -> PathBuf {
        self.path("in")
    }

    /// Makes a file of random bytes below `out`.
    pub fn file(&self, name: &str, size: usize, seed: u64) -> PathBuf {
        let path = self.path("out").join(name);
        std::fs::create_dir_all(path.parent().expect("below out")).expect("folders");
        let mut bytes = vec![0; size];
        Rng::from_seed(seed).fill(&mut bytes);
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    /// Starts `litz recv` into the inbox.
    pub fn recv(&self, more: &[&str]) -> (Litz, String) {
        let state = format!("--state-dir={}", self.path("state-in").display());
        let mut arguments = vec!["recv".into(), self.inbox().into_os_string(), "--json".into()];
        if !more.iter().any(|argument| argument.starts_with("--state-dir")) {
            arguments.push(state.into());
        }
        if !more.iter().any(|argument| argument.starts_with("--listen")) {
            arguments.push("--listen=127.0.0.1:0".into());
        }
        arguments.extend(more.iter().map(Into::into));
        let mut process = Litz::start(&arguments);
        let listening = process.wait_for("listening");
        let ticket = listening["ticket"].as_str().expect("a ticket").to_owned();
        process.port = listening["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
        (process, ticket)
    }

    /// Starts `litz send`.
    pub fn send(&self, paths: &[&Path], ticket: &str, more: &[&str]) -> Litz {
        let mut arguments = vec!["send".into(), "--json".into()];
        if !more.iter().any(|argument| argument.starts_with("--state-dir")) {
            arguments.push(format!("--state-dir={}", self.path("state-out").display()).into());
        }
        arguments.extend(more.iter().map(Into::into));
        arguments.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
        arguments.push(ticket.into());
        Litz::start(&arguments)
    }
}

/// A running command.
pub struct Litz {
    child: Child,
    events: Receiver<Value>,
    pub seen: Vec<Value>,
    pub port: u16,
}

impl Litz {
    pub fn start<S: AsRef<OsStr>>(arguments: &[S]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_litz")).args(arguments))
    }

    /// Starts a command that becomes `litz`.
    pub fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let stdout = child.stdout.take().expect("piped");
        Self { child, events: events_of(stdout), seen: Vec::new(), port: 0 }
    }

    /// The next event; none once the output has ended.
    pub fn next(&mut self) -> Option<Value> {
        match self.events.recv_timeout(TEST_TIMEOUT) {
            Ok(event) => {
                self.seen.push(event.clone());
                Some(event)
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no event for {TEST_TIMEOUT:?}; so far {:#?}", self.seen),
        }
    }

    /// The next event, if one comes within `limit`; none either once the output has ended.
    pub fn next_within(&mut self, limit: Duration) -> Option<Value> {
        let event = self.events.recv_timeout(limit).ok()?;
        self.seen.push(event.clone());
        Some(event)
    }

    /// Takes the events that have been printed and not been read.
    pub fn take_events(&mut self) {
        self.seen.extend(self.events.try_iter());
    }

    /// Reads until an event satisfies `wanted`.
    pub fn wait_until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        while let Some(event) = self.next() {
            if wanted(&event) {
                return event;
            }
        }
        let errors = self.errors();
        panic!("the command ended: {:#?}\n{errors}", self.seen);
    }

    pub fn wait_for(&mut self, name: &str) -> Value {
        self.wait_until(|event| event["event"] == name)
    }

    /// Reads until this many bytes were transferred.
    pub fn wait_for_bytes(&mut self, bytes: u64) {
        self.wait_until(|event| event["event"] == "progress" && event["bytes_done"].as_u64() >= Some(bytes));
    }

    /// Reads to the end; the exit status, and the last event of this name.
    pub fn finish(&mut self, name: &str) -> (i32, Option<Value>) {
        while self.next().is_some() {}
        let status = self.child.wait().expect("it was started").code().unwrap_or(-1);
        (status, self.seen.iter().rev().find(|event| event["event"] == name).cloned())
    }

    /// Expects success; the summary.
    pub fn succeed(&mut self) -> Value {
        let (status, finished) = self.finish("finished");
        if status != 0 {
            let errors = self.errors();
            panic!("status {status}: {:#?}\n{errors}", self.seen);
        }
        finished.expect("a finished event")["summary"].clone()
    }

    /// Expects an error with this status and these words.
    pub fn fail(&mut self, status: i32, words: &str) {
        let (actual, error) = self.finish("error");
        let message = error.as_ref().and_then(|error| error["message"].as_str()).unwrap_or_default().to_owned();
        assert_eq!(actual, status, "{:#?}", self.seen);
        assert!(message.contains(words), "{message:?} does not say {words:?}");
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was started");
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("kill runs").success());
    }

    /// The command's standard error, at the first call. Ends the command.
    pub fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _killed = self.child.kill();
            stderr.read_to_string(&mut text).expect("text");
        }
        text
    }
}

impl Drop for Litz {
    fn drop(&mut self) {
        // The process may have ended already.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test reads a pipe without blocking on it forever")]
fn events_of(stdout: ChildStdout) -> Receiver<Value> {
    let (sender, events) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let event = serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON: {line:?}: {error}"));
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    events
}

/// Asserts that two files are equal.
pub fn assert_same(left: &Path, right: &Path) {
    let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(read(left) == read(right), "{} and {} differ", left.display(), right.display());
}
