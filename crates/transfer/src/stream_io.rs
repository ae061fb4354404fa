//! The input and the output of a stream: pipes, terminals, sockets or files.
//!
//! A read or write on them may block for ever. So both wait until the file is ready, and check at
//! intervals whether the transfer stops.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Input sent as a stream. It is read once.
pub struct StreamInput {
    file: Mutex<Option<File>>,
    was_taken: AtomicBool,
}

/// Output of a received stream. Clones refer to the same output. It is written once.
#[derive(Clone)]
pub struct StreamOutput(Arc<StreamInput>);

/// The open input of a transfer.
pub(crate) struct OpenInput(File);

/// The open output of a transfer.
pub(crate) struct OpenOutput {
    file: File,
    /// Number of bytes that one write accepts without blocking once the file is ready.
    step: usize,
}

impl StreamInput {
    /// Creates an input that is read from `file` to its end.
    pub fn new(file: File) -> Self {
        Self { file: Mutex::new(Some(file)), was_taken: AtomicBool::new(false) }
    }

    /// Returns whether a transfer has begun to use it.
    pub fn was_taken(&self) -> bool {
        self.was_taken.load(Ordering::SeqCst)
    }

    fn take(&self) -> Option<File> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.was_taken.store(true, Ordering::SeqCst);
        file
    }

    pub(crate) fn open(&self) -> Option<OpenInput> {
        self.take().map(OpenInput)
    }
}

impl StreamOutput {
    /// Creates an output that is written to `file`.
    pub fn new(file: File) -> Self {
        Self(Arc::new(StreamInput::new(file)))
    }

    /// Returns whether a transfer has begun to use it.
    pub fn was_taken(&self) -> bool {
        self.0.was_taken()
    }

    pub(crate) fn open(&self) -> Option<OpenOutput> {
        self.0.take().map(OpenOutput::new)
    }
}

impl fmt::Debug for StreamInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamInput").field("was_taken", &self.was_taken()).finish()
    }
}

impl fmt::Debug for StreamOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamOutput").field("was_taken", &self.was_taken()).finish()
    }
}

impl OpenInput {
    /// Fills `buffer` up to the end of the input, and returns the number of bytes read. Returns
    /// `None` if `is_stopping`.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], is_stopping: &dyn Fn() -> bool) -> io::Result<Option<usize>> {
        let mut filled = 0;
        while filled < buffer.len() {
            if !wait_ready(self.0.as_fd(), PollFlags::IN, is_stopping)? {
                return Ok(None);
            }
            match self.0.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(filled))
    }
}

impl OpenOutput {
    fn new(file: File) -> Self {
        let stat = rustix::fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match stat {
            Ok(FileType::RegularFile) => Self { file, step: usize::MAX },
            Ok(FileType::Fifo) => match reopen(&file) {
                Ok(file) => Self { file, step: usize::MAX },
                Err(_) => Self { file, step: PIPE_STEP },
            },
            _ => Self { file, step: PIPE_STEP },
        }
    }

    /// Writes all of `bytes`. Returns false if `is_stopping`.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8], is_stopping: &dyn Fn() -> bool) -> io::Result<bool> {
        while !bytes.is_empty() {
            if !wait_ready(self.file.as_fd(), PollFlags::OUT, is_stopping)? {
                return Ok(false);
            }
            match self.file.write(&bytes[..bytes.len().min(self.step)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Reopens the same pipe as a separate file that does not block. The original is shared with other
/// processes, which would not expect that.
fn reopen(file: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Waits until `fd` is ready or has failed; the next call reports the failure. Returns false if
/// `is_stopping`.
fn wait_ready(fd: BorrowedFd<'_>, events: PollFlags, is_stopping: &dyn Fn() -> bool) -> io::Result<bool> {
    loop {
        if is_stopping() {
            return Ok(false);
        }
        match poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(&TICK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// Number of bytes that a ready pipe accepts without blocking (pipe(7), `PIPE_BUF`).
const PIPE_STEP: usize = 4096;

/// Interval at which a waiting thread checks whether its transfer stops: 50 ms.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
