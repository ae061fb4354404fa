//! Standard input, output and error in any state. Other programs may hold the same descriptors and make
//! them non-blocking, their readers may be slow or gone, and the disk behind them may be full.
//!
//! All reads and writes of the command pass through here. They wait until the stream is ready, as a
//! blocking call does, and report every other failure.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio;

mod log;

pub(crate) use log::Log;

/// The two streams that text is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// Standard input, unbuffered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardInput;

/// Standard output for data, unbuffered: a program behind the pipe may have to answer what was written
/// last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardOutput;

/// Keeps a line of one thread in one piece.
static OUTPUT: Mutex<()> = Mutex::new(());
static ERROR: Mutex<()> = Mutex::new(());

/// The last text that was offered was not taken.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Set by the first signal that asks the command to end. It is global, as signals are.
static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Once `flag` is set, readers that take nothing are not waited for any more.
pub(crate) fn watch_interrupt(flag: Arc<AtomicBool>) {
    // A second call gets a flag of the same signals.
    let _first = INTERRUPTED.set(flag);
}

fn is_interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

impl Stream {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Self::Output => stdio::stdout(),
            Self::Error => stdio::stderr(),
        }
    }

    /// Writes all of `text`. Waits for a slow reader, but after an interrupt only for a moment.
    ///
    /// # Errors
    /// Of the stream, or [`io::ErrorKind::TimedOut`] after an interrupt.
    pub(crate) fn write_text(self, text: &str) -> io::Result<()> {
        self.write_unless(text, &|waited| waited > TICKS_AFTER_INTERRUPT && is_interrupted())
    }

    /// As [`write_text`](Self::write_text), for text that may be lost: a reader that takes nothing for a
    /// second is not waited for, and not again before it has taken something.
    pub(crate) fn offer_text(self, text: &str) {
        let patience = if IS_STUCK.load(Ordering::Relaxed) { 0 } else { NOTE_TICKS };
        let written = self.write_unless(text, &|waited| waited > patience);
        IS_STUCK.store(written.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut), Ordering::Relaxed);
    }

    /// As [`write_text`](Self::write_text), for a thread that may wait for ever: others can write meanwhile.
    fn write_log(self, text: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < text.len() {
            let (count, outcome) = self.lock_and_write(&text[written..], &|waited| waited > 1);
            written += count;
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => pause(),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn write_unless(self, text: &str, gives_up: &dyn Fn(u32) -> bool) -> io::Result<()> {
        self.lock_and_write(text.as_bytes(), gives_up).1
    }

    fn lock_and_write(self, bytes: &[u8], gives_up: &dyn Fn(u32) -> bool) -> (usize, io::Result<()>) {
        let lock = if self == Self::Output { &OUTPUT } else { &ERROR };
        let _whole = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = 0;
        let outcome = write_text(self.fd(), bytes, &mut written, gives_up);
        (written, outcome)
    }

    /// Whether a line can be written without waiting.
    pub(crate) fn is_ready(self) -> bool {
        is_ready(self.fd(), PollFlags::OUT, &NOW)
    }
}

impl Read for StandardInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(stdio::stdin(), &mut *buffer) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait(stdio::stdin(), PollFlags::IN)?,
                outcome => return Ok(outcome?),
            }
        }
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(stdio::stdout(), bytes) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait(stdio::stdout(), PollFlags::OUT)?,
                outcome => return Ok(outcome?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all of `bytes` in steps that do not block once `fd` is ready, and counts them in `written`.
/// `gives_up` is told how many ticks in a row the reader took nothing.
fn write_text(fd: BorrowedFd<'_>, bytes: &[u8], written: &mut usize, gives_up: &dyn Fn(u32) -> bool) -> io::Result<()> {
    let mut waited = 0;
    while *written < bytes.len() {
        if !is_ready(fd, PollFlags::OUT, if gives_up(1) { &NOW } else { &TICK }) {
            waited += 1;
            if gives_up(waited) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            continue;
        }
        match rustix::io::write(fd, &bytes[*written..bytes.len().min(*written + STEP)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                *written += count;
                waited = 0;
            }
            // A non-blocking pipe takes no step that does not fit whole: it may report itself ready
            // with less space (pipe(7)).
            Err(Errno::AGAIN) => pause(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Waits until `fd` is ready or has failed, which the next call reports.
fn wait(fd: impl AsFd, events: PollFlags) -> io::Result<()> {
    loop {
        match poll(&mut [PollFd::new(&fd, events)], None) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome.map(drop)?),
        }
    }
}

/// Whether `fd` is ready within `limit`. A file that cannot be polled counts as ready.
fn is_ready(fd: BorrowedFd<'_>, events: PollFlags, limit: &Timespec) -> bool {
    !matches!(poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(limit)), Ok(0) | Err(Errno::INTR))
}

/// Waits a tick, for a descriptor that is ready and takes nothing.
fn pause() {
    let _interrupted = poll(&mut [], Some(&SHORT));
}

/// A pipe that is ready takes this much without blocking (pipe(7), `PIPE_BUF`).
const STEP: usize = 4096;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// 5 ms.
const SHORT: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// 50 ms: how often a waiting writer checks for an interrupt.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Half a second: after an interrupt, a reader that takes nothing for this time is not waited for.
const TICKS_AFTER_INTERRUPT: u32 = 10;

/// A second.
const NOTE_TICKS: u32 = 20;

#[cfg(test)]
mod tests {
    use std::io::PipeReader;

    use rustix::fs::OFlags;

    use super::*;

    fn full_pipe() -> (PipeReader, io::PipeWriter) {
        let (reader, mut writer) = io::pipe().unwrap();
        rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        while writer.write(&[b'x'; STEP]).is_ok() {}
        (reader, writer)
    }

    #[test]
    fn a_non_blocking_pipe_whose_reader_is_slow_gets_everything() {
        let (mut reader, writer) = full_pipe();
        let text = vec![b'y'; 300_000];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                write_text(writer.as_fd(), &text, &mut 0, &|_| false).unwrap();
                drop(writer);
            });
            let mut found = Vec::new();
            reader.read_to_end(&mut found).unwrap();
            assert!(found.ends_with(&text), "{}", found.len());
        });
    }

    #[test]
    fn a_reader_that_takes_nothing_is_given_up() {
        let (_reader, writer) = full_pipe();
        let error = write_text(writer.as_fd(), b"y", &mut 0, &|waited| waited > 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_reader_that_is_gone_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let error = write_text(writer.as_fd(), b"y", &mut 0, &|_| false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
