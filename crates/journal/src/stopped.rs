//! End of a replay: with its log, with a difference, or with an error.

use std::any::Any;
use std::fmt;

use units::Instant;

use crate::blocks::JournalError;

/// End of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEnd {
    /// The log ends with its connection.
    Complete,
    /// The log is truncated: the process was killed, or the log was abandoned because its disk was
    /// full or too slow. This many bytes of an incomplete last block were not used.
    Cut(u64),
    /// The log ends before an entry that would have exceeded the maximum length.
    TooLong,
}

/// A result that differs from the recorded one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The entry, counted from zero.
    pub entry: u64,
    /// Its time, since the run began.
    pub at: Instant,
    /// The input, as text.
    pub input: String,
    /// The recorded result.
    pub expected: String,
    /// The result of the replay.
    pub got: String,
}

impl Difference {
    /// Creates the difference of the first entry.
    pub fn of_begin(at: Instant, expected: String, got: String) -> Self {
        Self { entry: 0, at, input: "begin".to_owned(), expected, got }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, at, input, expected, got } = self;
        write!(f, "entry {entry} at {}: {input}: expected {expected}; got {got}", at.since_start())
    }
}

/// Reason why a replay stopped.
#[derive(Debug)]
pub enum Stopped {
    /// The log cannot be read any further.
    Journal(JournalError),
    /// The first difference: another program wrote the log, the log was changed, or the connection
    /// depends on more than its inputs, which is a bug.
    Differs(Box<Difference>),
    /// The connection panicked, as it may have done when the log was written: the entry, its time,
    /// the input, and the message.
    Broke(Box<Difference>),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(error) => error.fmt(f),
            Self::Differs(difference) => difference.fmt(f),
            Self::Broke(difference) => {
                let Difference { entry, at, input, got, .. } = difference.as_ref();
                write!(f, "entry {entry} at {}: {input}: the connection broke: {got}", at.since_start())
            }
        }
    }
}

impl std::error::Error for Stopped {}

impl From<JournalError> for Stopped {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned())).unwrap_or_default()
}
