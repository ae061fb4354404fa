//! [`SendCell`]: the sending side of a stream, shared by the writer and the driver.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use bytes::{Bytes, BytesMut};
use quic::{PathSet, RateLimit, StreamId, WRITE_LEN_MAX};

use crate::error::{Closed, WriteError};
use driver::sync::{lock, set_waker};

/// Writes shorter than this are combined into one chunk. Longer writes become chunks of their own.
const COMBINE_BELOW: usize = 4 << 10;

/// The capacity of a chunk of combined writes.
const COMBINED_LEN: usize = 16 << 10;

/// State shared by one writer and the driver.
#[derive(Debug)]
pub(crate) struct SendCell {
    pub(crate) id: StreamId,
    bytes_max: usize,
    state: Mutex<Outbox>,
}

/// End of a sending side.
#[derive(Debug, Clone)]
pub(crate) enum SendEnd {
    /// The peer has acknowledged all bytes.
    Acknowledged,
    /// The peer requested an end of sending, with this code.
    Stopped(u64),
    /// This side reset the stream.
    Reset,
    /// The stream was opened for 0-RTT, which the server has rejected.
    EarlyRejected,
    /// The connection is closed.
    Closed(Closed),
}

/// Written bytes that the connection has not taken.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Bytes>,
    /// Short writes that will form the next chunk.
    combined: BytesMut,
    /// The length of `chunks` and `combined` together.
    bytes: usize,
    /// Whether the driver has been notified of a change that it has not processed.
    queued: bool,
    finish: bool,
    reset: Option<u64>,
    priority: Option<i32>,
    /// Pending change of class, boxed because it is rarely used and a server has many streams.
    class_change: Option<Box<ClassChange>>,
    end: Option<SendEnd>,
    waker: Option<Waker>,
}

/// Changes of the stream's class of service that the driver has not applied.
#[derive(Debug, Default)]
pub(crate) struct ClassChange {
    pub(crate) rate: Option<Option<RateLimit>>,
    pub(crate) paths: Option<PathSet>,
    pub(crate) background: Option<bool>,
}

/// Whether the driver must be notified of a change.
pub(crate) type MustNotify = bool;

impl SendCell {
    pub(crate) fn new(id: StreamId, bytes_max: usize) -> Self {
        Self { id, bytes_max: bytes_max.max(1), state: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.state)
    }

    /// Waits until the outbox has space. Returns the number of bytes that may be written.
    pub(crate) fn poll_space(&self, waker: &Waker) -> Poll<Result<usize, WriteError>> {
        let mut outbox = self.lock();
        if let Err(error) = outbox.check_open() {
            return Poll::Ready(Err(error));
        }
        let free_bytes = self.bytes_max.saturating_sub(outbox.bytes);
        if free_bytes > 0 {
            return Poll::Ready(Ok(free_bytes.min(WRITE_LEN_MAX)));
        }
        set_waker(&mut outbox.waker, waker);
        Poll::Pending
    }

    /// Waits until the connection has taken all bytes, or the stream has ended.
    pub(crate) fn poll_drained(&self, waker: &Waker) -> Poll<()> {
        let mut outbox = self.lock();
        if outbox.bytes == 0 || outbox.end.is_some() {
            return Poll::Ready(());
        }
        // The waker is called each time the driver finds the outbox at most half full.
        set_waker(&mut outbox.waker, waker);
        Poll::Pending
    }

    /// Takes bytes that [`poll_space`](Self::poll_space) has granted space for.
    pub(crate) fn write(&self, data: &[u8]) -> MustNotify {
        if data.len() >= COMBINE_BELOW {
            return self.write_chunk(Bytes::copy_from_slice(data));
        }
        let mut outbox = self.lock();
        if outbox.combined.len() + data.len() > COMBINED_LEN {
            outbox.push_combined();
        }
        if outbox.combined.is_empty() {
            outbox.combined.reserve(COMBINED_LEN);
        }
        outbox.combined.extend_from_slice(data);
        outbox.bytes += data.len();
        outbox.must_notify()
    }

    /// Takes a chunk without copying it. The chunk may exceed the granted space.
    pub(crate) fn write_chunk(&self, mut chunk: Bytes) -> MustNotify {
        let mut outbox = self.lock();
        outbox.push_combined();
        outbox.bytes += chunk.len();
        while chunk.len() > WRITE_LEN_MAX {
            outbox.chunks.push_back(chunk.split_to(WRITE_LEN_MAX));
        }
        if !chunk.is_empty() {
            outbox.chunks.push_back(chunk);
        }
        outbox.must_notify()
    }

    pub(crate) fn finish(&self) -> Result<MustNotify, WriteError> {
        let mut outbox = self.lock();
        if outbox.finish {
            return Ok(false);
        }
        outbox.check_open()?;
        outbox.finish = true;
        Ok(outbox.must_notify())
    }

