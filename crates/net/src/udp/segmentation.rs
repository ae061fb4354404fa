//! Batches, with a fallback for devices without segmentation offload.
//!
//! The kernel splits a batch into datagrams as late as possible. Some devices and tunnels cannot
//! split it (`EIO`, or `EINVAL`), a filter of this host may refuse the batch as one long packet
//! (`EPERM`), and this cannot be determined in advance. So after any error the batch is sent as
//! single datagrams, and if that succeeds the socket stops using segmentation offload: permanently
//! if the error implies it, and otherwise for a number of datagrams, since the cause may have
//! passed (a full table of connections, a route that came back between two calls). The order of the
//! datagrams never changes.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use units::Ecn;

use crate::counters::SocketCounters;
use crate::datagram::{BATCH_BYTES_MAX, SendError, Transmit};

/// Number of consecutive refusals for lack of buffers after which the cause may be the batch
/// itself, which is then sent as single datagrams. A driver repeats a call after half a
/// millisecond, so this is a tenth of a second: a queue below the socket has space again much
/// earlier.
const BATCH_REFUSALS_MAX: u32 = 200;

/// Number of consecutive refusals, a second's worth, after which the error is not a temporary lack
/// of buffers.
const REFUSALS_MAX: u32 = 2000;

/// Number of datagrams sent one by one after a refusal that may be temporary, doubled after each
/// further refusal: a permanent filter costs less than one call in a thousand.
const SINGLES_MIN: u64 = 1024;

/// Maximum number of datagrams between two attempts: some seconds of a fast sender.
const SINGLES_MAX: u64 = 1 << 20;

/// The system call for sending.
pub(super) trait RawSend {
    /// Sends `transmit` with one call, with segmentation if it is a batch.
    fn send_raw(&mut self, transmit: &Transmit<'_>) -> io::Result<()>;
}

/// Splits batches, and keeps the unsent rest of one.
#[derive(Debug)]
pub(super) struct Segmentation {
    /// Datagrams per call; 1 without segmentation.
    segments_max: usize,
    /// Value of `segments_max` while nothing refuses batches.
    limit: usize,
    /// While batches are refused: the number of datagrams until the next attempt, followed by the
    /// number after the next refusal. `None` if there is no further attempt.
    singles_left: Option<u64>,
    singles_next: u64,
    /// The unsent rest of a split batch. At most one: nothing else is sent before it.
    kept: Option<PendingRest>,
    /// Number of consecutive calls that found no buffers.
    without_buffers: u32,
}

#[derive(Debug)]
struct PendingRest {
    destination: SocketAddr,
    source_ip: Option<IpAddr>,
    ecn: Option<Ecn>,
    segment_size: usize,
    /// The datagrams: not empty, and at most [`BATCH_BYTES_MAX`].
    contents: Vec<u8>,
}

/// A batch that was sent in part: `sent` bytes from its front.
struct PartialSend {
    sent: usize,
    error: SendError,
}

impl Segmentation {
    pub(super) const fn new(segments_max: usize) -> Self {
        let limit = segments_max;
        Self { segments_max, limit, singles_left: None, singles_next: SINGLES_MIN, kept: None, without_buffers: 0 }
    }

    pub(super) const fn segments_max(&self) -> usize {
        self.segments_max
    }

    /// See [`DatagramSocket::send`](crate::DatagramSocket::send).
    pub(super) fn send(
        &mut self,
        raw: &mut impl RawSend,
        counters: &mut SocketCounters,
        transmit: &Transmit<'_>,
    ) -> Result<(), SendError> {
        transmit.check()?;
        match self.flush(raw, counters) {
            Err(error @ (SendError::WouldBlock | SendError::NoBuffers)) => return Err(error),
            // The error concerns the kept rest, which is dropped, and not `transmit`.
            Err(error) => tracing::debug!(%error, "the rest of a batch was dropped"),
            Ok(()) => {}
        }
        let Err(stopped) = self.send_pieces(raw, counters, transmit) else { return Ok(()) };
        match stopped.error {
            SendError::WouldBlock | SendError::NoBuffers if stopped.sent > 0 => {
                debug_assert!(transmit.contents.len() <= BATCH_BYTES_MAX, "checked above");
                self.kept = Some(PendingRest {
                    destination: transmit.destination,
                    source_ip: transmit.source_ip,
                    ecn: transmit.ecn,
                    segment_size: transmit.stride(),
                    contents: transmit.contents[stopped.sent..].to_vec(),
                });
                Ok(())
            }
            error => Err(error),
        }
    }

