//! `--trace-scheduler FILE` and `litz paths --replay FILE`: records every path choice, and repeats
//! the choices.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use litz::TraceSink;
use scheduler::trace::{Replay, replay};

/// Maximum number of pending errors. Further ones would say the same.
const ERRORS_MAX: usize = 8;

/// The trace of a command. The first connection with several paths is written to the file that the
/// user named, later ones to that name with a number appended.
pub(crate) struct Trace(Arc<Files>);

struct Files {
    path: PathBuf,
    /// Number of connections traced.
    count: AtomicU32,
    /// Errors that were not yet reported. The files are written on threads that cannot report them.
    errors: Mutex<Vec<String>>,
}

impl Trace {
    /// Creates the file, so that a wrong name is reported before anything else happens.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn create(path: &Path) -> Result<Self, String> {
        create(path).map_err(|error| format!("cannot write the trace {}: {error}", path.display()))?;
        Ok(Self(Arc::new(Files { path: path.to_owned(), count: AtomicU32::new(0), errors: Mutex::default() })))
    }

    /// The sink that the endpoint's configuration takes.
    pub(crate) fn sink(&self) -> TraceSink {
        let files = Arc::clone(&self.0);
        TraceSink(Arc::new(move || {
            let mut file = TraceFile::create(&files);
            Box::new(move |line| file.write(line))
        }))
    }

    /// The errors since the last call. Those of a connection are complete once it has ended and its
    /// endpoint is closed.
    pub(crate) fn take_errors(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.errors.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The message for the user if the trace is empty because there was nothing to choose.
    pub(crate) fn emptiness_note(&self) -> Option<String> {
        let is_empty = self.0.count.load(Ordering::Relaxed) == 0;
        let path = self.0.path.display();
        is_empty.then(|| format!("no connection had a second path, so no path was chosen: the trace {path} is empty"))
    }
}

impl Files {
    fn add_error(&self, message: String) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERRORS_MAX {
            errors.push(message);
        }
    }
}

/// The trace of one connection. The connection's scheduler owns it.
struct TraceFile {
    files: Arc<Files>,
    path: PathBuf,
    /// None after a write has failed: a full disk must not end a transfer.
    out: Option<BufWriter<File>>,
}

impl TraceFile {
    fn create(files: &Arc<Files>) -> Self {
        let path = numbered(&files.path, files.count.fetch_add(1, Ordering::Relaxed));
        let (opened, files) = (create(&path), Arc::clone(files));
        let mut file = Self { files, path, out: None };
        match opened {
            Ok(opened) => file.out = Some(BufWriter::new(opened)),
            Err(error) => file.end(&error),
        }
        file
    }

    fn write(&mut self, line: &str) {
        if let Some(out) = &mut self.out
            && let Err(error) = writeln!(out, "{line}")
        {
            self.end(&error);
        }
    }

    fn end(&mut self, error: &io::Error) {
        if let Some(out) = self.out.take() {
            // Discards the buffer without another attempt to write it, which would fail silently.
            let (_file, _rest) = out.into_parts();
        }
        self.files.add_error(format!("the trace {} is incomplete: {error}", self.path.display()));
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if let Some(out) = &mut self.out
            && let Err(error) = out.flush()
        {
            self.end(&error);
        }
    }
}

/// Creates or empties a trace, for the owner only: it tells when and how much was sent.
fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        // It may have existed.
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

fn numbered(path: &Path, count: u32) -> PathBuf {
    if count == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{count}"));
    name.into()
}

/// Repeats the choices of a trace.
///
/// # Errors
/// If the trace cannot be read: a message for the user.
pub(crate) fn replay_file(path: &Path) -> Result<Replay, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    if file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
        return Err(format!("{shown} is empty: a connection with a single path makes no choices"));
    }
    replay(BufReader::new(file)).map_err(|error| format!("{shown}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `lines` lines through a sink and drops it.
    fn trace(path: &Path, lines: u32) -> Trace {
        let trace = Trace::create(path).unwrap();
        let mut sink = (trace.sink().0)();
        (0..lines).for_each(|number| sink(&format!("line {number}")));
        trace
    }

    #[test]
    fn a_failed_write_is_reported_with_the_file() {
        let full = Path::new("/dev/full");
        // One line stays in the buffer until the end; a thousand do not.
        for lines in [1, 10_000] {
            let errors = trace(full, lines).take_errors();
            assert!(errors.len() == 1 && errors[0].contains("/dev/full is incomplete"), "{errors:?}");
        }
    }

    #[test]
    fn the_trace_is_complete_and_each_connection_has_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let trace = trace(&path, 3);
        drop((trace.sink().0)());
        for name in ["trace", "trace.1"] {
            let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "line 0\nline 1\nline 2\n");
        assert!(folder.path().join("trace.1").exists());
        assert_eq!((trace.take_errors(), trace.emptiness_note()), (Vec::new(), None));
    }

    #[test]
    fn an_empty_trace_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        assert!(Trace::create(&path).unwrap().emptiness_note().unwrap().contains("no path was chosen"));
        assert!(replay_file(&path).unwrap_err().contains("is empty"));
    }
}
