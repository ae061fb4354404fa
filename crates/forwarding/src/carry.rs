//! Carries data between a [local connection](Local), such as a socket of this host, and a stream of the
//! connection.
//!
//! ```text
//!   local ── read: one buffer, by reference ──▶ stream       end: FIN       reset: RESET_STREAM
//!   local ◀── write: pieces of received packets ── stream    end: FIN       reset: STOP_SENDING
//! ```
//!
//! Each direction reads only when the other side of it has taken what was read before, so a reader
//! that stops stops the writer at the far end. What is held between them is bounded by the stream's
//! buffers and `READ_LEN_MAX`.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use forward::message::Failure;
use quic_endpoint::{ReadError, RecvStream, SendStream, StridedBytes, WriteError};
use tokio::task::yield_now;

use crate::frames;

/// The code of a stream that ends because its socket was reset, or a connection of this host failed.
/// The other side resets its socket.
pub const RESET: u64 = 1;

/// Bytes of the first read of a connection. Most requests are smaller.
const READ_LEN_MIN: usize = 8 << 10;

/// Bytes of a read of a busy connection. Larger reads save no more time, and hold more memory.
const READ_LEN_MAX: usize = 256 << 10;

/// Pieces that a direction carries in a row. Then others of its thread have their turn, which may be a driver.
const ROUNDS_MAX: usize = 32;

/// A connection of this host with a program: what is carried.
pub trait Local {
    /// Reads the next bytes, at least one; `None` at the end. They may be read into `buffer`. Nothing is lost if the
    /// future is dropped.
    ///
    /// # Errors
    /// If the connection has failed.
    fn read(&self, buffer: &mut ReadBuffer) -> impl Future<Output = io::Result<Option<Bytes>>> + Send;

    /// Writes some of `bytes`, at least one, and removes them.
    ///
    /// # Errors
    /// If the connection has failed.
    fn write(&self, bytes: &mut StridedBytes) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends the end of the data.
    ///
    /// # Errors
    /// If the connection has failed, or its peer has closed it.
    fn finish(&self) -> io::Result<()>;

    /// Waits until the connection fails, such as by a reset, which neither a reader nor a writer that waits
    /// for something else would notice.
    fn failed(&self) -> impl Future<Output = io::Error> + Send;

    /// The class in which the stream sends what was read last, so many bytes, and what follows.
    fn class_of(&self, _len: usize) -> StreamClass {
        StreamClass::Usual
    }

    /// Both directions have ended. Dropping it before resets the connection, so that the program does not
    /// take cut data for complete.
    fn close(self);
}

/// The class of a stream (`docs/design/classes-of-service.md`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum StreamClass {
    /// Streams take turns.
    #[default]
    Usual,
    /// Before all others.
    Urgent,
    /// It uses what others leave.
    Background,
}

impl StreamClass {
    fn apply(self, stream: &mut SendStream) {
        stream.set_priority(i32::from(self == Self::Urgent));
        stream.set_background(self == Self::Background);
    }
}

/// Why a connection did not end in order.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection with the program failed.
    #[error("{0}")]
    Local(io::Error),
    /// The other side reset the stream, or the connection ended: the reason in words.
    #[error("{0}")]
    Stream(String),
    /// The other side did not connect to the target.
    #[error("{0}")]
    Refused(Failure),
}

/// Whether the answer to the request of a stream has come.
#[derive(Clone, Copy)]
pub enum Answer<'a> {
    /// It has, or this end gave it.
    Given,
    /// It comes before the data. The function is called if it says that the target is connected.
    Awaited(&'a (dyn Fn() + Sync)),
}

/// What was carried.
#[derive(Debug, Default)]
pub struct Carried {
    /// Bytes from the socket to the stream.
    pub sent: AtomicU64,
    /// Bytes from the stream to the socket.
    pub received: AtomicU64,
}

/// Carries data both ways until both have ended. If one breaks, both are reset, and so is the local
/// connection.
///
/// # Errors
/// Why one direction broke.
pub async fn carry<L: Local>(
    local: L,
    (mut send, mut recv): (SendStream, RecvStream),
    carried: &Carried,
    answer: Answer<'_>,
) -> Result<(), Broken> {
    let is_connected = AtomicBool::new(matches!(answer, Answer::Given));
    let from_far = async {
        if let Answer::Awaited(tell) = answer {
            frames::answer(&mut recv).await.map_err(Broken::Refused)?;
            is_connected.store(true, Ordering::Relaxed);
            tell();
        }
        inward(&local, &mut recv, carried).await
    };
    let to_far = async {
        match outward(&local, &mut send, carried).await {
            // The answer says why.
            Err(Broken::Stream(_)) if !is_connected.load(Ordering::Relaxed) => pending().await,
            result => result,
        }
    };
    let both = async { tokio::try_join!(to_far, from_far) };
    match both.await {
        Ok(_) => {
            local.close();
            Ok(())
        }
        Err(broken) => {
            send.reset(RESET);
            recv.stop(RESET);
            Err(broken)
        }
    }
}

