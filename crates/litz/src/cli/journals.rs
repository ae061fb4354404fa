//! `--journal DIR`: everything that goes into each connection, in files that `litz replay` makes happen again.

use std::path::{Path, PathBuf};

use litz::{JournalFolder, JournalSource};

/// The folder of a command's journals.
pub(crate) struct Journals {
    folder: JournalFolder,
    path: PathBuf,
}

impl Journals {
    /// Makes the folder, so that a wrong name is told before anything else happens.
    ///
    /// # Errors
    /// If it cannot be made or written to, in words.
    pub(crate) fn create(path: &Path) -> Result<Self, String> {
        let folder = JournalFolder::create(path)
            .map_err(|error| format!("cannot keep journals in {}: {error}", path.display()))?;
        Ok(Self { folder, path: path.to_owned() })
    }

    /// What the connections are given.
    pub(crate) fn source(&self) -> JournalSource {
        self.folder.source()
    }

    /// Waits until the disk has what ended connections have left, and says what went wrong since the last time, each in words.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.folder.wait();
        self.folder.take_complaints()
    }

    /// What to tell in the end if there is no journal because there was no connection.
    pub(crate) fn emptiness(&self) -> Option<String> {
        let is_empty = self.folder.file_count() == 0;
        is_empty.then(|| format!("there was no connection, so no journal is in {}", self.path.display()))
    }
}
