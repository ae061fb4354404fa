//! A network card that may let datagrams wait for each other, and a system that joins those it gets together.

use units::{Duration, Instant};

use super::Frame;

/// Datagrams that wait, at most, and that are joined; and bytes of these: what fits into one datagram of UDP, headers and a bit apart.
const DATAGRAMS_MAX: usize = 64;
const BYTES_MAX: usize = 65_000;

pub(crate) struct Card {
    /// How long the first one waits for others.
    waits: Duration,
    waiting: Vec<Frame>,
    look_at: Option<Instant>,
}

/// Datagrams of one path, as long as each other but for the last.
pub(crate) struct Batch {
    pub(crate) path: usize,
    pub(crate) stride: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Card {
    pub(crate) const fn new(waits: Duration) -> Self {
        Self { waits, waiting: Vec::new(), look_at: None }
    }

    pub(crate) fn take(&mut self, now: Instant, frame: Frame) {
        self.waiting.push(frame);
        let look_at = *self.look_at.get_or_insert(now + self.waits);
        if self.waiting.len() >= DATAGRAMS_MAX {
            self.look_at = Some(look_at.min(now));
        }
    }

    /// When the host looks.
    pub(crate) const fn due_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// What the host gets now.
    pub(crate) fn hand_over(&mut self, now: Instant) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        if self.look_at.is_none_or(|at| at > now) {
            return batches;
        }
        self.look_at = None;
        for Frame { path, bytes } in self.waiting.drain(..) {
            let last = batches.iter_mut().rfind(|batch| batch.path == path);
            match last.filter(|last| !self.waits.is_zero() && last.takes(bytes.len())) {
                Some(last) => last.bytes.extend(bytes),
                None => batches.push(Batch { path, stride: bytes.len(), bytes }),
            }
        }
        batches
    }
}

impl Batch {
    fn takes(&self, len: usize) -> bool {
        let is_open = self.bytes.len().is_multiple_of(self.stride) && self.bytes.len() / self.stride < DATAGRAMS_MAX;
        is_open && len <= self.stride && self.bytes.len() + len <= BYTES_MAX
    }
}
