//! The receiving side of a stream, between the driver and its reader.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use quic::{StreamId, Strip};

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
    strips: VecDeque<Strip>,
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

    /// The next bytes, as many as lie together; none at the end.
    pub(crate) fn poll_take(&self, waker: &Waker) -> Poll<Result<(Option<Strip>, MustTell), ReadError>> {
        let mut inbox = self.lock();
        let Some(strip) = inbox.strips.pop_front() else {
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
        inbox.bytes -= strip.len();
        // Below half, so that the driver moves many at a time.
        let resumes = inbox.paused && inbox.bytes <= self.bytes_max / 2;
        if resumes {
            inbox.paused = false;
        }
        let tell = resumes && inbox.must_tell();
        Poll::Ready(Ok((Some(strip), tell)))
    }

    /// No more of it is wanted; what is here is thrown away.
    pub(crate) fn stop(&self, code: u64) -> MustTell {
        let mut inbox = self.lock();
        inbox.strips.clear();
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
    pub(crate) fn take_whole(&self) -> Option<VecDeque<Strip>> {
        let mut inbox = self.lock();
        if !matches!(inbox.end, Some(RecvEnd::Finished)) {
            return None;
        }
        inbox.bytes = 0;
        Some(std::mem::take(&mut inbox.strips))
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

    pub(crate) fn push(&mut self, strip: Strip) {
        self.bytes += strip.len();
        self.strips.push_back(strip);
    }

    pub(crate) fn set_end(&mut self, end: RecvEnd) {
        self.end = Some(end);
    }

    /// Whether somebody waits for what is to come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waker.is_some()
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quic::{Dir, Side};

    use super::*;

    fn take(cell: &RecvCell) -> (usize, MustTell) {
        match cell.poll_take(Waker::noop()) {
            Poll::Ready(Ok((strip, tell))) => (strip.map_or(0, |strip| strip.len()), tell),
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
    fn stopping_tells_the_driver_once_and_throws_away() {
        let cell = RecvCell::new(StreamId::new(Side::Client, Dir::Uni, 0), 8);
        cell.lock().push(Bytes::from_static(b"123").into());
        assert!(cell.stop(7));
        assert!(!cell.stop(8));
        assert_eq!(cell.lock().take_stop(), Some(7));
        assert_eq!(cell.lock().take_stop(), None);
        assert!(matches!(cell.poll_take(Waker::noop()), Poll::Ready(Err(ReadError::Stopped))));
    }
}
