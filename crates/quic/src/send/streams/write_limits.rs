//! How many bytes applications may write ahead of the peer's acknowledgements.

use bytes::Bytes;
use wire::quic::StreamId;

use super::{SendStream, SendStreams, WriteError};
use crate::event::{Event, Events};
use crate::send::streams::WRITE_LEN_MAX;

/// Bytes that any stream may hold even if others have filled the buffer.
const STREAM_SHARE_MIN: u64 = 64 * 1024;

/// A blocked writer is woken once this fraction of its share is free, so that it does not refill
/// packet by packet.
const SHARE_STEPS: u64 = 4;

impl SendStreams {
    /// Sets how many bytes the buffers may hold; grows with the congestion window.
    pub(crate) fn set_held_bytes_max(&mut self, bytes: u64, events: &mut Events) {
        // The limit never shrinks: a stream that had filled half of a larger buffer would leave no
        // space in a smaller one.
        self.held_bytes_max = self.held_bytes_max.max(bytes);
        self.wake_writers(events);
    }

    /// Accepts the whole chunk, or returns why not.
    pub(crate) fn write(&mut self, id: StreamId, chunk: Bytes) -> Result<(), WriteError> {
        let len = chunk.len() as u64;
        if self.writable(id)? < len.max(1) {
            return Err(self.wait_for(id, len.max(1)));
        }
        self.put(id, chunk);
        Ok(())
    }

    /// Accepts as much of the front of `chunk` as fits, or returns why not all of it.
    pub(crate) fn write_some(&mut self, id: StreamId, chunk: &mut Bytes) -> Result<(), WriteError> {
        loop {
            let free_bytes = usize::try_from(self.writable(id)?).unwrap_or(usize::MAX).min(WRITE_LEN_MAX);
            if chunk.is_empty() {
                return Ok(());
            }
            if free_bytes == 0 {
                break;
            }
            self.put(id, chunk.split_to(free_bytes.min(chunk.len())));
        }
        Err(self.wait_for(id, (chunk.len() as u64).min(self.share() / SHARE_STEPS).max(1)))
    }

    fn put(&mut self, id: StreamId, chunk: Bytes) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        self.held_bytes += chunk.len() as u64;
        stream.buffer.write(chunk);
        self.make_ready(id);
    }

    fn wait_for(&mut self, id: StreamId, bytes: u64) -> WriteError {
        if let Some(stream) = self.map.get_mut(&id) {
            if stream.wanted_bytes == 0 {
                self.waiting.push_back(id);
            }
            stream.wanted_bytes = bytes;
        }
        WriteError::Blocked
    }

    /// Bytes that fit, or why none may be written at all.
    fn writable(&self, id: StreamId) -> Result<u64, WriteError> {
        let stream = self.map.get(&id).ok_or(WriteError::Closed)?;
        if let Some(code) = stream.stopped {
            return Err(WriteError::Stopped(code));
        }
        if !stream.is_open() {
            return Err(WriteError::Closed);
        }
        Ok(self.free_bytes(stream))
    }

    /// Bytes that fit into a stream. One stream may hold half of the buffer, so that a stream whose
    /// peer does not read leaves space for the others. If such streams fill the whole buffer, each
    /// other stream still gets its share, so that none can stall the connection. Beyond the shares
    /// the buffer overflows by one chunk at most.
    fn free_bytes(&self, stream: &SendStream) -> u64 {
        let (held, half) = (stream.buffer.held_bytes(), self.held_bytes_max / 2);
        if held < half && self.held_bytes < self.held_bytes_max {
            return u64::MAX;
        }
        self.share().saturating_sub(held)
    }

    /// Bytes that each stream may hold even if the buffer is full.
    fn share(&self) -> u64 {
        STREAM_SHARE_MIN.min(self.held_bytes_max / 2)
    }

    /// Wakes applications that wait for buffer space, oldest first, while there is space.
    pub(super) fn wake_writers(&mut self, events: &mut Events) {
        for _ in 0..self.waiting.len() {
            let Some(id) = self.waiting.pop_front() else { return };
            let Some(stream) = self.map.get(&id) else { continue };
            if stream.is_open() && self.free_bytes(stream) < stream.wanted_bytes {
                self.waiting.push_back(id);
                continue;
            }
            if let Some(stream) = self.map.get_mut(&id) {
                stream.wanted_bytes = 0;
                events.push(Event::Writable(id));
            }
        }
    }
}
