//! The daemon's end of a connection whose bytes lie in memory that the program shares.
//!
//! ```text
//!   ring to the daemon ── read: one copy, into memory of the daemon ──▶ stream
//!   ring to the program ◀── write: pieces of received packets ──────── stream
//! ```
//!
//! The program may change the memory at any time, and may lie. The ring compares its counts, and bytes are
//! looked at only when they are copied. A lie ends this connection.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use litz::StridedBytes;
use rings::Memory;
use rings::ends::DaemonEnd;
use rings::ring::{Consumer, Found, Producer, Reset};
use rings::wake::{WAKES_MAX, wake};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::coop::consume_budget;

use forwarding::carry::{Local, ReadBuffer};

/// Bytes of a ring: as many as a read of a busy connection takes. With longer ones, both sides would sleep
/// less often, and a connection would take more memory.
pub(super) const RING_LEN: usize = 256 << 10;

/// Connections with rings, of all programs: 64 MiB of memory, which a connection takes as it uses it.
pub(super) const RINGS_MAX: usize = 128;

/// How long the target may take what was written by a program that finished and then ended, until the connection
/// is reset: as long as the kernel keeps a connection of TCP that no process has.
const ORPHAN_TIME: Duration = Duration::from_secs(60);

/// Bytes that are made space for and copied at once, so that they stay in the cache in between. Their space
/// in the ring is free then, and the program can write on.
const COPY_LEN: usize = 16 << 10;

/// Two rings. Dropping them before [`close`](Local::close) resets the program.
pub(super) struct RingEnd {
    from_program: Half<Consumer<Arc<Memory>>>,
    to_program: Half<Producer<Arc<Memory>>>,
    /// The program has broken the rules.
    is_violated: AtomicBool,
    is_closed: bool,
    /// Free when this end is. The program may keep its memory longer.
    _place: OwnedSemaphorePermit,
}

/// A ring, and the socket that wakes its sides. One task at a time uses it; the lock shows that.
struct Half<R> {
    ring: Mutex<R>,
    socket: UnixStream,
}

impl RingEnd {
    /// Needs the runtime.
    pub(super) fn new(end: DaemonEnd, place: OwnedSemaphorePermit) -> io::Result<Self> {
        Ok(Self {
            from_program: Half::new(end.from_program)?,
            to_program: Half::new(end.to_program)?,
            is_violated: AtomicBool::new(false),
            is_closed: false,
            _place: place,
        })
    }

    /// Notes a lie of the program.
    fn checked<T>(&self, result: Result<T, rings::Violation>) -> io::Result<T> {
        result.map_err(|violation| {
            self.is_violated.store(true, Ordering::Relaxed);
            violation.into()
        })
    }

    /// What is there to read. Announces a sleep if that is nothing.
    fn look(&self, buffer: &mut ReadBuffer) -> Result<Look, rings::Violation> {
        let mut ring = self.from_program.lock();
        let mut found = ring.look()?;
        if found == Found::Nothing {
            ring.announce_sleep();
            found = ring.look()?;
            if found == Found::Nothing {
                return Ok(Look::Nothing);
            }
            ring.withdraw_sleep();
        }
        match found {
            Found::Bytes => Ok(Look::Bytes(self.take(&mut ring, buffer)?)),
            Found::Reset(reset) => Ok(Look::Reset(reset)),
            _ => Ok(Look::End),
        }
    }

    /// Copies what was written into memory of this process.
    fn take(&self, ring: &mut Consumer<Arc<Memory>>, buffer: &mut ReadBuffer) -> Result<Bytes, rings::Violation> {
        let space = buffer.space();
        let end = space.capacity().min(space.len() + ring.unread()?);
        while space.len() < end {
            let begin = space.len();
            space.resize(end.min(begin + COPY_LEN), 0);
            let read = ring.read(&mut space[begin..])?;
            assert!(begin + read == space.len(), "what was unread once can be read");
            if ring.takes_sleep() {
                // If the program has gone, the end of the socket says so.
                let _gone = wake(self.from_program.socket.as_fd());
            }
        }
        Ok(buffer.take())
    }

