//! `--json`: a place for the result that is known to take it before the runs, which may last for hours.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::super::out::print;
use super::record::NewFile;

/// Where the result goes. A file that was there is as it was until then.
pub(super) enum JsonFile {
    /// `-`.
    Stdout,
    /// A file, or a device or a pipe, that was there already.
    There(PathBuf, File),
    /// One that is to be.
    New(NewFile),
}

impl JsonFile {
    /// Opens what is there, or begins what is not.
    ///
    /// # Errors
    /// In words for the user, if it cannot be written.
    pub(super) fn begin(path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // Through a link to a file that is not there, nothing is found either, and `NewFile` refuses the name.
        if !path.exists() {
            return NewFile::begin(path).map(Self::New);
        }
        let file = File::options().write(true).open(path);
        file.map(|file| Self::There(path.to_owned(), file)).map_err(|error| cannot_write(path, &error))
    }

    /// Writes the whole result, and that alone.
    ///
    /// # Errors
    /// In words for the user.
    pub(super) fn write(self, text: &str) -> Result<(), String> {
        match self {
            Self::Stdout => print(text),
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

    fn begin(path: &Path) -> JsonFile {
        JsonFile::begin(path).unwrap_or_else(|words| panic!("{words}"))
    }

    #[test]
    fn a_result_takes_the_place_of_what_was_there_and_of_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (there, new) = (folder.path().join("there"), folder.path().join("new"));
        let text = |path| std::fs::read_to_string(path).unwrap();
        std::fs::write(&there, "a longer text of old").unwrap();
        // Runs that come to no result leave all as it was.
        drop([&there, &new].map(|path| begin(path)));
        assert_eq!((text(&there).as_str(), new.exists()), ("a longer text of old", false));
        for path in [&there, &new] {
            begin(path).write("result\n").unwrap();
            assert_eq!(text(path), "result\n");
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn what_cannot_be_written_is_named_before_anything_is_run() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("none/x.json")] {
            let words = JsonFile::begin(&path).err().unwrap();
            assert!(words.contains("cannot write") && words.contains(&path.display().to_string()), "{words}");
        }
    }
}
