//! Packets that wait for the line: first in, first out, with a limit in bytes (tail drop). CoDel,
//! if set, takes packets from this queue.

use std::collections::VecDeque;

use units::Instant;

/// A waiting packet.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<P> {
    /// Time at which it was sent; transmission cannot start before.
    pub(crate) since: Instant,
    /// Its bytes on the line, including overhead.
    pub(crate) line_bytes: u64,
    pub(crate) packet: P,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue<P> {
    packets: VecDeque<Waiting<P>>,
    /// Sum of `line_bytes` over `packets`.
    bytes: u64,
}

impl<P> Queue<P> {
    pub(crate) const fn new() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the send time of the first packet.
    pub(crate) fn first_since(&self) -> Option<Instant> {
        self.packets.front().map(|waiting| waiting.since)
    }

    /// Returns whether `line_bytes` more stay within `bytes_max`.
    pub(crate) const fn has_space(&self, line_bytes: u64, bytes_max: u64) -> bool {
        match self.bytes.checked_add(line_bytes) {
            Some(bytes) => bytes <= bytes_max,
            None => false,
        }
    }

    pub(crate) fn push(&mut self, waiting: Waiting<P>) {
        self.bytes += waiting.line_bytes;
        self.packets.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting<P>> {
        let waiting = self.packets.pop_front()?;
        self.bytes -= waiting.line_bytes;
        Some(waiting)
    }
}
