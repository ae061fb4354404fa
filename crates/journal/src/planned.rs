//! [`Planned`]: the result of requesting a plan from a connection.

use std::fmt;

use units::Instant;
use wire::quic::Reader;

use crate::format::{Malformed, Parsed, put_word, word};

/// A protocol's record of a plan. It can be displayed to people.
pub trait PlanRecord: fmt::Display + Sized {
    /// Appends the record to an entry.
    fn put(&self, out: &mut Vec<u8>);

    /// Parses the record.
    ///
    /// # Errors
    /// If the entry is truncated or not valid.
    fn parse(reader: &mut Reader<'_>) -> Parsed<Self>;
}

/// Result of a request for a plan, and the next timeout of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned<P> {
    /// The plan; `None` if there was nothing to send.
    pub plan: Option<P>,
    /// The next timeout.
    pub timeout: Option<Instant>,
}

impl<P: PlanRecord> Planned<P> {
    /// Appends the value to an entry.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.plan.is_some()) | u8::from(self.timeout.is_some()) << 1);
        if let Some(plan) = &self.plan {
            plan.put(out);
        }
        if let Some(timeout) = self.timeout {
            put_word(out, timeout.as_nanos());
        }
    }

    /// Parses the value.
    ///
    /// # Errors
    /// If the entry is truncated or not valid.
    pub fn parse(reader: &mut Reader<'_>) -> Parsed<Self> {
        let flags = reader.u8()?;
        if flags > 3 {
            return Err(Malformed("unknown flags of a plan"));
        }
        let plan = if flags & 1 == 0 { None } else { Some(P::parse(reader)?) };
        let timeout = if flags & 2 == 0 { None } else { Some(Instant::from_nanos(word(reader)?)) };
        Ok(Self { plan, timeout })
    }
}

impl<P: fmt::Display> fmt::Display for Planned<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plan {
            Some(plan) => plan.fmt(f)?,
            None => f.write_str("nothing")?,
        }
        match self.timeout {
            Some(timeout) => write!(f, ", next timeout at {}", timeout.since_start()),
            None => f.write_str(", no timeout"),
        }
    }
}
