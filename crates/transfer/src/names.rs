//! File names in the protocol: relative paths as lists of components, which may hold any bytes of a
//! Unix name but cannot leave the target directory.
//!
//! A [`RelativePath`] can only be created by [`RelativePath::from_components`], so every value is
//! checked.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use serde::{Serialize, Serializer};

/// A path below the target directory, of 1 to [`COMPONENTS_MAX`] components. Not necessarily UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath {
    /// Components with `/` between them.
    bytes: Box<[u8]>,
}

/// The reason why a name is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NameError {
    /// No component, or an empty one.
    Empty,
    /// `.` or `..`.
    Dots,
    /// A component contains `/` or NUL.
    Separator,
    /// A component is longer than [`COMPONENT_LEN_MAX`].
    LongComponent,
    /// The path is longer than [`PATH_LEN_MAX`], or has more than [`COMPONENTS_MAX`] components.
    LongPath,
    /// The name has a suffix of the files that Litz keeps next to unfinished ones.
    Reserved,
}

impl RelativePath {
    /// Creates and checks the path of these components.
    ///
    /// # Errors
    /// Fails with the first fault found.
    pub fn from_components<'a>(components: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, NameError> {
        let mut bytes = Vec::new();
        for (index, component) in components.into_iter().enumerate() {
            check_component(component)?;
            if index > 0 {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(component);
            if bytes.len() > PATH_LEN_MAX || index >= COMPONENTS_MAX {
                return Err(NameError::LongPath);
            }
        }
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        Ok(Self { bytes: bytes.into() })
    }

    /// Returns this path with one more component.
    ///
    /// # Errors
    /// Same errors as [`RelativePath::from_components`].
    pub fn join(&self, component: &[u8]) -> Result<Self, NameError> {
        Self::from_components(self.components().chain([component]))
    }

    /// Returns the components, outermost first.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == b'/')
    }

    /// Returns the path of its first component alone.
    pub(crate) fn root(&self) -> Self {
        let end = self.bytes.iter().position(|byte| *byte == b'/').unwrap_or(self.bytes.len());
        Self { bytes: self.bytes[..end].into() }
    }

    /// Returns the directories above it, outermost first, and the last component.
    pub(crate) fn split_last(&self) -> (impl Iterator<Item = &OsStr>, &OsStr) {
        let (parents, name) = match self.bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&self.bytes[..slash], &self.bytes[slash + 1..]),
            None => ([].as_slice(), &self.bytes[..]),
        };
        let parents = parents.split(|byte| *byte == b'/').filter(|parent| !parent.is_empty()).map(OsStr::from_bytes);
        (parents, OsStr::from_bytes(name))
    }

    /// Returns the components with `/` between them.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the length in bytes, separators included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl fmt::Display for RelativePath {
    /// Writes the name for display: control characters and bytes that are not UTF-8 are shown as
    /// `\xNN`, so that a name cannot control a terminal or break a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() || is_direction_mark(character) || character == '\\' {
                    let mut buffer = [0; 4];
                    for byte in character.encode_utf8(&mut buffer).bytes() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                } else {
                    write!(f, "{character}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelativePath({self})")
    }
}

impl Serialize for RelativePath {
    /// Serialises the displayed form.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the name is empty",
            Self::Dots => "the name has a `.` or `..` component",
            Self::Separator => "the name has a `/` or NUL inside a component",
            Self::LongComponent => "a component of the name is longer than 255 bytes",
            Self::LongPath => "the path is longer than 4096 bytes or deeper than 255 directories",
            Self::Reserved => "the name ends in .litz-part or .litz-journal, which litz keeps for unfinished files",
        })
    }
}

impl std::error::Error for NameError {}

/// Checks one component.
fn check_component(component: &[u8]) -> Result<(), NameError> {
    match component {
        [] => Err(NameError::Empty),
        b"." | b".." => Err(NameError::Dots),
        _ if component.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(NameError::Separator),
        _ if component.len() > COMPONENT_LEN_MAX => Err(NameError::LongComponent),
        _ if [PART_SUFFIX, JOURNAL_SUFFIX].iter().any(|suffix| ends_with(component, suffix)) => {
            Err(NameError::Reserved)
        }
        _ => Ok(()),
    }
}

/// Returns whether `component` ends with `suffix` in any case: some file systems do not distinguish
/// case.
fn ends_with(component: &[u8], suffix: &[u8]) -> bool {
    component.len().checked_sub(suffix.len()).is_some_and(|start| component[start..].eq_ignore_ascii_case(suffix))
}

/// Returns whether a character reorders text on a screen; `gpj.exe` can be made to look like
/// `exe.jpg` that way (Unicode UAX #9).
fn is_direction_mark(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Longest name on any usual file system (`NAME_MAX`), in bytes.
pub const COMPONENT_LEN_MAX: usize = 255;

/// Longest path in one system call (`PATH_MAX`), in bytes.
pub const PATH_LEN_MAX: usize = 4096;

/// Largest depth of a tree: a directory is held open for each level while a path is walked.
pub const COMPONENTS_MAX: usize = 255;

/// Suffix of an unfinished file.
pub(crate) const PART_SUFFIX: &[u8] = b".litz-part";

/// Suffix of the journal of an unfinished file.
pub(crate) const JOURNAL_SUFFIX: &[u8] = b".litz-journal";

#[cfg(test)]
mod tests;
