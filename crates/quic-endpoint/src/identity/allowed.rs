//! The list of keys that a server accepts without tickets.
//!
//! The list is a text file: one public key (`ed25519:...`) or fingerprint (`sha256:...`) per line.
//! The word after it is the key's label, the rest of the line is a comment, as is everything after
//! `#`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use credentials::private_file;

use super::key::{Fingerprint, PublicKey};

/// Keys that may send without a ticket.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct AllowList {
    /// The keys with their labels.
    keys: BTreeMap<Fingerprint, Option<String>>,
}

/// Errors of reading a list. A faulty list is rejected as a whole, so that a typing error does not
/// leave half of it in effect.
#[derive(Debug)]
#[non_exhaustive]
pub enum AllowListError {
    /// The file could not be read.
    Read(PathBuf, io::Error),
    /// A line (counted from 1) begins with neither a public key nor a fingerprint.
    Line(PathBuf, usize),
}

impl AllowList {
    /// Reads the list at `path`.
    ///
    /// # Errors
    /// [`AllowListError::Read`] (also if the file exceeds 4 MiB) and [`AllowListError::Line`].
    pub fn load(path: &Path) -> Result<Self, AllowListError> {
        let (bytes, _) = private_file::read_bounded(path, LIST_FILE_LEN_MAX)
            .map_err(|error| AllowListError::Read(path.to_owned(), error))?;
        let text = String::from_utf8_lossy(&bytes);
        Self::parse(&text).map_err(|line| AllowListError::Line(path.to_owned(), line))
    }

    /// Returns a list of these keys.
    pub fn of(fingerprints: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self { keys: fingerprints.into_iter().map(|fingerprint| (fingerprint, None)).collect() }
    }

    /// Returns whether the list names no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the number of keys that the list names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether the list names `key`.
    #[must_use]
    pub fn allows(&self, key: &PublicKey) -> bool {
        self.keys.contains_key(&key.fingerprint())
    }

    /// Returns the label of `key`: the word after it, without a comma at its end. `None` if the
    /// list does not name the key, or has no word after it.
    #[must_use]
    pub fn label(&self, key: &PublicKey) -> Option<&str> {
        self.keys.get(&key.fingerprint())?.as_deref()
    }

    /// Returns the list in `text`, or the number of the first malformed line.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut keys = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(word) = words.next() else { continue };
            let fingerprint = match word.parse::<PublicKey>() {
                Ok(key) => key.fingerprint(),
                Err(_) => word.parse::<Fingerprint>().map_err(|_| index + 1)?,
            };
            keys.insert(fingerprint, words.next().map(|label| label.trim_end_matches(',').to_owned()));
        }
        Ok(Self { keys })
    }
}

impl fmt::Display for AllowListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read the allowed keys {}: {error}", path.display()),
            Self::Line(path, line) => write!(
                f,
                "{}:{line}: not a key: begin the line with ed25519: or sha256: and 52 letters and digits, or with #",
                path.display()
            ),
        }
    }
}

impl std::error::Error for AllowListError {}

/// Maximum file length, enough for some 60,000 keys.
const LIST_FILE_LEN_MAX: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_fingerprints_are_listed_with_comments() {
        let keys = [1, 2, 3].map(|byte| PublicKey::from_bytes([byte; 32]));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("allowed_keys");
        std::fs::write(&path, format!("# laptops\n\n{}  anna\n\t{} # bert\n", keys[0], keys[1].fingerprint())).unwrap();
        let list = AllowList::load(&path).unwrap();
        assert_eq!(list.len(), 2);
        assert!(list.allows(&keys[0]) && list.allows(&keys[1]) && !list.allows(&keys[2]));
        assert_eq!((list.label(&keys[0]), list.label(&keys[1]), list.label(&keys[2])), (Some("anna"), None, None));
    }

    #[test]
    fn a_faulty_line_is_named_and_nothing_is_allowed() {
        let good = PublicKey::from_bytes([1; 32]);
        assert_eq!(AllowList::parse(&format!("{good}\n#\nssh-ed25519 AAAA\n")), Err(3));
        assert_eq!(AllowList::parse(&good.to_string()[..50]), Err(1));
        assert!(AllowList::parse("# none\n").unwrap().is_empty());
    }
}