    /// See [`DatagramSocket::flush`](crate::DatagramSocket::flush).
    pub(super) fn flush(&mut self, raw: &mut impl RawSend, counters: &mut SocketCounters) -> Result<(), SendError> {
        let Some(mut kept) = self.kept.take() else { return Ok(()) };
        let transmit = Transmit {
            destination: kept.destination,
            source_ip: kept.source_ip,
            ecn: kept.ecn,
            contents: &kept.contents,
            segment_size: Some(kept.segment_size),
        };
        let Err(stopped) = self.send_pieces(raw, counters, &transmit) else { return Ok(()) };
        if matches!(stopped.error, SendError::WouldBlock | SendError::NoBuffers) {
            kept.contents.drain(..stopped.sent);
            self.kept = Some(kept);
        }
        Err(stopped.error)
    }

    /// Sends in pieces of at most `segments_max` datagrams, from the front.
    fn send_pieces(
        &mut self,
        raw: &mut impl RawSend,
        counters: &mut SocketCounters,
        transmit: &Transmit<'_>,
    ) -> Result<(), PartialSend> {
        if !transmit.is_batch() {
            return self.send_one(raw, counters, transmit).map_err(|error| PartialSend { sent: 0, error });
        }
        let stride = transmit.stride();
        let mut sent = 0;
        while sent < transmit.contents.len() {
            let rest = &transmit.contents[sent..];
            let piece_bytes = rest.len().min(stride.saturating_mul(self.segments_max));
            let piece = Transmit { contents: &rest[..piece_bytes], ..*transmit };
            let Err(error) = self.send_one(raw, counters, &piece) else {
                self.on_taken(piece.is_batch());
                sent += piece_bytes;
                continue;
            };
            if !(piece.is_batch() && self.may_be_segmentation(&error)) {
                return Err(PartialSend { sent, error });
            }
            // The first datagram alone shows whether the cause was segmentation or the address, the
            // route or the size.
            let single = Transmit { contents: &piece.contents[..stride], ..piece };
            self.send_one(raw, counters, &single).map_err(|error| PartialSend { sent, error })?;
            tracing::info!(%error, destination = %transmit.destination, "no segmentation offload on this socket");
            sent += stride;
            self.on_batch_refused(&error);
            counters.gso_fallbacks += 1;
        }
        Ok(())
    }

    /// Makes one call, and counts it if it succeeds.
    fn send_one(
        &mut self,
        raw: &mut impl RawSend,
        counters: &mut SocketCounters,
        transmit: &Transmit<'_>,
    ) -> Result<(), SendError> {
        let Err(error) = raw.send_raw(transmit) else {
            self.without_buffers = 0;
            counters.on_sent(transmit.contents.len(), transmit.stride());
            return Ok(());
        };
        match SendError::from(error) {
            SendError::NoBuffers if self.without_buffers >= REFUSALS_MAX => {
                self.without_buffers = 0;
                Err(SendError::Other(Errno::NOBUFS.into()))
            }
            SendError::NoBuffers => {
                self.without_buffers += 1;
                Err(SendError::NoBuffers)
            }
            error => Err(error),
        }
    }

    /// Switches to single datagrams, since a batch was refused and its first datagram was not.
    fn on_batch_refused(&mut self, error: &SendError) {
        self.segments_max = 1;
        let may_pass = match error {
            SendError::Other(error) => !matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::INVAL)),
            // It took `BATCH_REFUSALS_MAX` calls to find out: too long a pause to try again.
            SendError::NoBuffers => false,
            SendError::TooLarge | SendError::WouldBlock => true,
        };
        self.singles_left = may_pass.then_some(self.singles_next);
        self.singles_next = (self.singles_next * 2).min(SINGLES_MAX);
    }

    /// Records that the system accepted a batch, or a datagram.
    fn on_taken(&mut self, is_batch: bool) {
        if is_batch {
            self.singles_next = SINGLES_MIN;
        } else if let Some(left) = &mut self.singles_left {
            *left -= 1;
            if *left == 0 {
                (self.segments_max, self.singles_left) = (self.limit, None);
            }
        }
    }

    /// Returns whether a batch may have been refused because it is one. `EIO`: the device or a
    /// tunnel cannot compute checksums for segments. `EINVAL`: reported by some drivers, and by the
    /// kernel if the socket has no checksums. `EPERM`: a filter sees one packet that is longer than
    /// it permits. Other errors may mean the same on other systems, and one more datagram is a
    /// cheap test.
    fn may_be_segmentation(&self, error: &SendError) -> bool {
        match error {
            SendError::WouldBlock => false,
            SendError::NoBuffers => self.without_buffers >= BATCH_REFUSALS_MAX,
            SendError::TooLarge | SendError::Other(_) => true,
        }
    }
}

#[cfg(test)]
mod tests;
