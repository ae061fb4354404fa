//! A folder for each listed sender.

use std::io;
use std::path::{Path, PathBuf};

use litz::identity::PublicKey;

/// The longest label that names a folder, bytes.
const LABEL_LEN_MAX: usize = 64;

/// The folder of a sender below `base`, which is made if it does not exist: that of its label, if
/// the label is a safe name, and otherwise that of its fingerprint.
///
/// # Errors
/// A message for the user.
pub(super) fn open(base: &Path, label: Option<&str>, key: &PublicKey) -> Result<PathBuf, String> {
    let folder = base.join(name(label, key));
    let failed = |error: io::Error| format!("cannot receive into {}: {error}", folder.display());
    match std::fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // A link would lead out of `base`.
    if std::fs::symlink_metadata(&folder).map_err(failed)?.is_dir() {
        return Ok(folder);
    }
    Err(failed(io::ErrorKind::NotADirectory.into()))
}

/// The name of a sender's folder.
fn name(label: Option<&str>, key: &PublicKey) -> String {
    label.filter(|label| is_safe(label)).map_or_else(|| key.fingerprint().to_string().replace(':', "-"), str::to_owned)
}

/// Letters, digits, dots, hyphens and underscores, and no dot first: a hidden folder, or one above.
fn is_safe(label: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    label.len() <= LABEL_LEN_MAX
        && label.bytes().all(is_plain)
        && label.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_safe_names() {
        let key = PublicKey::from_bytes([1; 32]);
        assert_eq!(name(Some("host-b.example_2"), &key), "host-b.example_2");
        let long = "a".repeat(LABEL_LEN_MAX + 1);
        for label in [None, Some(""), Some(".."), Some(".hidden"), Some("a/b"), Some("a\0"), Some("ä"), Some(&long)] {
            let name = name(label, &key);
            assert!(name.starts_with("sha256-") && !name.contains('/'), "{label:?}: {name}");
        }
    }

    #[test]
    fn a_folder_is_made_once_and_a_link_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let key = PublicKey::from_bytes([1; 32]);
        for _ in 0..2 {
            assert_eq!(open(base.path(), Some("anna"), &key), Ok(base.path().join("anna")));
        }
        std::os::unix::fs::symlink("/tmp", base.path().join("bert")).unwrap();
        assert!(open(base.path(), Some("bert"), &key).unwrap_err().contains("bert"));
        std::fs::write(base.path().join("carl"), "").unwrap();
        assert!(open(base.path(), Some("carl"), &key).is_err());
    }
}