    /// Resets the stream with `code`, unless it has ended.
    pub(crate) fn reset(&self, code: u64) -> MustNotify {
        let mut outbox = self.lock();
        if outbox.end.is_some() || outbox.reset.is_some() {
            return false;
        }
        outbox.reset = Some(code);
        outbox.discard();
        outbox.must_notify()
    }

    /// Handles the drop of the writer. A stream that is not finished is reset, because it must not
    /// look complete to the peer.
    pub(crate) fn drop_writer(&self) -> MustNotify {
        let finished = {
            let mut outbox = self.lock();
            outbox.waker = None;
            outbox.finish
        };
        !finished && self.reset(0)
    }

    pub(crate) fn set_priority(&self, priority: i32) -> MustNotify {
        let mut outbox = self.lock();
        outbox.priority = Some(priority);
        outbox.must_notify()
    }

    pub(crate) fn set_rate(&self, limit: Option<RateLimit>) -> MustNotify {
        let mut outbox = self.lock();
        outbox.class_change.get_or_insert_default().rate = Some(limit);
        outbox.must_notify()
    }

    pub(crate) fn set_paths(&self, paths: PathSet) -> MustNotify {
        let mut outbox = self.lock();
        outbox.class_change.get_or_insert_default().paths = Some(paths);
        outbox.must_notify()
    }

    pub(crate) fn set_background(&self, is_background: bool) -> MustNotify {
        let mut outbox = self.lock();
        outbox.class_change.get_or_insert_default().background = Some(is_background);
        outbox.must_notify()
    }

    /// Waits until the peer has acknowledged all bytes and the end of the stream.
    pub(crate) fn poll_acknowledged(&self, waker: &Waker) -> Poll<Result<(), WriteError>> {
        let mut outbox = self.lock();
        match &outbox.end {
            Some(SendEnd::Acknowledged) => Poll::Ready(Ok(())),
            Some(end) => Poll::Ready(Err(end.error())),
            None if outbox.reset.is_some() => Poll::Ready(Err(WriteError::Closed)),
            None if !outbox.finish => Poll::Ready(Err(WriteError::NotFinished)),
            None => {
                set_waker(&mut outbox.waker, waker);
                Poll::Pending
            }
        }
    }

    /// Waits until the peer stops the stream, and returns its code, or until it has acknowledged
    /// all of it.
    pub(crate) fn poll_stopped(&self, waker: &Waker) -> Poll<Result<Option<u64>, WriteError>> {
        let mut outbox = self.lock();
        match &outbox.end {
            Some(SendEnd::Acknowledged) => Poll::Ready(Ok(None)),
            Some(SendEnd::Stopped(code)) => Poll::Ready(Ok(Some(*code))),
            Some(end) => Poll::Ready(Err(end.error())),
            None if outbox.reset.is_some() => Poll::Ready(Err(WriteError::Closed)),
            None => {
                set_waker(&mut outbox.waker, waker);
                Poll::Pending
            }
        }
    }

    /// Ends the stream and wakes the writer.
    pub(crate) fn end(&self, end: SendEnd) {
        let mut outbox = self.lock();
        if outbox.end.is_none() {
            outbox.end = Some(end);
        }
        outbox.discard();
        let waker = outbox.waker.take();
        drop(outbox);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns whether at least half of the outbox is free. The writer is woken then, not for every
    /// few bytes.
    pub(crate) fn is_half_free(&self, outbox: &Outbox) -> bool {
        outbox.bytes <= self.bytes_max / 2
    }
}

impl SendEnd {
    fn error(&self) -> WriteError {
        match self {
            Self::Acknowledged | Self::Reset => WriteError::Closed,
            Self::Stopped(code) => WriteError::Stopped(*code),
            Self::EarlyRejected => WriteError::EarlyRejected,
            Self::Closed(closed) => WriteError::ConnectionClosed(closed.clone()),
        }
    }
}

impl Outbox {
    fn check_open(&self) -> Result<(), WriteError> {
        match &self.end {
            Some(end) => Err(end.error()),
            None if self.finish || self.reset.is_some() => Err(WriteError::Closed),
            None => Ok(()),
        }
    }

    fn must_notify(&mut self) -> MustNotify {
        !std::mem::replace(&mut self.queued, true)
    }

    fn push_combined(&mut self) {
        if !self.combined.is_empty() {
            let chunk = self.combined.split().freeze();
            self.chunks.push_back(chunk);
        }
    }

    fn discard(&mut self) {
        self.chunks.clear();
        self.combined = BytesMut::new();
        self.bytes = 0;
    }

    // The driver uses these methods.

    /// Returns whether the server rejected the stream's 0-RTT data: its ID may now belong to
    /// another stream.
    pub(crate) fn is_early_rejected(&self) -> bool {
        matches!(self.end, Some(SendEnd::EarlyRejected))
    }

