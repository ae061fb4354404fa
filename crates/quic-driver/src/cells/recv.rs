//! [`RecvCell`]: the receiving side of a stream, shared by the driver and the reader.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use quic::{StreamId, StridedBytes};

use super::send::MustNotify;
use crate::error::{Closed, ReadError};
use driver::sync::{lock, set_waker};

/// State shared by the driver and one reader.
#[derive(Debug)]
pub(crate) struct RecvCell {
    pub(crate) id: StreamId,
    bytes_max: usize,
    state: Mutex<Inbox>,
}

/// End of a receiving side. The reader sees it after the bytes in the inbox.
#[derive(Debug, Clone)]
pub(crate) enum RecvEnd {
    /// All bytes were received.
    Finished,
    /// The peer reset the stream, with this code.
    Reset(u64),
    /// This side asked the peer to stop.
    Stopped,
    /// The stream was opened for 0-RTT, which the server has rejected.
    EarlyRejected,
    /// The connection is closed.
    Closed(Closed),
}

/// Received bytes that the reader has not taken.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    chunks: VecDeque<StridedBytes>,
    bytes: usize,
    /// Whether the inbox was full when the driver last filled it. The driver is notified when half
    /// is free.
    paused: bool,
    /// Whether the driver has been notified of a change that it has not processed.
    queued: bool,
    stop: Option<u64>,
    is_early_rejected: bool,
    end: Option<RecvEnd>,
    waker: Option<Waker>,
}

impl RecvCell {
    pub(crate) fn new(id: StreamId, bytes_max: usize) -> Self {
        Self { id, bytes_max: bytes_max.max(1), state: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.state)
    }

    /// Returns the next contiguous bytes, `None` at the end, and whether the driver must be
    /// notified.
    pub(crate) fn poll_take(&self, waker: &Waker) -> Poll<Result<(Option<StridedBytes>, MustNotify), ReadError>> {
        let mut inbox = self.lock();
        let Some(chunk) = inbox.chunks.pop_front() else {
            return match &inbox.end {
                Some(RecvEnd::Finished) => Poll::Ready(Ok((None, false))),
                Some(RecvEnd::Reset(code)) => Poll::Ready(Err(ReadError::Reset(*code))),
                Some(RecvEnd::Stopped) => Poll::Ready(Err(ReadError::Stopped)),
                Some(RecvEnd::EarlyRejected) => Poll::Ready(Err(ReadError::EarlyRejected)),
                Some(RecvEnd::Closed(closed)) => Poll::Ready(Err(ReadError::ConnectionClosed(closed.clone()))),
                None => {
                    set_waker(&mut inbox.waker, waker);
                    Poll::Pending
                }
            };
        };
        inbox.bytes -= chunk.len();
        // Resume at half, so that the driver moves several chunks at a time.
        let resumes = inbox.paused && inbox.bytes <= self.bytes_max / 2;
        if resumes {
            inbox.paused = false;
        }
        let notify = resumes && inbox.must_notify();
        Poll::Ready(Ok((Some(chunk), notify)))
    }

    /// Requests STOP_SENDING with `code` and discards the bytes in the inbox.
    pub(crate) fn stop(&self, code: u64) -> MustNotify {
        let mut inbox = self.lock();
        inbox.chunks.clear();
        inbox.bytes = 0;
        if inbox.end.is_some() {
            return false;
        }
        inbox.end = Some(RecvEnd::Stopped);
        inbox.stop = Some(code);
        inbox.must_notify()
    }

    /// Ends a stream whose 0-RTT data was rejected. Its ID may now belong to another stream, so it
    /// is not stopped, either.
    pub(crate) fn reject_early(&self) {
        self.lock().is_early_rejected = true;
        self.end(RecvEnd::EarlyRejected);
    }

    /// Returns whether the server rejected the stream's 0-RTT data.
    pub(crate) fn is_early_rejected(&self) -> bool {
        self.lock().is_early_rejected
    }

    /// Ends the stream after the bytes in the inbox and wakes the reader.
    pub(crate) fn end(&self, end: RecvEnd) {
        let mut inbox = self.lock();
        if inbox.end.is_none() {
            inbox.end = Some(end);
        }
        let waker = inbox.waker.take();
        drop(inbox);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns all bytes of the stream, if it is complete: a whole message.
    pub(crate) fn take_whole(&self) -> Option<VecDeque<StridedBytes>> {
        let mut inbox = self.lock();
        if !matches!(inbox.end, Some(RecvEnd::Finished)) {
            return None;
        }
        inbox.bytes = 0;
        Some(std::mem::take(&mut inbox.chunks))
    }

    /// Returns whether the inbox has space, for the driver. If not, the inbox is marked as paused.
    pub(crate) fn wants_more(&self, inbox: &mut Inbox) -> bool {
        inbox.paused = inbox.bytes >= self.bytes_max;
        !inbox.paused
    }
}

impl Inbox {
    fn must_notify(&mut self) -> MustNotify {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Begins the processing of all changes by the driver. Later changes must notify it again.
    pub(crate) fn begin_service(&mut self) {
        self.queued = false;
    }

    /// Returns the requested STOP_SENDING code. Each code is returned once.
    pub(crate) fn take_stop(&mut self) -> Option<u64> {
        self.stop.take()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn push(&mut self, chunk: StridedBytes) {
        self.bytes += chunk.len();
        self.chunks.push_back(chunk);
    }

    pub(crate) fn set_end(&mut self, end: RecvEnd) {
        self.end = Some(end);
    }

    /// Returns whether a reader waits for more bytes.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waker.is_some()
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Takes the waker if it wakes the same task as `other`. Returns whether it does.
    pub(crate) fn take_waker_of(&mut self, other: &Waker) -> bool {
        self.waker.take_if(|waker| waker.will_wake(other)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quic::{Dir, Side};

    use super::*;

    fn take(cell: &RecvCell) -> (usize, MustNotify) {
        match cell.poll_take(Waker::noop()) {
            Poll::Ready(Ok((chunk, notify))) => (chunk.map_or(0, |chunk| chunk.len()), notify),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_full_inbox_pauses_and_resumes_at_half() {
        let cell = RecvCell::new(StreamId::new(Side::Client, Dir::Uni, 0), 8);
        {
            let mut inbox = cell.lock();
            for bytes in ["123", "456", "78"] {
                assert!(cell.wants_more(&mut inbox));
                inbox.push(Bytes::from_static(bytes.as_bytes()).into());
            }
            assert!(!cell.wants_more(&mut inbox));
        }
        assert_eq!(take(&cell), (3, false));
        assert_eq!(take(&cell), (3, true));
        assert_eq!(take(&cell), (2, false));
        assert!(cell.poll_take(Waker::noop()).is_pending());
        cell.end(RecvEnd::Finished);
        assert_eq!(take(&cell), (0, false));
        assert_eq!(take(&cell), (0, false));
    }

    #[test]
    fn stopping_notifies_the_driver_once_and_discards_the_inbox() {
        let cell = RecvCell::new(StreamId::new(Side::Client, Dir::Uni, 0), 8);
        cell.lock().push(Bytes::from_static(b"123").into());
        assert!(cell.stop(7));
        assert!(!cell.stop(8));
        assert_eq!(cell.lock().take_stop(), Some(7));
        assert_eq!(cell.lock().take_stop(), None);
        assert!(matches!(cell.poll_take(Waker::noop()), Poll::Ready(Err(ReadError::Stopped))));
    }
}
