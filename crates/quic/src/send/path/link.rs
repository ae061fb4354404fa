//! Where a path leads: addresses, the peer's connection ID, how much an unvalidated address may get, and
//! whether the system takes datagrams for it.

use units::Instant;
use wire::quic::ConnectionId;

use crate::addresses::Addresses;

/// At most this many times the bytes received from an unvalidated address may be sent to it (RFC
/// 9000, section 8.1).
pub(crate) const AMPLIFICATION_FACTOR: u64 = 3;

/// A remainder of the anti-amplification limit below this many bytes counts as zero, since no
/// packet with a long header fits. Otherwise a probe timer would fire again and again without
/// effect.
pub(crate) const AMPLIFICATION_BUDGET_MIN: u64 = 64;

/// The link of one path.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) addresses: Addresses,
    /// Where the path led before the server's preferred address: packets that were under way arrive
    /// from there.
    pub(crate) left: Option<Box<Addresses>>,
    /// The former address while the new one is not yet validated.
    pub(crate) former: Option<Box<Former>>,
    /// The peer's connection ID for this path.
    pub(crate) remote_id: ConnectionId,
    /// When a datagram last arrived on the path.
    pub(crate) received_at: Instant,
    /// The system refused to send on it; nothing is sent before this time.
    pub(crate) refused_until: Option<Instant>,
    /// Since when its socket has been full, as of the last check.
    pub(crate) full_since: Option<Instant>,
    validated: bool,
    received_bytes: u64,
    sent_bytes: u64,
}

/// The validated address that a path has left for one that is not.
#[derive(Debug)]
pub(crate) struct Former {
    pub(crate) addresses: Addresses,
    /// When the validation of the new address fails.
    pub(crate) return_at: Instant,
}

impl Link {
    pub(super) fn new(addresses: Addresses, remote_id: ConnectionId, validated: bool) -> Self {
        Self {
            addresses,
            left: None,
            former: None,
            remote_id,
            received_at: Instant::ZERO,
            refused_until: None,
            full_since: None,
            validated,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// Bytes that may be sent to an unvalidated address now; `u64::MAX` once it is validated.
    pub(crate) fn amplification_budget(&self) -> u64 {
        if self.validated {
            return u64::MAX;
        }
        let budget = self.received_bytes.saturating_mul(AMPLIFICATION_FACTOR).saturating_sub(self.sent_bytes);
        if budget < AMPLIFICATION_BUDGET_MIN { 0 } else { budget }
    }

    pub(crate) fn is_validated(&self) -> bool {
        self.validated
    }

    pub(crate) fn set_validated(&mut self) {
        self.validated = true;
    }

    /// The path has a new, unvalidated address, which has sent `received` bytes so far and got
    /// `sent`.
    pub(crate) fn set_unvalidated(&mut self, received: u64, sent: u64) {
        (self.validated, self.received_bytes, self.sent_bytes) = (false, received, sent);
    }

    pub(crate) fn on_received(&mut self, now: Instant, bytes: u64) {
        self.received_at = now;
        self.received_bytes = self.received_bytes.saturating_add(bytes);
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// Records whether the path's socket has space.
    pub(crate) fn note_writable(&mut self, now: Instant, is_writable: bool) {
        self.full_since = if is_writable { None } else { self.full_since.or(Some(now)) };
    }

    /// Bytes received from the peer's address, undecryptable datagrams included, and bytes sent to
    /// it.
    pub(crate) fn volume(&self) -> (u64, u64) {
        (self.received_bytes, self.sent_bytes)
    }
}
