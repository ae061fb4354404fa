//! Measured values and their bounds.

use core::fmt;

use units::{Duration, Rate};

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A share or a ratio.
    Share(f64),
    /// Bits per second.
    Rate(Rate),
    /// A duration.
    Time(Duration),
    /// A number of bytes, packets or other items.
    Count(u64),
}

impl Value {
    /// Returns the value as a number: a share, bits per second, seconds, or a count.
    pub fn number(self) -> f64 {
        match self {
            Self::Share(share) => share,
            Self::Rate(rate) => rate.as_bps() as f64,
            Self::Time(time) => time.as_secs_f64(),
            Self::Count(count) => count as f64,
        }
    }

    /// Returns the unit of [`Value::number`]: `share`, `bit/s`, `s` or `count`.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Share(_) => "share",
            Self::Rate(_) => "bit/s",
            Self::Time(_) => "s",
            Self::Count(_) => "count",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{share:.3}"),
            Self::Rate(rate) => rate.fmt(f),
            Self::Time(time) => time.fmt(f),
            Self::Count(count) => count.fmt(f),
        }
    }
}

/// A range of allowed values of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bound {
    /// The minimum.
    pub at_least: Option<Value>,
    /// The maximum.
    pub at_most: Option<Value>,
}

impl Bound {
    /// Creates a bound of at least `value`.
    pub const fn at_least(value: Value) -> Self {
        Self { at_least: Some(value), at_most: None }
    }

    /// Creates a bound of at most `value`.
    pub const fn at_most(value: Value) -> Self {
        Self { at_least: None, at_most: Some(value) }
    }

    /// Returns whether `value` is permitted.
    pub fn allows(&self, value: Value) -> bool {
        let number = value.number();
        self.at_least.is_none_or(|least| number >= least.number())
            && self.at_most.is_none_or(|most| number <= most.number())
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => write!(f, "{least} to {most}"),
            (Some(least), None) => write!(f, ">= {least}"),
            (None, Some(most)) => write!(f, "<= {most}"),
            (None, None) => f.write_str("any"),
        }
    }
}
