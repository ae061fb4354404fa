//! The far end of a transfer, as this host sees it: a child process of ssh.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use litz::identity::PublicKey;
use serde_json::Value;
use transfer::CancelToken;
use units::text::printable;

use super::lines::read_line;
use super::message::{Hello, LINE_LEN_MAX, OPTIONS, Request, VERSION};
use super::options::SshOptions;
use crate::cli::args::SendOptions;
use crate::cli::out;

/// How often a wait looks for an interrupt, and whether ssh has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How long the far end has for its own last steps before ssh is ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit on what a login script of the far host prints before the hello.
const NOISE_LEN_MAX: usize = 64 * 1024;

/// The longest line of messages that is passed on to the user.
const MESSAGE_LEN_MAX: usize = 4096;

/// The longest version of a far end that is shown.
const VERSION_LEN_MAX: usize = 40;

/// Lines of messages that are kept to tell why ssh ended.
const MESSAGES_KEPT: usize = 8;

/// The statuses of a shell for a missing command, and of ssh for its own failures.
const STATUS_NO_COMMAND: i32 = 127;
const STATUS_SSH: i32 = 255;

/// The status of a command for arguments that it does not know.
const STATUS_USAGE: i32 = 2;

/// A running far end that has said hello.
#[derive(Debug)]
pub(crate) struct FarEnd {
    host: String,
    key: PublicKey,
    /// The options that it knows, and its version.
    options: Vec<String>,
    version: String,
    input: Mutex<Option<ChildStdin>>,
    shared: Arc<Shared>,
}

/// Shared with the threads that read.
#[derive(Debug)]
struct Shared {
    said: Mutex<Said>,
    changed: Condvar,
}

/// What the far end has said.
#[derive(Default, Debug)]
struct Said {
    hello: Option<Hello>,
    ticket: Option<String>,
    /// The message of its error.
    error: Option<String>,
    has_ended: bool,
    /// No more messages come.
    have_messages_ended: bool,
    /// The last lines of messages, from ssh or the far end.
    messages: VecDeque<String>,
    /// The process is to end now.
    is_end_wanted: bool,
    end: Option<End>,
}

/// The end of the process.
#[derive(Clone, Copy, Debug)]
struct End {
    /// The exit status; `None` if a signal ended the process.
    code: Option<i32>,
    /// It did not end, and was killed.
    was_killed: bool,
}

/// Why the far end is not there.
pub(crate) enum FarError {
    Interrupted,
    /// A message for the user.
    Failed(String),
}

