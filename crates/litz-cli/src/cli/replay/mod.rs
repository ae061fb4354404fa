//! `litz replay JOURNAL...`: replays recorded connections and shows what they did.
//! | module | contents |
//! |---|---|
//! | [`logged`] | what the replays of all protocols have in common |
//! | [`quic`], [`tcp`] | the protocols |
//! | [`show`] | the output, as text and as JSON |
//! | [`quiet`] | captures the message of a connection that panics |

mod logged;
mod quic;
mod quiet;
mod show;
mod tcp;

use std::fs::File;
use std::io::{BufReader, BufWriter, Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::tcp::journal as tcp_log;
use clap::Args;
use journal::{LogEnd, Stopped};
use observe::QlogWriter;
use units::Duration;

use self::logged::{Input, Logged, Stepped};
use self::quiet::Quiet;
use self::show::{Counts, Show};
use super::{exit, out, qlog};

/// The end of the help text.
pub(crate) const HELP: &str = "\
A journal contains all inputs of a connection, but no payload and no keys. With --journal DIR, the commands send, \
recv, forward, run, daemon, tunnel and tcp write one for each connection. A replay creates a connection in the same \
initial state, gives it the same inputs on one thread, without a network, and compares every plan of datagrams or \
segments, every event and every deadline. Times are relative to the start of the connection.

Exit status:
  0    each journal is complete, or was replayed as far as requested, without differences
  1    a journal is truncated; there are no differences up to its end
  2    an error: bad arguments, a missing or damaged journal, a difference, or a connection that panicked";

/// Number of entries shown before a difference.
const CONTEXT: u64 = 8;

#[derive(Args, Debug)]
pub(crate) struct ReplayOptions {
    /// Journals, or folders of journals
    #[arg(required = true, value_name = "JOURNAL")]
    pub(crate) logs: Vec<PathBuf>,

    /// Show the events and calls of the application, without its data
    #[arg(short, long)]
    pub(crate) events: bool,

    /// Show every entry
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Show only entries from this time on
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(crate) from: Duration,

    /// Stop before the first entry after this time, and show the state at that point
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Duration>,

    /// Stop after the entry with this number, and show the state at that point
    #[arg(long, value_name = "NUMBER")]
    pub(crate) until_entry: Option<u64>,

    /// Write a qlog file of each connection into this folder, as far as it is replayed: for
    /// https://qvis.quictools.info and other tools
    ///
    /// Only its owner can read the file. It contains addresses, connection IDs, sizes and times.
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,

    /// Print one JSON object per line on standard output instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the replay of a log went.
enum Ended {
    /// The replay reached the end of the log or the requested stop.
    Same(Option<LogEnd>),
    Stopped(Stopped),
}

pub(crate) fn run(options: &ReplayOptions) -> ExitCode {
    let logs = match logs_of(&options.logs) {
        Ok(logs) => logs,
        Err(message) => return exit::fail(options.json, exit::FAILED, &message),
    };
    if let Some(folder) = &options.qlog
        && let Err(message) = qlog::create_folder(folder)
    {
        return exit::fail(options.json, exit::FAILED, &message);
    }
    let quiet = Quiet::begin();
    let (mut status, mut failures) = (exit::DONE, Vec::new());
    for log in &logs {
        match replay(log, options, &quiet) {
            Ok(Ended::Same(None | Some(LogEnd::Complete))) => {}
            Ok(Ended::Same(Some(_))) => status = status.max(exit::INCOMPLETE),
            Ok(Ended::Stopped(stopped)) => {
                failures.push(format!("{}: {}", log.display(), message_of(&stopped, &quiet)))
            }
            Err(message) => failures.push(message),
        }
        if out::has_failed() {
            break;
        }
    }
    drop(quiet);
    match failures.as_slice() {
        [] => ExitCode::from(status),
        [failure] => exit::fail(options.json, exit::FAILED, failure),
        [first, ..] => {
            let summary = format!("{} of {} logs cannot be replayed; the first: {first}", failures.len(), logs.len());
            exit::fail(options.json, exit::FAILED, &summary)
        }
    }
}

fn message_of(stopped: &Stopped, quiet: &Quiet) -> String {
    match (stopped, quiet.place()) {
        (Stopped::Broke(_), Some(place)) => format!("{stopped} ({place})"),
        _ => stopped.to_string(),
    }
}

/// The given logs, and the logs in the given folders, sorted by name.
fn logs_of(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut logs = Vec::new();
    for path in named {
        if !path.is_dir() {
            logs.push(path.clone());
            continue;
        }
        let fail = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let file = entry.map_err(fail)?.path();
            if file.extension().is_some_and(|extension| extension == "journal") {
                found.push(file);
            }
        }
        if found.is_empty() {
            return Err(format!("{} contains no journals", path.display()));
        }
        found.sort();
        logs.append(&mut found);
    }
    Ok(logs)
}

/// A log, and its first bytes, which tell the protocol. They are read apart because a pipe cannot go back.
fn open(path: &Path) -> Result<(Input, Vec<u8>), String> {
    let fail = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let (mut file, mut magic) = (File::open(path).map_err(fail)?, Vec::new());
    file.by_ref().take(tcp_log::MAGIC.len() as u64).read_to_end(&mut magic).map_err(fail)?;
    Ok((BufReader::with_capacity(64 << 10, Cursor::new(magic.clone()).chain(file)), magic))
}

/// Replays one log.
fn replay(path: &Path, options: &ReplayOptions, quiet: &Quiet) -> Result<Ended, String> {
    let (input, magic) = open(path)?;
    // Everything else is replayed as a journal of QUIC, which says what is wrong.
    if magic == tcp_log::MAGIC {
        if options.qlog.is_some() {
            return Err(format!(
                "{}: a journal of TCP, and qlog files are about QUIC: leave out --qlog",
                path.display()
            ));
        }
        return replay_as(::tcp::Replay::begin(input), path, options, quiet, |_, _| Ok(()));
    }
    if options.qlog.is_none() {
        return replay_as(::quic::Replay::begin(input), path, options, quiet, |_, _| Ok(()));
    }
    let mut replay = match ::quic::Replay::observed(input) {
        Ok(replay) => replay,
        Err(stopped) => return Ok(Ended::Stopped(stopped)),
    };
    let mut qlog = QlogFile::begin(path, options.qlog.as_deref(), &mut replay)?;
    let ended = replay_as(Ok(replay), path, options, quiet, |replay, step| qlog.step(replay, step))?;
    if let Some(file) = qlog.finish()? {
        Show { path, json: options.json }.qlog(&file);
    }
    Ok(ended)
}

/// Replays a log of some protocol. `on_step` sees each step.
fn replay_as<L: Logged>(
    begun: Result<L, Stopped>,
    path: &Path,
    options: &ReplayOptions,
    quiet: &Quiet,
    mut on_step: impl FnMut(&mut L, &L::Step) -> Result<(), String>,
) -> Result<Ended, String> {
    let show = Show { path, json: options.json };
    let mut replay = match begun {
        Ok(replay) => replay,
        Err(stopped) => return Ok(Ended::Stopped(stopped)),
    };
    replay.show_head(&show);
    let began_at = replay.began_at();
    let mut counts = Counts::default();
    let ended = loop {
        if options.until_entry.is_some_and(|last| replay.entry_count() > last) || out::has_failed() {
            break Ended::Same(None);
        }
        if let Some(until) = options.until {
            match replay.next_at() {
                Ok(next) if next.saturating_since(began_at) > until => break Ended::Same(None),
                Ok(_) => {}
                Err(stopped) => break Ended::Stopped(stopped),
            }
        }
        let step = match replay.step() {
            Ok(Some(step)) => step,
            Ok(None) => break Ended::Same(replay.end()),
            Err(stopped) => break Ended::Stopped(stopped),
        };
        on_step(&mut replay, &step)?;
        let at = step.at().saturating_since(began_at);
        counts.add(&step, at);
        if at >= options.from && is_wanted(&step, options) {
            show.step(&step, at);
        }
    };
    match &ended {
        Ended::Same(end) => replay.show_end(&show, &counts, *end),
        Ended::Stopped(stopped) => {
            let context = if options.all { Vec::new() } else { context::<L>(path, stopped) };
            show.stopped(stopped, &counts, began_at, &context, quiet);
        }
    }
    Ok(ended)
}

/// The qlog file of a replay, if there is to be one.
struct QlogFile(Option<(QlogWriter<BufWriter<File>>, PathBuf)>);

impl QlogFile {
    fn begin(log: &Path, folder: Option<&Path>, replay: &mut ::quic::Replay<Input>) -> Result<Self, String> {
        let Some(folder) = folder else { return Ok(Self(None)) };
        let (file, path) = qlog::create(log, folder)?;
        match QlogWriter::begin(file, replay, &qlog::about(log)) {
            Ok(writer) => Ok(Self(Some((writer, path)))),
            Err(error) => Err(cannot_write(&path, &error)),
        }
    }

    fn step(&mut self, replay: &mut ::quic::Replay<Input>, step: &::quic::journal::Step) -> Result<(), String> {
        let Some((writer, path)) = &mut self.0 else { return Ok(()) };
        writer.step(replay, step).map_err(|error| cannot_write(path, &error))
    }

    /// Completes the file and returns its path.
    fn finish(self) -> Result<Option<PathBuf>, String> {
        let Some((writer, path)) = self.0 else { return Ok(None) };
        writer.finish().map_err(|error| cannot_write(&path, &error))?;
        Ok(Some(path))
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

fn is_wanted(step: &impl Stepped, options: &ReplayOptions) -> bool {
    options.all || (options.events && step.is_milestone())
}

/// The entries before a difference, from a second replay.
fn context<L: Logged>(path: &Path, stopped: &Stopped) -> Vec<L::Step> {
    let (Stopped::Differs(difference) | Stopped::Broke(difference)) = stopped else { return Vec::new() };
    let mut steps = Vec::new();
    let Ok((input, _)) = open(path) else { return steps };
    let Ok(mut replay) = L::begin(input) else { return steps };
    while let Ok(Some(step)) = replay.step() {
        if step.number() + CONTEXT >= difference.entry {
            steps.push(step);
        }
        if replay.entry_count() >= difference.entry {
            break;
        }
    }
    steps
}
