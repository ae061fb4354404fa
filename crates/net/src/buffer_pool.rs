//! Receive buffers that return to their pool when the last reference to their content is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of free buffers (16 MiB of 64 KiB each). Further buffers are deallocated.
pub const FREE_MAX: usize = 256;

/// Free buffers of one length. Clones refer to the same pool.
#[derive(Clone, Debug)]
pub struct BufferPool {
    len: usize,
    free: Arc<Mutex<Vec<Box<[u8]>>>>,
}

impl BufferPool {
    /// Creates an empty pool of buffers of `len` bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { len, free: Arc::default() }
    }

    /// Returns a free buffer, or a new one.
    #[must_use]
    pub fn take(&self) -> Box<[u8]> {
        let last = self.free().pop();
        last.unwrap_or_else(|| vec![0; self.len].into())
    }

    /// Returns the content of a buffer of this pool, `len` bytes long.
    #[must_use]
    pub fn filled(&self, memory: Box<[u8]>, len: usize) -> FilledBuffer {
        FilledBuffer { memory, len, pool: self.clone() }
    }

    /// Returns the number of free buffers.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.free().len()
    }

    fn free(&self) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer with content. Dropping it, on any thread, returns the buffer to its pool.
#[derive(Debug)]
pub struct FilledBuffer {
    memory: Box<[u8]>,
    len: usize,
    pool: BufferPool,
}

impl AsRef<[u8]> for FilledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl AsMut<[u8]> for FilledBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

impl Drop for FilledBuffer {
    fn drop(&mut self) {
        let mut free = self.pool.free();
        if free.len() < FREE_MAX {
            free.push(std::mem::take(&mut self.memory));
        }
    }
}
