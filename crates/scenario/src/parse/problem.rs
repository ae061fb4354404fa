//! What is wrong with a file, and where.

use core::fmt;
use std::error::Error;

/// Problems that are told at a time: more only hide the first.
pub const PROBLEMS_MAX: usize = 20;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// From one.
    pub line: usize,
    /// The key with those above it: `link.jitter.max`. Empty if the text is no TOML at all.
    pub key: String,
    /// What is wrong and what is allowed.
    pub words: String,
}

/// Why a text is no scenario. Shown as `FILE:LINE: KEY: WORDS`, one problem a line, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// As the caller calls it.
    pub file: String,
    /// Not empty, ascending lines, at most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
}

impl ParseError {
    pub(crate) fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        problems.truncate(PROBLEMS_MAX);
        Self { file: file.to_owned(), problems }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let (line_break, file) = (if index > 0 { "\n" } else { "" }, &self.file);
            let colon = if problem.key.is_empty() { "" } else { ": " };
            write!(f, "{line_break}{file}:{}: {}{colon}{}", problem.line, problem.key, problem.words)?;
        }
        Ok(())
    }
}

impl Error for ParseError {}
