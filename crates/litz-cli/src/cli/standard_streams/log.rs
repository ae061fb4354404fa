//! The log on standard error. Threads that may not wait write to it, the engine's among them: so a
//! thread of its own writes the lines, and lines are left out if the reader is too slow.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use super::Stream;

/// Takes the lines of the log. Writing to it never fails.
#[derive(Clone)]
pub(crate) struct Log(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// A line was added, or some were written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    /// Bytes of `lines`.
    len: usize,
    /// Lines that were left out since the last one was written.
    left_out: u64,
    /// A line waited for space in vain, and none was written since.
    is_stuck: bool,
    /// Lines are being written.
    is_writing: bool,
    /// Batches that were written, so that a waiting thread sees whether there is progress.
    written: u64,
    has_failed: bool,
}

/// The log of this process.
static LOG: OnceLock<Log> = OnceLock::new();

impl Log {
    /// Starts the thread of the process's log.
    #[expect(clippy::disallowed_methods, reason = "the command's own thread, above the engine")]
    pub(crate) fn start() -> Self {
        let log = Self::new();
        let writer = log.clone();
        std::thread::spawn(move || writer.run(&|lines| Stream::Error.write_log(lines)));
        LOG.get_or_init(|| log).clone()
    }

    fn new() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Waits until all lines are written, but not for a reader that takes nothing.
    pub(crate) fn flush() {
        let Some(log) = LOG.get() else { return };
        let mut state = log.lock();
        while !state.has_failed && (state.is_writing || !state.lines.is_empty()) {
            let before = state.written;
            state = log.0.changed.wait_timeout(state, FLUSH_WAIT).unwrap_or_else(PoisonError::into_inner).0;
            if state.written == before {
                return;
            }
        }
    }

    /// Adds a line. Waits a moment for space if the thread that writes keeps up otherwise.
    fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        let is_full = |state: &mut State| !state.has_failed && state.len > 0 && state.len + line.len() > LEN_MAX;
        if is_full(&mut state) && !state.is_stuck {
            let waited = self.0.changed.wait_timeout_while(state, SPACE_WAIT, is_full);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.has_failed {
            return;
        }
        if is_full(&mut state) {
            state.is_stuck = true;
            state.left_out += 1;
            return;
        }
        state.len += line.len();
        state.lines.push_back(line.to_vec());
        drop(state);
        self.0.changed.notify_all();
    }

    /// Writes the lines until writing fails.
    fn run(&self, write: &dyn Fn(&[u8]) -> io::Result<()>) {
        loop {
            let batch = self.take();
            if write(&batch).is_err() {
                let mut state = self.lock();
                state.has_failed = true;
                state.lines.clear();
                drop(state);
                self.0.changed.notify_all();
                return;
            }
        }
    }

    /// Waits for lines; as many as one write takes.
    fn take(&self) -> Vec<u8> {
        let mut state = self.lock();
        state.written += u64::from(state.is_writing);
        state.is_writing = false;
        self.0.changed.notify_all();
        let is_empty = |state: &mut State| state.lines.is_empty();
        let mut state = self.0.changed.wait_while(state, is_empty).unwrap_or_else(PoisonError::into_inner);
        let mut batch = Vec::new();
        while let Some(line) = state.lines.front() {
            if !batch.is_empty() && batch.len() + line.len() > BATCH_LEN {
                break;
            }
            batch.extend_from_slice(line);
            state.lines.pop_front();
        }
        state.len -= batch.len();
        state.is_stuck = false;
        state.is_writing = true;
        let left_out = if state.lines.is_empty() { std::mem::take(&mut state.left_out) } else { 0 };
        if left_out > 0 {
            let note = format!("litz: {left_out} lines of the log were left out: standard error was read too slowly\n");
            batch.extend_from_slice(note.as_bytes());
        }
        drop(state);
        self.0.changed.notify_all();
        batch
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Bytes of lines that wait: those of some ten thousand.
const LEN_MAX: usize = 2 << 20;

/// Bytes that are written together. A line is longer only by itself.
const BATCH_LEN: usize = 16 * 1024;

/// How long a thread waits for space. Packets wait for the engine's threads meanwhile.
const SPACE_WAIT: Duration = Duration::from_millis(20);

/// How long the end of the command waits for a reader that takes nothing.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_takes_nothing_delays_no_thread_for_long_and_is_told_what_it_missed() {
        let log = Log::new();
        let line = vec![b'x'; 1023];
        for _ in 0..5000 {
            log.push(&[&line[..], b"\n"].concat());
        }
        let (kept, left_out, is_stuck) = {
            let state = log.lock();
            (state.lines.len() as u64, state.left_out, state.is_stuck)
        };
        assert_eq!((kept, left_out), (LEN_MAX as u64 / 1024, 5000 - LEN_MAX as u64 / 1024));
        assert!(is_stuck, "later lines do not wait");
        let mut text = String::new();
        for _ in 0..(LEN_MAX / BATCH_LEN) {
            text.push_str(&String::from_utf8(log.take()).unwrap());
        }
        assert_eq!(text.lines().count() as u64, kept + 1);
        assert!(text.ends_with("litz: 2952 lines of the log were left out: standard error was read too slowly\n"));
    }

    #[test]
    fn a_log_that_cannot_be_written_takes_lines_all_the_same() {
        let log = Log::new();
        log.push(b"a line\n");
        log.run(&|_| Err(io::ErrorKind::StorageFull.into()));
        for _ in 0..5000 {
            log.push(&[0; 1024]);
        }
        assert!(log.lock().lines.is_empty());
    }
}
