//! `--trace` and `--pcapng`: files that come to be while a run goes on, and are there only if it came to its end.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use scenario::tape::Recording;
use tempfile::{Builder, NamedTempFile};

use super::options::RunOptions;

/// The files of a run that is recorded. Dropped, they are gone.
pub(super) struct RecordFiles {
    trace: Option<NewFile>,
    packets: Option<NewFile>,
}

/// A file that has its name only when it is whole. Meanwhile it lies beside, so that nothing is copied then.
pub(super) struct NewFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl RecordFiles {
    /// Begins what was asked for; `None` if nothing was.
    ///
    /// # Errors
    /// In words for the user, if a file is there already or cannot be made.
    pub(super) fn begin(options: &RunOptions) -> Result<Option<Self>, String> {
        let begin = |path: &Option<PathBuf>| path.as_deref().map(NewFile::begin).transpose();
        let (trace, packets) = (begin(&options.trace)?, begin(&options.pcapng)?);
        Ok((trace.is_some() || packets.is_some()).then_some(Self { trace, packets }))
    }

    /// What the run is given; `about` stands in the files.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn recording(&self, about: String) -> Result<Recording, String> {
        let writer = |file: &Option<NewFile>| file.as_ref().map(NewFile::writer).transpose();
        Ok(Recording { about, trace: writer(&self.trace)?, packets: writer(&self.packets)? })
    }

    /// Gives the files their names.
    ///
    /// # Errors
    /// In words for the user, if one of another program has the name by now.
    pub(super) fn keep(self) -> Result<(), String> {
        [self.trace, self.packets].into_iter().flatten().try_for_each(NewFile::keep)
    }
}

impl NewFile {
    /// Begins it, in its folder.
    ///
    /// # Errors
    /// In words for the user, if there is something of that name or nothing can be there.
    pub(super) fn begin(path: &Path) -> Result<Self, String> {
        if path.symlink_metadata().is_ok() {
            return Err(format!("{} is there already: name another file, or remove it", path.display()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = Builder::new();
        builder.prefix(".litz-recording-");
        // As any new file; what is temporary is otherwise for its owner alone.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(folder).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The name that it gets.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where its bytes go.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn writer(&self) -> Result<Box<dyn Write + Send>, String> {
        let file = self.file.reopen().map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        Ok(Box::new(BufWriter::new(file)))
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// In words for the user, if one of another program has the name by now.
    pub(super) fn keep(self) -> Result<(), String> {
        let kept = self.file.persist_noclobber(&self.path);
        kept.map(drop).map_err(|error| format!("cannot write {}: {}", self.path.display(), error.error))
    }

    /// Gives it its name, whatever has it by now.
    ///
    /// # Errors
    /// In words for the user.
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
    fn a_file_has_its_name_when_it_is_whole_and_is_gone_if_it_never_is() {
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
    fn what_is_there_is_left_alone_and_what_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        // Somebody else makes it meanwhile.
        let file = NewFile::begin(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert!(file.keep().unwrap_err().contains("run.json"));
        assert!(NewFile::begin(&path).err().unwrap().contains("is there already"));
        assert_eq!((names(folder.path()).len(), std::fs::read(&path).unwrap()), (1, b"mine".into()));
        let error = NewFile::begin(&folder.path().join("none/run.json")).err().unwrap();
        assert!(error.contains("cannot write") && error.contains("none/run.json"), "{error}");
    }
}
