//! `--journal DIR` and `--qlog DIR`: records the inputs of each connection in a file, which `litz
//! replay` replays, or which becomes a qlog file.

use std::path::PathBuf;

use litz::{JournalFolder, JournalSource};

use super::qlog::{self, Converter};
use super::transport_options::TransportOptions;

/// The journal folder of a command.
pub(crate) struct Journals {
    folder: JournalFolder,
    path: PathBuf,
    /// Makes qlog files of the journals.
    converter: Option<Converter>,
}

impl Journals {
    /// Creates the folders, so that a wrong name is reported before anything else happens; none if
    /// nothing is to be recorded.
    ///
    /// # Errors
    /// If they cannot be created or written to: a message for the user.
    pub(crate) fn of(options: &TransportOptions) -> Result<Option<Self>, String> {
        let (journal, qlog) = (options.journal.as_deref(), options.qlog.as_deref());
        // Without a folder of their own, journals stand beside the qlog files until they are
        // converted: a process that is killed leaves them there.
        let Some(path) = journal.or(qlog) else { return Ok(None) };
        let fail = |error| format!("cannot write journals into {}: {error}", path.display());
        let (folder, converter) = match qlog {
            None => (JournalFolder::create(path).map_err(fail)?, None),
            Some(qlog) => {
                qlog::create_folder(qlog)?;
                let converter = Converter::start(qlog.to_owned(), journal.is_some())?;
                (JournalFolder::create_with(path, converter.on_ended()).map_err(fail)?, Some(converter))
            }
        };
        Ok(Some(Self { folder, path: path.to_owned(), converter }))
    }

    /// The source of journals that the endpoint's configuration takes.
    pub(crate) fn source(&self) -> JournalSource {
        self.folder.source()
    }

    /// Waits until the journals of ended connections are on disk, and the qlog files too, and
    /// returns the errors since the last call.
    pub(crate) fn take_errors(&self) -> Vec<String> {
        self.folder.wait();
        let mut errors = self.folder.take_errors();
        errors.extend(self.converter.iter().flat_map(Converter::take_errors));
        errors
    }

    /// The message for the user if there is no journal because there was no connection.
    pub(crate) fn emptiness_note(&self) -> Option<String> {
        let is_empty = self.folder.file_count() == 0;
        is_empty.then(|| format!("there was no connection: {} contains no journal", self.path.display()))
    }
}
