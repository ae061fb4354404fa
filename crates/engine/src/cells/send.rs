//! The sending side of a stream, between its writer and the driver.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use bytes::{Bytes, BytesMut};
use quic::{PathSet, RateLimit, StreamId, WRITE_LEN_MAX};

use crate::error::{Closed, WriteError};
use crate::sync::{lock, set_waker};

/// Writes shorter than this are gathered; longer ones become a chunk of their own.
const GATHER_BELOW: usize = 4 << 10;

/// Room for gathered writes: one chunk of the connection.
const GATHER_LEN: usize = 16 << 10;

/// Shared by one writer and the driver.
#[derive(Debug)]
pub(crate) struct SendCell {
    pub(crate) id: StreamId,
    bytes_max: usize,
    state: Mutex<Outbox>,
}

/// How a sending side ended.
#[derive(Debug, Clone)]
pub(crate) enum SendEnd {
    /// The peer has everything.
    Acknowledged,
    /// The peer does not want more.
    Stopped(u64),
    /// We gave it up.
    Reset,
    /// The connection ended.
    Closed(Closed),
}

/// What is written and not yet taken by the connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Bytes>,
    /// Short writes, to become the next chunk.
    gathered: BytesMut,
    /// Of both.
    bytes: usize,
    /// The driver knows that it has work here.
    queued: bool,
    finish: bool,
    reset: Option<u64>,
    priority: Option<i32>,
    /// Seldom used, and a server has many streams.
    wishes: Option<Box<ClassWishes>>,
    end: Option<SendEnd>,
    waker: Option<Waker>,
}

/// What the writer asked for of rate and paths, and the driver does not know yet.
#[derive(Debug, Default)]
pub(crate) struct ClassWishes {
    pub(crate) rate: Option<Option<RateLimit>>,
    pub(crate) paths: Option<PathSet>,
    pub(crate) background: Option<bool>,
}

/// Whether the driver must be told.
pub(crate) type MustTell = bool;

impl SendCell {
    pub(crate) fn new(id: StreamId, bytes_max: usize) -> Self {
        Self { id, bytes_max: bytes_max.max(1), state: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.state)
    }

    /// Waits for room: how many bytes may be written at once.
    pub(crate) fn poll_room(&self, waker: &Waker) -> Poll<Result<usize, WriteError>> {
        let mut outbox = self.lock();
        if let Err(error) = outbox.check_open() {
            return Poll::Ready(Err(error));
        }
        let room = self.bytes_max.saturating_sub(outbox.bytes);
        if room > 0 {
            return Poll::Ready(Ok(room.min(WRITE_LEN_MAX)));
        }
        set_waker(&mut outbox.waker, waker);
        Poll::Pending
    }

    /// Waits until nothing is left here, or nothing is wanted any more.
    pub(crate) fn poll_taken(&self, waker: &Waker) -> Poll<()> {
        let mut outbox = self.lock();
        if outbox.bytes == 0 || outbox.end.is_some() {
            return Poll::Ready(());
        }
        // Woken from half of the room on, again and again.
        set_waker(&mut outbox.waker, waker);
        Poll::Pending
    }

    /// Takes bytes that [`poll_room`](Self::poll_room) has granted room for.
    pub(crate) fn write(&self, data: &[u8]) -> MustTell {
        if data.len() >= GATHER_BELOW {
            return self.write_chunk(Bytes::copy_from_slice(data));
        }
        let mut outbox = self.lock();
        if outbox.gathered.len() + data.len() > GATHER_LEN {
            outbox.seal_gathered();
        }
        if outbox.gathered.is_empty() {
            outbox.gathered.reserve(GATHER_LEN);
        }
        outbox.gathered.extend_from_slice(data);
        outbox.bytes += data.len();
        outbox.must_tell()
    }

    /// Takes a chunk as it is; it may exceed the room granted once.
    pub(crate) fn write_chunk(&self, mut chunk: Bytes) -> MustTell {
        let mut outbox = self.lock();
        outbox.seal_gathered();
        outbox.bytes += chunk.len();
        while chunk.len() > WRITE_LEN_MAX {
            outbox.chunks.push_back(chunk.split_to(WRITE_LEN_MAX));
        }
        if !chunk.is_empty() {
            outbox.chunks.push_back(chunk);
        }
        outbox.must_tell()
    }

    pub(crate) fn finish(&self) -> Result<MustTell, WriteError> {
        let mut outbox = self.lock();
        if outbox.finish {
            return Ok(false);
        }
        outbox.check_open()?;
        outbox.finish = true;
        Ok(outbox.must_tell())
    }

    /// Gives the stream up, unless everything has arrived or it is over already.
    pub(crate) fn reset(&self, code: u64) -> MustTell {
        let mut outbox = self.lock();
        if outbox.end.is_some() || outbox.reset.is_some() {
            return false;
        }
        outbox.reset = Some(code);
        outbox.discard();
        outbox.must_tell()
    }

    /// The writer is gone: a stream that it has not ended must not look complete to the peer.
    pub(crate) fn abandon(&self) -> MustTell {
        let finished = {
            let mut outbox = self.lock();
            outbox.waker = None;
            outbox.finish
        };
        !finished && self.reset(0)
    }

