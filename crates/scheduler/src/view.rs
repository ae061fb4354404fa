//! Inputs of a scheduler: the paths, the demand, and late data.

use units::{Duration, Instant, Rate};

/// The state of one path at a point in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathView {
    /// The QUIC path ID.
    pub id: u32,
    /// Whether the peer prefers other paths (draft-ietf-quic-multipath-21, PATH_STATUS_BACKUP). The
    /// path is used only if no other path is usable.
    pub is_backup: bool,
    /// Whether the path may not work: it is suspect or silent, or its socket has been full for a
    /// probe timeout. No new data is sent on it while another path is usable.
    pub is_suspect: bool,
    /// Smoothed round-trip time (RFC 9002, section 5.3); the initial value of 333 ms before the
    /// first sample.
    pub srtt: Duration,
    /// Mean deviation of the round-trip time (RFC 9002, section 5.3).
    pub rttvar: Duration,
    /// Minimum round-trip time; [`Duration::ZERO`] before the first sample.
    pub min_rtt: Duration,
    /// Congestion window in bytes.
    pub window_bytes: u64,
    /// Bytes sent on the path that are neither acknowledged nor declared lost.
    pub in_flight_bytes: u64,
    /// Estimated capacity: the measured delivery rate if the controller measures it, otherwise
    /// `window_bytes / srtt`.
    pub rate: Rate,
    /// Time at which the pacer permits the next datagram; `now` or earlier means at once.
    pub release_at: Instant,
    /// Whether a plan for the path may be made now: its socket accepts more datagrams, the system
    /// has not refused to send on it lately, and its sent log is not full.
    pub accepts_datagrams: bool,
    /// Size of a full datagram.
    pub datagram_bytes: u64,
}

impl PathView {
    /// Returns the bytes that the congestion window permits; zero if more than the window is in
    /// flight.
    pub const fn available_window(&self) -> u64 {
        self.window_bytes.saturating_sub(self.in_flight_bytes)
    }

    /// Returns whether `accepts_datagrams`, window and pacer all permit one full datagram,
    /// regardless of whether the path is usable.
    pub fn permits_datagram(&self, now: Instant) -> bool {
        self.accepts_datagrams && self.release_at <= now && self.available_window() >= self.datagram_bytes
    }

    /// Returns whether one full datagram may be sent now: `accepts_datagrams`, window and pacer
    /// permit it and the path is not suspect. This can be true for a backup path, whose use depends
    /// on the other paths.
    pub fn may_send(&self, now: Instant) -> bool {
        !self.is_suspect && self.permits_datagram(now)
    }

    /// Returns whether the path has an RTT sample; until then `srtt` is an initial value.
    pub const fn is_measured(&self) -> bool {
        !self.min_rtt.is_zero()
    }
}

/// The data to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Bytes that could be sent now.
    pub ready_bytes: u64,
    /// Whether no more data follows for now: no stream is blocked by a full buffer or by flow
    /// control, so these bytes are the tail of a transfer or message.
    pub is_last: bool,
}

/// The oldest outstanding data on one path. The scheduler is queried about it when there is no new
/// data or the receiver's flow-control credit is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Straggler {
    /// Index of the path on which it was sent.
    pub path: usize,
    /// Send time.
    pub sent_at: Instant,
    /// Size in bytes.
    pub bytes: u64,
}
