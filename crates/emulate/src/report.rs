//! Statistics of an emulated link.

use netem::LinkStats;
use units::{Duration, Instant};

/// Packets that leave later than this count as late.
pub const LATE_THRESHOLD: Duration = Duration::from_millis(1);

/// Statistics of one link, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkReport {
    /// The link's name.
    pub name: String,
    /// Direction from left to right, or from the clients to the server.
    pub forward: DirectionReport,
    /// Opposite direction.
    pub backward: DirectionReport,
    /// Datagrams that a relay dropped because it had too many clients.
    pub turned_away: u64,
    /// Datagrams that a relay dropped because the system gave it no socket for their client.
    pub unserved: u64,
    /// The system's error at the first occurrence.
    pub unserved_why: Option<String>,
    /// Number of clients of a relay so far.
    pub clients: u64,
    /// Number of turns of the link's thread to read and send, that is of its wake-ups.
    pub turns: u64,
}

/// Statistics of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionReport {
    /// The model's counters.
    pub link: LinkStats,
    /// Packets currently in the link.
    pub held: usize,
    /// Lateness of packets that left.
    pub lateness: Lateness,
    /// Packets that had left the link and were rejected by the system.
    pub refused: u64,
    /// Packets that never entered the link: malformed, from an unknown source, or without a
    /// destination.
    pub ignored: u64,
}

/// Time by which packets left later than the model's time: the emulator's own error. Packets that
/// leave together count once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Number of departures.
    pub count: u64,
    /// The sum over all departures. Saturates.
    pub sum: Duration,
    /// The maximum.
    pub max: Duration,
    /// Number of departures that were late by [`LATE_THRESHOLD`] or more.
    pub late: u64,
}

impl Lateness {
    /// Records packets that were due at `due` and left at `now`.
    pub(crate) fn record(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_since(due);
        self.count += 1;
        self.sum += late;
        self.max = self.max.max(late);
        self.late += u64::from(late >= LATE_THRESHOLD);
    }

    /// Returns the mean, rounded down; zero without departures.
    #[must_use]
    pub fn mean(&self) -> Duration {
        self.sum / self.count.max(1)
    }
}
