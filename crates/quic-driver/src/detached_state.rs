//! [`DetachedState`]: the state of a connection while its receive half is on another processor, and
//! detaching and attaching it.

use std::sync::Arc;

use driver::protocol::Batch;
use quic::DetachedReceiveHalf;
use units::{Duration, Instant};

use crate::cells::recv::{RecvCell, RecvEnd};
use crate::connection::Connection;
use crate::delivery::Delivery;
use crate::detached::ReceiveUpdate;
use crate::error::Closed;
use crate::packets::Packets;

/// Maximum number of batches that wait for the return of the receive half. Further batches are
/// dropped, which the peer treats as packet loss.
pub(crate) const DEFERRED_MAX: usize = 8;

/// Slack of the list of known readers: ended streams are removed when it has grown to twice its
/// last length plus this number.
const KNOWN_MIN: usize = 64;

/// Time for which a receive half stays attached after its return. Packets with spoofed addresses
/// make it return, so an attacker could otherwise make a connection detach and attach with each
/// packet.
const ATTACHED_FOR: Duration = Duration::from_millis(20);

/// State that a connection keeps while its receive half is on another processor.
pub(crate) struct DetachedState<K: Packets> {
    /// New locally opened bidirectional streams, for the next update.
    pub(crate) new_readers: Vec<Arc<RecvCell>>,
    /// All streams that are read on the other processor. If that processor hangs, this connection
    /// ends them.
    known_readers: Vec<Arc<RecvCell>>,
    /// Length of `known_readers` when ended streams were last removed.
    known_readers_kept: usize,
    /// Streams whose readers have taken data or stopped, for the next update.
    pub(crate) reader_requests: Vec<Arc<RecvCell>>,
    /// Whether the application has taken streams, messages or datagrams, for the next update.
    pub(crate) wants_delivery: bool,
    /// Batches that wait for the return of the receive half, with their sockets.
    pub(crate) deferred: Vec<(usize, K::Batch)>,
    /// Reason for the close of the connection. The application is notified when the receive half
    /// has returned.
    pub(crate) closed: Option<Closed>,
    /// Whether the receive half has received nothing for a while.
    pub(crate) is_quiet: bool,
    /// Whether the receive half was asked to return.
    pub(crate) is_recalled: bool,
}

impl<K: Packets> Default for DetachedState<K> {
    fn default() -> Self {
        Self {
            new_readers: Vec::new(),
            known_readers: Vec::new(),
            known_readers_kept: 0,
            reader_requests: Vec::new(),
            wants_delivery: false,
            deferred: Vec::new(),
            closed: None,
            is_quiet: false,
            is_recalled: false,
        }
    }
}

impl<K: Packets> DetachedState<K> {
    /// Returns whether the receive half should return.
    pub(crate) fn must_return(&self) -> bool {
        self.is_quiet || !self.deferred.is_empty() || self.closed.is_some()
    }

    /// Adds a stream that is read on the other processor.
    pub(crate) fn add_known_reader(&mut self, cell: &Arc<RecvCell>) {
        if self.known_readers.len() > 2 * self.known_readers_kept + KNOWN_MIN {
            self.known_readers.retain(|known| !known.lock().is_over());
            self.known_readers_kept = self.known_readers.len();
        }
        self.known_readers.push(Arc::clone(cell));
    }

    /// Ends all readers because the connection is closed.
    pub(crate) fn end_readers(&self, closed: &Closed) {
        for cell in self.known_readers.iter().chain(&self.reader_requests) {
            cell.end(RecvEnd::Closed(closed.clone()));
        }
    }

    /// Returns whether there are changes for the next update, besides the protocol's own values.
    pub(crate) fn has_changes(&self) -> bool {
        self.wants_delivery || !self.new_readers.is_empty() || !self.reader_requests.is_empty()
    }
}

impl<K: Packets> Connection<K> {
    /// Detaches the receive half and the delivery, for another processor. `None` if they cannot be
    /// detached now.
    pub(crate) fn detach_receive_half(&mut self) -> Option<(DetachedReceiveHalf, Delivery)> {
        self.delivery.as_ref()?;
        let part = self.quic.detach()?;
        let delivery = self.delivery.take()?;
        let known_readers: Vec<Arc<RecvCell>> = delivery.readers().cloned().collect();
        self.detached = Some(Box::new(DetachedState {
            known_readers_kept: known_readers.len(),
            known_readers,
            ..DetachedState::default()
        }));
        Some((part, delivery))
    }

    /// Attaches the receive half again and processes the requests that waited for it. Returns the
    /// batches that waited.
    pub(crate) fn attach_receive_half(
        &mut self,
        now: Instant,
        part: DetachedReceiveHalf,
        delivery: Delivery,
    ) -> Vec<(usize, K::Batch)> {
        self.quic.attach(now, part);
        (self.bulk_arrives, self.attached_until) = (false, now + ATTACHED_FOR);
        let DetachedState { new_readers, reader_requests, deferred, closed, .. } =
            self.detached.take().map(|detached| *detached).unwrap_or_default();
        let delivery = self.delivery.insert(delivery);
        new_readers.into_iter().for_each(|cell| delivery.add_reader(cell));
        self.with_delivery(|delivery, connection| {
            reader_requests.iter().for_each(|cell| delivery.serve_reader(now, cell, connection));
            delivery.serve(now, connection);
        });
        if let Some(closed) = closed {
            self.on_closed(now, closed);
        }
        deferred
    }

    /// Ends the connection because its receive half is lost. Returns the number of packets that
    /// waited for it and are dropped.
    pub(crate) fn end_without_receive_half(&mut self, now: Instant, reason: Closed) -> usize {
        let Some(detached) = self.detached.take() else { return 0 };
        let closed = detached.closed.clone().unwrap_or(reason);
        self.end_override.get_or_insert(closed.clone());
        self.quic.close(now, 0, "");
        detached.end_readers(&closed);
        self.on_closed(now, closed);
        detached.deferred.iter().map(|(_, batch)| batch.packet_count()).sum()
    }

    /// Fills `update` for the detached receive half. Returns whether there is an update, and
    /// whether the receive half must return; the latter is true once.
    pub(crate) fn poll_receive_update(&mut self, update: &mut ReceiveUpdate) -> (bool, bool) {
        let Some(detached) = self.detached.as_mut().filter(|detached| !detached.is_recalled) else {
            return (false, false);
        };
        let has_update = self.quic.poll_commands(&mut update.commands) || detached.has_changes();
        if has_update {
            std::mem::swap(&mut update.new_readers, &mut detached.new_readers);
            std::mem::swap(&mut update.reader_requests, &mut detached.reader_requests);
            update.wants_delivery = std::mem::take(&mut detached.wants_delivery);
        }
        detached.is_recalled = detached.must_return();
        (has_update, detached.is_recalled)
    }
}
