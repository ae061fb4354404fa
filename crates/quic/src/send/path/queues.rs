//! Data that wait for one path: copies, retransmissions and datagrams that are bound to it.

use std::ops::Range;

use bytes::Bytes;
use wire::quic::StreamId;

use crate::queue::Queue;
use crate::send::streams::SendStreams;
use crate::send::waiting_datagrams::WaitingDatagrams;

/// Copies waiting for one path, at most. Copies that a slower path cannot send in time are dropped.
const COPIES_WAITING_MAX: usize = 1024;

/// Ranges that wait for one path, at most; adjacent ones are merged. Losses beyond the limit may
/// take any path.
pub(crate) const RESENDS_WAITING_MAX: usize = 4096;

/// Stream bytes that were sent before and are to be sent on a given path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentRange {
    pub(crate) id: StreamId,
    pub(crate) range: Range<u64>,
    pub(crate) fin: bool,
}

/// The queues of one path.
#[derive(Debug)]
pub(crate) struct PathQueues {
    /// Data to be sent here as a copy, as the scheduler requested.
    pub(crate) copies: Queue<SentRange>,
    /// Datagrams that are to be sent here, and before others.
    pub(crate) datagrams: Queue<Bytes>,
    /// Datagrams that are pinned to the path. Each waits its turn.
    pub(crate) pinned: WaitingDatagrams,
    /// Data lost here that are to be retransmitted here
    /// ([`RetransmissionPolicy::OwnPath`](crate::RetransmissionPolicy)).
    pub(crate) resends: Queue<SentRange>,
}

impl PathQueues {
    pub(super) fn new() -> Self {
        Self { copies: Queue::new(), datagrams: Queue::new(), pinned: WaitingDatagrams::new(), resends: Queue::new() }
    }

    /// The path has stopped working: copies and urgent datagrams are of no use later.
    pub(crate) fn drop_urgent(&mut self) {
        self.copies = Queue::new();
        self.datagrams = Queue::new();
    }

    /// Queues copies of data that another path has just sent, as far as there is space.
    pub(crate) fn queue_copy(&mut self, copy: &SentRange) {
        if self.copies.len() < COPIES_WAITING_MAX {
            self.copies.push_back(copy.clone());
        }
    }

    /// Whether lost data may wait here to be retransmitted.
    pub(crate) fn has_place_for_resend(&self) -> bool {
        self.resends.len() < RESENDS_WAITING_MAX
    }

    /// Queues lost data; the caller has [checked](Self::has_place_for_resend) the limit.
    pub(crate) fn queue_resend(&mut self, id: StreamId, range: Range<u64>, fin: bool) {
        if let Some(last) = self.resends.back_mut()
            && last.id == id
            && last.range.end == range.start
            && !last.fin
        {
            (last.range.end, last.fin) = (range.end, fin);
            return;
        }
        self.resends.push_back(SentRange { id, range, fin });
    }

    /// Returns the ranges that wait to be retransmitted to their streams, for any path.
    pub(crate) fn release_resends(&mut self, streams: &mut SendStreams) {
        while let Some(SentRange { id, range, fin }) = self.resends.pop_front() {
            streams.on_lost(id, range, fin);
        }
    }

    /// Bytes of the datagrams that wait here.
    pub(crate) fn datagram_bytes(&self) -> u64 {
        self.pinned.bytes() + self.datagrams.iter().map(|datagram| datagram.len() as u64).sum::<u64>()
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.resends.shrink();
        self.datagrams.shrink();
        self.pinned.shrink();
    }
}
