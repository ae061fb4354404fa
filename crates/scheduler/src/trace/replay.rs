//! Making the recorded calls again and comparing the answers.

use core::fmt;
use std::error::Error;
use std::io::{self, BufRead, Read};

use super::format::{LINE_BYTES_MAX, VERSION_LINE, choice_text, verdict_text};
use super::record::Record;
use crate::{Scheduler, Strategy};

/// Most differences kept in full; more are only counted.
pub const DIFFERENCES_KEPT_MAX: usize = 16;

/// What a replay found.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The strategy that the header names.
    pub strategy: Strategy,
    /// Calls made again, of both kinds.
    pub decisions: u64,
    /// The answers that differ, in order: the first [`DIFFERENCES_KEPT_MAX`] of them. Empty if the trace is genuine and
    /// this build decides as the one that wrote it. One difference may cause others, as a scheduler remembers its
    /// choices.
    pub differences: Vec<Difference>,
    /// All answers that differ.
    pub differences_count: u64,
}

/// A recorded answer that this build does not give.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Line of the trace, counted from 1.
    pub line: u64,
    /// The answer in the trace, as in a line.
    pub recorded: String,
    /// The answer now, as in a line.
    pub replayed: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: recorded {:?}, replayed {:?}", self.line, self.recorded, self.replayed)
    }
}

/// Why a trace could not be replayed.
#[derive(Debug)]
pub struct TraceError {
    /// Line of the trace, counted from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: TraceErrorKind,
}

/// What can be wrong with a line.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// It could not be read.
    Io(io::Error),
    /// It is longer than [`LINE_BYTES_MAX`].
    TooLong,
    /// It is not UTF-8.
    NotText,
    /// It ends without a line feed: the trace was cut off in the middle of a line.
    CutOff,
    /// It should be [`VERSION_LINE`], and is not: another version, or no trace at all.
    NotThisVersion,
    /// This field is not there.
    Missing(&'static str),
    /// This field holds something that it cannot hold.
    Invalid(&'static str),
    /// A section has more fields than it should.
    Surplus,
    /// More than [`crate::PATHS_MAX`] paths.
    TooManyPaths,
}

impl fmt::Display for TraceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read: {error}"),
            Self::TooLong => write!(f, "longer than {LINE_BYTES_MAX} bytes"),
            Self::NotText => f.write_str("not UTF-8"),
            Self::CutOff => f.write_str("cut off before its line feed"),
            Self::NotThisVersion => write!(f, "expected {VERSION_LINE:?}"),
            Self::Missing(field) => write!(f, "field {field} is missing"),
            Self::Invalid(field) => write!(f, "field {field} is invalid"),
            Self::Surplus => f.write_str("a section has too many fields"),
            Self::TooManyPaths => f.write_str("too many paths"),
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scheduler trace, line {}: {}", self.line, self.why)
    }
}

impl Error for TraceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.why {
            TraceErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Builds the strategy that the header of `trace` names, makes every recorded call again in order, and compares the
/// answers. Reads line by line; memory is bounded by one line and [`DIFFERENCES_KEPT_MAX`] differences.
///
/// Fails at the first line that cannot be read or is not of the format. Answers that differ are no failure.
pub fn replay(trace: impl BufRead) -> Result<Replay, TraceError> {
    let mut lines = Lines { input: trace, line: Vec::new(), number: 0 };
    if !lines.advance()? || lines.text()? != VERSION_LINE {
        return Err(lines.error(TraceErrorKind::NotThisVersion));
    }
    let has_strategy = lines.advance()?;
    let name = lines.text()?.strip_prefix("strategy ").filter(|_| has_strategy);
    let name = name.ok_or_else(|| lines.error(TraceErrorKind::Missing("strategy")))?;
    let strategy: Strategy = name.parse().map_err(|_| lines.error(TraceErrorKind::Invalid("strategy")))?;
    let mut scheduler = strategy.build();
    let mut found = Replay { strategy, decisions: 0, differences: Vec::new(), differences_count: 0 };
    while lines.advance()? {
        let record = Record::parse(lines.text()?).map_err(|why| lines.error(why))?;
        found.decisions += 1;
        if let Some((recorded, replayed)) = difference(scheduler.as_mut(), &record) {
            found.differences_count += 1;
            if found.differences.len() < DIFFERENCES_KEPT_MAX {
                found.differences.push(Difference { line: lines.number, recorded, replayed });
            }
        }
    }
    Ok(found)
}

/// Makes the recorded call again: the recorded answer and the one given now, if they differ.
fn difference(scheduler: &mut dyn Scheduler, record: &Record) -> Option<(String, String)> {
    match record {
        Record::Choose { now, demand, paths, choice } => {
            let replayed = scheduler.choose(*now, demand, paths);
            (replayed != *choice).then(|| (choice_text(*choice), choice_text(replayed)))
        }
        Record::Reinject { now, straggler, on, paths, reinjects } => {
            let replayed = scheduler.reinjects(*now, straggler, *on, paths);
            let text = |reinjects| verdict_text(reinjects).to_owned();
            (replayed != *reinjects).then(|| (text(*reinjects), text(replayed)))
        }
    }
}

/// The lines of a trace, one in memory at a time.
struct Lines<R> {
    input: R,
    line: Vec<u8>,
    /// Of the line in memory, counted from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line into memory, without its line feed; false at the end of the trace.
    fn advance(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        self.number += 1;
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.input).take(limit).read_until(b'\n', &mut self.line);
        read.map_err(|error| self.error(TraceErrorKind::Io(error)))?;
        match self.line.last() {
            None => Ok(false),
            Some(b'\n') => {
                self.line.pop();
                Ok(true)
            }
            Some(_) if self.line.len() > LINE_BYTES_MAX => Err(self.error(TraceErrorKind::TooLong)),
            Some(_) => Err(self.error(TraceErrorKind::CutOff)),
        }
    }

    fn text(&self) -> Result<&str, TraceError> {
        core::str::from_utf8(&self.line).map_err(|_| self.error(TraceErrorKind::NotText))
    }

    fn error(&self, why: TraceErrorKind) -> TraceError {
        TraceError { line: self.number, why }
    }
}