/// Carries data between two local connections until both directions have ended. If one breaks, both are
/// reset. `sent` is what goes from `one` to `other`.
///
/// # Errors
/// [`Broken::Local`].
pub async fn carry_between(one: impl Local, other: impl Local, carried: &Carried) -> Result<(), Broken> {
    let both = async { tokio::try_join!(copy(&one, &other, &carried.sent), copy(&other, &one, &carried.received)) };
    both.await.map_err(Broken::Local)?;
    one.close();
    other.close();
    Ok(())
}

/// From one local connection to another.
async fn copy(from: &impl Local, to: &impl Local, count: &AtomicU64) -> io::Result<()> {
    let mut buffer = ReadBuffer::new();
    loop {
        let chunk = tokio::select! {
            biased;
            chunk = from.read(&mut buffer) => chunk?,
            error = to.failed() => return Err(error),
        };
        let Some(chunk) = chunk else { return finish(to) };
        count.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        let mut bytes = StridedBytes::from(chunk);
        while !bytes.is_empty() {
            tokio::select! {
                biased;
                written = to.write(&mut bytes) => written?,
                error = from.failed() => return Err(error),
            }
        }
    }
}

/// Sends the end of the data, which the peer may have made impossible by closing the connection.
fn finish(local: &impl Local) -> io::Result<()> {
    match local.finish() {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}

/// From the local connection to the stream.
async fn outward(local: &impl Local, stream: &mut SendStream, carried: &Carried) -> Result<(), Broken> {
    let (mut buffer, mut class) = (ReadBuffer::new(), StreamClass::default());
    let mut round = 0_usize;
    loop {
        round += 1;
        if round.is_multiple_of(ROUNDS_MAX) {
            yield_now().await;
        }
        let chunk = tokio::select! {
            biased;
            chunk = local.read(&mut buffer) => chunk.map_err(Broken::Local)?,
            stopped = stream.stopped_async() => {
                return Err(stopped.map_or_else(stream_broke, |_| Broken::Stream(CONNECTION_RESET.to_owned())));
            }
        };
        let Some(chunk) = chunk else {
            stream.finish().map_err(stream_broke)?;
            return Ok(());
        };
        carried.sent.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        let wanted = local.class_of(chunk.len());
        if std::mem::replace(&mut class, wanted) != wanted {
            wanted.apply(stream);
        }
        tokio::select! {
            biased;
            written = stream.write_chunk_async(chunk) => written.map_err(stream_broke)?,
            error = local.failed() => return Err(Broken::Local(error)),
        }
    }
}

/// From the stream to the local connection.
async fn inward(local: &impl Local, stream: &mut RecvStream, carried: &Carried) -> Result<(), Broken> {
    let mut round = 0_usize;
    loop {
        round += 1;
        if round.is_multiple_of(ROUNDS_MAX) {
            yield_now().await;
        }
        let arrived = tokio::select! {
            biased;
            arrived = stream.read_strided_async() => arrived.map_err(stream_broke_reading)?,
            error = local.failed() => return Err(Broken::Local(error)),
        };
        let Some(mut arrived) = arrived else {
            return finish(local).map_err(Broken::Local);
        };
        while !arrived.is_empty() {
            let before = arrived.len();
            local.write(&mut arrived).await.map_err(Broken::Local)?;
            carried.received.fetch_add((before - arrived.len()) as u64, Ordering::Relaxed);
        }
    }
}

const CONNECTION_RESET: &str = "reset by the other side";

fn stream_broke(error: WriteError) -> Broken {
    Broken::Stream(match error {
        WriteError::Stopped(_) => CONNECTION_RESET.to_owned(),
        error => error.to_string(),
    })
}

fn stream_broke_reading(error: ReadError) -> Broken {
    Broken::Stream(match error {
        ReadError::Reset(_) => CONNECTION_RESET.to_owned(),
        error => error.to_string(),
    })
}

/// Memory that a socket of the kernel is read into. Reads share a piece of memory until it is used up, and the piece
/// grows with what a read finds.
pub struct ReadBuffer {
    memory: BytesMut,
    len: usize,
}

impl ReadBuffer {
    fn new() -> Self {
        Self { memory: BytesMut::new(), len: READ_LEN_MIN }
    }

    /// Space for the next read: at least a quarter of the piece.
    pub fn space(&mut self) -> &mut BytesMut {
        if self.memory.capacity() < self.len / 4 {
            self.memory = BytesMut::with_capacity(self.len);
        }
        &mut self.memory
    }

    /// What was read.
    pub fn take(&mut self) -> Bytes {
        if self.memory.len() == self.memory.capacity() {
            self.len = (self.len * 4).min(READ_LEN_MAX);
        }
        self.memory.split().freeze()
    }
}
