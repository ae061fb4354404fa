//! A network card that coalesces interrupts, and a system that joins the datagrams of one
//! interrupt.

use units::{Duration, Instant};

use super::Datagram;

/// Maximum datagrams that wait and that are joined, and maximum bytes of a joined batch: about the
/// maximum UDP payload.
const DATAGRAMS_MAX: usize = 64;
const BYTES_MAX: usize = 65_000;

pub(crate) struct Nic {
    /// How long the first datagram waits for others.
    coalesce: Duration,
    waiting: Vec<Datagram>,
    interrupt_at: Option<Instant>,
}

/// Datagrams of one path, of equal length except the last, which may be shorter.
pub(crate) struct Batch {
    pub(crate) path: usize,
    pub(crate) stride: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Nic {
    pub(crate) const fn new(coalesce: Duration) -> Self {
        Self { coalesce, waiting: Vec::new(), interrupt_at: None }
    }

    pub(crate) fn take(&mut self, now: Instant, datagram: Datagram) {
        self.waiting.push(datagram);
        let interrupt_at = *self.interrupt_at.get_or_insert(now + self.coalesce);
        if self.waiting.len() >= DATAGRAMS_MAX {
            self.interrupt_at = Some(interrupt_at.min(now));
        }
    }

    /// Returns the time of the next interrupt.
    pub(crate) const fn due_at(&self) -> Option<Instant> {
        self.interrupt_at
    }

    /// Returns the batches that the host receives now.
    pub(crate) fn take_batches(&mut self, now: Instant) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        if self.interrupt_at.is_none_or(|at| at > now) {
            return batches;
        }
        self.interrupt_at = None;
        for Datagram { path, bytes } in self.waiting.drain(..) {
            let last = batches.iter_mut().rfind(|batch| batch.path == path);
            match last.filter(|last| !self.coalesce.is_zero() && last.takes(bytes.len())) {
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
