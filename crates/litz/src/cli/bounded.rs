//! Reading files that arguments and other files name: regular ones, of a length that somebody may mean.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Longer than any trace that a link takes: each line has a number of milliseconds of ten digits at most.
pub(crate) const TRACE_BYTES_MAX: u64 = 11 * netem::OPPORTUNITIES_MAX as u64;

/// The text of a regular file of at most `bytes_max` bytes. A file that grows meanwhile is read no further.
///
/// # Errors
/// If it cannot be read, is a device, a pipe or a folder, is longer, or is no text. The words do not name the file.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let refuse = |words: String| Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    // Before it is opened: opening a pipe waits for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return refuse("it is no regular file".to_owned());
    }
    let mut text = String::new();
    File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return refuse(format!("it is longer than {bytes_max} bytes"));
    }
    Ok(text)
}

/// The text of a trace of a link.
///
/// # Errors
/// As [`read_text`].
pub(crate) fn read_trace(path: &Path) -> io::Result<String> {
    read_text(path, TRACE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_or_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let error = |path: &Path, bytes_max| read_text(path, bytes_max).unwrap_err().to_string();
        assert_eq!(error(&path, 4), "it is longer than 4 bytes");
        assert_eq!(error(folder.path(), 4), "it is no regular file");
        // It has no end, and its length is zero.
        assert_eq!(error(Path::new("/dev/zero"), 4), "it is no regular file");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(error(&pipe, 4), "it is no regular file");
        assert!(read_text(Path::new("/no/such/file"), 4).is_err());
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
