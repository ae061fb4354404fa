//! `--trace-scheduler FILE` and `litz paths --replay FILE`: every choice of a path, written down and made again.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use litz::TraceSink;
use scheduler::trace::{Replay, replay};

/// Complaints that wait to be told, at most; more say the same.
const COMPLAINTS_MAX: usize = 8;

/// The trace of a command: the first connection with several paths goes to the file that the user named, later ones to the
/// same name with a number.
pub(crate) struct Trace(Arc<Files>);

struct Files {
    path: PathBuf,
    /// Connections that were traced.
    count: AtomicU32,
    /// What went wrong, in words, until somebody asks: the files are written where nobody can be told.
    complaints: Mutex<Vec<String>>,
}

impl Trace {
    /// Makes the file, so that a wrong name is told before anything else happens.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn create(path: &Path) -> Result<Self, String> {
        File::create(path).map_err(|error| format!("cannot write the trace {}: {error}", path.display()))?;
        Ok(Self(Arc::new(Files { path: path.to_owned(), count: AtomicU32::new(0), complaints: Mutex::default() })))
    }

    /// What the connections are given.
    pub(crate) fn sink(&self) -> TraceSink {
        let files = Arc::clone(&self.0);
        TraceSink(Arc::new(move || {
            let mut file = TraceFile::create(&files);
            Box::new(move |line| file.write(line))
        }))
    }

    /// What went wrong since the last time, each in words. What is still under way shows when its connection has ended and
    /// its endpoint is closed.
    pub(crate) fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.complaints.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What to tell in the end if there is no trace because there was nothing to choose from.
    pub(crate) fn emptiness(&self) -> Option<String> {
        let is_empty = self.0.count.load(Ordering::Relaxed) == 0;
        let path = self.0.path.display();
        is_empty.then(|| format!("no connection had a second path, so nothing was chosen: the trace {path} is empty"))
    }
}

impl Files {
    fn complain(&self, words: String) {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.len() < COMPLAINTS_MAX {
            complaints.push(words);
        }
    }
}

/// The trace of one connection. It goes with the connection's scheduler.
struct TraceFile {
    files: Arc<Files>,
    path: PathBuf,
    /// None once it cannot be written any more: a full disk must not end a transfer.
    out: Option<BufWriter<File>>,
}

impl TraceFile {
    fn create(files: &Arc<Files>) -> Self {
        let path = numbered(&files.path, files.count.fetch_add(1, Ordering::Relaxed));
        let (opened, files) = (File::create(&path), Arc::clone(files));
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
            // Without another attempt to write what is left: that would fail the same way, and say nothing.
            let (_file, _rest) = out.into_parts();
        }
        self.files.complain(format!("the trace {} is not complete: {error}", self.path.display()));
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

fn numbered(path: &Path, count: u32) -> PathBuf {
    if count == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{count}"));
    name.into()
}

/// Makes the choices of a trace again.
///
/// # Errors
/// If the trace cannot be read, in words.
pub(crate) fn replay_file(path: &Path) -> Result<Replay, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    if file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
        return Err(format!(
            "{shown} is empty: a connection with one path has nothing to choose from, and leaves it so"
        ));
    }
    replay(BufReader::new(file)).map_err(|error| format!("{shown}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes so many lines by way of a sink, and drops it.
    fn trace(path: &Path, lines: u32) -> Trace {
        let trace = Trace::create(path).unwrap();
        let mut sink = (trace.sink().0)();
        (0..lines).for_each(|number| sink(&format!("line {number}")));
        trace
    }

    #[test]
    fn what_the_last_lines_could_not_be_written_to_is_told() {
        let full = Path::new("/dev/full");
        // One line stays in the buffer until the end; many do not.
        for lines in [1, 10_000] {
            let complaints = trace(full, lines).complaints();
            assert!(complaints.len() == 1 && complaints[0].contains("/dev/full is not complete"), "{complaints:?}");
        }
    }

    #[test]
    fn nothing_is_lost_at_the_end_and_each_connection_has_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let trace = trace(&path, 3);
        drop((trace.sink().0)());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "line 0\nline 1\nline 2\n");
        assert!(folder.path().join("trace.1").exists());
        assert_eq!((trace.complaints(), trace.emptiness()), (Vec::new(), None));
    }

    #[test]
    fn a_trace_without_a_choice_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        assert!(Trace::create(&path).unwrap().emptiness().unwrap().contains("nothing was chosen"));
        assert!(replay_file(&path).unwrap_err().contains("is empty"));
    }
}