impl From<String> for FarError {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl FarEnd {
    /// Starts ssh and waits for the hello of `litz` on `host`. That may take as long as the user needs to
    /// type a password.
    ///
    /// # Errors
    /// A message for the user, or the interrupt.
    pub(crate) fn start(options: &SshOptions, host: &str, cancel: &CancelToken) -> Result<Self, FarError> {
        let words = shlex::split(&options.rsh).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| "-e must be a command, with every quote closed".to_owned())?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(host).arg(format!("{} ssh-end", options.litz_path));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            format!("cannot run {:?}: {error}; install an ssh client, or name another command with -e", words[0])
        })?;
        let shared = Arc::new(Shared { said: Mutex::default(), changed: Condvar::new() });
        let (output, messages) = (child.stdout.take(), child.stderr.take());
        let (of_output, of_messages, of_end) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
        let (input, name) = (child.stdin.take(), host.to_owned());
        // They end with the process. They start before a receiver enters its sandbox, in which no process can be
        // waited for or killed.
        #[expect(clippy::disallowed_methods, reason = "the pipes of a child process block, and so does its end")]
        {
            std::thread::spawn(move || output.map(|output| of_output.read(output)));
            std::thread::spawn(move || messages.map(|messages| of_messages.read_messages(messages, &name)));
            std::thread::spawn(move || of_end.keep(child));
        }
        let input = Mutex::new(input);
        let (host_name, key) = (host.to_owned(), PublicKey::from_bytes([0; 32]));
        let (options, version) = (Vec::new(), String::new());
        let mut far = Self { host: host_name, key, options, version, input, shared };
        let hello = far.wait(cancel, |said| said.hello.take())?;
        if hello.litz_ssh != VERSION {
            let version = printable(&hello.version, VERSION_LEN_MAX);
            return Err(format!(
                "litz on {host} has version {version}, which does not fit this one, {}: install the same version on \
                 both hosts",
                env!("CARGO_PKG_VERSION")
            )
            .into());
        }
        (far.options, far.version) = (hello.options, printable(&hello.version, VERSION_LEN_MAX));
        far.key = hello.key.parse().map_err(|error| format!("{host} sent no usable key: {error}"))?;
        Ok(far)
    }

    /// Checks that the far end knows the options that were chosen.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn check_options(&self, options: &SendOptions) -> Result<(), String> {
        let chosen = [options.update.update, options.update.dry_run, options.delete];
        let unknown = OPTIONS
            .iter()
            .zip(chosen)
            .find(|(name, is_chosen)| *is_chosen && !self.options.iter().any(|known| known == *name));
        let Some((name, _)) = unknown else { return Ok(()) };
        Err(format!(
            "litz on {}, version {}, does not know --{name}: install the same version on both hosts, or leave the option \
             out",
            self.host, self.version
        ))
    }

    /// The far host's public key, as ssh has authenticated it.
    pub(crate) const fn key(&self) -> PublicKey {
        self.key
    }

    /// Says what the far end is to do.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn request(&self, request: &Request) -> Result<(), String> {
        let mut line = serde_json::to_string(request).map_err(|error| error.to_string())?;
        if line.len() >= LINE_LEN_MAX {
            return Err("too many paths or patterns for one command: name a directory instead".to_owned());
        }
        line.push('\n');
        let mut input = lock(&self.input);
        let sent = input.as_mut().map_or(Ok(()), |input| input.write_all(line.as_bytes()).and_then(|()| input.flush()));
        sent.map_err(|_| self.why_ended())
    }

    /// Waits for the ticket of a far end that receives.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn ticket(&self, cancel: &CancelToken) -> Result<String, FarError> {
        self.wait(cancel, |said| said.ticket.take())
    }

    /// Why the far end has ended, if it has: a message for the user.
    pub(crate) fn ending(&self) -> Option<String> {
        // In a statement of its own, because the other call locks it again.
        let has_ended = lock(&self.shared.said).has_ended;
        has_ended.then(|| self.why_ended())
    }

    /// The message of the far end's error, if it sent one.
    pub(crate) fn error(&self) -> Option<String> {
        let error = lock(&self.shared.said).error.clone();
        error.map(|error| format!("{}: {error}", self.host))
    }

    fn wait<T>(&self, cancel: &CancelToken, mut take: impl FnMut(&mut Said) -> Option<T>) -> Result<T, FarError> {
        let mut said = lock(&self.shared.said);
        loop {
            if let Some(value) = take(&mut said) {
                return Ok(value);
            }
            if cancel.is_cancelled() {
                return Err(FarError::Interrupted);
            }
            if said.has_ended {
                drop(said);
                return Err(self.why_ended().into());
            }
            let waited = self.shared.changed.wait_timeout(said, LOOK_INTERVAL);
            said = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Explains the end of the process, after that of its output.
    fn why_ended(&self) -> String {
        if let Some(error) = self.error() {
            return error;
        }
        let end = self.shared.wait_for_end();
        // The last messages say why. A process that ssh has left in the background may hold their pipe.
        let said = lock(&self.shared.said);
        let waited = self.shared.changed.wait_timeout_while(said, END_TIMEOUT, |said| !said.have_messages_ended);
        let said = waited.unwrap_or_else(PoisonError::into_inner).0;
        explain(&self.host, end, &said.messages)
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        if let Some(mut input) = lock(&self.input).take() {
            // The far end need not wait for this host to come back. It may have ended.
            let _left = input.write_all(b"end\n");
        }
        self.shared.wait_for_end();
    }
}

impl Shared {
    /// Owns the process: waits until it is to end, then for its end, and kills it if that takes too long.
    #[expect(clippy::disallowed_methods, reason = "a child process is waited for, with a bound")]
    fn keep(&self, mut child: Child) {
        let said = lock(&self.said);
        let waited = self.changed.wait_while(said, |said| !said.is_end_wanted);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let steps = END_TIMEOUT.as_millis() / LOOK_INTERVAL.as_millis();
        let ended = (0..steps).find_map(|_| {
            let ended = child.try_wait().transpose();
            if ended.is_none() {
                std::thread::sleep(LOOK_INTERVAL);
            }
            ended
        });
        let end = ended.map_or_else(
            || {
                // It may have ended just now.
                let was_killed = child.kill().is_ok();
                End { code: child.wait().ok().and_then(|status| status.code()), was_killed }
            },
            |status| End { code: status.ok().and_then(|status| status.code()), was_killed: false },
        );
        lock(&self.said).end = Some(end);
        self.changed.notify_all();
    }

    /// Waits for the end of the process, which is ended if it takes too long.
    fn wait_for_end(&self) -> End {
        let mut said = lock(&self.said);
        said.is_end_wanted = true;
        self.changed.notify_all();
        loop {
            if let Some(end) = said.end {
                return end;
            }
            said = self.changed.wait(said).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reads the far end's lines until it ends. All are read at once, so that it never waits for this host.
    fn read(&self, output: impl Read) {
        let mut input = BufReader::new(output);
        let mut noise = 0;
        while let Ok(Some(line)) = read_line(&mut input, LINE_LEN_MAX) {
            let mut said = lock(&self.said);
            if noise == usize::MAX {
                said.on_line(&line);
            } else if let Ok(hello) = serde_json::from_slice::<Hello>(&line) {
                said.hello = Some(hello);
                noise = usize::MAX;
            } else {
                noise += line.len();
                if noise > NOISE_LEN_MAX {
                    break;
                }
            }
            self.changed.notify_all();
        }
        lock(&self.said).has_ended = true;
        self.changed.notify_all();
    }

    /// Shows the messages of ssh and of the far host, as text that cannot control a terminal.
    fn read_messages(&self, messages: impl Read, host: &str) {
        let mut input = BufReader::new(messages);
        while let Ok(Some(line)) = read_line(&mut input, LINE_LEN_MAX) {
            let text = printable(String::from_utf8_lossy(&line).trim_end(), MESSAGE_LEN_MAX);
            if text.is_empty() {
                continue;
            }
            out::note(&format!("{host}: {text}"));
            let messages = &mut lock(&self.said).messages;
            if messages.len() >= MESSAGES_KEPT {
                messages.pop_front();
            }
            messages.push_back(text);
        }
        lock(&self.said).have_messages_ended = true;
        self.changed.notify_all();
    }
}

impl Said {
    fn on_line(&mut self, line: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { return };
        let text = |name: &str| event[name].as_str().map(|text| printable(text, MESSAGE_LEN_MAX));
        match event["event"].as_str() {
            Some("listening") => self.ticket = text("ticket"),
            Some("error") => self.error = text("message"),
            _ => {}
        }
    }
}

/// The message for a far end that ended before its work was done.
fn explain(host: &str, end: End, messages: &VecDeque<String>) -> String {
    if end.was_killed {
        return format!("ssh to {host} closed its output and did not end: it was killed");
    }
    let is_unknown = messages.iter().any(|text| text.contains("ssh-end") && text.contains("unrecognized"));
    match end.code {
        Some(STATUS_NO_COMMAND) => format!(
            "there is no `litz` on {host}, or it is not in the PATH of the shell that ssh starts: install it there, or \
             name it with --litz-path"
        ),
        Some(STATUS_SSH) => format!("ssh could not reach {host}: `ssh {host} true` must work first"),
        Some(STATUS_USAGE) if is_unknown => format!(
            "the `litz` on {host} is too old for HOST:PATH: install version {} there, or use `litz recv` and its ticket",
            env!("CARGO_PKG_VERSION")
        ),
        Some(status) => format!("`litz` on {host} ended with status {status} before the transfer was done"),
        None => format!("the connection of ssh to {host} was ended by a signal"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(output: &[u8]) -> Said {
        let shared = Shared { said: Mutex::default(), changed: Condvar::new() };
        shared.read(output);
        shared.said.into_inner().unwrap()
    }

    const HELLO: &str = r#"{"litz_ssh":1,"version":"0.1.0","key":"x"}"#;

    #[test]
    fn text_of_a_login_script_is_passed_over() {
        let said = said(format!("Welcome!\n\n{HELLO}\n{{\"event\":\"listening\",\"ticket\":\"t\"}}\n").as_bytes());
        assert!(said.hello.is_some() && said.has_ended);
        assert_eq!(said.ticket.as_deref(), Some("t"));
    }

    #[test]
    fn a_far_end_that_sends_without_end_is_not_kept() {
        assert!(said(&b"x\n".repeat(NOISE_LEN_MAX)).hello.is_none(), "only so much before the hello");
        let long = [HELLO.as_bytes(), b"\n", &vec![b'x'; LINE_LEN_MAX + 2]].concat();
        let said = said(&long);
        assert!(said.has_ended && said.error.is_none());
    }

    #[test]
    fn a_message_cannot_control_the_terminal() {
        let event = serde_json::json!({ "event": "error", "message": "\u{1b}[2Jgone" });
        let error = said(format!("{HELLO}\n{event}\nnot json\n[1]\n").as_bytes()).error.unwrap();
        assert_eq!(error, "\u{fffd}[2Jgone");
    }

    #[test]
    fn each_end_has_its_own_sentence() {
        let none = VecDeque::new();
        let old = VecDeque::from(["error: unrecognized subcommand 'ssh-end'".to_owned()]);
        for (status, messages, words) in [
            (Some(127), &none, "install it there"),
            (Some(255), &none, "could not reach"),
            (Some(2), &old, "too old"),
            (Some(2), &none, "status 2"),
            (None, &none, "signal"),
        ] {
            let end = End { code: status, was_killed: false };
            assert!(explain("host", end, messages).contains(words), "{status:?}");
        }
        assert!(explain("host", End { code: None, was_killed: true }, &none).contains("did not end"));
    }
}
