//! From outcomes to verdicts: pure functions.
//!
//! Beside the checks of the file, four are made of every run: the connection lived, each part is done, every byte is where
//! it belongs, and each fault was met by packets. A run that does not show its faults proves nothing.

mod against;
mod one;
mod value;

pub use against::against_best;
pub use one::verdicts;
pub use value::{Bound, Value};

/// What became of one check in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The check's kind in files; or `connection`, `content` or `fault`, which are made always.
    pub kind: &'static str,
    /// What it is about: a part of the workload, with the percentile or window if any, a path, a link with the
    /// counter, or a fault by link and line. Empty if about all.
    pub of: String,
    /// What was measured; `None` if there was nothing to measure, which passes no check.
    pub value: Option<Value>,
    /// What is allowed.
    pub bound: Bound,
    /// Whether it holds.
    pub passes: bool,
    /// The line in the file; `None` if it is made always.
    pub line: Option<usize>,
}

impl Verdict {
    fn new(kind: &'static str, of: impl Into<String>, value: Option<Value>, bound: Bound, line: Option<usize>) -> Self {
        let passes = value.is_some_and(|value| bound.allows(value));
        Self { kind, of: of.into(), value, bound, passes, line }
    }
}

#[cfg(test)]
mod tests;