    /// Writes what fits. Announces a sleep if that is nothing.
    fn put(&self, bytes: &mut StridedBytes) -> io::Result<bool> {
        let mut ring = self.to_program.lock();
        let mut written = self.checked(put(&mut ring, bytes))?;
        if written == 0 {
            ring.announce_sleep();
            written = self.checked(put(&mut ring, bytes))?;
            if written == 0 {
                return Ok(false);
            }
            ring.withdraw_sleep();
        }
        bytes.advance(written);
        if ring.takes_sleep() && !wake(self.to_program.socket.as_fd()) {
            return Err(gone());
        }
        Ok(true)
    }
}

/// What a reader sees.
enum Look {
    Bytes(Bytes),
    Nothing,
    End,
    Reset(Reset),
}

impl<R> Half<R> {
    fn new((ring, socket): (R, std::os::unix::net::UnixStream)) -> io::Result<Self> {
        Ok(Self { ring: Mutex::new(ring), socket: UnixStream::from_std(socket)? })
    }

    fn lock(&self) -> MutexGuard<'_, R> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the program wakes this side. True if it has gone.
    async fn sleep(&self) -> io::Result<bool> {
        self.socket.readable().await?;
        match self.socket.try_read(&mut [0; WAKES_MAX]) {
            Ok(len) => Ok(len == 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // It has gone, and has left wake-ups of ours.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Local for RingEnd {
    async fn read(&self, buffer: &mut ReadBuffer) -> io::Result<Option<Bytes>> {
        let mut is_alone = false;
        loop {
            // A program that always has bytes would hold the thread.
            consume_budget().await;
            match self.checked(self.look(buffer))? {
                Look::Bytes(bytes) => return Ok(Some(bytes)),
                Look::End => return Ok(None),
                Look::Reset(reset) => return Err(reset.into()),
                // It has ended before it finished.
                Look::Nothing if is_alone => return Err(gone()),
                Look::Nothing => is_alone = self.from_program.sleep().await?,
            }
        }
    }

    async fn write(&self, bytes: &mut StridedBytes) -> io::Result<()> {
        // While it does not sleep, a program that reads no more is noticed by this alone. A wake-up that came
        // before is no loss: nothing sleeps here. It is no system call unless something has come.
        match self.to_program.socket.try_read(&mut [0; WAKES_MAX]) {
            Ok(0) => return Err(gone()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(gone()),
            Ok(_) | Err(_) => {}
        }
        loop {
            consume_budget().await;
            if self.put(bytes)? {
                return Ok(());
            }
            if self.to_program.sleep().await? {
                return Err(gone());
            }
        }
    }

    fn finish(&self) -> io::Result<()> {
        let mut ring = self.to_program.lock();
        ring.finish();
        if ring.takes_sleep() {
            // A program that has gone does not need the end.
            let _gone = wake(self.to_program.socket.as_fd());
        }
        Ok(())
    }

    async fn failed(&self) -> io::Error {
        // This interest waits for the end of the socket alone: wake-ups are for the reader.
        if let Err(error) = self.from_program.socket.ready(Interest::PRIORITY).await {
            return error;
        }
        if !self.from_program.lock().is_finished() {
            return gone();
        }
        // It has closed its writing side in order, and may still read.
        if let Err(error) = self.to_program.socket.ready(Interest::PRIORITY).await {
            return error;
        }
        tokio::time::sleep(ORPHAN_TIME).await;
        gone()
    }

    fn close(mut self) {
        self.is_closed = true;
    }
}

impl Drop for RingEnd {
    fn drop(&mut self) {
        if !self.is_closed {
            let reset = if *self.is_violated.get_mut() { Reset::Violated } else { Reset::Broken };
            // The end of the sockets wakes the program.
            self.to_program.lock().reset(reset);
        }
    }
}

/// Copies pieces to the ring. Returns how many bytes that was.
fn put(ring: &mut Producer<Arc<Memory>>, bytes: &StridedBytes) -> Result<usize, rings::Violation> {
    let mut total = 0;
    for piece in bytes.pieces() {
        let written = ring.write(piece)?;
        total += written;
        if written < piece.len() {
            break;
        }
    }
    Ok(total)
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the program has ended, or reads no more")
}