    /// Begins the processing of all changes by the driver. Later changes must notify it again.
    pub(crate) fn begin_service(&mut self) {
        self.queued = false;
        self.push_combined();
    }

    /// Passes chunks to `take`, the oldest first, until it returns an error. `take` removes the
    /// bytes that it accepts from the front of the chunk.
    pub(crate) fn offer<E>(&mut self, mut take: impl FnMut(&mut Bytes) -> Result<(), E>) -> Result<(), E> {
        while let Some(chunk) = self.chunks.front_mut() {
            let before = chunk.len();
            let result = take(chunk);
            self.bytes -= before - chunk.len();
            if chunk.is_empty() {
                self.chunks.pop_front();
            }
            result?;
        }
        Ok(())
    }

    pub(crate) fn take_priority(&mut self) -> Option<i32> {
        self.priority.take()
    }

    pub(crate) fn take_class_change(&mut self) -> Option<Box<ClassChange>> {
        self.class_change.take()
    }

    /// Returns the code of a requested reset, unless the stream has ended.
    pub(crate) fn pending_reset(&self) -> Option<u64> {
        if self.end.is_none() { self.reset } else { None }
    }

    /// Returns whether all bytes were taken and the stream can be finished.
    pub(crate) fn is_finish_pending(&self) -> bool {
        self.finish && self.chunks.is_empty() && self.end.is_none() && self.reset.is_none()
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Returns the number of bytes in the outbox.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use quic::{Dir, Side};

    use super::*;

    fn cell(bytes_max: usize) -> SendCell {
        SendCell::new(StreamId::new(Side::Client, Dir::Uni, 0), bytes_max)
    }

    fn take_all(outbox: &mut Outbox) -> Vec<Bytes> {
        let mut taken = Vec::new();
        let all: Result<(), ()> = outbox.offer(|chunk| {
            taken.push(std::mem::take(chunk));
            Ok(())
        });
        assert_eq!(all, Ok(()));
        taken
    }

    #[test]
    fn the_driver_is_notified_once_until_it_serves_the_cell() {
        let cell = cell(100);
        assert!(cell.write(b"one"));
        assert!(!cell.write(b"two"));
        {
            let mut outbox = cell.lock();
            outbox.begin_service();
            assert_eq!(take_all(&mut outbox), [Bytes::from_static(b"onetwo")]);
        }
        assert!(cell.write(b"three"));
    }

    #[test]
    fn a_full_outbox_grants_no_space() {
        let cell = cell(8);
        assert!(matches!(cell.poll_space(Waker::noop()), Poll::Ready(Ok(8))));
        cell.write_chunk(Bytes::from_static(b"12345678"));
        assert!(cell.poll_space(Waker::noop()).is_pending());
        let mut outbox = cell.lock();
        outbox.begin_service();
        let _refused = outbox.offer(|chunk| {
            let _taken = chunk.split_to(5);
            Err(())
        });
        assert_eq!(outbox.bytes(), 3, "bytes that were not taken stay");
        assert_eq!(take_all(&mut outbox), [Bytes::from_static(b"678")]);
        assert_eq!(outbox.bytes(), 0);
        assert!(cell.is_half_free(&outbox));
    }

    #[test]
    fn an_outbox_is_drained_when_it_is_empty_or_the_stream_has_ended() {
        let cell = cell(8);
        assert!(cell.poll_drained(Waker::noop()).is_ready());
        cell.write_chunk(Bytes::from_static(b"1234"));
        assert!(cell.poll_drained(Waker::noop()).is_pending());
        take_all(&mut cell.lock());
        assert!(cell.poll_drained(Waker::noop()).is_ready());
        cell.write_chunk(Bytes::from_static(b"5678"));
        assert!(cell.poll_drained(Waker::noop()).is_pending());
        cell.end(SendEnd::Stopped(3));
        assert!(cell.poll_drained(Waker::noop()).is_ready());
    }

    #[test]
    fn dropping_the_writer_resets_only_unfinished_streams() {
        let unfinished = cell(8);
        assert!(unfinished.drop_writer());
        assert_eq!(unfinished.lock().pending_reset(), Some(0));
        let finished = cell(8);
        assert!(finished.finish().unwrap());
        assert!(!finished.drop_writer());
        assert_eq!(finished.lock().pending_reset(), None);
        assert!(finished.lock().is_finish_pending());
    }

    #[test]
    fn long_chunks_are_split_to_the_length_that_a_connection_accepts() {
        let cell = cell(8 << 20);
        cell.write_chunk(Bytes::from(vec![7; 3 * WRITE_LEN_MAX + 5]));
        let mut outbox = cell.lock();
        let lens: Vec<usize> = take_all(&mut outbox).iter().map(|chunk| chunk.len()).collect();
        assert_eq!(lens, [WRITE_LEN_MAX, WRITE_LEN_MAX, WRITE_LEN_MAX, 5]);
        assert_eq!(outbox.bytes(), 0);
    }
}
