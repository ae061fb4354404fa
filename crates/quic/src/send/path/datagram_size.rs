//! The size of a path's datagrams, and what is known of larger ones (RFC 8899).

use recovery::MtuSearch;
use wire::quic::MIN_INITIAL_SIZE;

use crate::send::mtu;
use crate::send::sent_log::SentLog;

/// A path falls back to the minimum datagram size after so many losses of larger ones in a row, each
/// found by an acknowledgement of smaller ones alone.
const LARGE_LOSSES_MAX: u8 = 8;

/// The datagram size of one path.
#[derive(Debug)]
pub(crate) struct DatagramSize {
    /// The largest UDP payload to send, bytes. [`SendPath::set_datagram_size`](super::SendPath) changes
    /// it, and with it everything that counts in datagrams.
    /// A word less in every connection than as `usize`.
    bytes: u32,
    /// The search for a larger size, if there is one.
    pub(crate) search: Option<Box<MtuSearch>>,
    /// A datagram above the minimum size has arrived since the path last failed to respond.
    carries_large: bool,
    /// How often in a row datagrams above the minimum size were lost and none was acknowledged.
    large_losses: u8,
}

fn is_large(size: usize) -> bool {
    size > MIN_INITIAL_SIZE
}

impl DatagramSize {
    pub(super) fn new(bytes: usize, max: usize) -> Self {
        Self {
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            search: mtu::search(bytes, max),
            carries_large: false,
            large_losses: 0,
        }
    }

    /// The largest UDP payload to send, bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    pub(super) fn set(&mut self, bytes: usize) {
        self.bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Packets were acknowledged, the largest of them of this many bytes.
    pub(crate) fn on_acked(&mut self, largest: usize) {
        if is_large(largest) {
            (self.carries_large, self.large_losses) = (true, 0);
        }
    }

    /// Datagrams above the minimum size were lost. Returns whether the path has become too small for
    /// them: others arrive and keep it from failing, and these never do (RFC 8899, section 4.3).
    pub(super) fn is_too_large_after_loss(&mut self) -> bool {
        self.large_losses = self.large_losses.saturating_add(1);
        let is_too_large = self.large_losses >= LARGE_LOSSES_MAX;
        if is_too_large {
            (self.large_losses, self.carries_large) = (0, false);
        }
        is_too_large
    }

    /// Returns whether the size may be the cause of a failure: datagrams of it are outstanding in `log`,
    /// and none was acknowledged (RFC 8899, section 4.3, on black holes).
    pub(super) fn is_suspect_after_failure(&mut self, log: &SentLog) -> bool {
        let was_seen = std::mem::take(&mut self.carries_large);
        !was_seen && is_large(self.bytes()) && log.iter().any(|run| is_large(usize::from(run.size)))
    }

    /// The system accepts no datagrams of the size of the probe; false if no probe was sent.
    pub(super) fn is_probe_too_large(&mut self) -> bool {
        self.search.as_mut().is_some_and(|search| search.on_too_large())
    }

    /// Whether this packet is the probe in flight.
    pub(crate) fn is_probe(&self, number: u64) -> bool {
        self.search.as_ref().is_some_and(|search| search.is_probe(number))
    }

    /// This packet is forgotten: if it is the probe in flight, another one may leave.
    pub(crate) fn cancel_probe(&mut self, number: u64) {
        if let Some(search) = &mut self.search
            && search.is_probe(number)
        {
            search.cancel();
        }
    }

    /// The search begins again from `base`.
    pub(super) fn restart_search(&mut self, base: usize) {
        if let Some(search) = &mut self.search {
            search.restart(base);
        }
    }
}
