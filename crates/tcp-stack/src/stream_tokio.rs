//! [`TcpStream`] as tokio's [`AsyncRead`] and [`AsyncWrite`], on any executor. Under
//! [`Placement::Inline`](crate::Placement::Inline) each of these calls fails.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stream::{TcpStream, WRITE_MAX, io_error, write_error};

impl TcpStream {
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

    /// Ends our stream like [`finish`](TcpStream::finish); does not wait for the peer.
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

    /// Ends our stream like [`finish`](TcpStream::finish); does not wait for the peer.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}
