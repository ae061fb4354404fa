//! The target of a symbolic link, which cannot lead out of the tree that contains the link.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::names::{PATH_LEN_MAX, RelativePath};

/// The target of a symbolic link: 1 to [`PATH_LEN_MAX`] - 1 bytes, without NUL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkTarget(Box<[u8]>);

impl LinkTarget {
    /// Creates a target from `bytes`, if it has a permitted length and no NUL.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_possible = (1..PATH_LEN_MAX).contains(&bytes.len()) && !bytes.contains(&0);
        is_possible.then(|| Self(bytes.into()))
    }

    /// Returns the bytes as stored in the link.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// Returns whether a link at `path` with this target stays in the tree whose root is the first
    /// component of `path`: the target is relative, and has `..` only at its start and not so often
    /// that it leaves the root.
    ///
    /// The directories of `path` are real ones, because nothing is received through a link. So each
    /// leading `..` leads to the actual parent. The rest leads downwards, and links on that way
    /// stay in the tree for the same reason.
    ///
    /// The root itself is never a link: its target would lie beside the tree.
    pub fn stays_inside(&self, path: &RelativePath) -> bool {
        if self.0[0] == b'/' {
            return false;
        }
        let components = self.0.split(|byte| *byte == b'/').filter(|component| !matches!(*component, b"" | b"."));
        let (mut ups, mut is_down) = (0, false);
        for component in components {
            match component {
                b".." if is_down => return false,
                b".." => ups += 1,
                _ => is_down = true,
            }
        }
        // Neither the root nor the link's own name can be left upwards.
        ups + 2 <= path.components().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::from_components(text.split('/').map(str::as_bytes)).unwrap()
    }

    #[test]
    fn targets_inside_the_tree_are_told_from_those_outside() {
        let inside = [
            ("root/link", "file"),
            ("root/link", "sub/dir/file"),
            ("root/link", "."),
            ("root/link", "./sub//file"),
            ("root/link", "..."),
            ("root/sub/link", ".."),
            ("root/sub/link", "../file"),
            ("root/a/b/link", "../../c/file"),
        ];
        let outside = [
            ("root/link", "/etc/passwd"),
            ("root/link", ".."),
            ("root/link", "../sibling"),
            ("root/sub/link", "../.."),
            ("root/sub/link", "../../root/file"),
            ("root/sub/link", "sub/../file"),
            ("root/sub/link", "../sub/../file"),
            ("root/link", "//"),
            ("link", "file"),
            ("link", ".ssh/authorized_keys"),
            ("link", "."),
            ("link", ".."),
            ("link", "../file"),
        ];
        for (link, target) in inside {
            assert!(LinkTarget::new(target.as_bytes()).unwrap().stays_inside(&path(link)), "{link} -> {target}");
        }
        for (link, target) in outside {
            assert!(!LinkTarget::new(target.as_bytes()).unwrap().stays_inside(&path(link)), "{link} -> {target}");
        }
    }

    #[test]
    fn impossible_targets_are_refused() {
        assert_eq!(LinkTarget::new(b""), None);
        assert_eq!(LinkTarget::new(b"a\0b"), None);
        assert_eq!(LinkTarget::new(&vec![b'a'; PATH_LEN_MAX]), None);
        assert!(LinkTarget::new(&vec![b'a'; PATH_LEN_MAX - 1]).is_some());
    }
}
