//! [`Stream`]: a connection, for processes of the model.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use tcp_driver::{Closed, StreamHandle, WriteError};

use crate::host::{HostRuntime, Inner};

/// A connection. When it is dropped, written data are still sent, and then the connection ends.
pub struct Stream {
    host: Rc<Inner>,
    handle: StreamHandle<HostRuntime>,
}

impl Stream {
    pub(crate) const fn new(host: Rc<Inner>, handle: StreamHandle<HostRuntime>) -> Self {
        Self { host, handle }
    }

    /// Writes all of `bytes` in one call. Bytes beyond the space of the send buffer wait in the
    /// outbox, from which the driver fills it in its turns.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub async fn write(&self, bytes: Bytes) -> Result<(), WriteError> {
        self.host.call_to_write().await;
        let left = RefCell::new(bytes);
        while !left.borrow().is_empty() {
            self.host.wait_until(|waker| self.handle.poll_write(&mut left.borrow_mut(), waker)).await?;
        }
        Ok(())
    }

    /// Returns up to `len_max` received bytes; `None` at the end of the peer's stream.
    ///
    /// # Errors
    /// Fails if the connection ended before the peer's stream.
    pub async fn read(&self, len_max: usize) -> Result<Option<Bytes>, Closed> {
        let bytes = self.host.wait_until(|waker| self.handle.poll_read(len_max, waker)).await?;
        self.host.call_to_read().await;
        Ok(bytes)
    }

    /// Reads exactly `len` bytes and drops them. Returns false if the peer's stream ends earlier.
    ///
    /// # Errors
    /// Fails if the connection ended before the peer's stream.
    pub async fn read_exact(&self, len: usize) -> Result<bool, Closed> {
        let mut left = len;
        while left > 0 {
            let Some(bytes) = self.read(left).await? else { return Ok(false) };
            left -= bytes.len();
        }
        Ok(true)
    }

    /// Ends our stream after all written data.
    pub fn finish(&self) {
        self.handle.finish();
    }
}
