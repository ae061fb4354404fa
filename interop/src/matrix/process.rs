//! A peer's program while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The end of a program's error output that is kept, in bytes.
const ERRORS_KEPT: usize = 2000;

/// A program that prints lines of JSON. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    errors: Arc<Mutex<String>>,
}

impl Process {
    /// Starts `command` with `arguments`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &[String], arguments: &[String]) -> Result<Self, String> {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", command[0]))?;
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let errors = Arc::new(Mutex::new(String::new()));
        // Both threads end with the program's output.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|_| Value::String(line));
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut error_output = child.stderr.take().expect("piped");
        std::thread::spawn({
            let errors = errors.clone();
            move || {
                let mut buffer = [0; 1024];
                while let Ok(len @ 1..) = error_output.read(&mut buffer) {
                    let mut kept = errors.lock().expect("no thread panics");
                    kept.push_str(&String::from_utf8_lossy(&buffer[..len]));
                    let excess = kept.len().saturating_sub(ERRORS_KEPT);
                    let cut = (excess..=kept.len()).find(|at| kept.is_char_boundary(*at)).unwrap_or(0);
                    kept.drain(..cut);
                }
            }
        });
        Ok(Self { input: child.stdin.take(), child, lines, errors })
    }

    /// The next line; none at the end of the program.
    ///
    /// # Errors
    /// If none comes before `deadline`, or the program has failed. The text has its last errors.
    pub fn next(&mut self, deadline: Instant) -> Result<Option<Value>, String> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Err(self.with_errors("the peer did not finish in time")),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait().map_err(|error| error.to_string())?;
                // The errors may take a moment more than the exit.
                std::thread::sleep(Duration::from_millis(50));
                if status.success() {
                    Ok(None)
                } else {
                    Err(self.with_errors(&format!("the peer ended with {status}")))
                }
            }
        }
    }

    /// The next line, which must be this event.
    ///
    /// # Errors
    /// As [`next`](Self::next), and if it is another one.
    pub fn expect(&mut self, event: &str, deadline: Instant) -> Result<Value, String> {
        match self.next(deadline)? {
            Some(line) if line["event"] == event => Ok(line),
            Some(line) => Err(self.with_errors(&format!("expected the event {event} of the peer, got {line}"))),
            None => Err(self.with_errors(&format!("expected the event {event} of the peer, which has ended"))),
        }
    }

    /// `text` with the last errors that the program has printed.
    pub fn with_errors(&self, text: &str) -> String {
        let errors = self.errors.lock().expect("no thread panics");
        if errors.is_empty() { text.to_owned() } else { format!("{text}: {}", errors.trim()) }
    }

    /// Sends the line for which a program in the step `pause` waits.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&mut self) -> Result<(), String> {
        let input = self.input.as_mut().expect("it is kept until the end");
        input.write_all(b"\n").and_then(|()| input.flush()).map_err(|error| format!("the peer has ended: {error}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
