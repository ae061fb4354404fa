//! What the replays of all protocols have in common.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, Chain, Cursor};

use journal::{LogEnd, Stopped};
use units::Instant;

use super::show::{Counts, Show};

/// A log: its first bytes, and the rest of the file.
pub(super) type Input = BufReader<Chain<Cursor<Vec<u8>>, File>>;

/// An entry whose replay had the recorded result. Prints as a line for people.
pub(super) trait Stepped: Display {
    /// The entry, counted from zero.
    fn number(&self) -> u64;

    /// Its time, since the run began.
    fn at(&self) -> Instant;

    /// The name of its kind.
    fn kind(&self) -> &'static str;

    /// Whether a reader looks for it first.
    fn is_milestone(&self) -> bool;

    /// The numbers of datagrams or segments and of bytes, if it was a plan.
    fn planned(&self) -> Option<(u64, u64)>;
}

/// A connection of some protocol that is replayed from its log.
pub(super) trait Logged: Sized {
    /// Its steps.
    type Step: Stepped;

    /// Reads the first entry and begins the connection.
    fn begin(input: Input) -> Result<Self, Stopped>;

    /// When it began, since the run began.
    fn began_at(&self) -> Instant;

    /// Entries replayed so far, including the first one.
    fn entry_count(&self) -> u64;

    /// The time of the next entry.
    fn next_at(&mut self) -> Result<Instant, Stopped>;

    /// Replays the next entry.
    fn step(&mut self) -> Result<Option<Self::Step>, Stopped>;

    /// How the log ends, once that is known.
    fn end(&self) -> Option<LogEnd>;

    /// Shows the initial values.
    fn show_head(&self, show: &Show<'_>);

    /// Shows the state at the end, or where the replay was to stop.
    fn show_end(&self, show: &Show<'_>, counts: &Counts, end: Option<LogEnd>);
}
