//! Recorded rates: the times at which a measured link could have delivered packets.
//!
//! The format is that of mahimahi: one line of text per opportunity to deliver 1500 bytes, with its
//! time in whole milliseconds since the start of the recording, in ascending order. Several
//! opportunities may share a millisecond. The trace lasts until its last opportunity and then
//! repeats.

use core::fmt;
use core::str::FromStr;
use std::error::Error;
use std::sync::Arc;

use units::{Duration, Instant, Rate};

/// Bytes carried by one opportunity.
pub const OPPORTUNITY_BYTES: u64 = 1500;

/// Largest number of opportunities in a trace: 16 million, which is half an hour at 100 Mb/s and
/// takes 64 MiB.
pub const OPPORTUNITIES_MAX: usize = 1 << 24;

const NANOS_PER_MS: u64 = 1_000_000;

/// A recorded rate, repeated indefinitely. Clones share the recording.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds since the start of the recording, ascending; not empty; the last one, which is
    /// the period, is not zero.
    offsets_ms: Arc<[u32]>,
}

/// Error: the text is not a valid trace. Lines count from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is not a number of milliseconds below 2^32.
    InvalidTime {
        /// The line.
        line: usize,
    },
    /// A time is earlier than the one before.
    OutOfOrder {
        /// The line.
        line: usize,
    },
    /// There are more than [`OPPORTUNITIES_MAX`] lines.
    TooLong,
    /// There are no lines.
    Empty,
    /// The last time is zero, so the trace would repeat without time passing.
    ZeroPeriod {
        /// The last line.
        line: usize,
    },
}

impl Trace {
    /// Parses a trace with one number per line. Time and memory are linear in the text; memory is
    /// bounded by [`OPPORTUNITIES_MAX`].
    ///
    /// # Errors
    /// [`TraceError`] for the first invalid line. An empty line is invalid.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut offsets_ms = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let offset_ms = line.trim_end().parse().map_err(|_| TraceError::InvalidTime { line: index + 1 })?;
            push(&mut offsets_ms, offset_ms)?;
        }
        Self::checked(offsets_ms)
    }

    /// Returns the trace with an opportunity at each of these times, in milliseconds.
    ///
    /// # Errors
    /// [`TraceError`] for the first invalid time; its line is its position, from one.
    pub fn from_millis(offsets_ms: impl IntoIterator<Item = u32>) -> Result<Self, TraceError> {
        let mut checked = Vec::new();
        for offset_ms in offsets_ms {
            push(&mut checked, offset_ms)?;
        }
        Self::checked(checked)
    }

    fn checked(offsets_ms: Vec<u32>) -> Result<Self, TraceError> {
        match offsets_ms.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::ZeroPeriod { line: offsets_ms.len() }),
            Some(_) => Ok(Self { offsets_ms: offsets_ms.into() }),
        }
    }

    /// Returns the time after which the trace repeats.
    pub fn period(&self) -> Duration {
        Duration::from_millis(u64::from(self.period_ms()))
    }

    /// Returns the number of opportunities per period, at least one.
    pub fn opportunities(&self) -> usize {
        self.offsets_ms.len()
    }

    /// Returns the mean rate over a period, including overhead.
    pub fn mean_rate(&self) -> Rate {
        let bytes = self.offsets_ms.len() as u64 * OPPORTUNITY_BYTES;
        Rate::from_transfer(bytes, self.period()).unwrap_or(Rate::MAX)
    }

    /// Returns the time of opportunity `number`, counted from zero over all repetitions.
    pub(crate) fn time_of(&self, number: u64) -> Instant {
        let count = self.offsets_ms.len() as u64;
        let offset_ms = u64::from(self.offsets_ms[(number % count) as usize]);
        let millis = (number / count).saturating_mul(u64::from(self.period_ms())).saturating_add(offset_ms);
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Returns the number of opportunities before `at`, counted over all repetitions, which is the
    /// number of the first opportunity at or after `at`. The cost is logarithmic in the length of
    /// the trace.
    pub fn first_at_or_after(&self, at: Instant) -> u64 {
        let millis = at.as_nanos().div_ceil(NANOS_PER_MS);
        let period_ms = u64::from(self.period_ms());
        // The end of a round is the start of the next; opportunities at the end have the smaller
        // numbers.
        let round = millis.saturating_sub(1) / period_ms;
        let offset_ms = millis - round * period_ms;
        let before = self.offsets_ms.partition_point(|&time_ms| u64::from(time_ms) < offset_ms);
        round.saturating_mul(self.offsets_ms.len() as u64).saturating_add(before as u64)
    }

    fn period_ms(&self) -> u32 {
        self.offsets_ms[self.offsets_ms.len() - 1]
    }
}

fn push(offsets_ms: &mut Vec<u32>, offset_ms: u32) -> Result<(), TraceError> {
    if offsets_ms.last().is_some_and(|&last| last > offset_ms) {
        return Err(TraceError::OutOfOrder { line: offsets_ms.len() + 1 });
    }
    if offsets_ms.len() == OPPORTUNITIES_MAX {
        return Err(TraceError::TooLong);
    }
    offsets_ms.push(offset_ms);
    Ok(())
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Shows a summary, because a trace can have millions of entries.
impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("opportunities", &self.opportunities())
            .field("period", &self.period())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidTime { line } => {
                write!(f, "line {line} of the trace: expected one whole number of milliseconds below 2^32")
            }
            Self::OutOfOrder { line } => write!(f, "line {line} of the trace: a time must not be before the last one"),
            Self::TooLong => write!(f, "the trace has more than {OPPORTUNITIES_MAX} lines"),
            Self::Empty => {
                f.write_str("the trace is empty: expected the time of one opportunity in milliseconds per line")
            }
            Self::ZeroPeriod { line } => write!(f, "line {line} of the trace: the last time must be above zero"),
        }
    }
}

impl Error for TraceError {}

#[cfg(test)]
mod tests;
