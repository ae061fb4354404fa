//! Replay: repeats the recorded calls and compares the answers.

use core::fmt;
use std::error::Error;
use std::io::{self, BufRead, Read};

use super::format::{LINE_BYTES_MAX, VERSION_LINE, answer_text, choice_text};
use super::record::Record;
use crate::scheduler::Scheduler;
use crate::strategy::Strategy;

/// Number of differences kept; further differences are only counted.
pub const DIFFERENCES_KEPT_MAX: usize = 16;

/// The result of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The strategy named in the header.
    pub strategy: Strategy,
    /// Number of repeated calls of both kinds.
    pub decisions: u64,
    /// The differing answers, in order: the first [`DIFFERENCES_KEPT_MAX`] of them. Empty if the
    /// trace is unmodified and this build decides like the build that wrote it. One difference may
    /// cause others, because a scheduler keeps state.
    pub differences: Vec<Difference>,
    /// The number of all differing answers.
    pub differences_count: u64,
}

/// A recorded answer that differs from this build's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Line of the trace, counted from 1.
    pub line: u64,
    /// The recorded answer in its text form.
    pub recorded: String,
    /// This build's answer in its text form.
    pub replayed: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: recorded {:?}, replayed {:?}", self.line, self.recorded, self.replayed)
    }
}

/// Error: a trace could not be replayed.
#[derive(Debug)]
pub struct TraceError {
    /// Line of the trace, counted from 1.
    pub line: u64,
    /// The error in this line.
    pub why: TraceErrorKind,
}

/// An error in a trace line.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceErrorKind {
    /// The line could not be read.
    Io(io::Error),
    /// The line is longer than [`LINE_BYTES_MAX`].
    TooLong,
    /// The line is not UTF-8.
    InvalidUtf8,
    /// The line has no line feed: the trace is truncated.
    Truncated,
    /// The line is not [`VERSION_LINE`]: the file has another version or is not a trace.
    WrongVersion,
    /// A field is missing.
    Missing(&'static str),
    /// A field has an invalid value.
    Invalid(&'static str),
    /// A section has too many fields.
    ExtraField,
    /// There are more than [`crate::PATHS_MAX`] paths.
    TooManyPaths,
}

impl fmt::Display for TraceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "I/O error: {error}"),
            Self::TooLong => write!(f, "longer than {LINE_BYTES_MAX} bytes"),
            Self::InvalidUtf8 => f.write_str("not UTF-8"),
            Self::Truncated => f.write_str("truncated before its line feed"),
            Self::WrongVersion => write!(f, "expected {VERSION_LINE:?}"),
            Self::Missing(field) => write!(f, "field {field} is missing"),
            Self::Invalid(field) => write!(f, "field {field} is invalid"),
            Self::ExtraField => f.write_str("a section has too many fields"),
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

/// Builds the strategy named in the header of `trace`, repeats every recorded call in order, and
/// compares the answers. Reads line by line; memory is bounded by one line and
/// [`DIFFERENCES_KEPT_MAX`] differences.
///
/// Fails at the first line that cannot be read or parsed. Differing answers are not an error.
pub fn replay(trace: impl BufRead) -> Result<Replay, TraceError> {
    let mut lines = Lines { input: trace, line: Vec::new(), number: 0 };
    if !lines.advance()? || lines.text()? != VERSION_LINE {
        return Err(lines.error(TraceErrorKind::WrongVersion));
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

/// Repeats a recorded call and returns the recorded and the new answer, if they differ.
fn difference(scheduler: &mut dyn Scheduler, record: &Record) -> Option<(String, String)> {
    match record {
        Record::Choose { now, demand, paths, choice } => {
            let replayed = scheduler.choose(*now, demand, paths);
            (replayed != *choice).then(|| (choice_text(*choice), choice_text(replayed)))
        }
        Record::Reinject { now, straggler, on, paths, reinjects } => {
            let replayed = scheduler.reinjects(*now, straggler, *on, paths);
            let text = |reinjects| answer_text(reinjects).to_owned();
            (replayed != *reinjects).then(|| (text(*reinjects), text(replayed)))
        }
    }
}

/// The lines of a trace, with one line in memory at a time.
struct Lines<R> {
    input: R,
    line: Vec<u8>,
    /// Number of the current line, counted from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line, without its line feed. Returns false at the end of the trace.
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
            Some(_) => Err(self.error(TraceErrorKind::Truncated)),
        }
    }

    fn text(&self) -> Result<&str, TraceError> {
        core::str::from_utf8(&self.line).map_err(|_| self.error(TraceErrorKind::InvalidUtf8))
    }

    fn error(&self, why: TraceErrorKind) -> TraceError {
        TraceError { line: self.number, why }
    }
}
