//! Names of links, paths and parts of the workload, and keys that refer to them.

use super::reader::Table;

/// Maximum length of a name.
const NAME_LEN_MAX: usize = 32;

/// Reads a name that needs no quotes on a command line.
pub(super) fn read_name(table: &Table<'_, '_>, key: &'static str) -> Option<String> {
    table.parsed(key, |text| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if text.is_empty() || text.len() > NAME_LEN_MAX || !text.bytes().all(is_plain) {
            return Err(format!("{text:?} is not a valid name: use 1 to {NAME_LEN_MAX} letters, digits, - and _"));
        }
        Ok(text.to_owned())
    })
}

/// Returns the index of the name that a key refers to.
pub(super) fn read_index(table: &Table<'_, '_>, key: &'static str, what: &str, names: &[&str]) -> Option<usize> {
    table.parsed(key, |text| {
        names
            .iter()
            .position(|name| *name == text)
            .ok_or_else(|| format!("there is no {what} {text:?}; there are {}", names.join(", ")))
    })
}
