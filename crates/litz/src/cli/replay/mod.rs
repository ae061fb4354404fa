//! `litz replay LOG...`: the connections of journals made to happen again, and what they did.
//!
//! | module | what it holds |
//! |---|---|
//! | [`show`] | the words, for people and for programs |
//! | [`quiet`] | what a connection says that breaks |

mod quiet;
mod show;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use quic::Replay;
use quic::journal::{LogEnd, Step, Stopped};
use units::Duration;

use super::{exit, out};
use quiet::Quiet;
use show::{Counts, Show};

/// For the end of the help text.
pub(crate) const HELP: &str = "\
A journal holds all that went into a connection, but no payload and no keys. `litz send` and `litz recv` write \
one for each connection with --journal DIR. Replaying makes another connection of the same beginning, gives it \
the same inputs on one thread, without network, and compares every plan of datagrams, every event and every \
deadline. Times count from its beginning.

Exit status:
  0    each log is complete, or was replayed as far as was asked, and everything came out the same
  1    a log was cut off, and as far as it goes everything came out the same
  2    an error: bad arguments, no such log, a damaged one, something came out differently, or the connection broke";

/// Entries shown before the one that came out differently.
const CONTEXT: u64 = 8;

#[derive(Args, Debug)]
pub(crate) struct ReplayOptions {
    /// Journals, or folders of them
    #[arg(required = true, value_name = "LOG")]
    pub(crate) logs: Vec<PathBuf>,

    /// Show what the application was told and asked for, its data apart
    #[arg(short, long)]
    pub(crate) events: bool,

    /// Show every entry
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Show nothing of what happened before this time
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(crate) from: Duration,

    /// Stop before the first entry after this time, and tell how things stand then
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Duration>,

    /// Stop after the entry of this number, and tell how things stand then
    #[arg(long, value_name = "NUMBER")]
    pub(crate) until_entry: Option<u64>,

    /// One JSON object a line on standard output instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the replay of a log went.
enum Ended {
    /// It came to the end of the log, or to where it was to stop.
    Same(Option<LogEnd>),
    Stopped(Stopped),
}

pub(crate) fn run(options: &ReplayOptions) -> ExitCode {
    let logs = match logs_of(&options.logs) {
        Ok(logs) => logs,
        Err(message) => return exit::fail(options.json, exit::FAILED, &message),
    };
    let quiet = Quiet::begin();
    let (mut status, mut failures) = (exit::DONE, Vec::new());
    for log in &logs {
        match replay(log, options, &quiet) {
            Ok(Ended::Same(None | Some(LogEnd::Complete))) => {}
            Ok(Ended::Same(Some(_))) => status = status.max(exit::INCOMPLETE),
            Ok(Ended::Stopped(stopped)) => failures.push(format!("{}: {}", log.display(), words_of(&stopped, &quiet))),
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
            let words = format!("{} of {} logs do not replay; the first: {first}", failures.len(), logs.len());
            exit::fail(options.json, exit::FAILED, &words)
        }
    }
}

fn words_of(stopped: &Stopped, quiet: &Quiet) -> String {
    match (stopped, quiet.place()) {
        (Stopped::Broke(_), Some(place)) => format!("{stopped} ({place})"),
        _ => stopped.to_string(),
    }
}

/// The logs named, those in folders by name.
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
            return Err(format!("no journals are in {}", path.display()));
        }
        found.sort();
        logs.append(&mut found);
    }
    Ok(logs)
}

fn open(path: &Path) -> Result<BufReader<File>, String> {
    let fail = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    Ok(BufReader::with_capacity(64 << 10, File::open(path).map_err(fail)?))
}

/// Replays one log.
fn replay(path: &Path, options: &ReplayOptions, quiet: &Quiet) -> Result<Ended, String> {
    let show = Show { path, json: options.json };
    let mut replay = match Replay::begin(open(path)?) {
        Ok(replay) => replay,
        Err(stopped) => return Ok(Ended::Stopped(stopped)),
    };
    show.head(replay.head());
    let began_at = replay.head().began_at;
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
        let at = step.at.saturating_since(began_at);
        counts.add(&step, at);
        if at >= options.from && is_wanted(&step, options) {
            show.step(&step, at);
        }
    };
    match &ended {
        Ended::Same(end) => show.end(&replay, &counts, *end),
        Ended::Stopped(stopped) => {
            let context = if options.all { Vec::new() } else { context(path, stopped) };
            show.stopped(stopped, &counts, began_at, &context, quiet);
        }
    }
    Ok(ended)
}

fn is_wanted(step: &Step, options: &ReplayOptions) -> bool {
    options.all || (options.events && step.entry.is_milestone())
}

/// What led to a difference: the entries before it, made to happen once more.
fn context(path: &Path, stopped: &Stopped) -> Vec<Step> {
    let (Stopped::Differs(difference) | Stopped::Broke(difference)) = stopped else { return Vec::new() };
    let mut steps = Vec::new();
    let Ok(input) = open(path) else { return steps };
    let Ok(mut replay) = Replay::begin(input) else { return steps };
    while let Ok(Some(step)) = replay.step() {
        if step.number + CONTEXT >= difference.entry {
            steps.push(step);
        }
        if replay.entry_count() >= difference.entry {
            break;
        }
    }
    steps
}
