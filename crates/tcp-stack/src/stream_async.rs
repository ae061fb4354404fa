//! [`TcpStream`] for asynchronous callers, whatever their executor: the driver's thread wakes their
//! tasks. A stack under [`Placement::Inline`](crate::Placement::Inline) has no thread, so each of
//! these calls fails there.

use std::future::poll_fn;

use bytes::Bytes;
use tcp_driver::{Closed, WriteError};

use crate::stream::TcpStream;

impl TcpStream {
    /// Does the same as [`read_chunk`](Self::read_chunk).
    ///
    /// # Errors
    /// Same errors as [`read_chunk`](Self::read_chunk); also fails if the placement is inline.
    pub async fn read_chunk_async(&self) -> Result<Option<Bytes>, Closed> {
        self.handle.runtime().can_async()?;
        match self.take_rest() {
            Some(rest) => Ok(Some(rest)),
            None => poll_fn(|context| self.handle.poll_read(usize::MAX, context.waker())).await,
        }
    }

    /// Does the same as [`write_chunk`](Self::write_chunk). If the future is dropped, the beginning
    /// of `bytes` may have been written.
    ///
    /// # Errors
    /// Same errors as [`write_chunk`](Self::write_chunk); also fails if the placement is inline.
    pub async fn write_chunk_async(&self, mut bytes: Bytes) -> Result<(), WriteError> {
        self.handle.runtime().can_async().map_err(WriteError::Closed)?;
        while !bytes.is_empty() {
            poll_fn(|context| self.handle.poll_write(&mut bytes, context.waker())).await?;
        }
        Ok(())
    }

    /// Does the same as [`closed`](Self::closed). Under the inline placement it returns an error of
    /// the configuration.
    pub async fn closed_async(&self) -> Closed {
        if let Err(error) = self.handle.runtime().can_async() {
            return error;
        }
        poll_fn(|context| self.handle.poll_closed(context.waker())).await
    }
}
