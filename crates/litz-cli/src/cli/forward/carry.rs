//! Carries data between a socket of this host and a stream of the connection.
//!
//! ```text
//!   socket ── read: one buffer, by reference ──▶ stream       end: FIN       reset: RESET_STREAM
//!   socket ◀── write: pieces of received packets ── stream    end: FIN       reset: STOP_SENDING
//! ```
//!
//! Each direction reads only when the other side of it has taken what was read before, so a reader
//! that stops stops the writer at the far end. What is held between them is bounded by the stream's
//! buffers and [`READ_LEN_MAX`].

use std::future::pending;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use forward::message::Failure;
use litz::{RecvStream, SendStream};

use super::frames;
use super::socket::Socket;

/// The code of a stream that ends because its socket was reset, or a connection of this host failed.
/// The other side resets its socket.
pub(super) const RESET: u64 = 1;

/// Bytes of the first read of a connection. Most requests are smaller.
const READ_LEN_MIN: usize = 8 << 10;

/// Bytes of a read of a busy connection. Larger reads save no more time, and hold more memory.
const READ_LEN_MAX: usize = 256 << 10;

/// Pieces of one write: those of a receive buffer of 64 KiB with packets of 1200 bytes.
const PIECES_MAX: usize = 64;

/// Why a connection did not end in order.
#[derive(Debug)]
pub(super) enum Broken {
    /// The socket of this host failed.
    Socket(io::Error),
    /// The other side reset the stream, or the connection ended.
    Stream(String),
    /// The other side did not connect to the target.
    Refused(Failure),
}

/// Whether the answer to the request of a stream has come.
#[derive(Clone, Copy)]
pub(super) enum Answer<'a> {
    /// It has, or this end gave it.
    Given,
    /// It comes before the data. The function is called if it says that the target is connected.
    Awaited(&'a (dyn Fn() + Sync)),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(error) => error.fmt(f),
            Self::Stream(error) => f.write_str(error),
            Self::Refused(failure) => failure.fmt(f),
        }
    }
}

/// What was carried.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Bytes from the socket to the stream.
    pub(super) sent: AtomicU64,
    /// Bytes from the stream to the socket.
    pub(super) received: AtomicU64,
}

/// Carries data both ways until both have ended. If one breaks, both are reset, and so is the socket.
pub(super) async fn carry(
    socket: Socket,
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
        inward(&socket, &mut recv, carried).await
    };
    let to_far = async {
        match outward(&socket, &mut send, carried).await {
            // The answer says why.
            Err(Broken::Stream(_)) if !is_connected.load(Ordering::Relaxed) => pending().await,
            result => result,
        }
    };
    let both = async { tokio::try_join!(to_far, from_far) };
    match both.await {
        Ok(_) => {
            socket.close();
            Ok(())
        }
        Err(broken) => {
            send.reset(RESET);
            recv.stop(RESET);
            Err(broken)
        }
    }
}

/// From the socket to the stream.
async fn outward(socket: &Socket, stream: &mut SendStream, carried: &Carried) -> Result<(), Broken> {
    let mut buffer = ReadBuffer::new();
    loop {
        match socket.try_read(buffer.space()) {
            Ok(0) => {
                stream.finish().map_err(stream_broke)?;
                return Ok(());
            }
            Ok(count) => {
                carried.sent.fetch_add(count as u64, Ordering::Relaxed);
                let chunk = buffer.take();
                tokio::select! {
                    biased;
                    written = stream.write_chunk_async(chunk) => written.map_err(stream_broke)?,
                    error = socket.failed() => return Err(Broken::Socket(error)),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                biased;
                ready = socket.readable() => ready.map_err(Broken::Socket)?,
                stopped = stream.stopped_async() => {
                    return Err(stopped.map_or_else(stream_broke, |_| Broken::Stream(CONNECTION_RESET.to_owned())));
                }
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Broken::Socket(error)),
        }
    }
}

/// From the stream to the socket.
async fn inward(socket: &Socket, stream: &mut RecvStream, carried: &Carried) -> Result<(), Broken> {
    loop {
        let arrived = tokio::select! {
            biased;
            arrived = stream.read_strided_async() => arrived.map_err(stream_broke_reading)?,
            error = socket.failed() => return Err(Broken::Socket(error)),
        };
        let Some(mut arrived) = arrived else {
            // The peer may have closed it meanwhile.
            return match socket.finish() {
                Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(Broken::Socket(error)),
                _ => Ok(()),
            };
        };
        while !arrived.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(arrived.pieces()) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            match socket.try_write(&slices[..count]) {
                Ok(written) => {
                    carried.received.fetch_add(written as u64, Ordering::Relaxed);
                    arrived.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.writable().await.map_err(Broken::Socket)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken::Socket(error)),
            }
        }
    }
}

const CONNECTION_RESET: &str = "reset by the other side";

fn stream_broke(error: litz::WriteError) -> Broken {
    Broken::Stream(match error {
        litz::WriteError::Stopped(_) => CONNECTION_RESET.to_owned(),
        error => error.to_string(),
    })
}

fn stream_broke_reading(error: litz::ReadError) -> Broken {
    Broken::Stream(match error {
        litz::ReadError::Reset(_) => CONNECTION_RESET.to_owned(),
        error => error.to_string(),
    })
}

/// Memory that a socket is read into. Reads share a piece of memory until it is used up, and the piece
/// grows with what a read finds.
struct ReadBuffer {
    memory: BytesMut,
    len: usize,
}

impl ReadBuffer {
    fn new() -> Self {
        Self { memory: BytesMut::new(), len: READ_LEN_MIN }
    }

    /// Space for the next read: at least a quarter of the piece.
    fn space(&mut self) -> &mut BytesMut {
        if self.memory.capacity() < self.len / 4 {
            self.memory = BytesMut::with_capacity(self.len);
        }
        &mut self.memory
    }

    /// What was read.
    fn take(&mut self) -> Bytes {
        if self.memory.len() == self.memory.capacity() {
            self.len = (self.len * 4).min(READ_LEN_MAX);
        }
        self.memory.split().freeze()
    }
}
