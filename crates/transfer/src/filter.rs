//! Patterns that leave files and directories out of a transfer, with the rules of rsync.
//!
//! | pattern | matches |
//! |---|---|
//! | `*.o` | the last component of a name |
//! | `build/` | directories only |
//! | `/src/old` | from the top of the transfer: the first component is that of the path sent |
//! | `a/b` | names that end in it, at any depth |
//! | `a/**` | everything in `a`: `**` matches any bytes, `/` among them |
//! | `a/***` | `a` and everything in it |
//!
//! `*` and `?` never match a `/`. `[a-z]` is a set, with classes as in `[[:digit:]]`, and `[!a-z]`
//! and `[^a-z]` are all other bytes. `\` takes the special meaning from the next byte, but only in
//! a pattern with `*`, `?` or `[`: in others it stands for itself. The first matching pattern
//! decides; names that match no pattern are sent. Excluded directories are not searched.

use std::fmt;

use regex::bytes::Regex;

use super::names::RelativePath;

mod set;

use set::Set;

/// Limit on the patterns in one filter: each costs a match for every name.
pub const PATTERNS_MAX: usize = 1000;

/// Limit on the length of a pattern in bytes, which bounds the memory of its compiled form.
pub const PATTERN_LEN_MAX: usize = 4096;

/// Patterns in the order of their evaluation. The default admits everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    admits: bool,
    pattern: Regex,
    is_for_directories: bool,
    /// Whether the pattern is compared with the whole name instead of its last component.
    is_for_paths: bool,
}

/// A pattern that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FilterError {
    /// The pattern is empty or only slashes.
    Empty,
    /// The pattern has a set without an end, or one with an impossible range or an unknown class;
    /// or it ends in a backslash that is an escape.
    Syntax(String),
    /// The pattern is longer than [`PATTERN_LEN_MAX`].
    TooLong,
    /// There are more than [`PATTERNS_MAX`].
    TooMany,
}

impl Filter {
    /// Adds a pattern for names to leave out.
    ///
    /// # Errors
    /// Fails if the pattern cannot be used.
    pub fn exclude(&mut self, pattern: &str) -> Result<(), FilterError> {
        self.add(pattern, false)
    }

    /// Adds a pattern for names to send, whatever later patterns say.
    ///
    /// # Errors
    /// Same errors as [`exclude`](Self::exclude).
    pub fn include(&mut self, pattern: &str) -> Result<(), FilterError> {
        self.add(pattern, true)
    }

    /// Returns whether `path`, a directory or not, is sent.
    #[must_use]
    pub fn admits(&self, path: &RelativePath, is_directory: bool) -> bool {
        self.admits_bytes(path.as_bytes(), Some(is_directory))
    }

    /// Does the same for any name of components with slashes between them; `is_directory` if it is
    /// known. Like in rsync, an entry of unknown kind is sent only if it would be sent as either.
    pub(crate) fn admits_bytes(&self, path: &[u8], is_directory: Option<bool>) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let Some(is_directory) = is_directory else {
            return [false, true].into_iter().all(|is_directory| self.admits_bytes(path, Some(is_directory)));
        };
        // A name of the transfer is a path from its top.
        let whole = [b"/", path].concat();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let is_match = |rule: &&Rule| {
            (is_directory || !rule.is_for_directories)
                && rule.pattern.is_match(if rule.is_for_paths { &whole } else { name })
        };
        self.rules.iter().find(is_match).is_none_or(|rule| rule.admits)
    }

    fn add(&mut self, pattern: &str, admits: bool) -> Result<(), FilterError> {
        if let Some(directory) = pattern.strip_suffix("/***") {
            self.push(&format!("{directory}/"), true, admits)?;
            return self.push(&format!("{directory}/**"), true, admits);
        }
        self.push(pattern, pattern.contains(['*', '?', '[']), admits)
    }

    /// Adds a pattern. If `is_wild`, its backslashes are escapes.
    fn push(&mut self, pattern: &str, is_wild: bool, admits: bool) -> Result<(), FilterError> {
        if self.rules.len() >= PATTERNS_MAX {
            return Err(FilterError::TooMany);
        }
        let (body, is_for_directories) = match pattern.strip_suffix('/') {
            Some(body) => (body, true),
            None => (pattern, false),
        };
        let (body, is_anchored) = match body.strip_prefix('/') {
            Some(body) => (body, true),
            None => (body, false),
        };
        if body.is_empty() {
            return Err(FilterError::Empty);
        }
        if body.len() > PATTERN_LEN_MAX {
            return Err(FilterError::TooLong);
        }
        let is_for_paths = is_anchored || body.contains('/') || body.contains("**");
        let start = match (is_for_paths, is_anchored) {
            (false, _) => "",
            (true, true) => "/",
            // `**` at the start stands for any number of directories, including none.
            (true, false) if body.starts_with("**") => "",
            // A pattern of several components may begin at any depth.
            (true, false) => "(?:.*/)",
        };
        let expression = if is_wild { translate(body) } else { Some(literal(body)) };
        let expression = expression.ok_or_else(|| FilterError::Syntax(pattern.to_owned()))?;
        let compiled = Regex::new(&format!("(?s-u)^{start}{expression}$"));
        let compiled = compiled.map_err(|_| FilterError::Syntax(pattern.to_owned()))?;
        self.rules.push(Rule { admits, pattern: compiled, is_for_directories, is_for_paths });
        Ok(())
    }
}

/// Translates the pattern to a regular expression over bytes; returns `None` if it is invalid.
fn translate(pattern: &str) -> Option<String> {
    let mut expression = String::new();
    let mut rest = pattern.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'*' if rest.first() == Some(&b'*') => {
                rest = &rest[rest.iter().take_while(|byte| **byte == b'*').count()..];
                expression += ".*";
            }
            b'*' => expression += "[^/]*",
            b'?' => expression += "[^/]",
            b'[' => {
                let (set, after) = Set::parse(rest)?;
                rest = after;
                set.put(&mut expression);
            }
            b'\\' => {
                let (&escaped, after) = rest.split_first()?;
                rest = after;
                put_byte(&mut expression, escaped);
            }
            byte => put_byte(&mut expression, byte),
        }
    }
    Some(expression)
}

/// Translates a pattern without special bytes to a regular expression.
fn literal(pattern: &str) -> String {
    let mut expression = String::new();
    pattern.bytes().for_each(|byte| put_byte(&mut expression, byte));
    expression
}

/// Writes a literal byte.
fn put_byte(expression: &mut String, byte: u8) {
    *expression += &format!("\\x{byte:02x}");
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a pattern is empty: name what is left out, as in '*.o' or 'build/'"),
            Self::Syntax(pattern) => write!(
                f,
                "the pattern {pattern:?} cannot be used: a [ has no ], a range in it is empty, a class as in \
                 [[:digit:]] is none of POSIX, or a backslash ends it"
            ),
            Self::TooLong => write!(f, "a pattern is longer than {PATTERN_LEN_MAX} bytes"),
            Self::TooMany => write!(f, "there are more than {PATTERNS_MAX} patterns"),
        }
    }
}

impl std::error::Error for FilterError {}

#[cfg(test)]
mod tests;
