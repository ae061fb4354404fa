//! `--trace`, `--pcapng` and `--qlog`: files that are written during a run and kept only if the run is
//! completed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use quic::{JournalSink, JournalSource};
use scenario::recording::Recording;
use tempfile::{Builder, NamedTempFile, TempDir};

use super::options::RunOptions;
use crate::cli::qlog;

/// The files of a recorded run. Dropping this removes them.
pub(super) struct RecordFiles {
    trace: Option<NewFile>,
    packets: Option<NewFile>,
    qlog: Option<JournalFiles>,
}

/// The journals of the run's connection at both hosts, which become qlog files.
struct JournalFiles {
    folder: PathBuf,
    /// The journals while they are written. Dropping this removes them.
    place: TempDir,
    /// The first error of writing a journal.
    error: Arc<Mutex<Option<io::Error>>>,
}

/// Writes a journal to a file. Unlike a live connection, a simulated one waits for the disk.
struct JournalFile {
    file: File,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl JournalSink for JournalFile {
    fn take(&mut self, bytes: &[u8]) -> bool {
        let written = self.file.write_all(bytes);
        let is_written = written.is_ok();
        if let Err(error) = written {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        is_written
    }
}

impl JournalFiles {
    fn begin(folder: &Path) -> Result<Self, String> {
        qlog::create_folder(folder)?;
        let place = Builder::new().prefix(".litz-recording-").tempdir_in(folder);
        let place = place.map_err(|error| format!("cannot write into {}: {error}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), place, error: Arc::default() })
    }

    /// A host has one connection; with several drivers, only one of them has it.
    fn source(&self) -> JournalSource {
        let (place, error) = (self.place.path().to_owned(), Arc::clone(&self.error));
        JournalSource(Arc::new(move |side| match File::create_new(place.join(format!("0001-{side}.journal"))) {
            Ok(file) => Some(Box::new(JournalFile { file, error: Arc::clone(&error) })),
            Err(failed) => {
                error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
                None
            }
        }))
    }

    fn keep(self) -> Result<(), String> {
        let fail = |error| format!("cannot write into {}: {error}", self.folder.display());
        if let Some(error) = self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(fail(error));
        }
        for entry in self.place.path().read_dir().map_err(fail)? {
            qlog::convert(&entry.map_err(fail)?.path(), &self.folder)?;
        }
        Ok(())
    }
}

/// A file that gets its name only when it is complete. Until then it is a temporary file in the
/// same folder, so that it need not be copied.
pub(super) struct NewFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl RecordFiles {
    /// Creates the requested files; `None` if none was requested.
    ///
    /// # Errors
    /// A message for the user, if a file exists or cannot be created.
    pub(super) fn begin(options: &RunOptions) -> Result<Option<Self>, String> {
        let trace = options.trace.as_deref().map(NewFile::begin).transpose()?;
        let begin = if options.keys_in_pcapng { NewFile::begin_private } else { NewFile::begin };
        let packets = options.pcapng.as_deref().map(begin).transpose()?;
        let qlog = options.qlog.as_deref().map(JournalFiles::begin).transpose()?;
        Ok(options.is_recorded().then_some(Self { trace, packets, qlog }))
    }

    /// The writers for the run; `about` is the description in the files.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn recording(&self, about: String) -> Result<Recording, String> {
        let writer = |file: &Option<NewFile>| file.as_ref().map(NewFile::writer).transpose();
        let journals = self.qlog.as_ref().map(JournalFiles::source);
        Ok(Recording { about, trace: writer(&self.trace)?, packets: writer(&self.packets)?, journals })
    }

    /// Renames the files to their final names.
    ///
    /// # Errors
    /// A message for the user, if a file of this name exists by now.
    pub(super) fn keep(self) -> Result<(), String> {
        [self.trace, self.packets].into_iter().flatten().try_for_each(NewFile::keep)?;
        self.qlog.map_or(Ok(()), JournalFiles::keep)
    }
}

impl NewFile {
    /// Creates the temporary file in the folder of `path`.
    ///
    /// # Errors
    /// A message for the user, if the name exists or the file cannot be created.
    pub(super) fn begin(path: &Path) -> Result<Self, String> {
        // The mode of an ordinary new file.
        Self::begin_with(path, 0o666)
    }

    /// As [`begin`](Self::begin), for a file that only its owner may read.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(super) fn begin_private(path: &Path) -> Result<Self, String> {
        Self::begin_with(path, 0o600)
    }

    fn begin_with(path: &Path, mode: u32) -> Result<Self, String> {
        if path.symlink_metadata().is_ok() {
            return Err(format!("{} already exists: remove it, or choose another name", path.display()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = Builder::new();
        builder.prefix(".litz-recording-");
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
        let file = builder.tempfile_in(folder).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The final name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A writer to the file.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn writer(&self) -> Result<Box<dyn Write + Send>, String> {
        let file = self.file.reopen().map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        Ok(Box::new(BufWriter::new(file)))
    }

    /// Renames the file to its final name, which must not exist.
    ///
    /// # Errors
    /// A message for the user, if a file of this name exists by now.
    pub(super) fn keep(self) -> Result<(), String> {
        let kept = self.file.persist_noclobber(&self.path);
        kept.map(drop).map_err(|error| format!("cannot write {}: {}", self.path.display(), error.error))
    }

    /// Renames the file to its final name and replaces an existing file.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn replace(self) -> Result<(), String> {
        let kept = self.file.persist(&self.path);
        kept.map(drop).map_err(|error| format!("cannot write {}: {}", self.path.display(), error.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        entries.collect()
    }

    #[test]
    fn a_file_gets_its_name_when_complete_and_is_removed_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let file = NewFile::begin(&path).unwrap();
        file.writer().unwrap().write_all(b"half").unwrap();
        assert!(!path.exists() && names(folder.path()).len() == 1);
        drop(file);
        assert_eq!(names(folder.path()), [""; 0]);
        let file = NewFile::begin(&path).unwrap();
        file.writer().unwrap().write_all(b"whole").unwrap();
        file.keep().unwrap();
        assert_eq!(
            (names(folder.path()), std::fs::read(&path).unwrap()),
            (vec!["run.json".to_owned()], b"whole".into())
        );
    }

    #[test]
    fn existing_files_are_kept_and_unwritable_names_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        // Another program creates the file meanwhile.
        let file = NewFile::begin(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert!(file.keep().unwrap_err().contains("run.json"));
        assert!(NewFile::begin(&path).err().unwrap().contains("already exists"));
        assert_eq!((names(folder.path()).len(), std::fs::read(&path).unwrap()), (1, b"mine".into()));
        let error = NewFile::begin(&folder.path().join("none/run.json")).err().unwrap();
        assert!(error.contains("cannot write") && error.contains("none/run.json"), "{error}");
    }
}
