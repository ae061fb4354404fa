//! Reads tables key by key, with the line of every key.
//!
//! A table is read with one call per key, and [`Table::finish`] reports the keys that no call
//! requested. So the calls define the permitted keys. Problems are collected; parsing does not end
//! at the first.

use std::cell::RefCell;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use units::{ByteSize, Duration, Rate, Ratio};

use super::problem::{PROBLEMS_MAX, Problem};
use super::quantity::{parse_ratio, parse_share};

/// The file, with the problems found so far.
#[derive(Debug)]
pub(super) struct Source {
    /// Offsets of the line ends.
    line_ends: Vec<usize>,
    problems: RefCell<Vec<Problem>>,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let line_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        Self { line_ends, problems: RefCell::default() }
    }

    /// Returns the line number of a byte offset, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.line_ends.partition_point(|end| *end < at)
    }

    /// Records a problem. If there are very many, only those of the first lines are kept.
    pub(super) fn add_problem(&self, line: usize, key: impl Into<String>, message: impl Into<String>) {
        let mut problems = self.problems.borrow_mut();
        problems.push(Problem { line, key: key.into(), message: message.into() });
        if problems.len() >= 64 * PROBLEMS_MAX {
            problems.sort_by_key(|problem| problem.line);
            problems.truncate(PROBLEMS_MAX);
        }
    }

    pub(super) fn has_problems(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

/// A table of the file.
#[derive(Debug)]
pub(super) struct Table<'s, 'i> {
    pub(super) source: &'s Source,
    table: &'i DeTable<'i>,
    /// The keys of the enclosing tables, for messages.
    path: String,
    pub(super) line: usize,
    asked: RefCell<Vec<&'static str>>,
}

impl<'s, 'i> Table<'s, 'i> {
    pub(super) fn new(source: &'s Source, path: String, span: Range<usize>, table: &'i DeTable<'i>) -> Self {
        let line = source.line(span.start);
        Self { source, table, path, line, asked: RefCell::default() }
    }

    /// Returns the key, preceded by those of the enclosing tables.
    pub(super) fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn value(&self, key: &'static str) -> Option<&'i Spanned<DeValue<'i>>> {
        self.asked.borrow_mut().push(key);
        self.table.get(key)
    }

    pub(super) fn has(&self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    /// Returns the line of a key, or of the table if the key is missing.
    pub(super) fn line_of(&self, key: &str) -> usize {
        self.table.get_key_value(key).map_or(self.line, |(key, _)| self.source.line(key.span().start))
    }

    /// Records a problem of a key.
    pub(super) fn add_problem(&self, key: &str, message: impl Into<String>) {
        self.source.add_problem(self.line_of(key), self.full(key), message);
    }

    fn wrong_type(&self, key: &str, value: &DeValue<'_>, expected: &str) {
        self.add_problem(key, format!("expected {expected}, found {}", type_name(value)));
    }

    /// Reads a required value.
    pub(super) fn required<T>(&self, key: &'static str, found: Option<T>) -> Option<T> {
        if found.is_none() && self.table.get(key).is_none() {
            self.source.add_problem(self.line, self.full(key), "is missing");
        }
        found
    }

    pub(super) fn text(&self, key: &'static str) -> Option<&'i str> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(text.as_ref()),
            other => {
                self.wrong_type(key, other, "a string in quotes");
                None
            }
        }
    }

    /// Reads a string that `parse` converts.
    pub(super) fn parsed<T>(&self, key: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(key)?;
        parse(text).map_err(|message| self.add_problem(key, message)).ok()
    }

    pub(super) fn rate(&self, key: &'static str) -> Option<Rate> {
        let rate: Rate = self.parsed(key, |text| text.parse().map_err(|error| format!("{error}")))?;
        self.above_zero(key, rate, rate.is_zero())
    }

    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        self.parsed(key, |text| text.parse().map_err(|error| format!("{error}")))
    }

    pub(super) fn duration_above_zero(&self, key: &'static str) -> Option<Duration> {
        let duration = self.duration(key)?;
        self.above_zero(key, duration, duration.is_zero())
    }

    /// Reads a time from zero to `max`.
    pub(super) fn duration_up_to(&self, key: &'static str, max: Duration) -> Option<Duration> {
        let duration = self.duration(key)?;
        if duration > max {
            self.add_problem(key, format!("must be at most {max}"));
            return None;
        }
        Some(duration)
    }

    fn above_zero<T>(&self, key: &str, value: T, is_zero: bool) -> Option<T> {
        if is_zero {
            self.add_problem(key, "must be above zero");
            return None;
        }
        Some(value)
    }

    /// Reads a size within bounds.
    pub(super) fn size(&self, key: &'static str, allowed: Range<u64>) -> Option<u64> {
        let size: ByteSize = self.parsed(key, |text| text.parse().map_err(|error| format!("{error}")))?;
        self.within(key, size.as_bytes(), allowed, "bytes")
    }

    /// Reads a probability: `"0.5%"`.
    pub(super) fn ratio(&self, key: &'static str) -> Option<Ratio> {
        self.parsed(key, parse_ratio)
    }

    /// Reads a share: `0.97` or `"97%"`; it may exceed one.
    pub(super) fn share(&self, key: &'static str) -> Option<f64> {
        let value = self.value(key)?;
        let parsed = match value.get_ref() {
            DeValue::String(text) => parse_share(text),
            DeValue::Float(_) | DeValue::Integer(_) => Ok(number(value.get_ref()).unwrap_or(f64::NAN)),
            other => {
                self.wrong_type(key, other, "a share such as 0.97 or \"97%\"");
                return None;
            }
        };
        let share = parsed.map_err(|message| self.add_problem(key, message)).ok()?;
        if !(share.is_finite() && (0.0..=1000.0).contains(&share)) {
            self.add_problem(key, "a share must lie between 0 and 1000, where 1 means 100%");
            return None;
        }
        Some(share)
    }

    /// Reads a whole number within bounds.
    pub(super) fn integer(&self, key: &'static str, allowed: Range<u64>) -> Option<u64> {
        let value = self.value(key)?;
        let parsed = match value.get_ref() {
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()),
            other => {
                self.wrong_type(key, other, "a whole number without quotes");
                return None;
            }
        };
        // A number that does not fit is out of bounds.
        self.within(key, parsed.unwrap_or(u64::MAX), allowed, "")
    }

    /// Reads a whole number that may be negative.
    pub(super) fn signed(&self, key: &'static str, bound: i32) -> Option<i32> {
        let value = self.value(key)?;
        let parsed = match value.get_ref() {
            DeValue::Integer(integer) => i32::from_str_radix(integer.as_str(), integer.radix()).ok(),
            other => {
                self.wrong_type(key, other, "a whole number without quotes");
                return None;
            }
        };
        let parsed = parsed.filter(|value| (-bound..=bound).contains(value));
        if parsed.is_none() {
            self.add_problem(key, format!("must lie between -{bound} and {bound}"));
        }
        parsed
    }

    fn within(&self, key: &str, value: u64, allowed: Range<u64>, unit: &str) -> Option<u64> {
        if allowed.contains(&value) {
            return Some(value);
        }
        let space = if unit.is_empty() { "" } else { " " };
        self.add_problem(key, format!("must lie between {} and {}{space}{unit}", allowed.start, allowed.end - 1));
        None
    }

    /// Reads a number, whole or not, above zero and at most `max`, in hundredths.
    pub(super) fn hundredths(&self, key: &'static str, max: u32) -> Option<u32> {
        let value = self.value(key)?;
        let Some(number) = number(value.get_ref()) else {
            self.wrong_type(key, value.get_ref(), "a number without quotes");
            return None;
        };
        let hundredths = (number * 100.0).round();
        if !(1.0..=f64::from(max)).contains(&hundredths) {
            self.add_problem(key, format!("must lie between 0.01 and {}", f64::from(max) / 100.0));
            return None;
        }
        Some(hundredths as u32)
    }

    pub(super) fn boolean(&self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?.get_ref();
        if value.as_bool().is_none() {
            self.wrong_type(key, value, "true or false");
        }
        value.as_bool()
    }

    /// Reads one of several keywords.
    pub(super) fn keyword<T: Clone>(&self, key: &'static str, keywords: &[(T, &'static str)]) -> Option<T> {
        self.parsed(key, |text| {
            keywords.iter().find(|(_, word)| *word == text).map(|(value, _)| value.clone()).ok_or_else(|| {
                let known: Vec<_> = keywords.iter().map(|(_, word)| *word).collect();
                format!("{text:?} is not one of {}", known.join(", "))
            })
        })
    }

    /// Reads a list of strings.
    pub(super) fn texts(&self, key: &'static str) -> Option<Vec<&'i str>> {
        let value = self.value(key)?.get_ref();
        let texts: Option<Vec<_>> =
            value.as_array().and_then(|array| array.iter().map(|value| value.get_ref().as_str()).collect());
        if texts.is_none() {
            self.wrong_type(key, value, "a list of strings such as [\"a\", \"b\"]");
        }
        texts
    }

    /// Creates a nested table.
    pub(super) fn table(&self, key: &'static str) -> Option<Self> {
        let value = self.value(key)?;
        let Some(table) = value.get_ref().as_table() else {
            self.wrong_type(key, value.get_ref(), "a table");
            return None;
        };
        let line = self.line_of(key);
        Some(Self { line, ..Self::new(self.source, self.full(key), value.span(), table) })
    }

    /// Reads an array of nested tables, `[[key]]`, of at most `max`. Returns an empty list if the
    /// key is missing.
    pub(super) fn tables(&self, key: &'static str, max: usize) -> Vec<Self> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(key, value.get_ref(), &format!("tables: write [[{key}]]"));
            return Vec::new();
        };
        if array.len() > max {
            self.add_problem(key, format!("there are {}; at most {max} are allowed", array.len()));
            return Vec::new();
        }
        let mut tables = Vec::new();
        for value in array.iter() {
            match value.get_ref().as_table() {
                Some(table) => tables.push(Self::new(self.source, self.full(key), value.span(), table)),
                None => self.wrong_type(key, value.get_ref(), &format!("tables: write [[{key}]]")),
            }
        }
        tables
    }

    /// Does the same as [`finish`](Self::finish) for a table of unknown kind: permits the keys of
    /// every kind.
    pub(super) fn finish_unknown_kind(&self, keys: &[&'static str]) {
        self.asked.borrow_mut().extend(keys);
        self.finish();
    }

    /// Reports the keys that were not requested. Call it last.
    pub(super) fn finish(&self) {
        let mut asked = self.asked.borrow().clone();
        asked.sort_unstable();
        asked.dedup();
        for (key, _) in self.table.iter() {
            let name = key.get_ref().as_ref();
            if !asked.contains(&name) {
                let line = self.source.line(key.span().start);
                let message = format!("unknown key; allowed here: {}", asked.join(", "));
                self.source.add_problem(line, self.full(name), message);
            }
        }
    }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        DeValue::Integer(integer) => {
            i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|value| value as f64)
        }
        _ => None,
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
