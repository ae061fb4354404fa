//! Evaluates outcomes: pure functions from measurements to verdicts.
//!
//! Four checks apply to every run in addition to those of the file: the connection did not fail,
//! each part is complete, every byte is correct, and each fault affected packets. A run whose
//! faults had no effect is no evidence.

mod against;
mod one;
mod value;

pub use against::against_best;
pub use one::verdicts;
pub use value::{Bound, Value};

/// The result of one check on one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The kind of the check in files; or `connection`, `content` or `fault`, which apply to every
    /// run.
    pub kind: &'static str,
    /// The subject: a workload part (with the percentile or window if any), a path, a link with the
    /// counter, or a fault by link and line. Empty if the check covers the whole run.
    pub of: String,
    /// The measured value; `None` if nothing was measured, which fails the check.
    pub value: Option<Value>,
    /// The allowed values.
    pub bound: Bound,
    /// Whether the check passes.
    pub passes: bool,
    /// The line in the file; `None` for checks that apply to every run.
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
