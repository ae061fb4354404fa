//! An in-memory connection for tests: bounded pipes with fault injection.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::link::{Control, Link, SendStream};
use super::queue::{Popped, Queue};
use super::revision::Revision;

/// The faults to inject, shared by both ends.
pub(super) struct Faults {
    /// Bytes in both directions, control included, after which the connection is lost.
    pub(super) bytes_left: AtomicU64,
    /// Bytes of data streams after which one byte is flipped.
    pub(super) flip_in: AtomicU64,
    /// Protocol revision of both ends.
    pub(super) revision: Mutex<Revision>,
    lost: AtomicBool,
    /// Whether the receiver has waited to write to the control stream.
    is_full: AtomicBool,
}

/// One end of a connection.
pub(super) struct MemoryLink {
    faults: Arc<Faults>,
    outgoing: Arc<Queue<Box<dyn Read + Send>>>,
    incoming: Arc<Queue<Box<dyn Read + Send>>>,
}

/// Returns both ends with their control streams: sender first.
pub(super) fn pair() -> ((MemoryLink, Control), (MemoryLink, Control)) {
    let faults = Arc::new(Faults {
        bytes_left: AtomicU64::new(u64::MAX),
        flip_in: AtomicU64::new(u64::MAX),
        revision: Mutex::new(Revision::LATEST),
        lost: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
    });
    // As few streams as a peer may permit, so that opening waits.
    let (there, back) = (Arc::new(Queue::new(4)), Arc::new(Queue::new(4)));
    let end = |outgoing: &Arc<_>, incoming: &Arc<_>| MemoryLink {
        faults: Arc::clone(&faults),
        outgoing: Arc::clone(outgoing),
        incoming: Arc::clone(incoming),
    };
    let (to_receiver, from_sender) = pipe(&faults, Kind::ToReceiver);
    let (to_sender, from_receiver) = pipe(&faults, Kind::ToSender);
    (
        (end(&there, &back), Control { reader: Box::new(from_receiver), writer: Box::new(to_receiver) }),
        (end(&back, &there), Control { reader: Box::new(from_sender), writer: Box::new(to_sender) }),
    )
}

impl MemoryLink {
    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Waits until the connection is lost or closed.
    pub(super) fn accept_closed(&self) -> bool {
        while self.accept_uni().is_ok() {}
        self.faults.is_lost()
    }

    /// Waits until the receiver waits to write to the control stream.
    ///
    /// # Panics
    /// Panics if the connection is lost before.
    pub(super) fn wait_until_full(&self) {
        while !self.faults.is_full.load(Ordering::SeqCst) {
            assert!(!self.faults.is_lost(), "the connection was lost before the receiver waited");
            std::thread::yield_now();
        }
    }
}

impl Faults {
    /// Counts `len` bytes; returns false if they exceed the limit after which the connection fails.
    fn carry(&self, len: u64) -> bool {
        let enough = |left: u64| if left == u64::MAX { Some(left) } else { left.checked_sub(len) };
        if self.bytes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, enough).is_err() {
            self.lost.store(true, Ordering::SeqCst);
        }
        !self.is_lost()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
}

impl Link for MemoryLink {
    fn open_uni(&self) -> io::Result<Box<dyn SendStream>> {
        let (writer, reader) = pipe(&self.faults, Kind::Data);
        let mut reader: Option<Box<dyn Read + Send>> = Some(Box::new(reader));
        while let Some(waiting) = reader.take() {
            if self.faults.is_lost() {
                return Err(lost());
            }
            reader = self.outgoing.try_push(waiting).err();
            if reader.is_some() {
                std::thread::yield_now();
            }
        }
        Ok(Box::new(writer))
    }

    fn accept_uni(&self) -> io::Result<Box<dyn Read + Send>> {
        loop {
            if self.faults.is_lost() {
                return Err(lost());
            }
            if let Popped::Item(stream) = self.incoming.pop_timeout(LOOK) {
                return Ok(stream);
            }
        }
    }

    fn close(&self, _reason: &str) {
        self.faults.lost.store(true, Ordering::SeqCst);
    }

    fn revision(&self) -> Revision {
        *self.faults.revision.lock().unwrap()
    }
}

struct Pipe {
    faults: Arc<Faults>,
    state: Mutex<PipeState>,
    changed: Condvar,
    kind: Kind,
}

/// The use of a pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ToReceiver,
    ToSender,
    Data,
}

#[derive(Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    finished: bool,
    reset: bool,
}

struct Writer(Arc<Pipe>);
struct Reader(Arc<Pipe>);

fn pipe(faults: &Arc<Faults>, kind: Kind) -> (Writer, Reader) {
    let state = Mutex::new(PipeState::default());
    let pipe = Arc::new(Pipe { faults: Arc::clone(faults), state, changed: Condvar::new(), kind });
    (Writer(Arc::clone(&pipe)), Reader(pipe))
}

fn lost() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state.lock().unwrap();
        while state.bytes.len() >= PIPE_LEN && !self.0.faults.is_lost() {
            if self.0.kind == Kind::ToSender {
                self.0.faults.is_full.store(true, Ordering::SeqCst);
            }
            state = self.0.changed.wait_timeout(state, LOOK).unwrap().0;
        }
        let count = bytes.len().min(PIPE_LEN - state.bytes.len().min(PIPE_LEN));
        if !self.0.faults.carry(count as u64) {
            return Err(lost());
        }
        let start = state.bytes.len();
        state.bytes.extend(&bytes[..count]);
        if self.0.kind == Kind::Data {
            self.0.flip(&mut state.bytes.make_contiguous()[start..]);
        }
        self.0.changed.notify_all();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Pipe {
    fn flip(&self, bytes: &mut [u8]) {
        let left = self.faults.flip_in.load(Ordering::SeqCst);
        if left == u64::MAX {
            return;
        }
        match bytes.get_mut(left as usize) {
            Some(byte) => {
                *byte ^= 1;
                self.faults.flip_in.store(u64::MAX, Ordering::SeqCst);
            }
            None => self.faults.flip_in.store(left - bytes.len() as u64, Ordering::SeqCst),
        }
    }
}

impl SendStream for Writer {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.0.state.lock().unwrap().finished = true;
        self.0.changed.notify_all();
        if self.0.faults.is_lost() { Err(lost()) } else { Ok(()) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap();
        state.reset = !state.finished;
        self.0.changed.notify_all();
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.state.lock().unwrap();
        loop {
            // Bytes in flight are lost with the connection, as with a real one.
            if self.0.faults.is_lost() || state.reset {
                return Err(lost());
            }
            if !state.bytes.is_empty() || state.finished || buffer.is_empty() {
                break;
            }
            state = self.0.changed.wait_timeout(state, LOOK).unwrap().0;
        }
        let count = buffer.len().min(state.bytes.len());
        let (first, second) = state.bytes.as_slices();
        let from_first = count.min(first.len());
        buffer[..from_first].copy_from_slice(&first[..from_first]);
        buffer[from_first..count].copy_from_slice(&second[..count - from_first]);
        state.bytes.drain(..count);
        self.0.changed.notify_all();
        Ok(count)
    }
}

/// Limit on bytes in flight on one stream: less than a segment, so that writers wait for readers.
const PIPE_LEN: usize = 16 * 1024;

/// Interval at which a blocked end checks whether the connection is lost.
const LOOK: Duration = Duration::from_millis(2);
