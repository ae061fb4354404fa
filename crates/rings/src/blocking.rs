//! Ends of rings with blocking calls.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::Memory;
use crate::ring::{Consumer, Found, Producer, Reset, Violation};
use crate::wake::{sleep, wake};

/// Number of bytes that a call copies at a time. The other side processes them while the next call
/// copies more; after a longer copy, both would wait for each other in turns.
const COPY_LEN_MAX: usize = 64 << 10;

/// Reads from a ring. Dropping it notifies the writer that nothing is read any more.
///
/// Reading fails with [`ConnectionReset`](io::ErrorKind::ConnectionReset) if the writer reset the ring, or
/// its process has ended before it finished.
#[derive(Debug)]
pub struct Reader {
    ring: Consumer<Arc<Memory>>,
    socket: UnixStream,
    /// Whether the writer has gone. Its written data can still be read.
    is_alone: bool,
}

/// Writes to a ring. Dropping it before [`finish`](Self::finish) resets the ring.
///
/// Writing fails with [`ConnectionReset`](io::ErrorKind::ConnectionReset) if the reader has gone:
/// as soon as the writer wakes it, or waits for space.
#[derive(Debug)]
pub struct Writer {
    ring: Producer<Arc<Memory>>,
    socket: UnixStream,
    is_finished: bool,
    /// Whether the reader has gone.
    is_alone: bool,
}

impl Reader {
    /// Creates a reader of a ring whose writer has the other end of `socket`.
    #[must_use]
    pub const fn new(ring: Consumer<Arc<Memory>>, socket: UnixStream) -> Self {
        Self { ring, socket, is_alone: false }
    }

    /// Sets the longest time that a call waits for bytes before it fails with
    /// [`TimedOut`](io::ErrorKind::TimedOut). `None`, the default, sets no limit.
    ///
    /// # Errors
    /// Fails if the time is zero.
    pub fn set_timeout(&self, time_max: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(time_max)
    }
}

impl Read for Reader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            match self.ring.look()? {
                Found::Bytes => {
                    let len_max = bytes.len().min(COPY_LEN_MAX);
                    let len = self.ring.read(&mut bytes[..len_max])?;
                    if self.ring.takes_sleep() {
                        // If it has gone, the next call reports that.
                        let _gone = wake(self.socket.as_fd());
                    }
                    return Ok(len);
                }
                Found::End => return Ok(0),
                Found::Reset(reset) => return Err(reset.into()),
                Found::Nothing if self.is_alone => return Err(gone()),
                Found::Nothing => {}
            }
            let socket = &self.socket;
            if let Some(slept) = self.ring.sleep_unless_found(|| sleep(socket))? {
                self.is_alone = slept?;
            }
        }
    }
}

impl Writer {
    /// Creates a writer to a ring whose reader has the other end of `socket`.
    #[must_use]
    pub const fn new(ring: Producer<Arc<Memory>>, socket: UnixStream) -> Self {
        Self { ring, socket, is_finished: false, is_alone: false }
    }

    /// Ends the data. Data written before can still be read. Repeated calls have no effect.
    pub fn finish(&mut self) {
        if !self.is_finished {
            self.is_finished = true;
            self.ring.finish();
            self.wake();
        }
    }

    /// Sets the longest time that a call waits for space before it fails with
    /// [`TimedOut`](io::ErrorKind::TimedOut). `None`, the default, sets no limit.
    ///
    /// # Errors
    /// Fails if the time is zero.
    pub fn set_timeout(&self, time_max: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(time_max)
    }

    /// Wakes the reader if it sleeps.
    fn wake(&mut self) {
        if self.ring.takes_sleep() {
            self.is_alone |= !wake(self.socket.as_fd());
        }
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_finished {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the stream was finished"));
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            let len = self.ring.write(&bytes[..bytes.len().min(COPY_LEN_MAX)])?;
            if len > 0 {
                self.wake();
            }
            if self.is_alone {
                return Err(gone());
            }
            if len > 0 {
                return Ok(len);
            }
            let socket = &self.socket;
            if let Some(slept) = self.ring.sleep_unless_space(|| sleep(socket))? {
                self.is_alone = slept?;
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_finished {
            // Closing the socket wakes the reader.
            self.ring.reset(Reset::Broken);
        }
    }
}

impl From<Violation> for io::Error {
    fn from(_: Violation) -> Self {
        Self::new(io::ErrorKind::InvalidData, "the other side has broken the rules of the shared memory")
    }
}

impl From<Reset> for io::Error {
    fn from(reset: Reset) -> Self {
        Self::new(
            io::ErrorKind::ConnectionReset,
            match reset {
                Reset::Broken => "reset by the other side",
                Reset::Violated => "reset by the other side: this one has broken the rules of the shared memory",
            },
        )
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the process at the other end has gone")
}
