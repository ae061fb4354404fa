//! [`TcpStream`] for asynchronous callers, whatever their executor: the driver's thread wakes their
//! tasks. A stack under [`Placement::Inline`](crate::Placement::Inline) has no thread, so each of
//! these calls is an error there.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tcp_driver::{Closed, WriteError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::{TcpStream, WRITE_MAX, io_error, write_error};

impl TcpStream {
    /// As [`read_chunk`](Self::read_chunk).
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk), and if the placement is inline.
    pub async fn read_chunk_async(&self) -> Result<Option<Bytes>, Closed> {
        self.handle.runtime().can_async()?;
        match self.take_rest() {
            Some(rest) => Ok(Some(rest)),
            None => poll_fn(|context| self.handle.poll_read(usize::MAX, context.waker())).await,
        }
    }

    /// As [`write_chunk`](Self::write_chunk). If the future is dropped, the beginning of `bytes` may have
    /// been written.
    ///
    /// # Errors
    /// As [`write_chunk`](Self::write_chunk), and if the placement is inline.
    pub async fn write_chunk_async(&self, mut bytes: Bytes) -> Result<(), WriteError> {
        self.handle.runtime().can_async().map_err(WriteError::Closed)?;
        while !bytes.is_empty() {
            poll_fn(|context| self.handle.poll_write(&mut bytes, context.waker())).await?;
        }
        Ok(())
    }

    /// As [`closed`](Self::closed). Under the inline placement it returns an error of the configuration.
    pub async fn closed_async(&self) -> Closed {
        if let Err(error) = self.handle.runtime().can_async() {
            return error;
        }
        poll_fn(|context| self.handle.poll_closed(context.waker())).await
    }

    fn poll_read_into(&self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.handle.runtime().can_async().map_err(io_error)?;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let chunk = match self.take_rest() {
            Some(rest) => Some(rest),
            None => ready!(self.handle.poll_read(usize::MAX, context.waker())).map_err(io_error)?,
        };
        if let Some(chunk) = chunk {
            let count = self.keep_rest(chunk, buffer.initialize_unfilled());
            buffer.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_from(&self, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.handle.runtime().can_async().map_err(io_error)?;
        let count = buffer.len().min(WRITE_MAX);
        let mut bytes = Bytes::copy_from_slice(&buffer[..count]);
        ready!(self.handle.poll_write(&mut bytes, context.waker())).map_err(write_error)?;
        Poll::Ready(Ok(count - bytes.len()))
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_read_into(context, buffer)
    }
}

impl AsyncRead for &TcpStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_read_into(context, buffer)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_from(context, buffer)
    }

    /// Has no effect: data leave as soon as they may.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the stream to the peer, as [`finish`](TcpStream::finish); does not wait for the peer.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for &TcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_from(context, buffer)
    }

    /// Has no effect: data leave as soon as they may.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the stream to the peer, as [`finish`](TcpStream::finish); does not wait for the peer.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}
