//! The files of `--out` and `--plot`. They are opened before the runs, which may take hours, so that
//! errors show early.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::record::NewFile;

/// The file of a result. An existing one is unchanged until the result is written.
pub(super) enum OutputFile {
    /// An existing file, device or pipe.
    There(PathBuf, File),
    /// A new file.
    New(NewFile),
}

impl OutputFile {
    /// Opens an existing file or creates a new one.
    ///
    /// # Errors
    /// A message for the user, if it cannot be written.
    pub(super) fn begin(path: &Path) -> Result<Self, String> {
        // A dangling symbolic link is not found either, and `NewFile` refuses its name.
        if !path.exists() {
            return NewFile::begin(path).map(Self::New);
        }
        let file = File::options().write(true).open(path);
        file.map(|file| Self::There(path.to_owned(), file)).map_err(|error| cannot_write(path, &error))
    }

    /// Writes the result and truncates the file to it.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn write(self, text: &str) -> Result<(), String> {
        match self {
            Self::There(path, file) => replace(file, text).map_err(|error| cannot_write(&path, &error))?,
            Self::New(file) => {
                let mut writer = file.writer()?;
                let written = writer.write_all(text.as_bytes()).and_then(|()| writer.flush());
                written.map_err(|error| cannot_write(file.path(), &error))?;
                file.replace()?;
            }
        }
        Ok(())
    }
}

fn replace(mut file: File, text: &str) -> std::io::Result<()> {
    // Devices and pipes have no length.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(path: &Path) -> OutputFile {
        OutputFile::begin(path).unwrap_or_else(|message| panic!("{message}"))
    }

    #[test]
    fn a_result_replaces_the_old_contents_and_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let (there, new) = (folder.path().join("there"), folder.path().join("new"));
        let text = |path| std::fs::read_to_string(path).unwrap();
        std::fs::write(&there, "a longer text of old").unwrap();
        // Without a result nothing changes.
        drop([&there, &new].map(|path| begin(path)));
        assert_eq!((text(&there).as_str(), new.exists()), ("a longer text of old", false));
        for path in [&there, &new] {
            begin(path).write("result\n").unwrap();
            assert_eq!(text(path), "result\n");
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 2, "no other file is left");
    }

    #[test]
    fn an_unwritable_file_is_named_before_the_runs() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("none/x.svg")] {
            let message = OutputFile::begin(&path).err().unwrap();
            assert!(message.contains("cannot write") && message.contains(&path.display().to_string()), "{message}");
        }
    }
}
