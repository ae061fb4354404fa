//! The receiving side of a stream, between the driver and its reader.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use bytes::Bytes;
use quic::StreamId;

use super::send::MustTell;
use crate::error::{Closed, ReadError};
use crate::sync::{lock, set_waker};

/// Shared by the driver and one reader.
#[derive(Debug)]
pub(crate) struct RecvCell {
    pub(crate) id: StreamId,
    bytes_max: usize,
    state: Mutex<Inbox>,
}

/// How a receiving side ended, as seen after everything in the inbox.
#[derive(Debug, Clone)]
pub(crate) enum RecvEnd {
    /// The peer sent its end.
    Finished,
    /// The peer gave it up.
    Reset(u64),
    /// We asked the peer to stop.
    Stopped,
    /// The connection ended.
    Closed(Closed),
}

/// What has arrived and was not read.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    /// The driver has stopped taking from the connection because this is full, and must be told when it is not.
    paused: bool,
    /// The driver knows that it has work here.
    queued: bool,
    stop: Option<u64>,
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

    /// The next bytes, at most `len_max` of them; none at the end.
    pub(crate) fn poll_read(
        &self,
        len_max: usize,
        waker: &Waker,
    ) -> Poll<Result<(Option<Bytes>, MustTell), ReadError>> {
        let mut inbox = self.lock();
        let Some(front) = inbox.chunks.front_mut() else {
            return match &inbox.end {
                Some(RecvEnd::Finished) => Poll::Ready(Ok((None, false))),
                Some(RecvEnd::Reset(code)) => Poll::Ready(Err(ReadError::Reset(*code))),
                Some(RecvEnd::Stopped) => Poll::Ready(Err(ReadError::Stopped)),
                Some(RecvEnd::Closed(closed)) => Poll::Ready(Err(ReadError::ConnectionClosed(closed.clone()))),
                None => {
                    set_waker(&mut inbox.waker, waker);
                    Poll::Pending
                }
            };
        };
        let chunk = if front.len() > len_max {
            front.split_to(len_max)
        } else {
            inbox.chunks.pop_front().expect("it is there")
        };
        inbox.bytes -= chunk.len();
        // Below half, so that the driver moves many chunks at a time.
        let resumes = inbox.paused && inbox.bytes <= self.bytes_max / 2;
        if resumes {
            inbox.paused = false;
        }
        let tell = resumes && inbox.must_tell();
        Poll::Ready(Ok((Some(chunk), tell)))
    }

    /// No more of it is wanted; what is here is thrown away.
    pub(crate) fn stop(&self, code: u64) -> MustTell {
        let mut inbox = self.lock();
        inbox.chunks.clear();
        inbox.bytes = 0;
        if inbox.end.is_some() {
            return false;
        }
        inbox.end = Some(RecvEnd::Stopped);
        inbox.stop = Some(code);
        inbox.must_tell()
    }

    /// The stream is over, after what is in the inbox.
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

    /// Everything, if the peer's end is here too: a whole message.
    pub(crate) fn take_whole(&self) -> Option<VecDeque<Bytes>> {
        let mut inbox = self.lock();
        if !matches!(inbox.end, Some(RecvEnd::Finished)) {
            return None;
        }
        inbox.bytes = 0;
        Some(std::mem::take(&mut inbox.chunks))
    }

    /// For the driver: whether more should be moved here, which is remembered if not.
    pub(crate) fn wants_more(&self, inbox: &mut Inbox) -> bool {
        inbox.paused = inbox.bytes >= self.bytes_max;
        !inbox.paused
    }
}

impl Inbox {
    fn must_tell(&mut self) -> MustTell {
        !std::mem::replace(&mut self.queued, true)
    }

    /// The driver looks: later changes must tell it again.
    pub(crate) fn begin_service(&mut self) {
        self.queued = false;
    }

    /// The stop that is due; once.
    pub(crate) fn take_stop(&mut self) -> Option<u64> {
        self.stop.take()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        self.bytes += chunk.len();
        self.chunks.push_back(chunk);
    }

    pub(crate) fn set_end(&mut self, end: RecvEnd) {
        self.end = Some(end);
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }
}

#[cfg(test)]
mod tests {
    use quic::{Dir, Side};

    use super::*;

    fn read(cell: &RecvCell, len: usize) -> (Option<Bytes>, MustTell) {
        match cell.poll_read(len, Waker::noop()) {
            Poll::Ready(Ok(read)) => read,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_full_inbox_pauses_and_resumes_at_half() {
        let cell = RecvCell::new(StreamId::new(Side::Client, Dir::Uni, 0), 8);
        {
            let mut inbox = cell.lock();
            inbox.push(Bytes::from_static(b"123456"));
            assert!(cell.wants_more(&mut inbox));
            inbox.push(Bytes::from_static(b"78"));
            assert!(!cell.wants_more(&mut inbox));
        }
        assert_eq!(read(&cell, 3), (Some(Bytes::from_static(b"123")), false));
        assert_eq!(read(&cell, 9), (Some(Bytes::from_static(b"456")), true));
        assert_eq!(read(&cell, 9), (Some(Bytes::from_static(b"78")), false));
        assert!(cell.poll_read(9, Waker::noop()).is_pending());
        cell.end(RecvEnd::Finished);
        assert_eq!(read(&cell, 9), (None, false));
        assert_eq!(read(&cell, 9), (None, false));
    }

    #[test]
    fn stopping_tells_the_driver_once_and_throws_away() {
        let cell = RecvCell::new(StreamId::new(Side::Client, Dir::Uni, 0), 8);
        cell.lock().push(Bytes::from_static(b"123"));
        assert!(cell.stop(7));
        assert!(!cell.stop(8));
        assert_eq!(cell.lock().take_stop(), Some(7));
        assert_eq!(cell.lock().take_stop(), None);
        assert!(matches!(cell.poll_read(1, Waker::noop()), Poll::Ready(Err(ReadError::Stopped))));
    }
}
