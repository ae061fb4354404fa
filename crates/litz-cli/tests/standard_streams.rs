//! Standard streams in any state: closed, full, with a reader that is gone or slow, and non-blocking
//! because another program shares them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::OFlags;
use serde_json::Value;

use crate::support::Place;

const LITZ: &str = env!("CARGO_BIN_EXE_litz");

/// What standard output or error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Usual,
    Closed,
    Full,
    /// The reader has gone.
    Gone,
    /// Non-blocking and full when the command starts; it is read once the command waits.
    Slow,
    /// The same, and never read.
    Unread,
}

/// A command that runs, and the pipes that it writes to.
struct Running {
    child: Child,
    output: Option<PipeReader>,
    error: Option<PipeReader>,
}

fn start(arguments: &[OsString], output: State, error: State) -> Running {
    // The shell closes what is to be closed.
    let close = |state, text| if state == State::Closed { text } else { "" };
    let script = format!("exec \"$0\" \"$@\" {} {}", close(output, ">&-"), close(error, "2>&-"));
    let mut command = Command::new("sh");
    command.args(["-c", &script, LITZ]).args(arguments).stdin(Stdio::null());
    let (stdout, output) = stream(output);
    let (stderr, error) = stream(error);
    let child = command.stdout(stdout).stderr(stderr).spawn().expect("a shell");
    Running { child, output, error }
}

fn stream(state: State) -> (Stdio, Option<PipeReader>) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    match state {
        State::Closed => (Stdio::null(), None),
        State::Full => (File::options().write(true).open("/dev/full").expect("a device").into(), None),
        State::Gone => (writer.into(), None),
        State::Usual => (writer.into(), Some(reader)),
        State::Slow | State::Unread => {
            rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a flag");
            while writer.write(&[b'#'; 4096]).is_ok() {}
            (writer.into(), Some(reader))
        }
    }
}

impl Running {
    /// Waits until no thread of the command does anything, or it has ended.
    fn wait_until_idle(&mut self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_idle = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')))
        };
        while self.child.try_wait().expect("a child").is_none() {
            if std::fs::read_dir(&tasks).is_ok_and(|mut tasks| tasks.all(is_idle)) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Reads everything; without what filled the pipes.
    fn finish(mut self) -> Output {
        let read = |pipe: Option<PipeReader>| {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                pipe.read_to_end(&mut bytes).expect("a pipe");
            }
            bytes.into_iter().skip_while(|byte| *byte == b'#').collect::<Vec<u8>>()
        };
        let (output, error) = (self.output.take(), self.error.take());
        let (stderr, stdout) = std::thread::scope(|scope| {
            let output = scope.spawn(|| read(output));
            (read(error), output.join().expect("no panic"))
        });
        Output { status: self.child.wait().expect("a child"), stdout, stderr }
    }
}

fn check_no_panic(output: &Output, what: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.signal().is_none(), "{what}: {:?}", output.status);
    assert!(output.status.code() != Some(101) && !errors.contains("panicked"), "{what}: {errors}");
}

#[test]
fn every_command_that_prints_bears_every_state_of_its_streams() {
    let place = Place::new();
    let state = format!("--state-dir={}", place.path("state").display());
    let commands: &[&[&str]] = &[
        &["--help"],
        &["send", "--help"],
        &["version"],
        &["version", "--json"],
        &["completions", "bash"],
        &["man"],
        &["id", &state],
        &["tickets", &state],
        &["study", "list"],
        &["nonsense"],
        &["send", "/nowhere", "no-ticket", "--json"],
        &["tunnel", "status", "no-device"],
    ];
    for arguments in commands {
        let given: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let usual = start(&given, State::Usual, State::Usual).finish();
        check_no_panic(&usual, &format!("{arguments:?}"));
        for state in [State::Closed, State::Full, State::Gone, State::Slow] {
            for (output, error) in [(state, State::Usual), (State::Usual, state), (state, state)] {
                let what = format!("{arguments:?} with output {output:?} and errors {error:?}");
                let mut running = start(&given, output, error);
                if state == State::Slow {
                    running.wait_until_idle();
                }
                let found = running.finish();
                check_no_panic(&found, &what);
                if output == State::Full && !usual.stdout.is_empty() {
                    assert_eq!(found.status.code(), Some(2), "{what}");
                } else {
                    assert_eq!(found.status.code(), usual.status.code(), "{what}");
                }
                if matches!(output, State::Usual | State::Slow) {
                    assert!(found.stdout == usual.stdout, "{what}: {} bytes", found.stdout.len());
                }
                if matches!(error, State::Usual | State::Slow) && output != State::Full {
                    assert!(found.stderr == usual.stderr, "{what}: {}", String::from_utf8_lossy(&found.stderr));
                }
            }
        }
    }
}

/// The arguments of a sender of `name` to `ticket`.
fn send(place: &Place, name: &str, ticket: &str, more: &[&str]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["send".into()];
    arguments.push(format!("--state-dir={}", place.path("state-out").display()).into());
    arguments.extend(more.iter().map(Into::into));
    arguments.push(place.path("out").join(name).into());
    arguments.push(ticket.into());
    arguments
}

#[test]
fn a_slow_reader_of_the_events_gets_all_results_and_ends_no_transfer() {
    let place = Place::new();
    for index in 0..200 {
        place.file(&format!("tree/file{index}"), 1000, index);
    }
    let (mut receiver, ticket) = place.recv(&[]);
    let mut sender = start(&send(&place, "tree", &ticket, &["--json"]), State::Slow, State::Usual);
    // It cannot write its first event.
    sender.wait_until_idle();
    let output = sender.finish();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(events.iter().filter(|event| event["event"] == "file_done").count(), 200);
    receiver.succeed();
}

#[test]
fn a_log_that_cannot_be_written_ends_no_transfer() {
    for (seed, state) in [State::Closed, State::Full, State::Gone, State::Slow, State::Unread].into_iter().enumerate() {
        let place = Place::new();
        place.file("file", 3_000_000, seed as u64);
        let (mut receiver, ticket) = place.recv(&["-vvv"]);
        // Its log is not read before it ends.
        let mut sender = start(&send(&place, "file", &ticket, &["-vvv"]), State::Usual, state);
        if state == State::Slow {
            sender.wait_until_idle();
        }
        let unread = sender.error.take_if(|_| state == State::Unread);
        let output = sender.finish();
        drop(unread);
        check_no_panic(&output, &format!("{state:?}"));
        assert_eq!(output.status.code(), Some(0), "{state:?}");
        receiver.succeed();
        crate::support::assert_same(&place.path("out").join("file"), &place.inbox().join("file"));
    }
}
