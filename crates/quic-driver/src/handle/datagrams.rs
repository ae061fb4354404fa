//! Datagrams of a connection (RFC 9221).

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use bytes::Bytes;
use quic::{DatagramPaths, PathId, ReceivedDatagram};

use super::{ConnectionHandle, Runtime};
use crate::cells::connection::{ConnectionState, Interest};
use crate::error::{Closed, DatagramError};

impl<R: Runtime> ConnectionHandle<R> {
    /// Sends a datagram (RFC 9221). Datagrams may be lost or reordered and are not retransmitted.
    ///
    /// # Errors
    /// If the peer does not accept datagrams, the datagram is too large, the queue is full, or the
    /// connection is closed.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), DatagramError> {
        let mut result = Ok(());
        let submitted = self.submit(|state| result = state.offer_datagram(data, false).map_err(|(_, error)| error));
        submitted.map_err(DatagramError::ConnectionClosed)?;
        result
    }

    /// Sends a datagram like [`send_datagram`](Self::send_datagram), on certain paths or on any. It
    /// does not wait behind datagrams sent earlier.
    ///
    /// # Errors
    /// Same errors as [`send_datagram`](Self::send_datagram).
    pub fn send_datagram_on(&self, data: Bytes, paths: DatagramPaths) -> Result<(), DatagramError> {
        let mut result = Ok(());
        let submitted = self.submit(|state| result = state.offer_urgent_datagram(data, paths));
        submitted.map_err(DatagramError::ConnectionClosed)?;
        result
    }

    /// Sends datagrams from the front of `batch` until the queue is full, and notifies the driver
    /// once. Returns ready with their number, at least one, unless `batch` is empty. Returns
    /// pending if the queue is full; the caller is woken when half of it is free.
    ///
    /// # Errors
    /// Same errors as [`send_datagram`](Self::send_datagram) for the datagram in front, except for
    /// a full queue.
    pub fn poll_send_datagrams(
        &self,
        batch: &mut VecDeque<Bytes>,
        waker: &Waker,
    ) -> Poll<Result<usize, DatagramError>> {
        self.poll_send(batch, waker, |state, data| state.offer_datagram(data, true))
    }

    /// Sends datagrams like [`poll_send_datagrams`](Self::poll_send_datagrams), all on one path and
    /// in this order. Each path has a queue of its own. If the path does not work, or fails before
    /// they have left, they use any other path.
    ///
    /// # Errors
    /// Same errors as [`poll_send_datagrams`](Self::poll_send_datagrams).
    pub fn poll_send_datagrams_on(
        &self,
        batch: &mut VecDeque<Bytes>,
        path: PathId,
        waker: &Waker,
    ) -> Poll<Result<usize, DatagramError>> {
        self.poll_send(batch, waker, |state, data| state.offer_pinned_datagram(data, path))
    }

    fn poll_send(
        &self,
        batch: &mut VecDeque<Bytes>,
        waker: &Waker,
        mut offer: impl FnMut(&mut ConnectionState, Bytes) -> Result<(), (Bytes, DatagramError)>,
    ) -> Poll<Result<usize, DatagramError>> {
        let mut sent = 0;
        let mut refusal = None;
        let submitted = self.submit(|state| {
            while let Some(data) = batch.pop_front() {
                if let Err((data, error)) = offer(state, data) {
                    batch.push_front(data);
                    if sent == 0 && matches!(error, DatagramError::QueueFull) {
                        state.add_waker(Interest::DatagramSpace, waker);
                    }
                    refusal = Some(error);
                    return;
                }
                sent += 1;
            }
        });
        match (submitted, refusal) {
            (Err(closed), _) => Poll::Ready(Err(DatagramError::ConnectionClosed(closed))),
            (Ok(()), Some(DatagramError::QueueFull)) if sent == 0 => Poll::Pending,
            (Ok(()), Some(error)) if sent == 0 => Poll::Ready(Err(error)),
            (Ok(()), _) => Poll::Ready(Ok(sent)),
        }
    }

    /// Returns how many of the datagrams sent on any path, or of those pinned to this one, have
    /// left the connection. The count is updated when the driver fetches more datagrams, so it may
    /// lag.
    pub fn datagrams_departed(&self, pinned: Option<PathId>) -> u64 {
        self.cell().lock().datagrams_departed(pinned)
    }

    /// Appends the received datagrams to `out`, oldest first, and returns their number, at least
    /// one.
    pub fn poll_recv_datagrams(&self, out: &mut Vec<ReceivedDatagram>, waker: &Waker) -> Poll<Result<usize, Closed>> {
        let (before, mut refill) = (out.len(), false);
        {
            let mut state = self.cell().lock();
            while let Some((datagram, needed)) = state.take_datagram() {
                out.push(datagram);
                refill |= needed;
            }
            if out.len() == before {
                if let Some(closed) = &state.closed {
                    return Poll::Ready(Err(closed.clone()));
                }
                state.add_waker(Interest::Datagram, waker);
                return Poll::Pending;
            }
        }
        self.refill(refill);
        Poll::Ready(Ok(out.len() - before))
    }

    /// Returns the next received datagram.
    pub fn poll_recv_datagram(&self, waker: &Waker) -> Poll<Result<Bytes, Closed>> {
        let (datagram, refill) = {
            let mut state = self.cell().lock();
            match (state.take_datagram(), &state.closed) {
                (Some(taken), _) => taken,
                (None, Some(closed)) => return Poll::Ready(Err(closed.clone())),
                (None, None) => {
                    state.add_waker(Interest::Datagram, waker);
                    return Poll::Pending;
                }
            }
        };
        self.refill(refill);
        Poll::Ready(Ok(datagram.data))
    }

    /// Returns the current maximum length of a datagram. `None` if the peer does not accept
    /// datagrams.
    pub fn datagram_len_max(&self) -> Option<usize> {
        self.cell().lock().datagram_len_max
    }
}
