//! `--journal DIR`: records the inputs of each connection in a file, which `litz replay` replays.

use std::path::{Path, PathBuf};

use litz::{JournalFolder, JournalSource};

/// The journal folder of a command.
pub(crate) struct Journals {
    folder: JournalFolder,
    path: PathBuf,
}

impl Journals {
    /// Creates the folder, so that a wrong name is reported before anything else happens.
    ///
    /// # Errors
    /// If it cannot be created or written to: a message for the user.
    pub(crate) fn create(path: &Path) -> Result<Self, String> {
        let folder = JournalFolder::create(path)
            .map_err(|error| format!("cannot write journals into {}: {error}", path.display()))?;
        Ok(Self { folder, path: path.to_owned() })
    }

    /// The source of journals that the endpoint's configuration takes.
    pub(crate) fn source(&self) -> JournalSource {
        self.folder.source()
    }

    /// Waits until the journals of ended connections are on disk, and returns the errors since the
    /// last call.
    pub(crate) fn take_errors(&self) -> Vec<String> {
        self.folder.wait();
        self.folder.take_errors()
    }

    /// The message for the user if there is no journal because there was no connection.
    pub(crate) fn emptiness_note(&self) -> Option<String> {
        let is_empty = self.folder.file_count() == 0;
        is_empty.then(|| format!("there was no connection: {} contains no journal", self.path.display()))
    }
}
