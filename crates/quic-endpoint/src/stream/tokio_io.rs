//! Streams as tokio's [`AsyncRead`] and [`AsyncWrite`], on any executor.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{RecvStream, SendStream};

impl AsyncWrite for SendStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.connection().can_async()?;
        self.handle.poll_write(data, context.waker()).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Finishes the stream; does not wait for the peer.
    fn poll_shutdown(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.finish().map_err(Into::into))
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.connection().can_async()?;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.handle
            .poll_ready(context.waker())
            .map_ok(|_| {
                let front = self.handle.front_mut();
                while !front.is_empty() && buffer.remaining() > 0 {
                    let len = front.front().len().min(buffer.remaining());
                    buffer.put_slice(&front.front()[..len]);
                    front.advance(len);
                }
            })
            .map_err(Into::into)
    }
}