    pub(crate) fn set_priority(&self, priority: i32) -> MustTell {
        let mut outbox = self.lock();
        outbox.priority = Some(priority);
        outbox.must_tell()
    }

    pub(crate) fn set_rate(&self, limit: Option<RateLimit>) -> MustTell {
        let mut outbox = self.lock();
        outbox.wishes.get_or_insert_default().rate = Some(limit);
        outbox.must_tell()
    }

    pub(crate) fn set_paths(&self, paths: PathSet) -> MustTell {
        let mut outbox = self.lock();
        outbox.wishes.get_or_insert_default().paths = Some(paths);
        outbox.must_tell()
    }

    pub(crate) fn set_background(&self, is_background: bool) -> MustTell {
        let mut outbox = self.lock();
        outbox.wishes.get_or_insert_default().background = Some(is_background);
        outbox.must_tell()
    }

    /// Waits until the peer has everything, the end included.
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

    /// The stream is over.
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

    /// Half of the room is free again, or more: a writer is woken for a worthwhile amount.
    pub(crate) fn has_worthwhile_room(&self, outbox: &Outbox) -> bool {
        outbox.bytes <= self.bytes_max / 2
    }
}

impl SendEnd {
    fn error(&self) -> WriteError {
        match self {
            Self::Acknowledged | Self::Reset => WriteError::Closed,
            Self::Stopped(code) => WriteError::Stopped(*code),
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

    fn must_tell(&mut self) -> MustTell {
        !std::mem::replace(&mut self.queued, true)
    }

    fn seal_gathered(&mut self) {
        if !self.gathered.is_empty() {
            let chunk = self.gathered.split().freeze();
            self.chunks.push_back(chunk);
        }
    }

    fn discard(&mut self) {
        self.chunks.clear();
        self.gathered = BytesMut::new();
        self.bytes = 0;
    }

    // For the driver.

    /// The driver looks: later changes must tell it again.
    pub(crate) fn begin_service(&mut self) {
        self.queued = false;
        self.seal_gathered();
    }

    /// Offers chunks to `take`, the oldest first, until one is refused; `take` leaves of a chunk what it has no room for.
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

    pub(crate) fn take_wishes(&mut self) -> Option<Box<ClassWishes>> {
        self.wishes.take()
    }

    /// The reset that is due; once.
    pub(crate) fn due_reset(&self) -> Option<u64> {
        if self.end.is_none() { self.reset } else { None }
    }

    /// Everything was taken and the end may be said.
    pub(crate) fn is_finish_due(&self) -> bool {
        self.finish && self.chunks.is_empty() && self.end.is_none() && self.reset.is_none()
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.waker.take()
    }

    /// Bytes waiting here.
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
    fn the_driver_is_told_once_until_it_looks() {
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
    fn a_full_outbox_grants_no_room() {
        let cell = cell(8);
        assert!(matches!(cell.poll_room(Waker::noop()), Poll::Ready(Ok(8))));
        cell.write_chunk(Bytes::from_static(b"12345678"));
        assert!(cell.poll_room(Waker::noop()).is_pending());
        let mut outbox = cell.lock();
        outbox.begin_service();
        let _refused = outbox.offer(|chunk| {
            let _taken = chunk.split_to(5);
            Err(())
        });
        assert_eq!(outbox.bytes(), 3, "what finds no room stays");
        assert_eq!(take_all(&mut outbox), [Bytes::from_static(b"678")]);
        assert_eq!(outbox.bytes(), 0);
        assert!(cell.has_worthwhile_room(&outbox));
    }

    #[test]
    fn what_was_written_is_taken_when_nothing_is_left_or_wanted() {
        let cell = cell(8);
        assert!(cell.poll_taken(Waker::noop()).is_ready());
        cell.write_chunk(Bytes::from_static(b"1234"));
        assert!(cell.poll_taken(Waker::noop()).is_pending());
        take_all(&mut cell.lock());
        assert!(cell.poll_taken(Waker::noop()).is_ready());
        cell.write_chunk(Bytes::from_static(b"5678"));
        assert!(cell.poll_taken(Waker::noop()).is_pending());
        cell.end(SendEnd::Stopped(3));
        assert!(cell.poll_taken(Waker::noop()).is_ready());
    }

    #[test]
    fn dropping_resets_what_was_not_finished_and_nothing_else() {
        let unfinished = cell(8);
        assert!(unfinished.abandon());
        assert_eq!(unfinished.lock().due_reset(), Some(0));
        let finished = cell(8);
        assert!(finished.finish().unwrap());
        assert!(!finished.abandon());
        assert_eq!(finished.lock().due_reset(), None);
        assert!(finished.lock().is_finish_due());
    }

    #[test]
    fn long_chunks_are_cut_to_what_a_connection_takes() {
        let cell = cell(8 << 20);
        cell.write_chunk(Bytes::from(vec![7; 3 * WRITE_LEN_MAX + 5]));
        let mut outbox = cell.lock();
        let lens: Vec<usize> = take_all(&mut outbox).iter().map(|chunk| chunk.len()).collect();
        assert_eq!(lens, [WRITE_LEN_MAX, WRITE_LEN_MAX, WRITE_LEN_MAX, 5]);
        assert_eq!(outbox.bytes(), 0);
    }
}
