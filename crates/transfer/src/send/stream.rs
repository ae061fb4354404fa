//! A file of unknown length being sent: its input, which the workers take turns to read, the hash
//! over the pieces, and the receiver's credit.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::link::CancelToken;
use crate::segment::FileHash;
use crate::stream::{PIECE_LEN, PieceHash, StreamHash, WINDOW};
use crate::stream_io::OpenInput;

/// A stream that the receiver is ready for.
pub(super) struct OutgoingStream {
    input: Mutex<InputState>,
    sums: Mutex<Sums>,
    credit: Mutex<Credit>,
    changed: Condvar,
}

struct InputState {
    input: OpenInput,
    /// Number of the next piece.
    next: u32,
    has_ended: bool,
}

/// Values of the pieces.
#[derive(Default)]
struct Sums {
    /// Values of pieces whose predecessors are missing: at most one for each worker.
    waiting: BTreeMap<u32, PieceHash>,
    /// Number of pieces included in `hash`.
    count: u32,
    hash: StreamHash,
    size: u64,
    /// Total number of pieces, once it is known.
    total: Option<u32>,
    /// Hash sent to the receiver.
    sent: Option<FileHash>,
}

struct Credit {
    pieces: u32,
    stopped: bool,
}

impl OutgoingStream {
    pub(super) fn new(input: OpenInput) -> Self {
        Self {
            input: Mutex::new(InputState { input, next: 0, has_ended: false }),
            sums: Mutex::default(),
            credit: Mutex::new(Credit { pieces: WINDOW, stopped: false }),
            changed: Condvar::new(),
        }
    }

    /// Handles a grant of pieces; returns false if it revokes some.
    pub(super) fn grant(&self, pieces: u32) -> bool {
        let mut credit = self.credit();
        let is_more = pieces > credit.pieces;
        credit.pieces = credit.pieces.max(pieces);
        self.changed.notify_all();
        is_more
    }

    /// Makes the workers end.
    pub(super) fn stop(&self) {
        self.credit().stopped = true;
        self.changed.notify_all();
    }

    /// Returns the hash that was sent to the receiver.
    pub(super) fn hash(&self) -> Option<FileHash> {
        lock(&self.sums).sent
    }

    fn is_stopped(&self) -> bool {
        self.credit().stopped
    }

    fn credit(&self) -> MutexGuard<'_, Credit> {
        lock(&self.credit)
    }

    /// Reads the next piece, and returns its number and length. Returns `None` at the end of the
    /// input or if the transfer stops.
    pub(super) fn read(&self, cancel: &CancelToken, buffer: &mut [u8]) -> std::io::Result<Option<(u32, usize)>> {
        let mut input = lock(&self.input);
        if input.has_ended {
            return Ok(None);
        }
        let number = input.next;
        let without = |credit: &mut Credit| credit.pieces <= number && !credit.stopped;
        if self.changed.wait_while(self.credit(), without).unwrap_or_else(PoisonError::into_inner).stopped {
            return Ok(None);
        }
        let is_stopping = || self.is_stopped() || cancel.is_cancelled();
        let Some(len) = input.input.fill(buffer, &is_stopping)? else { return Ok(None) };
        input.next = number.checked_add(1).ok_or_else(|| std::io::Error::other("the stream is longer than 1 PiB"))?;
        if len < PIECE_LEN {
            input.has_ended = true;
            lock(&self.sums).total = Some(number + u32::from(len > 0));
        }
        Ok((len > 0).then_some((number, len)))
    }

    /// Counts a piece that was sent. Returns the size and the hash of the stream, once, if nothing
    /// is missing.
    pub(super) fn count(&self, piece: Option<(u32, PieceHash, usize)>) -> Option<(u64, FileHash)> {
        let mut sums = lock(&self.sums);
        if let Some((number, hash, len)) = piece {
            sums.waiting.insert(number, hash);
            sums.size += len as u64;
        }
        let next = sums.count;
        let mut next = next;
        while let Some(hash) = sums.waiting.remove(&next) {
            sums.hash.push(&hash);
            next += 1;
        }
        sums.count = next;
        if sums.total != Some(next) || sums.sent.is_some() {
            return None;
        }
        let hash = std::mem::take(&mut sums.hash).finish();
        sums.sent = Some(hash);
        Some((sums.size, hash))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
