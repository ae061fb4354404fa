//! Reads files that arguments and other files name: regular files of a limited length.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Longer than any valid link trace: each line is a number of milliseconds with at most ten digits.
pub(crate) const TRACE_BYTES_MAX: u64 = 11 * netem::OPPORTUNITIES_MAX as u64;

/// Reads the text of a regular file of at most `bytes_max` bytes. If the file grows meanwhile, only
/// so many bytes are read.
///
/// # Errors
/// If the file cannot be read, is a device, a pipe or a folder, is longer, or is not text. The
/// message does not name the file.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let refuse = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    // Checked before opening, because opening a pipe waits for its other end.
    if !std::fs::metadata(path)?.is_file() {
        return refuse("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return refuse(format!("it is longer than {bytes_max} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
}

/// Reads the text of a link trace.
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
    fn long_files_and_special_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let error = |path: &Path, bytes_max| read_text(path, bytes_max).unwrap_err().to_string();
        assert_eq!(error(&path, 4), "it is longer than 4 bytes");
        assert_eq!(error(folder.path(), 4), "it is not a regular file");
        // This file has no end, and its reported length is zero.
        assert_eq!(error(Path::new("/dev/zero"), 4), "it is not a regular file");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(error(&pipe, 4), "it is not a regular file");
        assert!(read_text(Path::new("/no/such/file"), 4).is_err());
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
