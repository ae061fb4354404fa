//! The problems of a file, with their lines.

use core::fmt;
use std::error::Error;

/// Maximum number of reported problems.
pub const PROBLEMS_MAX: usize = 20;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The full key, such as `link.jitter.max`. Empty if the file is not valid TOML.
    pub key: String,
    /// The error, and the permitted values.
    pub message: String,
}

/// The problems of an invalid file. Displayed as `FILE:LINE: KEY: MESSAGE`, one problem per line,
/// in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// Not empty, by ascending line, at most [`PROBLEMS_MAX`].
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
            write!(f, "{line_break}{file}:{}: {}{colon}{}", problem.line, problem.key, problem.message)?;
        }
        Ok(())
    }
}

impl Error for ParseError {}
