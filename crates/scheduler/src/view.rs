//! What a scheduler is told: the paths, the demand, and data that is late.

use units::{Duration, Instant, Rate};

/// What a scheduler may know of one path at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathView {
    /// The QUIC path ID.
    pub id: u32,
    /// To be used only if no other path is usable (draft-ietf-quic-multipath-21, PATH_STATUS_BACKUP).
    pub is_backup: bool,
    /// Silent for longer than a probe timeout: nothing but probes go there while another path is usable.
    pub is_suspect: bool,
    /// Smoothed round trip time (RFC 9002, section 5.3); the initial guess of 333 ms before the first sample.
    pub srtt: Duration,
    /// Mean variation of the round trip time (RFC 9002, section 5.3).
    pub rttvar: Duration,
    /// Least round trip time seen; [`Duration::ZERO`] before the first sample.
    pub min_rtt: Duration,
    /// Congestion window.
    pub window_bytes: u64,
    /// Bytes sent there and neither acknowledged nor declared lost.
    pub in_flight_bytes: u64,
    /// Estimated capacity: the delivery rate measured, by controllers that measure one; `window_bytes / srtt` otherwise.
    pub rate: Rate,
    /// The pacer holds the next datagram back until then; `now` or earlier: not at all.
    pub release_at: Instant,
    /// Its socket takes more.
    pub has_room: bool,
    /// Size of a full datagram.
    pub datagram_bytes: u64,
}

impl PathView {
    /// Bytes that the congestion window still allows; zero if more than the window is in flight.
    pub const fn window_room(&self) -> u64 {
        self.window_bytes.saturating_sub(self.in_flight_bytes)
    }

    /// Whether window, pacer and socket all have room for one full datagram, usable or not.
    pub fn has_room_for_datagram(&self, now: Instant) -> bool {
        self.has_room && self.release_at <= now && self.window_room() >= self.datagram_bytes
    }

    /// Whether one full datagram may leave here now: room of window, pacer and socket, on a path that is not suspect. A
    /// backup path may send in this sense; whether it is its turn depends on the others.
    pub fn may_send(&self, now: Instant) -> bool {
        !self.is_suspect && self.has_room_for_datagram(now)
    }

    /// Whether a round trip time was ever measured here; until then `srtt` is a guess.
    pub const fn is_measured(&self) -> bool {
        !self.min_rtt.is_zero()
    }
}

/// What waits to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Bytes that could leave now.
    pub ready_bytes: u64,
    /// The application said that nothing more follows them for now: no stream is held back by a full buffer or by
    /// credit, so these bytes are the tail of something.
    pub is_last: bool,
}

/// The oldest data outstanding on one path, asked about when nothing else is to be sent or the receiver's credit is
/// used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Straggler {
    /// Index of the path it was sent on.
    pub path: usize,
    /// When it was sent there.
    pub sent_at: Instant,
    /// Its size.
    pub bytes: u64,
}
